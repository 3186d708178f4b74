"""`podnet search`: proposals within bounds, trials that are not repeated, test images that nobody looks at."""

import math
import shlex
import sys
from dataclasses import dataclass, replace

import pytest
import yaml

from podnet.cli import main
from podnet.data import load
from podnet.errors import ConfigError
from podnet.methods import PODNet
from podnet.runs import experiment
from podnet.runs.folder import Run
from podnet.runs.search import Listed, Range, _left, propose, read_axis

QUICK = ["--classes", "3", "--base", "2", "--images-per-class", "20", "--memory-per-class", "4", "--threads", "1"]
SEARCH = ["search", "--method", "icarl", *QUICK, "--epochs", "1", "--over", "lr=0.01..0.5", "--over"]
SEARCH += ["weight-decay=0,1e-4"]


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna", reason="the search needs pip install 'podnet[search]'")


# ---- what is searched ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("lr=0.05..0.2", Range("lr", 0.05, 0.2, False)),
        ("finetune-epochs=0..40", Range("finetune_epochs", 0, 40, True)),
        ("step_epochs = 1..9", Range("step_epochs", 1, 9, True)),
        ("lambda_c=1,3,5", Listed("lambda_c", (1.0, 3.0, 5.0))),
        ("proxies=1, 10", Listed("proxies", (1, 10))),
        ("distillation=spatial,gap", Listed("distillation", ("spatial", "gap"))),
        ("learn_eta=true,false", Listed("learn_eta", (True, False))),
        ("step_epochs=none,5", Listed("step_epochs", (None, 5))),
    ],
)
def test_values_are_read_as_the_type_of_the_hyper_parameter(text, axis):
    found = read_axis(text, PODNet)
    assert found == axis
    assert [type(value) for value in found.values] == [type(value) for value in axis.values]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr", "write OPTION=LOW..HIGH"),
        ("lr=", "write OPTION=LOW..HIGH"),
        ("=1,2", "write OPTION=LOW..HIGH"),
        ("lambda_d=1,2", "podnet has no option 'lambda_d'. Did you mean"),
        ("lambda_d=1..2", "podnet has no option 'lambda_d'"),
        ("seed=1,2", "podnet has no option 'seed'"),
        ("lr=0.2..0.05", "from a number to a higher one"),
        ("lr=0.2..0.2", "from a number to a higher one"),
        ("lr=0.1..inf", "from a number to a higher one"),
        ("lr=a..b", "lr is 'a'; it must be a number"),
        ("proxies=1..2.5", "proxies is '2.5'; it must be a whole number"),
        ("distillation=gap..width", "distillation is no number"),
        ("distillation=gap,depth", "distillation is 'depth'"),
        ("lr=0.1", "at least two values"),
        ("lr=0.1,0.1", "at least two values"),
    ],
)
def test_what_cannot_be_searched_gets_a_sentence(text, words):
    with pytest.raises(ConfigError) as error:
        read_axis(text, PODNet)
    assert words in str(error.value)


# ---- proposals ----------------------------------------------------------------------------------------------------


@dataclass
class Tried:
    """A trial whose result is a formula: the best learning rate is 0.03."""

    values: dict

    def score(self, inference):
        return 100 - 10 * math.log(self.values["lr"] / 0.03) ** 2


def proposals(axes, count, seed=1, usual=None):
    before = []
    for number in range(1, count + 1):
        values = propose(axes, number, before, "cnn", seed, usual or {axis.option: None for axis in axes})
        if values is None:
            break
        before.append(Tried(values))
    return [trial.values for trial in before]


def test_proposals_are_within_bounds_short_and_new(optuna):
    axes = [Range("lr", 0.001, 1.0, False), Range("epochs", 2, 5, True), Listed("kind", ("a", "b"))]
    found = proposals(axes, 12)
    assert len({tuple(values.items()) for values in found}) == 12
    for values in found:
        assert 0.001 <= values["lr"] <= 1
        assert float(f"{values['lr']:.4g}") == values["lr"]
        assert values["epochs"] in (2, 3, 4, 5)
        assert type(values["epochs"]) is int
        assert values["kind"] in ("a", "b")
    assert found == proposals(axes, 12)
    assert found[1:] != proposals(axes, 12, seed=2)[1:]


def test_the_first_trial_has_the_usual_values_if_they_are_searched(optuna):
    axes = [Range("lr", 0.001, 1.0, False)]
    assert proposals(axes, 1, usual={"lr": 0.25}) == [{"lr": 0.25}]
    assert proposals(axes, 1, usual={"lr": 2.0}) != [{"lr": 2.0}]


def test_later_proposals_are_nearer_to_the_best_than_those_at_random(optuna):
    """Over some seeds: the distance in decades to the best learning rate, in the first five trials and later."""
    axes = [Range("lr", 0.0001, 1.0, False)]
    early, late = [], []
    for seed in range(4):
        distances = [abs(math.log10(values["lr"] / 0.03)) for values in proposals(axes, 16, seed)]
        early += distances[:5]
        late += distances[5:]
    assert sum(late) / len(late) < 0.7 * sum(early) / len(early)


def test_every_combination_of_lists_is_tried_once_and_then_none(optuna):
    axes = [Listed("lr", (0.1, 0.2, 0.3)), Listed("kind", ("a", "b"))]
    found = proposals(axes, 9)
    assert sorted((v["lr"], v["kind"]) for v in found) == [(lr, kind) for lr in (0.1, 0.2, 0.3) for kind in ("a", "b")]


# ---- the command --------------------------------------------------------------------------------------------------


class NeverRead:
    """Test images that may be counted, not looked at."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, indices):
        raise AssertionError("a test image was read")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A search of three trials on digits whose test images cannot be read."""
    pytest.importorskip("optuna", reason="the search needs pip install 'podnet[search]'")
    digits = load("digits", None)
    folder = tmp_path_factory.mktemp("search") / "search"
    with pytest.MonkeyPatch.context() as patched:
        guarded = replace(digits, test_images=NeverRead(digits.test_images))
        patched.setattr(experiment, "load", lambda *source: guarded)
        assert main([*SEARCH, "--trials", "3", "--output", str(folder)]) == 0
        with pytest.raises(AssertionError, match="a test image was read"):
            main(["run", "--method", "icarl", *QUICK, "--output", str(folder.with_name("run"))])
    return folder


def trials(folder):
    return [Run(path) for path in sorted(folder.glob("trial-*"))]


def test_a_search_is_a_folder_of_runs_on_held_out_images(searched):
    runs = trials(searched)
    assert len(runs) == 3
    tried = [(run.config()["lr"], run.config()["weight_decay"]) for run in runs]
    assert len(set(tried)) == 3
    assert all(0.01 <= lr <= 0.5 and decay in (0, 1e-4) for lr, decay in tried)
    assert {run.config()["validation"] for run in runs} == {0.1}
    for run in runs:
        others = [key for key, value in runs[0].config().items() if run.config()[key] != value and key not in ("lr",)]
        assert set(others) <= {"weight_decay"}
        assert len(run.results()) == 2


def test_the_table_names_the_best_and_the_command_to_copy(searched, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "160")
    assert main([*SEARCH, "--trials", "3", "--output", str(searched)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("is done.") == 3
    scores = [run.results()[-1]["average_incremental_accuracy"]["cnn"] for run in trials(searched)]
    best = scores.index(max(scores))
    assert f"best: trial {best + 1}, CNN {max(scores):.2f}" in printed
    for run, score in zip(trials(searched), scores, strict=True):
        assert any(f"{run.config()['lr']:g}" in line and f"{score:.2f}" in line for line in printed.splitlines())
    command = shlex.split(printed.partition("with the test images: ")[2].splitlines()[0])
    assert command[:2] == ["podnet", "run"]
    assert command[-2:] == ["--output", f"{searched}-best"]
    capsys.readouterr()
    assert main([*command[1:-2], "--print-config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    wanted = trials(searched)[best].config()
    assert {key for key in config if config[key] != wanted[key]} == {"validation"}
    assert config["validation"] == 0


def test_a_stopped_search_goes_on_with_the_proposals_it_would_have_made(searched, tmp_path, capsys):
    folder = tmp_path / "search"
    assert main([*SEARCH, "--trials", "1", "--output", str(folder)]) == 0
    second = Run(folder / "trial-002")  # it had begun
    second.folder.mkdir()
    second.write_config(trials(searched)[1].config())
    (second.folder / "checkpoints").mkdir()
    (second.folder / "predictions").mkdir()
    before = (folder / "trial-001" / "results.jsonl").read_bytes()
    assert main([*SEARCH, "--trials", "3", "--output", str(folder)]) == 0
    assert capsys.readouterr().out.count("is done.") == 1
    assert (folder / "trial-001" / "results.jsonl").read_bytes() == before
    for whole, stopped in zip(trials(searched), trials(folder), strict=True):
        assert whole.config() == stopped.config()
        assert [line["accuracy"] for line in whole.results()] == [line["accuracy"] for line in stopped.results()]


def test_a_trial_that_diverges_does_not_end_the_search(optuna, tmp_path, capsys):
    options = ["--method", "replay", *QUICK, "--epochs", "2", "--over", "lr=0.05,1e30", "--trials", "5"]
    assert main(["search", *options, "--output", str(tmp_path / "search")]) == 1
    printed = capsys.readouterr().out
    assert "training diverged" in printed
    assert "all combinations are tried: there are 2." in printed
    assert "--lr 0.05 --output" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to search"),
        (["--over", "lr=0.1,0.2", "--lr", "0.1"], "lr is given twice"),
        (["--over", "lr=0.1,0.2", "--over", "lr=0.1..0.2"], "lr is given twice"),
        (["--over", "lr=0..0.2"], "lr is 0.0; it must be above 0"),
        (["--over", "lr=0.1..0.2", "--trials", "0"], "at least 1"),
        (["--over", "lr=0.1..0.2", "--validation", "0"], "held-out"),
        (["--over", "lr=0.1..0.2", "--devices", "2"], "one process"),
        (["--over", "lr=0.1..0.2", "--method", "bic", "--inference", "nme"], "bic has no NME"),
        (
            ["--over", "lr=0.1,0.2", "--method", "lwf", "--memory-per-class", "0", "--inference", "nme"],
            "no NME without",
        ),
        (["--over", "lr=0.1..0.2", "--base", "11"], "from 1 to 10"),
        (["--over", "lr=0.1..0.2", "--epohcs", "3"], "Did you mean 'epochs'"),
        (["--over", "lr=0.1..0.2", "--trails", "3"], "Did you mean '--trials'"),
    ],
)
def test_a_mistake_gets_one_sentence_and_leaves_nothing(arguments, words, optuna, capsys, tmp_path):
    assert main(["search", *arguments, "--output", str(tmp_path / "search")]) == 2
    captured = capsys.readouterr().err
    assert words in captured
    assert captured.count("\n") == 1
    assert not (tmp_path / "search").exists()


def test_a_range_of_whole_numbers_is_searched_to_its_end():
    axis = read_axis("finetune-epochs=0..4", PODNet)
    tried = [{"finetune_epochs": number} for number in range(5)]
    assert _left([axis], tried[:4], seed=1, number=5) == tried[4]
    assert _left([axis], tried, seed=1, number=6) is None


def test_a_search_with_other_options_is_refused(searched, capsys):
    assert main([*SEARCH, "--batch-size", "8", "--output", str(searched)]) == 2
    assert "was started with batch_size" in capsys.readouterr().err
    at = SEARCH.index("--epochs")
    fewer = [*SEARCH[:at], *SEARCH[at + 2 :]]
    assert main([*fewer, "--trials", "9", "--output", str(searched)]) == 2
    assert "was started with epochs" in capsys.readouterr().err
    assert len(trials(searched)) == 3
    assert main([*SEARCH, "--output", str(searched / "trial-001")]) == 2
    assert "holds a run" in capsys.readouterr().err


def test_without_optuna_the_command_that_installs_it_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["search", "--over", "lr=0.1,0.2"]) == 2
    assert capsys.readouterr().err == "error: podnet search needs Optuna: pip install 'podnet[search]'.\n"
