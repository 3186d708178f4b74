"""Runs beyond the paper's protocol: uneven tasks, no memory, known classes with new images, several seeds at once."""

import re
import shutil
from dataclasses import replace
from statistics import mean, stdev

import pytest
import torch

from podnet.cli import main
from podnet.data import load
from podnet.engine.learner import Learner
from podnet.io.tensors import load_tensors
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import METHODS, configured
from podnet.paper import estimate
from podnet.paper.catalogue import BENCHMARKS
from podnet.paper.numbers import published
from podnet.paper.plan import plan, record_of
from podnet.report.compare import described
from podnet.runs.config import resolve
from podnet.runs.folder import Run, folder_name
from podnet.runs.loop import run
from podnet.scenario.tasks import class_incremental
from podnet.studio.summary import summarise

QUICK = ["--images-per-class", "24", "--memory-per-class", "4", "--epochs", "1", "--threads", "1"]
SMALL = {"dataset": "digits", "images_per_class": 24, "memory_per_class": 4, "epochs": 1, "threads": 1}
FREE = """
from dataclasses import dataclass
from podnet.methods import Replay
from podnet.methods.phases import Phase, balanced, cosine

@dataclass(frozen=True, kw_only=True)
class Free(Replay):
    name = "free"
    summary = "replay that can do without exemplars"
    exemplars = "optional"

    def phases(self, old, new, state):
        [train] = super().phases(old, new, state)
        more = Phase("balance", train.loss, 1, cosine(0.01, 1), images=balanced)
        return [train, more] if old else [train]
"""


def perform(options, folder):
    for _ in run(resolve(SMALL | options), Run(folder)):
        pass
    return Run(folder)


# ---- uneven tasks -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uneven")
    assert main(["run", "--method", "icarl", "--sizes", "3,1,2", *QUICK, "--output", str(folder / "a")]) == 0
    return folder / "a"


def test_a_run_of_uneven_tasks(uneven):
    results = Run(uneven).results()
    assert [line["seen"] for line in results] == [3, 4, 6]
    assert [line["tasks"] for line in results] == [3, 3, 3]
    assert [len(line["new_classes"]) for line in results] == [3, 1, 2]
    assert [len(line["accuracy_per_task"]["cnn"]) for line in results] == [1, 2, 3]
    config = Run(uneven).config()
    assert (config["sizes"], config["classes"], config["base"], config["increment"]) == ([3, 1, 2], 6, None, None)
    assert "after 2" in (uneven / "report.html").read_text()


def test_a_run_of_uneven_tasks_is_resumed_and_repeated_from_its_configuration(uneven, tmp_path, capsys):
    assert main(["run", "--resume", str(uneven)]) == 0
    assert main(["run", "--config", str(uneven / "config.yaml"), "--output", str(tmp_path / "again")]) == 0
    first, again = ([line["accuracy"] for line in Run(folder).results()] for folder in (uneven, tmp_path / "again"))
    assert first == again
    assert main(["run", "--resume", str(uneven), "--sizes", "3,3"]) == 2
    assert "was started with sizes [3, 1, 2], not [3, 3]" in capsys.readouterr().err


def test_names_and_labels_have_the_sizes(uneven, tmp_path):
    options = resolve({"sizes": "3,1,2"}).options()
    assert folder_name(options) == "podnet-digits-3+1+2-random-seed1"
    assert folder_name(resolve({"sizes": "1,1,1,1,1,1,1,1,1,1"}).options()) == (
        "podnet-digits-1+1+1+1+1+1+1+1+2more-random-seed1"
    )
    assert folder_name(resolve({"visits": 2}).options()) == "podnet-digits-5+1-2visits-random-seed1"
    even = perform({"method": "icarl", "classes": 6, "base": 5}, tmp_path / "even")
    labels = [label for label, _ in described([Run(uneven), even])]
    assert labels == ["icarl, sizes 3+1+2", "icarl, base 5, increment 1"]
    assert summarise("key", Run(uneven), "a", False).protocol == "3 + 1 + 2, 4 exemplars per class"


def test_the_number_of_tasks_and_the_estimate_follow_the_sizes(tmp_path, monkeypatch):
    """As a column of a table with uneven tasks would have it."""
    monkeypatch.setattr(estimate, "_speed", lambda *machine: (1.0, 0.0))  # a second an image
    planned = plan(BENCHMARKS["proxies"], "smoke", tmp_path)[0]
    options = {k: v for k, v in planned.options.items() if k not in ("base", "increment", "memory_per_class")}
    uneven = type(planned)(
        planned.row,
        planned.column,
        planned.order,
        options | {"sizes": [2, 1, 5], "classes": 8, "memory_per_class": 3},
        tmp_path,
        24,
    )
    assert (uneven.tasks, uneven.sizes) == (3, (2, 1, 5))
    assert estimate.seconds(uneven) == 2 * 24 + (24 + 2 * 3) + (5 * 24 + 3 * 3)
    assert (uneven.first_task.tasks, uneven.first_task.experiment.classes) == (1, 2)
    assert "2+1+5" in uneven.record.folder.name


def test_a_run_of_other_tasks_is_not_compared_with_the_paper():
    config = resolve({"dataset": "cifar100", "increment": 10}).options()
    assert published(config)
    assert not published(resolve({"dataset": "cifar100", "sizes": "50,10,10,10,10,10"}).options())
    assert not published(config | {"visits": 2})
    assert not published(config | {"weights": "package"})


def test_equal_sizes_are_the_same_experiment(tmp_path):
    """Written in the two ways, the tasks, and so the numbers, are the same."""
    plain = perform({"method": "replay", "classes": 4, "base": 2}, tmp_path / "plain").results()
    listed = perform({"method": "replay", "sizes": (2, 1, 1)}, tmp_path / "listed").results()
    assert [line["accuracy"] for line in plain] == [line["accuracy"] for line in listed]
    assert [line["exemplars"] for line in plain] == [line["exemplars"] for line in listed]


# ---- no memory ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_memory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("free")
    (folder / "free.py").write_text(FREE)
    command = ["run", "--method", f"{folder}/free.py:Free", *QUICK, "--classes", "4", "--base", "2"]
    assert main([*command, "--memory-per-class", "0", "--output", str(folder / "none")]) == 0
    assert main([*command, "--output", str(folder / "some")]) == 0
    return folder


def test_a_run_without_memory_has_no_nme_and_says_why(without_memory, capsys):
    results = Run(without_memory / "none").results()
    assert [line["memory"] for line in results] == [0, 0, 0]
    assert all(line["accuracy"] == {"cnn": line["accuracy"]["cnn"], "nme": None} for line in results)
    assert all("herd" not in line["seconds"] or line["memory"] == 0 for line in results)
    assert all("means" not in line["seconds"] for line in results)
    page = (without_memory / "none" / "report.html").read_text()
    assert "no NME: this run keeps no exemplars." in page
    assert "NME accuracy" not in page
    assert main(["run", "--resume", str(without_memory / "none")]) == 0
    assert "no NME: this run keeps no exemplars." in capsys.readouterr().out
    assert "no_inference" not in Run(without_memory / "some").results()[0]
    assert "no NME" not in (without_memory / "some" / "report.html").read_text()


def test_a_run_without_memory_stands_beside_others(without_memory, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folders = [str(without_memory / name) for name in ("none", "some")]
    assert main(["report", *folders, "--output", str(tmp_path)]) == 0
    table = (tmp_path / "averages.md").read_text()
    rows = re.findall(r"^\| (Free.*?) \|", table, flags=re.MULTILINE)
    assert rows == [
        "Free, memory_per_class 0 (CNN)",
        "Free, memory_per_class 4 (CNN)",
        "Free, memory_per_class 4 (NME)",
    ]
    assert "Free, memory_per_class 0: no NME: this run keeps no exemplars." in table
    assert main(["compare", *folders]) == 0
    assert summarise("key", Run(folders[0]), "none", False).protocol == "2 + 1 per step, no exemplars"


def test_a_total_memory_of_none_is_the_same(without_memory, tmp_path):
    options = {"method": f"{without_memory}/free.py:Free", "classes": 4, "base": 2, "memory_per_class": None}
    total = perform(options | {"memory_total": 0}, tmp_path / "run").results()
    each = Run(without_memory / "none").results()
    assert [line["accuracy"] for line in total] == [line["accuracy"] for line in each]


LIFTED = {name: {"expansion": 50} for name in ("acil", "ranpac", "podnet-plus")}  # with their own, a task takes seconds


@pytest.mark.parametrize("method", sorted(name for name, m in METHODS.items() if m.exemplars != "needed"))
def test_methods_that_need_no_exemplars_run_without(method, tmp_path):
    options = {"method": method, "classes": 3, "base": 2, "memory_per_class": 0} | LIFTED.get(method, {})
    results = perform(options, tmp_path).results()
    assert [line["memory"] for line in results] == [0, 0]
    missing = None in results[-1]["accuracy"].values()
    assert missing == ("no_inference" in results[-1])


# ---- known classes with new images --------------------------------------------------------------------------------


class ReadOnce:
    """Images that refuse to be taken from the dataset twice."""

    def __init__(self, images):
        self.images, self.read = images, torch.zeros(len(images), dtype=torch.bool)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, indices):
        assert not self.read[indices].any(), "a training image was read again"
        self.read[indices] = True
        return self.images[indices]


SHORT = {"podnet": {"finetune_epochs": 1}, "ucir": {"finetune_epochs": 1}, "bic": {"bias_epochs": 2}} | LIFTED


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"joint"}))
@pytest.mark.parametrize("visits", [2, 4])  # the second: in every task all classes get images
def test_every_method_learns_from_new_images_of_known_classes(method, visits):
    digits = load("digits", None)
    chosen = configured(METHODS[method], "digits", {"epochs": 1} | SHORT.get(method, {}))
    learner = Learner(chosen, 1, digits.transform, ExemplarMemory(4))
    guard = ReadOnce(digits.train_images)
    guarded = replace(digits, train_images=guard)
    for task in class_incremental(guarded, range(4), 2, 1, images_per_class=24).visited(visits):
        assert bool(task.refreshed) == (task.index > 0)
        for _ in learner.learn(task):
            pass
        scores = learner.predict(task.test_images)
        assert scores.cnn.shape == (len(task.test_images), task.seen)
        assert scores.cnn.isfinite().all()
        if chosen.exemplars != "none":
            assert torch.bincount(learner.memory.targets).tolist() == [4] * task.seen
        if chosen.fixed and task.index == 0:
            first = {name: value.clone() for name, value in learner.network.backbone.state_dict().items()}
    assert int(guard.read.sum()) == 4 * 24
    if chosen.fixed:  # what it keeps of earlier images is of this backbone
        last = learner.network.backbone.state_dict()
        assert all(torch.equal(value, last[name]) for name, value in first.items())


def test_accuracies_by_task_are_of_the_classes_that_came_with_it(tmp_path, capsys):
    command = ["run", "--method", "icarl", "--sizes", "2,1,3", "--visits", "2", *QUICK, "--output", str(tmp_path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "task 1 of 2: 1 new, 2 old classes" in printed
    assert "more images of 2 old" in printed
    task_of_class = [0, 0, 1, 2, 2, 2]
    for line in Run(tmp_path).results():
        kept, _ = load_tensors(tmp_path / "predictions" / f"task-{line['task']:04d}.safetensors")
        for inference in ("cnn", "nme"):
            for task, accuracy in enumerate(line["accuracy_per_task"][inference]):
                own = [i for i, label in enumerate(kept["targets"].tolist()) if task_of_class[label] == task]
                right = sum(int(kept[inference][i] == kept["targets"][i]) for i in own)
                assert accuracy == pytest.approx(100 * right / len(own))


def test_a_run_with_visits_resumes_within_a_task(tmp_path):
    options = {"method": "podnet", "classes": 4, "base": 2, "visits": 2, "finetune_epochs": 2, "checkpoint_seconds": 0}
    whole = perform(options, tmp_path / "whole")
    records = run(resolve(SMALL | options), Run(tmp_path / "cut"))
    for record in records:
        if getattr(record, "phase", "") == "finetune" and hasattr(record, "losses"):
            break
    records.close()
    for _ in run(resolve(SMALL | options), Run(tmp_path / "cut"), "resume"):
        pass
    assert [line["accuracy"] for line in whole.results()] == [
        line["accuracy"] for line in Run(tmp_path / "cut").results()
    ]


@pytest.mark.parametrize("visits", [1, 2, 4])
def test_step_epochs_are_those_of_later_tasks_also_if_all_their_classes_come_again(tmp_path, visits):
    options = {"method": "replay", "classes": 4, "base": 2, "visits": visits, "epochs": 3, "step_epochs": 1}
    epochs = [(line["task"], line["epochs"]) for line in perform(options, tmp_path).epochs()]
    assert epochs == [(0, 3)] * 3 + [(1, 1), (2, 1)]


def test_a_first_task_with_visits_cannot_be_cut_off(tmp_path):
    with pytest.raises(ValueError, match="visits"):
        resolve({"visits": 2}).first_task()
    one = record_of(tmp_path, resolve({"visits": 1})).folder
    assert record_of(tmp_path, resolve({})).folder == one != record_of(tmp_path, resolve({"visits": 2})).folder


# ---- several seeds and orders in one command ----------------------------------------------------------------------

TINY = [*QUICK, "--method", "icarl", "--classes", "3", "--base", "2"]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repeated") / "runs"
    assert main(["run", *TINY, "--seeds", "1,2,3", "--output", str(folder)]) == 0
    return folder


def measured(folders, measure, inference):
    return [Run(folder).results()[-1][measure][inference] for folder in folders]


def test_seeds_are_runs_of_their_own_and_their_mean_is_printed(repeated, tmp_path, capsys):
    folders = [repeated / f"seed-{seed}" for seed in (1, 2, 3)]
    assert sorted(path.name for path in repeated.iterdir()) == [folder.name for folder in folders]
    assert main(["run", *TINY, "--seed", "2", "--output", str(tmp_path / "alone")]) == 0
    assert [line["accuracy"] for line in Run(folders[1]).results()] == [
        line["accuracy"] for line in Run(tmp_path / "alone").results()
    ]
    capsys.readouterr()
    assert main(["run", "--resume", str(repeated)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("is done.") == 3
    assert "mean ± sample standard deviation, n = 3:" in printed
    for inference in ("cnn", "nme"):
        words = []
        for name, measure in (
            ("average incremental accuracy", "average_incremental_accuracy"),
            ("last accuracy", "accuracy"),
            ("forgetting", "forgetting"),
        ):
            values = measured(folders, measure, inference)
            words.append(f"{name} {mean(values):.2f} ± {stdev(values):.2f}")
        assert f"  icarl ({inference.upper()}): {', '.join(words)}" in printed


def test_loggers_also_write_the_runs_that_are_over(repeated, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(repeated, folder)
    assert main(["run", "--resume", str(folder), "--logger", "csv"]) == 0
    for seed in (1, 2, 3):
        last = Run(folder / f"seed-{seed}").results()[-1]
        lines = (folder / f"seed-{seed}" / "metrics.csv").read_text().splitlines()
        assert f"{last['task']},{last['seen']},,,accuracy/cnn,{last['accuracy']['cnn']}" in lines


def test_a_report_of_the_folder_is_one_row_an_inference(repeated, tmp_path):
    assert main(["report", str(repeated), "--output", str(tmp_path)]) == 0
    rows = [line.split(",")[0] for line in (tmp_path / "averages.csv").read_text().splitlines()[1:]]
    assert set(rows) == {"icarl (CNN)", "icarl (NME)"}


def test_a_stopped_call_goes_on_as_a_whole(repeated, tmp_path, capsys):
    """The first run is over, the second is not, the third has not begun."""
    folder = tmp_path / "runs"
    experiments = {seed: resolve(Run(repeated / f"seed-{seed}").config()) for seed in (1, 2, 3)}
    for _ in run(experiments[1], Run(folder / "seed-1")):
        pass
    records = run(experiments[2], Run(folder / "seed-2"))
    next(record for record in records if hasattr(record, "result"))
    records.close()
    third = Run(folder / "seed-3")
    with third.locked():
        third.clear()
        third.write_config(experiments[3].options())
    assert main(["run", "--resume", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("is done.") == 1
    assert printed.count("task 0 of 1") == 1  # of the third alone
    for seed in (1, 2, 3):
        one, other = (Run(place / f"seed-{seed}").results() for place in (repeated, folder))
        assert [line["accuracy"] for line in one] == [line["accuracy"] for line in other]


def test_more_seeds_have_the_options_of_those_that_are_there(repeated, capsys):
    assert main(["run", "--resume", str(repeated), "--seeds", "1,4"]) == 0
    assert "n = 2" in capsys.readouterr().out
    first, fourth = (Run(repeated / f"seed-{seed}").config() for seed in (1, 4))
    assert {key for key in first if first[key] != fourth[key]} == {"seed"}


def test_a_run_that_fails_does_not_lose_the_others(tmp_path, capsys):
    """A method that breaks off with one of the seeds; its file is a program."""
    file = tmp_path / "moody.py"
    file.write_text(
        FREE.replace("Free", "Moody")
        + """
    def grow(self, network, new, features, seed):
        if network.classifier.classes and not __import__("os").path.exists(__file__ + ".well"):
            raise RuntimeError("not today")
        super().grow(network, new, features, seed)
"""
    )
    command = ["run", "--method", f"{file}:Moody", *QUICK, "--classes", "3", "--base", "2", "--seeds", "1,2"]
    command += ["--output", str(tmp_path / "runs")]
    assert main(command) == 1
    captured = capsys.readouterr()
    told = " ".join(captured.out.split())
    assert all(re.search(rf"failed: seed-{seed}: .*RuntimeError: not today", told) for seed in (1, 2))
    assert "2 of 2: seed-2" in captured.out
    assert main(command) == 2
    assert "--resume" in capsys.readouterr().err
    file.with_name("moody.py.well").touch()
    assert main([*command, "--resume"]) == 0
    assert "n = 2" in capsys.readouterr().out
    file.write_text(file.read_text() + "\n")
    assert main([*command, "--resume"]) == 2
    assert "was changed after" in capsys.readouterr().err
    more = [*command[: command.index("--seeds")], "--seeds", "3", *command[command.index("--seeds") + 2 :]]
    assert main([*more, "--resume"]) == 2
    assert "was changed after" in capsys.readouterr().err, "the mean would be of two methods"
    assert main([*command, "--resume", "--overwrite"]) == 2
    assert "give only one of them" in capsys.readouterr().err


def test_orders_and_seeds_are_paired_each_with_each(tmp_path, capsys):
    command = ["run", *TINY, "--orders", "natural,random", "--seeds", "1,2", "--output", str(tmp_path / "runs")]
    assert main(command) == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == [f"order-{order}-seed-{seed}" for order in ("natural", "random") for seed in (1, 2)]
    assert "n = 4" in capsys.readouterr().out
    configs = [Run(tmp_path / "runs" / name).config() for name in names]
    assert [(config["order"], config["seed"]) for config in configs] == [
        ("natural", 1), ("natural", 2), ("random", 1), ("random", 2)
    ]  # fmt: skip


def test_a_folder_of_other_runs_is_not_taken_for_repetitions(uneven, capsys):
    assert main(["run", "--resume", str(uneven.parent)]) == 2
    assert "contains no run" in capsys.readouterr().err
    assert main(["run", *TINY, "--seeds", "1,2", "--output", str(uneven)]) == 2
    assert "holds a single run" in capsys.readouterr().err
