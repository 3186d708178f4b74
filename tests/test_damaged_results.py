"""A results file that was edited or comes from elsewhere: a sentence, never a traceback."""

import json
import shutil

import pytest

from podnet.cli import main
from podnet.errors import PodnetError
from podnet.report.plots import final_confusion
from podnet.runs.config import resolve
from podnet.runs.folder import Run
from podnet.runs.lines import require_whole
from podnet.runs.loop import run

OPTIONS = {"method": "ridge", "classes": 3, "base": 2, "images_per_class": 2, "threads": 1}
FORGERIES = {
    "no accuracy": lambda line: line.pop("accuracy"),
    "words": lambda line: line["accuracy"].update(cnn="high"),
    "a list": lambda line: line.update(forgetting=[1]),
    "no number": lambda line: line["new_accuracy"].update(nme=float("nan")),
    "short row": lambda line: line["accuracy_per_task"]["cnn"].pop(),
    "row of words": lambda line: line["accuracy_per_task"].update(cnn=["a", "b"]),
    "bytes": lambda line: line["bytes"].update(network=[]),
    "seconds": lambda line: line.update(seconds=None),
    "names": lambda line: line.update(new_classes=[1]),
    "task": lambda line: line.update(task=7),
    "memory": lambda line: line.update(memory=-1),
    "more classes than there are": lambda line: line.update(seen=10**9),
    "no number of tasks": lambda line: line.update(tasks=None),
    "too few tasks": lambda line: line.update(tasks=1),
    "no parameters": lambda line: line.update(parameters=None),
    "no bytes": lambda line: line.update(bytes={}),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    record = Run(tmp_path_factory.mktemp("results") / "run")
    list(run(resolve(OPTIONS), record))
    return record, record.results()


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_line_is_told(forgery, finished, tmp_path, capsys):
    record, lines = finished
    changed = json.loads(json.dumps(lines))
    FORGERIES[forgery](changed[1])
    record.results_file.write_text("".join(json.dumps(line) + "\n" for line in changed))
    assert main(["report", str(record.folder), "--output", str(tmp_path / "report")]) == 2
    assert main(["compare", str(record.folder)]) == 2
    assert "line 2 is not the results of a task" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["environment.json", "failure.json"])
def test_endless_nesting_is_no_traceback(name, finished, tmp_path, capsys):
    record, lines = finished
    record.results_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = (record.folder / name).read_bytes() if (record.folder / name).exists() else b""
    (record.folder / name).write_text("[" * 100_000)
    assert (record.environments(), record.failure()) == (record.environments(), None)
    assert main(["report", str(record.folder), "--output", str(tmp_path / "report")]) == 0
    (record.folder / name).write_bytes(before)


def test_sizes_that_are_no_list_are_no_traceback(finished, tmp_path):
    record, lines = finished
    config = record.config_file.read_text()
    record.results_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = shutil.copytree(record.folder, tmp_path / "other")
    (other / "config.yaml").write_text(config.replace("sizes: null", "sizes: 1"))
    assert main(["compare", str(record.folder), str(other)]) == 0


@pytest.mark.parametrize("damage", [b"", bytes(100)])
def test_damaged_predictions_are_told(damage, finished):
    record, lines = finished
    record.results_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record.predictions_file(1).write_bytes(damage)
    with pytest.raises(PodnetError, match="are damaged"):
        final_confusion(record)


def test_a_line_of_an_earlier_version_is_read(finished):
    record, lines = finished
    less = (
        "backward_transfer",
        "learning_accuracy",
        "bytes",
        "parameters",
        "multiply_adds",
        "no_inference",
        "accuracy_top5",
    )
    old = [{key: value for key, value in line.items() if key not in less} for line in lines]
    record.results_file.write_text("".join(json.dumps(line) + "\n" for line in old))
    require_whole(record.results(), record.results_file)
