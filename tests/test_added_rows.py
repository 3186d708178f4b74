"""`podnet reproduce --add`: methods of one's own as rows of the paper's tables."""

import csv
import re
from pathlib import Path

import pytest

from podnet.cli import main
from podnet.paper.catalogue import BENCHMARKS
from podnet.paper.plan import plan, row_changes, with_row
from podnet.paper.tables import grids
from podnet.runs.folder import Run

EXAMPLES = Path(__file__).parent.parent / "examples"
OWN, ATTENTION = f"{EXAMPLES}/my_method.py:MyMethod", f"{EXAMPLES}/my_distillation.py:AttentionPODNet"
QUICK = ["--scale", "smoke", "--columns", "5", "--only", "iCaRL", "--jobs", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """A table with a row of the paper, one of one's own, an upper bound and one whose first task has no training."""
    folder = tmp_path_factory.mktemp("added")
    own = folder / "mine.py"
    own.write_text((EXAMPLES / "my_method.py").read_text().replace("class MyMethod", "class Mine"))
    rows = ["--add", f"{own}:Mine", "--add", "joint", "--add", "ridge", "--set", "Mine:weight=2,temperature=3"]
    assert main(["reproduce", "cifar100", *QUICK, *rows, "--output", str(folder / "out")]) == 0
    return folder


def lines(folder):
    with open(folder / "out" / "cifar100-smoke" / "table-1-cifar-100.csv") as file:
        return {line["row"]: line for line in csv.DictReader(file) if not line["row"].endswith("*")}


def test_added_rows_stand_below_the_papers_without_its_numbers(added):
    table = lines(added)
    assert list(table) == ["iCaRL (NME)", "Mine (NME)", "Mine (CNN)", "joint (CNN)", "ridge (NME)", "ridge (CNN)"]
    assert table["iCaRL (NME)"]["paper"]
    for row in list(table)[1:]:
        assert table[row]["paper"] == ""
        assert table[row]["count"] == "1"
        assert 0 <= float(table[row]["mean"]) <= 100
    text = (added / "out" / "cifar100-smoke" / "table-1-cifar-100.md").read_text()
    assert "| Mine (NME) | — | " in text
    assert "Not in the paper: Mine, joint, ridge." in text
    assert "does not compete for the best: joint." in text
    assert "Mine with weight 2, temperature 3." in text


def test_added_rows_are_in_the_figure_and_on_the_page(added):
    folder = added / "out" / "cifar100-smoke"
    [figure] = folder.glob("*figure*.svg")
    page = (folder / "report.html").read_text()
    for label in ("iCaRL", "Mine", "joint", "ridge"):
        assert label in figure.read_text()
        assert f"<b>{label}, 5 steps, order random, seed 1</b>" in page


def test_set_changes_the_added_row(added):
    [run] = [Run(path) for path in (added / "out" / "runs").glob("Mine-digits-6+2-*")]
    assert (run.config()["weight"], run.config()["temperature"], run.config()["epochs"]) == (2.0, 3.0, 1)


def test_an_edited_method_is_run_again_and_another_row_is_not(added, capsys):
    file = added / "mine.py"
    command = ["reproduce", "cifar100", *QUICK, "--add", f"{file}:Mine", "--set", "Mine:weight=2,temperature=3"]
    command += ["--output", str(added / "out")]
    assert main(command) == 0
    assert "2 of 2 runs are already finished." in capsys.readouterr().out
    file.write_text(file.read_text() + "\n# another thought\n")
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "1 of 2 runs are already finished." in printed
    assert len(list((added / "out" / "runs").glob("Mine-digits-6+2-*"))) == 2


def test_a_variant_of_podnet_is_scaled_and_formed_like_it(tmp_path):
    """What a scale shortens in PODNet is shortened in what is derived from it; --fidelity applies to it too."""
    table = with_row(BENCHMARKS["cifar100"], ATTENTION)
    runs = {run.row.label: run.experiment.method for run in plan(table, "smoke", tmp_path, fidelity="paper")}
    own, paper = runs["AttentionPODNet"], runs["PODNet"]
    assert (own.finetune_epochs, own.epochs, own.fidelity) == (1, 1, "paper")
    assert vars(own) == vars(paper)


def test_rows_of_the_ablations_have_both_inferences_beside_each_other(tmp_path):
    table = with_row(with_row(BENCHMARKS["ablation-components"], "bic"), OWN)
    [grid] = grids(table, "smoke", plan(table, "smoke", tmp_path))
    assert [label for label, _ in grid.rows[-2:]] == ["bic", "MyMethod"]
    assert all(cell.paper is None and not cell.ours for _, cells in grid.rows[-2:] for cell in cells)
    assert row_changes([table], ["mymethod:weight=3"]) == {"MyMethod": {"weight": "3"}}


def test_all_tables_get_the_row_where_it_fits(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    command = [
        "reproduce",
        "all",
        "--scale",
        "smoke",
        "--add",
        OWN,
        "--only",
        "MyMethod",
        "--dry-run",
        "--threads",
        "1",
    ]
    assert main([*command, "--output", str(tmp_path)]) == 0
    labels = set(re.findall(r"^ ?(\w+), ([^,]*), order", capsys.readouterr().out, flags=re.MULTILINE))
    assert {row for row, _ in labels} == {"MyMethod"}
    columns = {column for _, column in labels}
    assert "50 steps" in columns
    assert any("exemplars per class" in column for column in columns)
    assert any("classes of the initial task" in column for column in columns)
    assert not any("proxies" in column for column in columns)  # it has none


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cifar100", "--add", "ucri"], "Did you mean 'ucir'"),
        (["cifar100", "--add", "ucir"], "cifar100 has a row ucir already"),
        (["cifar100", "--add", OWN, "--add", OWN], "cifar100 has a row MyMethod already"),
        (["cifar100", "--add", "nowhere.py:Mine"], "there is no file"),
        (["cifar100", "--add", "mine.py"], "add the name of a class in that file"),
        (["proxies", "--add", OWN], "proxies varies proxies, which MyMethod does not have"),
        (["cifar100", "--add", OWN, "--set", "MyMethod:wieght=1"], "Did you mean 'weight'"),
        (["all", "--add", "ucri"], "Did you mean 'ucir'"),
    ],
)
def test_a_row_that_cannot_be_added_gets_one_sentence(arguments, words, capsys, tmp_path):
    assert main(["reproduce", *arguments, "--scale", "smoke", "--output", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
