"""`podnet reproduce`: every table and figure of the paper, complete, run once however often it is started."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from importlib import resources
from pathlib import Path

import pytest
from PIL import Image

from podnet.cli import main
from podnet.errors import ConfigError, PodnetError
from podnet.io.tensors import load_tensors
from podnet.methods import PODNet
from podnet.paper import estimate
from podnet.paper.assignment import assign, perform
from podnet.paper.catalogue import BENCHMARKS
from podnet.paper.engines import LocalEngine
from podnet.paper.numbers import ROWS as PAPER_ROWS
from podnet.paper.plan import class_orders, narrowed, plan, record_of, row_changes, with_row
from podnet.paper.runner import carry_out
from podnet.paper.scales import SETTINGS
from podnet.paper.tables import grids, newest, oldest
from podnet.runs.config import as_it_ran, resolve
from podnet.runs.folder import FIRST_TASK_DONE, Run
from podnet.runs.loop import Notice, run

PAPER = json.loads(resources.files("podnet.paper").joinpath("numbers.json").read_text())["tables"]
COMMAND = [sys.executable, "-m", "podnet", "reproduce", "--jobs", "2"]  # then each run has one thread


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """The folder of `podnet reproduce all --scale smoke`. Test processes side by side share the work on it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "everything"
    complete = folder.with_name("everything.complete")
    if not complete.exists():
        command = ["reproduce", "all", "--scale", "smoke", "--jobs", "1", "--threads", "1", "--output", str(folder)]
        assert main(command) == 0
        complete.touch()
    return folder


def lines(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def table_of(folder, name):
    """The CSV of a benchmark's first table."""
    stem = re.sub(r"[^a-z0-9]+", "-", BENCHMARKS[name].title.lower())[:60].strip("-")
    return lines(folder / "all-smoke" / f"{stem}.csv")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_cell_of_every_table_is_filled(everything, name):
    table = table_of(everything, name)
    assert len(table) >= len(BENCHMARKS[name].rows) * len(BENCHMARKS[name].columns)
    for line in table:
        if line["row"].endswith("*"):  # the paper's own loans; nothing was run for them
            assert line["count"] == "0", line
            continue
        assert line["count"] == "1", line
        assert 0 <= float(line["mean"]) <= 100


def test_tables_and_figures_come_in_every_format(everything):
    files = [path for path in (everything / "all-smoke").iterdir() if not path.name.startswith(".")]
    count = {ending: sum(path.suffix == ending for path in files) for ending in {path.suffix for path in files}}
    tables, figures = len(BENCHMARKS) + 1, len(BENCHMARKS)  # two tables of the balance
    assert count == {
        ".md": tables,
        ".tex": tables,
        ".csv": tables,
        ".png": figures,
        ".svg": figures,
        ".pdf": figures,
    } | {".html": 1}
    for path in files:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert min(picture.size) > 300


def test_the_page_of_all_names_every_table(everything):
    page = (everything / "all-smoke" / "report.html").read_text()
    assert all(benchmark.title in page for benchmark in BENCHMARKS.values())
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


@pytest.mark.parametrize("name", [name for name in PAPER if name != "balance"])  # whose numbers are differences
def test_the_paper_stands_in_the_table_with_all_its_numbers(everything, name):
    wanted = re.findall(r"\d+\.\d+", str({**PAPER[name], "columns": None}))
    table_printed = table_of(everything, name)
    printed = [float(line[kind]) for line in table_printed for kind in ("paper", "paper_std") if line[kind]]
    assert len(wanted) > 5
    assert sorted(printed) == sorted(map(float, wanted))


def test_some_numbers_stand_where_the_paper_has_them(everything):
    def paper(name, row, column):
        cells = {(line["row"], line["column"]): line["paper"] for line in table_of(everything, name)}
        return float(cells[row, column])

    assert paper("cifar100", "UCIR (CNN)", "25 steps") == 57.57
    assert paper("cifar100", "iCaRL (NME)", "50 steps") == 44.2
    assert paper("cifar100", "iCaRL (NME)*", "10 steps") == 52.57
    assert paper("imagenet100", "UCIR (CNN)*", "5 steps") == 70.47
    assert paper("imagenet1000", "PODNet (CNN)", "5 steps") == 66.95
    assert paper("ablation-components", "Cosine + POD-spatial", "CNN") == 57.27
    assert paper("ablation-components", "LSC-CE + POD-flat + POD-spatial", "NME") == 59.86
    assert paper("ablation-distillation", "POD-gap", "NME") == 58.80
    assert paper("memory", "BiC (CNN)", "200") == 67.47
    assert paper("initial-task", "PODNet (NME)", "30") == 55.30
    assert paper("proxies", "PODNet (CNN)", "8") == 57.95


def test_a_table_at_another_scale_says_so(everything):
    text = (everything / "all-smoke" / "table-1-cifar-100.md").read_text()
    assert "paper, full" in text
    assert "ours, smoke" in text
    assert "do not compare" in text


def test_what_is_done_is_not_run_again(everything, capsys):
    before = {path: path.stat().st_mtime_ns for path in everything.rglob("results.jsonl")}
    assert main(["reproduce", "memory", "--scale", "smoke", "--output", str(everything)]) == 0
    assert "started" not in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in everything.rglob("results.jsonl")}


DISTILLATION = ("ablation-distillation", "--scale", "smoke")


def planned(name, folder, scale="smoke", **options):
    return plan(BENCHMARKS[name], scale, folder, common={"threads": 1}, **options)


def measured(record):
    """Results without the times they took."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in record.results()]


def weights(record):
    tensors, _ = load_tensors(record.checkpoint_files()[0])
    return {name: value.tolist() for name, value in tensors.items()}


@pytest.mark.parametrize("name", ["podnet", "ucir", "bic", "icarl"])
def test_starting_from_a_shared_first_task_changes_nothing(name, everything, tmp_path):
    runs = {r.row.options["method"]: r for r in planned("cifar100", everything) if r.column.label == "25 steps"}
    shared = runs[name]
    assert shared.finished()
    entries = json.loads((shared.record.folder / "environment.json").read_text())
    assert len(entries) == 2  # of its first task and its own: it did start from there
    other = Run(tmp_path / "alone")
    for _ in run(shared.experiment, other):
        pass
    assert measured(shared.record) == measured(other)
    assert weights(shared.record) == weights(other)


def test_rows_that_differ_only_later_share_their_first_task(tmp_path):
    distillations = planned("ablation-distillation", tmp_path)
    assert len({r.record.folder for r in distillations}) == 9
    assert len({r.first_task.record.folder for r in distillations}) == 1
    components = planned("ablation-components", tmp_path)
    assert len({r.first_task.record.folder for r in components}) == 3  # cosine, LSC-CE, LSC
    memories = planned("memory", tmp_path)
    firsts = {
        method: {r.first_task.record.folder for r in memories if r.options["method"] == method} for method in PAPER_ROWS
    }
    assert {method: len(folders) for method, folders in firsts.items()} == {
        "icarl": 1,
        "bic": 3,
        "ucir": 1,
        "podnet": 1,
    }


def method_of(row, name="ablation-distillation", **options):
    [run] = [r for r in planned(name, Path("nowhere"), scale="full", orders="1", **options) if r.row.label == row]
    return run.experiment.method


def test_the_ablations_have_the_losses_and_weights_of_the_released_options():
    """The table of docs/fidelity.md, typed again: distillation, λ_c, whether it grows with √(N/T)."""
    wanted = {
        "None": ("spatial", 0.0, True),
        "POD-pixels": ("perceptual_features", 2.0, False),
        "POD-channels": ("channels", 2.0, True),
        "POD-gap": ("gap", 5.0, True),
        "POD-width": ("width", 3.0, True),
        "POD-height": ("height", 3.0, True),
        "POD-spatial": ("spatial", 3.0, True),
        "GradCam": ("gradcam", 0.01, True),
        "Perceptual Style": ("perceptual_style", 0.1, False),
    }
    for row, options in wanted.items():
        for name, lambda_f in (("ablation-distillation", 5.0), ("ablation-distillation-without-flat", 0.0)):
            method = method_of(row, name)
            assert (method.distillation, method.lambda_c, method.adaptive_c, method.lambda_f) == (*options, lambda_f)


def test_the_ablations_of_the_papers_text_have_pods_weight_in_every_row():
    for row, distillation in (("POD-pixels", "pixels"), ("GradCam", "gradcam"), ("POD-gap", "gap")):
        method = method_of(row, fidelity="paper")
        assert (method.distillation, method.lambda_c, method.lambda_f) == (distillation, 3.0, 1.0)


def test_a_row_can_be_given_other_options():
    changes = row_changes([BENCHMARKS["ablation-distillation"]], ["gradcam:lambda-c=0.5, lambda_f=2"])
    assert changes == {"GradCam": {"lambda_c": "0.5", "lambda_f": "2"}}
    method = method_of("GradCam", changes=changes)
    assert (method.lambda_c, method.lambda_f, method.distillation) == (0.5, 2.0, "gradcam")
    assert method_of("POD-gap", changes=changes) == method_of("POD-gap")
    assert row_changes([BENCHMARKS["cifar100"]], ["UCIR:milestones=0.5,0.7,lr=0.2"]) == {
        "UCIR": {"milestones": "0.5,0.7", "lr": "0.2"}
    }
    runs = planned("ablation-distillation", Path("nowhere"), changes=changes)
    notes = grids(BENCHMARKS["ablation-distillation"], "smoke", runs)[0].notes
    assert "GradCam with lambda_c 0.5, lambda_f 2." in notes


def test_a_first_task_whose_training_was_removed_is_made_again(tmp_path):
    [chosen] = [r for r in planned("proxies", tmp_path) if r.column.label == "2"]
    first = chosen.first_task.record
    for _ in run(chosen.first_task.experiment, first):
        pass
    first.trained_first_task().unlink()  # by somebody in need of room
    assert [o.status for o in carry_out([chosen], Here()) if o is not None] == ["started", "done"] * 2
    assert chosen.finished()


def test_two_commands_at_once_run_everything_once(tmp_path):
    arguments = [*COMMAND, "proxies", "--columns", "1,2,4", "--scale", "smoke", "--output", str(tmp_path)]
    alone = ["--jobs", "1", "--threads", "1"]  # the other has two jobs
    both = [subprocess.Popen([*arguments, *more], stdout=subprocess.PIPE, text=True) for more in ([], alone)]
    printed = "".join(process.communicate()[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    # Three numbers of proxies and three first tasks; done in both, if one ends while the other is about to start it.
    assert printed.count(" done ") >= 6
    for record in planned("proxies", tmp_path)[:3]:
        entries = json.loads((record.record.folder / "environment.json").read_text())
        assert len(entries) == 2  # of its first task and its own: nobody resumed it
        assert len(record.record.results()) == record.tasks


def killed_in_the_middle(folder):
    """The command and its run, killed with all its processes after the first task; None if it was quicker than we."""
    arguments = [*COMMAND, "balance", "--only", "POD-flat", "--scale", "smoke", "--output", str(folder)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True)
    run = planned("balance", folder)[1]
    while not run.record.results() and process.poll() is None:
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return None if run.finished() else (arguments[3:], run.record)


def test_a_killed_command_goes_on_to_the_same_numbers(everything, tmp_path, monkeypatch):
    found = next(filter(None, (killed_in_the_middle(tmp_path / str(attempt)) for attempt in range(5))))
    arguments, killed = found
    assert 1 <= len(killed.results()) <= 3
    monkeypatch.setattr("podnet.cli.reproduce.make_engine", lambda *options: Here())
    assert main(arguments) == 0
    assert len(killed.results()) == 3
    whole = planned("balance", everything)[1].record
    assert measured(killed) == measured(whole)
    assert weights(killed) == weights(whole)


def test_a_run_with_all_results_is_not_finished_while_a_process_writes_it(everything):
    """Its last checkpoint comes after its last result."""
    done = planned("balance", everything)[1]
    assert done.finished()
    with done.record.locked():
        assert not done.finished()
    assert done.finished()


def test_a_failed_run_is_named_and_the_others_go_on(tmp_path):
    runs = [r for r in planned("proxies", tmp_path) if r.column.label in ("1", "2")]
    runs[0].options["lr"] = 1e30
    outcomes = [o for o in carry_out(runs, LocalEngine(1)) if o is not None]
    messages = {(o.planned.column.label, o.status): o.message for o in outcomes}
    assert "diverged" in messages["first task", "failed"]
    assert messages["1", "failed"] == messages["first task", "failed"]
    assert ("1", "started") not in messages  # what it begins from failed
    assert ("2", "done") in messages


def test_a_first_task_without_its_last_checkpoint_serves_others(tmp_path):
    [first] = [r for r in planned("proxies", tmp_path) if r.column.label == "2"]
    for _ in run(first.first_task.experiment, first.first_task.record):
        pass
    (first.first_task.record.checkpoints / "0000-end.safetensors").unlink()  # killed before it was written
    assert first.first_task.finished()  # others start from the checkpoint before that one
    other = plan(BENCHMARKS["curves"], "smoke", tmp_path, common={"threads": 1, "proxies": 2})[7]
    assert other.row.label == "PODNet"
    assert other.first_task.record.folder == first.first_task.record.folder
    assert [o.status for o in carry_out([other], Here()) if o is not None] == ["started", "done"]
    assert other.finished()


def test_a_damaged_first_task_is_learned_again(everything, tmp_path):
    [chosen] = [r for r in planned("proxies", tmp_path) if r.column.label == "2"]
    first = chosen.first_task
    for _ in run(first.experiment, first.record):
        pass
    checkpoint = first.record.trained_first_task()
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    notices = [r.text for r in run(chosen.experiment, chosen.record, "resume", first.record) if isinstance(r, Notice)]
    assert len(notices) == 1
    assert "first task again" in notices[0]
    [whole] = [r.record for r in planned("proxies", everything) if r.column.label == "2"]
    assert measured(chosen.record) == measured(whole)
    assert weights(chosen.record) == weights(whole)


def pretend(run, value, tasks=None):
    """The record of a run that came to this accuracy everywhere, or so far in its first tasks."""
    both = {"cnn": value, "nme": value}
    line = {"accuracy_per_task": {"cnn": [value], "nme": [value]}, "new_accuracy": both, "accuracy": both}
    line |= {"average_incremental_accuracy": both, "tasks": run.tasks}
    run.record.folder.mkdir(parents=True)
    run.record.config_file.write_text("{}")
    written = [json.dumps({"task": task, "seen": task} | line) + "\n" for task in range(tasks or run.tasks)]
    run.record.results_file.write_text("".join(written))


def test_differences_pair_the_same_class_orders(tmp_path):
    runs = plan(BENCHMARKS["balance"], "smoke", tmp_path, orders="2")
    accuracy = {("POD-flat", 2): 40.0, ("POD-pixels", 1): 10.0, ("POD-pixels", 2): 45.0}  # POD-flat's first is missing
    for r in runs:
        if (value := accuracy.get((r.row.label, r.options["seed"]))) is not None:
            pretend(r, value)
    _, changes = grids(BENCHMARKS["balance"], "smoke", runs)
    [cell, *_] = dict(changes.rows)["POD-pixels"]
    assert cell.ours == (5.0,)
    assert not cell.competes


def test_a_cell_that_lacks_class_orders_says_so_and_is_not_the_best(tmp_path):
    chosen = narrowed(BENCHMARKS["cifar100"], ["UCIR", "PODNet"], ["50"])
    runs = plan(chosen, "smoke", tmp_path, orders="3")
    accuracy = {("UCIR", 1): 50.0, ("UCIR", 2): 60.0, ("UCIR", 3): 70.0, ("PODNet", 3): 65.0}
    for r in runs:
        if (value := accuracy.get((r.row.label, r.options["seed"]))) is not None:
            pretend(r, value)
    [grid] = grids(chosen, "smoke", runs)
    competes = {label: cells[0].competes for label, cells in grid.rows}
    assert competes == {"UCIR (NME)": True, "UCIR (CNN)": True, "PODNet (NME)": False, "PODNet (CNN)": False}
    assert grid.notes[-1].endswith("not all class orders are finished: PODNet, 50 steps (1 of 3).")


class Here(nullcontext):
    """An engine that performs runs in this process; another one would import torch first."""

    slots = 1
    taken = "started"

    def submit(self, assignments):
        [assignment] = assignments
        future = Future()
        future.set_result(perform(assignment))
        return [future]


class Instant(nullcontext):
    """An engine that finishes, or fails, whatever it is given at once."""

    slots = 1
    taken = "started"

    def __init__(self, failing=()):
        super().__init__()
        self.failing = failing

    def submit(self, assignments):
        [assignment] = assignments
        future = Future()
        future.set_result(PodnetError("no") if assignment.folder in self.failing else "yes")
        return [future]


def test_a_run_under_way_does_not_need_the_first_task_that_failed_for_others(tmp_path):
    new, half_done = planned("balance", tmp_path)[1:3]
    first = new.first_task.record.folder
    assert first == half_done.first_task.record.folder
    pretend(half_done, 50.0, tasks=2)
    outcomes = [o for o in carry_out([new, half_done], Instant(failing=[first])) if o and o.planned.tasks > 1]
    ends = {o.planned.row.label: o.status for o in outcomes}
    assert ends == {new.row.label: "failed", half_done.row.label: "done"}


def test_a_folder_that_cannot_be_written_fails_alone(tmp_path, monkeypatch):
    runs = [r for r in planned("proxies", tmp_path) if r.column.label in ("1", "2")]
    closed, locked = runs[0].first_task.record.folder, Run.locked

    def refusing(record):
        if record.folder == closed:
            raise PodnetError(f"cannot write in {record.folder}: Permission denied; choose another folder.")
        return locked(record)

    monkeypatch.setattr(Run, "locked", refusing)
    outcomes = {(o.planned.column.label, o.status): o.message for o in carry_out(runs, LocalEngine(1)) if o is not None}
    assert "Permission denied" in outcomes["1", "failed"]
    assert ("2", "done") in outcomes


def test_a_run_that_another_process_has_is_told_once(tmp_path):
    taken = planned("proxies", tmp_path)[0]
    pretend(taken, 50.0, tasks=2)
    outcomes = carry_out([taken], Instant())
    with taken.record.locked():
        seen = [next(outcomes) for _ in range(3)]
    assert [o.status for o in [*seen, *outcomes] if o] == ["elsewhere", "started", "done"]


def test_starting_again_leaves_nothing_old_beside_what_is_new(tmp_path):
    runs = planned("proxies", tmp_path)[:2]
    for r in [*runs, *(r.first_task for r in runs)]:
        pretend(r, 50.0)
        r.record.checkpoints.mkdir(parents=True, exist_ok=True)
        for name in ("0000-0-00001.safetensors", FIRST_TASK_DONE):
            (r.record.checkpoints / name).touch()
    assert all(r.finished() and r.first_task.finished() for r in runs)
    next(carry_out(runs, Instant(), resume=False))  # stopped as soon as the first has begun
    assert not any(r.finished() or r.first_task.finished() for r in runs)


def test_a_damaged_record_is_a_run_that_fails_and_no_more(tmp_path):
    [damaged] = planned("proxies", tmp_path)[:1]
    pretend(damaged, 50.0)
    with open(damaged.record.results_file, "ab") as file:
        file.write(b"\0\0\n")
    assert not damaged.finished()
    [started, failed] = [o for o in carry_out([damaged], LocalEngine(1)) if o]
    assert (started.status, failed.status) == ("started", "failed")
    assert "is damaged" in failed.message


def test_a_file_of_classes_is_known_by_what_it_says(tmp_path):
    names, same, other = (tmp_path / name for name in ("names.txt", "same.txt", "other.txt"))
    for file, text in {names: "n01\nn02\n", same: "n01\nn02\n", other: "n01\nn03\n"}.items():
        file.write_text(text)

    def folder(file):
        return plan(BENCHMARKS["imagenet100"], "small", tmp_path, common={"subset": str(file)})[0].record.folder

    assert folder(names) == folder(same) != folder(other)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, [("paper:0", 1), ("paper:1", 2)]),
        ("1", [("paper:0", 1)]),
        ("2", [("paper:0", 1), ("paper:1", 2)]),
        ("paper:2,paper:0", [("paper:2", 3), ("paper:0", 1)]),
        ("4", [("paper:0", 1), ("paper:1", 2), ("paper:2", 3), ("random", 4)]),
        ("random,random", [("random", 1), ("random", 2)]),
    ],
)
def test_class_orders_and_their_seeds(wanted, expected):
    assert class_orders(SETTINGS["small"]["cifar100"], wanted) == expected


def test_oldest_and_newest_classes_by_hand():
    results = [
        {"accuracy_per_task": {"cnn": [90.0]}, "new_accuracy": {"cnn": 90.0}},
        {"accuracy_per_task": {"cnn": [80.0, 70.0]}, "new_accuracy": {"cnn": 70.0}},
        {"accuracy_per_task": {"cnn": [60.0, 50.0, 30.0]}, "new_accuracy": {"cnn": 30.0}},
    ]
    assert oldest(results, "cnn") == 60.0
    assert newest(results, "cnn") == 50.0


def test_full_scale_is_the_papers_protocol(tmp_path):
    runs = planned("cifar100", tmp_path, scale="full")
    protocols = {(r.column.label, r.tasks - 1, r.options["base"], r.options["increment"]) for r in runs}
    assert protocols == {
        ("50 steps", 50, 50, 1),
        ("25 steps", 25, 50, 2),
        ("10 steps", 10, 50, 5),
        ("5 steps", 5, 50, 10),
    }
    assert {(r.order, r.options["seed"]) for r in runs} == {("paper:0", 1), ("paper:1", 2), ("paper:2", 3)}
    podnet = next(r.experiment for r in runs if r.row.label == "PODNet")
    assert (podnet.method.epochs, podnet.method.lambda_c, podnet.memory_per_class) == (160, 3.0, 20)
    totals = {r.options["memory_total"] for r in planned("memory-total", tmp_path, scale="full")}
    assert totals == {2000}
    bases = {(r.options["base"], r.tasks - 1) for r in planned("initial-task", tmp_path, scale="full")}
    assert bases == {(10, 90), (20, 80), (30, 70), (40, 60), (50, 50)}


def test_rows_and_columns_can_be_chosen(tmp_path):
    chosen = narrowed(BENCHMARKS["memory"], ["podnet", "UCIR"], ["5", "200"])
    assert [row.label for row in chosen.rows] == ["UCIR", "PODNet"]
    [grid] = grids(chosen, "full", plan(chosen, "full", tmp_path))
    assert grid.columns == ("5", "200")
    assert [label for label, _ in grid.rows] == ["UCIR (NME)", "UCIR (CNN)", "PODNet (NME)", "PODNet (CNN)"]
    with pytest.raises(ConfigError, match="Did you mean 'PODNet'"):
        narrowed(BENCHMARKS["memory"], ["PODNot"])


def test_all_leaves_out_the_tables_without_the_rows_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # no line breaks in a cell
    arguments = ["--scale", "smoke", "--only", "PODNet", "--columns", "5,10", "--dry-run", "--output", str(tmp_path)]
    assert main(["reproduce", "all", *arguments, "--threads", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "PODNet, 5 exemplars per class" in printed
    assert "PODNet, 5 steps" in printed
    assert "proxies per class" not in printed  # none of them is 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["all", "--only", "PODNot"], "no table has all"),
        (["cifar10"], "Did you mean 'cifar100'"),
        ([], "--list"),
        (["cifar100", "--scale", "small"], "needs --data-path"),
        (["cifar100", "--scale", "smoke", "--jobs", "0"], "at least 1"),
        (["cifar100", "--scale", "smoke", "--orders", "0"], "at least 1"),
        (["cifar100", "--scale", "smoke", "--columns", "7"], "no column '7'"),
        (["cifar100", "--oders", "2"], "Did you mean '--orders'"),
        (["cifar100", "--scale", "tiny"], "invalid choice"),
        (["cifar100", "--scale", "smoke", "--orders", "paper:0"], "no class order for digits"),
        (["cifar100", "--scale", "small", "--data-path", "/nowhere"], "/nowhere"),
        (["cifar100", "--scale", "smoke", "--device", "gpu"], "not available"),
        (["cifar100", "--scale", "smoke", "--fidelity", "text"], "invalid choice"),
        ([*DISTILLATION, "--set", "GradCum:lambda_c=1"], "Did you mean 'GradCam'"),
        ([*DISTILLATION, "--set", "GradCam:lambda_c=-1"], "lambda_c is -1.0; it must be 0 or more"),
        ([*DISTILLATION, "--set", "GradCam:lambda_d=1"], "--set cannot change 'lambda_d' of GradCam"),
        ([*DISTILLATION, "--set", "GradCam"], "write ROW:OPTION=VALUE"),
        ([*DISTILLATION, "--set", "GradCam:seed=3"], "--set cannot change 'seed' of GradCam"),
        ([*DISTILLATION, "--set", "GradCam:fidelity=paper"], "--set cannot change 'fidelity' of GradCam"),
    ],
)
def test_a_mistake_gets_one_sentence(arguments, words, capsys, tmp_path):
    assert main(["reproduce", *arguments, *(["--output", str(tmp_path / "out")] if arguments else [])]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_lists_runs_and_time_and_writes_nothing(tmp_path, capsys):
    arguments = ["proxies", "--scale", "small", "--orders", "2", "--dry-run", "--output", str(tmp_path / "out")]
    assert main(["reproduce", *arguments, "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "12 runs" in printed
    rows, everywhere = printed.split("in all runs:")
    assert "first task" in rows
    assert "proxies 8" in rows
    assert not re.search("proxies 10|None|momentum|lr |precision", rows)  # defaults
    assert "fidelity released" in " ".join(everywhere.split())
    assert not (tmp_path / "out").exists()


def test_a_dry_run_is_silent_about_options_set_to_nothing(tmp_path, capsys):
    """With a memory for all classes there is none for each; that is no setting of the run."""
    arguments = ["memory-total", "--scale", "smoke", "--only", "PODNet", "--dry-run", "--output", str(tmp_path)]
    assert main(["reproduce", *arguments, "--threads", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "memory_total 120" in printed
    assert "None" not in printed


def test_an_estimate_is_of_what_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "_speed", lambda *machine: (1.0, 0.0))  # a second an image
    [whole] = [r for r in planned("proxies", tmp_path) if r.column.label == "2"]
    assert (whole.tasks, whole.images) == (3, 24)
    # One epoch: 6 classes of 24 images, then one class and 20 exemplars of each old one.
    assert [estimate.seconds(whole, done) for done in range(4)] == [144 + 144 + 164, 144 + 164, 164, 0]


def test_the_time_left_follows_the_pace_of_the_tasks_that_are_done(tmp_path):
    runs = [r for r in planned("proxies", tmp_path) if r.column.label in ("1", "2")]
    assert estimate.seconds_left(runs) is None
    # 144 images in each of the first two tasks and 164 in the last. Three passes in the first task; in steps one more
    # through the teacher, and one through the balanced images (7 or 8 classes of 20) in the fine-tuning.
    first, second, third = 3 * 144, 4 * 144 + 140, 4 * 164 + 160
    done, waits = runs
    done.record.folder.mkdir(parents=True)
    lines = [{"task": 0, "seconds": {"train": 10.0, "herd": 2.0}}, {"task": 1, "seconds": {"train": 8.0}}]
    done.record.results_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pace = 20 / (first + second)
    assert estimate.seconds_left(runs) == pytest.approx(pace * (third + first + second + third))
    waits.first_task.record.folder.mkdir(parents=True)
    waits.first_task.record.results_file.write_text(json.dumps(lines[0]) + "\n")
    pace = 32 / (first + second + first)
    assert estimate.seconds_left(runs) == pytest.approx(pace * (third + second + third))
    assert estimate.seconds_left([*runs, waits]) == pytest.approx(pace * (third + 2 * (second + third)))


def test_runs_that_share_no_first_task_take_longer(tmp_path):
    runs = [r for r in planned("proxies", tmp_path) if r.column.label in ("1", "2")]
    for record in (runs[0].record, runs[1].first_task.record):
        record.folder.mkdir(parents=True)
        record.results_file.write_text(json.dumps({"task": 0, "seconds": {"train": 10.0}}) + "\n")
    apart, shared = estimate.seconds_left(runs, share=False), estimate.seconds_left(runs)
    first = 3 * 144  # as in the test above: the first run has done it, the second would have to
    assert apart - shared == pytest.approx(first * 10 / first)


def test_a_dry_run_counts_no_more_jobs_than_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(estimate, "_speed", lambda *machine: (10.0, 0.0))
    arguments = ["memory-total", "--scale", "smoke", "--only", "PODNet", "--columns", "50", "--dry-run"]
    for jobs in ("1", "8"):
        assert main(["reproduce", *arguments, "--threads", "1", "--jobs", jobs, "--output", str(tmp_path)]) == 0
    times = re.findall(r"about ([\d.]+ \w+) with --jobs", " ".join(capsys.readouterr().out.split()))
    assert len(times) == 2
    assert times[0] == times[1]


def test_joint_training_is_estimated_with_all_images(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "_speed", lambda *machine: (1.0, 0.0))  # a second an image
    costs = {}
    for name in ("joint", "replay", "finetuning"):
        benchmark = narrowed(with_row(BENCHMARKS["cifar100"], name), [name], ["50"])
        [run] = plan(benchmark, "smoke", tmp_path, common={"threads": 1})
        costs[name] = [estimate.seconds(run, done) for done in range(run.tasks)][-1]
    # The last of 8 classes of 24 images, with 20 exemplars of each old one.
    assert costs == {"joint": 8 * 24, "replay": 24 + 7 * 20, "finetuning": 24}


def test_what_a_column_varies_stays_as_the_column_says(tmp_path):
    changes = {"PODNet": {"proxies": "5", "lr": "0.2"}}  # as with several tables, of which some vary the proxies
    runs = planned("proxies", tmp_path, changes=changes)
    assert [run.experiment.method.proxies for run in runs] == [int(run.column.label) for run in runs]
    assert {run.experiment.method.lr for run in runs} == {0.2}
    with pytest.raises(ConfigError, match="the columns vary it"):
        row_changes([BENCHMARKS["proxies"]], ["PODNet:proxies=5"])


def test_a_method_edited_while_the_command_runs_is_refused(tmp_path):
    file = tmp_path / "mine.py"
    header = "from dataclasses import dataclass\nfrom podnet import PODNet\n\n\n"
    file.write_text(f"{header}@dataclass(frozen=True, kw_only=True)\nclass Mine(PODNet):\n    pass\n")
    benchmark = narrowed(with_row(BENCHMARKS["cifar100"], f"{file}:Mine"), ["Mine"], ["50"])
    [run] = plan(benchmark, "smoke", tmp_path / "out", common={"threads": 1})
    assignment = assign(run, share=False)
    file.write_text(file.read_text() + "# edited\n")
    answer = perform(assignment)
    assert isinstance(answer, ConfigError)
    assert "was changed after this command began" in str(answer)
    assert not run.record.exists()


def test_an_own_method_that_needs_its_state_is_estimated_too(tmp_path):
    class Remembering(PODNet):
        def phases(self, old, new, state):
            return super().phases(old, new, state) if not old else [state["missing"]]

    assert len(estimate._phases(Remembering(), old=0, new=5)) == 1
    assert len(estimate._phases(Remembering(), old=5, new=5)) == 1


def test_a_recipe_fills_in_what_is_not_given(capsys):
    cifar = ["run", "--dataset", "cifar100", "--data-path", "nowhere"]
    assert resolve({"dataset": "cifar100", "recipe": "fast"}).method.step_epochs == 30
    assert resolve({"dataset": "cifar100", "recipe": "fast", "step_epochs": 7}).method.step_epochs == 7
    assert resolve({"dataset": "cifar100", "method": "ucir", "recipe": "fast"}).method.step_epochs == 30
    assert main([*cifar, "--recipe", "fst"]) == 2
    assert "Did you mean 'fast'?" in capsys.readouterr().err
    assert main(["run", "--recipe", "fast", "--print-config"]) == 2
    assert "no recipe for digits" in capsys.readouterr().err


def test_the_runs_of_a_recipe_have_folders_of_their_own(tmp_path):
    slow, fast = (
        plan(BENCHMARKS["cifar100"], "full", tmp_path, "1", {"threads": 1, **more})[-1]
        for more in ({}, {"recipe": "fast"})
    )
    assert fast.experiment.method.step_epochs == 30
    assert slow.record.folder != fast.record.folder
    assert slow.first_task.record.folder == fast.first_task.record.folder


def test_the_list_names_everything(capsys):
    assert main(["reproduce", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(name[:20] in printed for name in [*BENCHMARKS, "all"])


def test_worker_processes_end_with_their_command(tmp_path):
    arguments = [*COMMAND, "proxies", "--scale", "smoke", "--output", str(tmp_path)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # a run has started
    workers = children(process.pid)
    assert workers
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 120
    while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def test_published_runs_are_still_found():
    """Options that came later do not change the names of folders, which are made from all options."""
    folders = sorted((Path(__file__).parents[1] / "docs" / "results" / "small").glob("podnet-*"))
    assert folders
    for folder in folders:
        experiment = resolve(as_it_ran(Run(folder).config()))
        assert record_of(folder.parent, experiment).folder == folder
        changed = resolve(as_it_ran(Run(folder).config()) | {"train_batchnorm": "fixed"})
        assert record_of(folder.parent, changed).folder != folder


def test_a_table_with_other_steps_than_the_papers_says_so():
    table = narrowed(BENCHMARKS["cifar100"], ["PODNet"], ["5"])
    for common, words in (({}, []), ({"recipe": "fast"}, ["Not the paper's: 30 epochs in each task after the first."])):
        runs = plan(table, "full", Path("nowhere"), common=common | {"data_path": "x"})
        (grid,) = grids(table, "full", runs)
        assert [note for note in grid.notes if "epochs" in note] == words


def test_an_upper_bound_is_never_the_best_of_the_balance(tmp_path):
    table = with_row(BENCHMARKS["balance"], "joint")
    runs = plan(table, "smoke", tmp_path)
    for each in runs:
        pretend(each, 90.0 if each.row.upper_bound else 40.0)
    absolute, _ = grids(table, "smoke", runs)
    competing = {label for label, cells in absolute.rows if any(cell.competes for cell in cells)}
    assert competing == {row.label for row in BENCHMARKS["balance"].rows}


def test_no_decoding_process_can_be_asked_for(tmp_path, monkeypatch):
    asked = []

    def spy(*options):
        asked.append(options[4])
        raise ConfigError("that is enough.")

    monkeypatch.setattr("podnet.cli.reproduce.plan", spy)
    assert main(["reproduce", "imagenet100", "--workers", "0", "--dry-run", "--output", str(tmp_path)]) == 2
    assert asked[0]["workers"] == 0
