"""Runs of many tasks: their folders grow with the number of tasks, not with its square; the measures stay the same."""

import json

import numpy as np
import pytest
import torch

from podnet import metrics
from podnet.io.tensors import load_tensors
from podnet.metrics import INFERENCES
from podnet.report.page import write_page
from podnet.report.plots import draw_run
from podnet.report.results import matrix_of
from podnet.runs import history, loop
from podnet.runs.config import resolve
from podnet.runs.folder import Run
from podnet.runs.history import is_recorded
from podnet.studio.details import classes

TASKS = 150


def simulated(tasks, seed=0):
    """Accuracy matrices of both inferences, and the lines of results with all of their rows."""
    draws = np.random.default_rng(seed)
    lines = []
    for task in range(tasks):
        rows = {name: draws.integers(0, 101, task + 1).astype(float).tolist() for name in INFERENCES}
        lines.append({"accuracy": {name: float(np.mean(row)) for name, row in rows.items()}, "accuracy_per_task": rows})
    return lines


def test_measures_from_the_history_are_exactly_those_of_the_matrix():
    so_far = history.History({})
    lines = simulated(TASKS)
    for task, line in enumerate(lines):
        for name in INFERENCES:
            matrix = [each["accuracy_per_task"][name] for each in lines[: task + 1]]
            past, row = so_far.of(name), matrix[-1]
            assert metrics.fallen(past.best, row) == metrics.forgetting(matrix)
            assert metrics.risen(past.first, row) == metrics.backward_transfer(matrix)
            assert float(np.mean([*past.first, row[-1]])) == metrics.learning_accuracy(matrix)
            assert past.accuracies == tuple(each["accuracy"][name] for each in lines[:task])
        so_far = so_far.after(line)
    assert history.history_from(json.loads(json.dumps(so_far.as_json())), TASKS) == so_far
    assert history.history_of(lines) == so_far


def test_rows_are_complete_up_to_a_hundred_tasks_and_all_rows_grow_linearly():
    assert all(is_recorded(task, 100) for task in range(100))

    def numbers(tasks):
        return sum(task + 1 for task in range(tasks) if is_recorded(task, tasks))

    assert is_recorded(149, 150)
    assert not is_recorded(148, 150)
    for tasks in (500, 1000, 5000, 50_000):
        assert numbers(2 * tasks) < 2.5 * numbers(tasks)
        assert numbers(tasks) < 30 * tasks


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Forty classes of one photo each, and the options of a run with a task for each."""
    draws = np.random.default_rng(0)
    x = draws.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    path = tmp_path_factory.mktemp("many") / "many.npz"
    np.savez(path, x_train=x, y_train=np.arange(40), x_test=x, y_test=np.arange(40))
    options = {"method": "ridge", "backbone": "resnet32", "dataset": "npz", "data_path": str(path)}
    return options | {"base": 1, "increment": 1, "threads": 1}


def test_a_run_of_many_tasks_has_the_numbers_of_one_that_records_all(data, tmp_path, monkeypatch):
    """As if a run were long after ten tasks; also one that is stopped and resumed where rows are missing."""
    list(loop.run(resolve(data), Run(tmp_path / "all")))
    monkeypatch.setattr(history, "COMPLETE", 10)
    records = loop.run(resolve(data), Run(tmp_path / "few"))
    for record in records:
        if isinstance(record, loop.TaskDone) and record.result["task"] == 27:
            break
    records.close()
    few = Run(tmp_path / "few")
    assert classes(few)["inferences"]["cnn"]["then"][27] is not None  # the newest has its predictions
    list(loop.run(resolve(data), few, "resume"))
    every = Run(tmp_path / "all").results()
    for line, whole in zip(few.results(), every, strict=True):
        row, own = whole.pop("accuracy_per_task"), line.pop("accuracy_per_task")
        assert own == (row if is_recorded(line["task"], 40) else dict.fromkeys(INFERENCES))
        assert line | {"seconds": 0} == whole | {"seconds": 0}
    recorded = [task for task in range(40) if is_recorded(task, 40)]
    assert len(recorded) == 13
    kept = {path.name for path in few.predictions.iterdir()}
    assert kept == {few.predictions_file(task).name for task in recorded}
    one, other = (load_tensors(each.predictions_file(39))[0] for each in (few, Run(tmp_path / "all")))
    assert torch.equal(one["cnn"], other["cnn"])


def test_readers_of_a_run_with_missing_rows(data, tmp_path, monkeypatch):
    monkeypatch.setattr(history, "COMPLETE", 10)
    run = Run(tmp_path / "run")
    list(loop.run(resolve(data), run))
    results = run.results()
    matrix = matrix_of(results, "cnn")
    assert [row[-1] for row in matrix] == [line["new_accuracy"]["cnn"] for line in results]
    assert metrics.learning_accuracy(matrix) == results[-1]["learning_accuracy"]["cnn"]
    draw_run(run, "many")
    assert "after 39" in write_page(run, "many").read_text()
    shown = classes(run)["inferences"]["cnn"]
    assert (len(shown["then"]), shown["then"].count(None)) == (40, 27)
