"""`podnet demo`, with few epochs: one table, one picture, and what they say is what the runs say."""

import pytest
from PIL import Image

from podnet.cli import demo, main
from podnet.runs.folder import Run


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        short = demo.PROTOCOL | {"epochs": 2, "classes": 4, "base": 2}
        patch.setattr(demo, "PROTOCOL", short)
        assert main(["demo", "--output", str(folder)]) == 0
    return folder


def test_three_methods_learn_the_same_digits(shown):
    runs = {name: Run(shown / name) for name in demo.METHODS}
    assert list(runs) == ["finetuning", "replay", "podnet"]
    assert {name: [line["memory"] for line in run.results()] for name, run in runs.items()} == {
        "finetuning": [0, 0, 0],
        "replay": [10, 15, 20],
        "podnet": [10, 15, 20],
    }
    assert len({str([line["new_classes"] for line in run.results()]) for run in runs.values()}) == 1


def test_fine_tuning_forgets_what_it_no_longer_sees(shown):
    results = Run(shown / "finetuning").results()
    assert demo.measured(results, "first")[0] > 50
    assert demo.measured(results, "first")[-1] < 20
    assert demo.measured(results, "all") == [line["accuracy"]["cnn"] for line in results]


def test_the_picture_and_the_page_are_there(shown):
    with Image.open(shown / "forgetting.png") as picture:
        assert picture.size[0] > 1.5 * picture.size[1]  # two panels side by side
    page = (shown / "report.html").read_text()
    assert all(label in page for label in demo.METHODS.values())


def test_runs_that_are_not_of_a_demo_stay(tmp_path, capsys):
    Run(tmp_path / "podnet").folder.mkdir()
    (tmp_path / "podnet" / "results.jsonl").write_text("mine")
    assert main(["demo", "--output", str(tmp_path)]) == 2
    assert "choose another --output" in capsys.readouterr().err
    assert (tmp_path / "podnet" / "results.jsonl").read_text() == "mine"


def test_the_demo_again_replaces_what_was_there(shown, capsys, monkeypatch):
    monkeypatch.setattr(
        demo, "PROTOCOL", demo.PROTOCOL | {"epochs": 1, "classes": 3, "base": 2, "finetune_epochs": None}
    )
    assert main(["demo", "--output", str(shown), "--seed", "2"]) == 0
    printed = capsys.readouterr().out
    assert "Accuracy on the first five digits" in printed
    lines = [line.split() for line in printed.splitlines() if line.strip()[:2] in ("2 ", "3 ") and "of 3" not in line]
    assert [len(line) for line in lines] == [7, 7]  # digits known, then two columns for each method
