"""What the loggers write, read back by each program's own reader and compared with the run's lines."""

import csv
import json
import shutil
import struct
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec

import pytest

from podnet.cli import main
from podnet.engine.training import Epoch
from podnet.runs.folder import Run
from podnet.runs.loggers import LOGGERS, logged, logger_names
from podnet.runs.loop import Notice, TaskDone

OPTIONS = ["--classes", "4", "--images-per-class", "40", "--epochs", "2", "--finetune-epochs", "1"]
OPTIONS += ["--checkpoint-seconds", "0", "--threads", "1"]
MEASURES = ("accuracy", "accuracy_top5", "average_incremental_accuracy", "forgetting")
MEASURES += ("backward_transfer", "learning_accuracy", "old_accuracy", "new_accuracy")


def installed(name):
    package = {"csv": "csv"}.get(name, name)
    return pytest.param(
        name,
        marks=pytest.mark.skipif(
            find_spec(package) is None, reason=f"{name} is not installed; pip install 'podnet[{name}]'"
        ),
    )


every_logger = pytest.mark.parametrize("name", [installed(name) for name in LOGGERS])


def expected_of(run):
    """Name -> (step, value) of every number in the run's two files."""
    found, epochs = defaultdict(list), defaultdict(int)
    for line in run.epochs():
        phase, step = line["phase"], epochs[line["phase"]]
        for term, value in line["losses"].items():
            found[f"loss {phase}/{term}"].append((step, value))
        found[f"learning rate/{phase}"].append((step, line["rate"]))
        epochs[phase] += 1
    for line in run.results():
        numbers = {f"{measure}/{i}": line[measure][i] for measure in MEASURES for i in ("cnn", "nme")}
        numbers |= {f"size/{name}": line[name] for name in ("memory", "parameters", "multiply_adds")}
        numbers |= {f"bytes/{part}": value for part, value in line["bytes"].items()}
        numbers |= {f"seconds/{stage}": value for stage, value in line["seconds"].items()}
        for name, value in numbers.items():
            if value is not None:
                found[name].append((line["seen"], value))
    return dict(found)


def tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert len(list(run.events.iterdir())) == 1
    read = EventAccumulator(str(run.events))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def table(run):
    found, epochs = defaultdict(list), defaultdict(dict)
    with open(run.folder / "metrics.csv", newline="") as file:
        for row in csv.DictReader(file):
            assert bool(row["phase"]) == bool(row["epoch"]) != bool(row["classes"])
            own = epochs[row["phase"]]
            step = own.setdefault((row["task"], row["epoch"]), len(own)) if row["phase"] else int(row["classes"])
            found[row["name"]].append((step, float(row["value"])))
    return dict(found)


def wandb_records(path):
    """The records of a .wandb file: a log in LevelDB's format of the package's own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), 7, []
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:  # the rest of a block is empty
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        if not kind:
            break
        parts.append(data[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            yield record


def wandb(run):
    (path,) = (run.folder / "wandb").glob("offline-run-*/*.wandb")
    found, last = defaultdict(list), -1
    for record in wandb_records(path):
        if record.WhichOneof("record_type") != "history":
            continue
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        assert items["_step"] == last + 1
        last = items["_step"]
        axes = {name: value for name, value in items.items() if name == "classes" or name.startswith("epoch/")}
        assert len(axes) == 1
        for name, value in items.items():
            if name not in axes and name != "task" and not name.startswith("_"):
                found[name].append((next(iter(axes.values())), value))
    return dict(found)


def mlflow(run, where=None):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(where or run.folder / "mlflow").as_uri())
    (experiment,) = [each for each in client.search_experiments() if each.name == "podnet"]
    (own,) = [each for each in client.search_runs([experiment.experiment_id]) if each.info.run_name == run.folder.name]
    assert own.info.status == "FINISHED"
    assert own.data.params["method"] == "podnet"
    histories = {name: client.get_metric_history(own.info.run_id, name) for name in own.data.metrics}
    return {name: [(metric.step, metric.value) for metric in history] for name, history in histories.items()}


READERS = {"tensorboard": tensorboard, "csv": table, "wandb": wandb, "mlflow": mlflow}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run without loggers."""
    folder = tmp_path_factory.mktemp("runs") / "first run"
    assert main(["run", *OPTIONS, "--output", str(folder)]) == 0
    return Run(folder)


@pytest.fixture
def quiet(monkeypatch):
    """No server, no account, no settings of whoever runs the tests."""
    for variable in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # for the reader


def check(name, run):
    found, expected = READERS[name](run), expected_of(run)
    assert found.keys() == expected.keys()
    for number, values in expected.items():
        assert [step for step, _ in found[number]] == [step for step, _ in values], number
        tolerance = 1e-6 if name == "tensorboard" else 0  # which has float32
        assert [value for _, value in found[number]] == pytest.approx([value for _, value in values], rel=tolerance)
    assert [step for step, _ in found["old_accuracy/cnn"]] == [line["seen"] for line in run.results()[1:]]


@every_logger
@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore")  # of these packages about themselves
def test_a_run_that_is_logged_and_goes_on(name, tmp_path, capsys):
    run = Run(tmp_path / "a run")
    assert main(["run", *OPTIONS, "--logger", name, "--output", str(run.folder)]) == 0
    assert "note:" not in capsys.readouterr().out
    check(name, run)
    run.checkpoint_files()[0].unlink()  # as if it had been stopped within the last task
    assert main(["run", "--resume", str(run.folder), "--logger", name]) == 0
    check(name, run)
    quick = ["--method", "ridge", "--classes", "2", "--threads", "1"]
    assert main(["run", *quick, "--overwrite", "--output", str(run.folder)]) == 0
    left = {"tensorboard": "tensorboard", "csv": "metrics.csv"}.get(name, name)
    assert not (run.folder / left).exists()  # of the run that was replaced


@every_logger
@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore")
def test_a_finished_run_is_logged_afterwards(name, finished, capsys):
    before = finished.results_file.read_bytes()
    assert main(["run", "--resume", str(finished.folder), "--logger", name]) == 0
    check(name, finished)
    assert finished.results_file.read_bytes() == before


def test_the_earlier_option_is_one_of_the_loggers(finished, capsys):
    assert main(["run", "--resume", str(finished.folder), "--tensorboard", "--logger", "csv"]) == 0
    check("tensorboard", finished)
    check("csv", finished)


def test_a_table_that_a_crash_cut_short_is_written_anew(finished, capsys):
    assert main(["run", "--resume", str(finished.folder), "--logger", "csv"]) == 0
    path = finished.folder / "metrics.csv"
    whole = path.read_text()
    path.write_text(whole + whole[-200:-7])
    assert main(["run", "--resume", str(finished.folder), "--logger", "csv"]) == 0
    assert path.read_text() == whole


class Breaks:
    """A logger that fails at some call."""

    def __init__(self, at, message="disk\nis full"):
        self.left, self.message, self.rows, self.closed = at, message, [], None

    def write(self, rows):
        self.left -= 1
        if not self.left:
            raise OSError(self.message)
        self.rows += rows

    def close(self, failed):
        self.closed = failed


def epoch(finished):
    line = finished.epochs()[0]
    return Epoch(line["phase"], line["epoch"], line["epochs"], line["rate"], line["losses"], line["seconds"])


def test_a_logger_that_fails_is_left_out_and_the_others_go_on(finished):
    records = [epoch(finished)] * 3 + [TaskDone(finished.results()[0])]
    bad, good = Breaks(at=2), Breaks(at=100)
    passed = list(logged(iter(records), finished, {"bad": bad, "good": good}))
    (notice,) = [record for record in passed if isinstance(record, Notice)]
    assert notice.text == (
        "the logger bad failed (disk is full) and logs no more; the run goes on. "
        "When it is done, --resume with --logger bad writes everything."
    )
    assert [record for record in passed if record is not notice] == records
    assert bad.left == 0  # it was not called again
    assert good.closed is False
    assert len(good.rows) == len(finished.epochs()) + len(finished.results())
    assert [row.number for row in good.rows] == list(range(len(good.rows)))
    order = [(row.line["task"], row.kind) for row in good.rows]
    assert order == sorted(order)  # the epochs of a task, then its results


def test_loggers_of_a_run_that_is_stopped_are_closed(finished):
    def stops():
        yield epoch(finished)
        raise KeyboardInterrupt

    logger, bad = Breaks(at=100), Breaks(at=100)
    bad.close = lambda failed: 1 / 0
    with pytest.raises(KeyboardInterrupt):
        list(logged(stops(), finished, {"bad": bad, "logger": logger}))
    assert logger.closed is True
    left = logged(iter([epoch(finished)] * 2), finished, {"logger": logger})
    next(left)
    logger.closed = None
    left.close()
    assert logger.closed is True


def test_a_file_that_cannot_be_written_is_told_and_the_run_ends_well(finished, tmp_path, capsys):
    run = Run(shutil.copytree(finished.folder, tmp_path / "copy"))
    run.table_file.unlink(missing_ok=True)
    run.table_file.mkdir()
    assert main(["run", "--resume", str(run.folder), "--logger", "csv"]) == 0
    said = capsys.readouterr().out
    assert "note: the logger csv failed (cannot write" in said
    assert "average incremental accuracy:" in said


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_told_before_anything_is_written(name, tmp_path, monkeypatch, capsys):
    hidden = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, hidden, None)
    assert main(["run", *OPTIONS, "--logger", f"csv,{name}", "--output", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert f"pip install 'podnet[{name}]'." in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_names_of_loggers(capsys, tmp_path):
    assert logger_names(["csv,wandb", "csv", " mlflow"]) == ["csv", "wandb", "mlflow"]
    assert logger_names([]) == []
    assert main(["run", *OPTIONS, "--logger", "wandbb", "--output", str(tmp_path / "run")]) == 2
    assert "logger is 'wandbb'; it must be one of csv, mlflow, tensorboard, wandb. Did you mean 'wandb'?" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_the_packages_are_imported_only_when_they_are_asked_for():
    names = ("wandb", "mlflow", "tensorboard", "torch.utils.tensorboard")
    code = f"import sys, podnet.cli.run; sys.exit(any(name in sys.modules for name in {names}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed; pip install 'podnet[mlflow]'")
@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_on_a_server_replaces_only_the_same_run(finished, tmp_path, monkeypatch, capsys):
    """A folder of files stands for the server: the client speaks to both alike."""
    server = tmp_path / "server"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.as_uri())
    other = Run(tmp_path / "other")
    few = ["--epochs", "1", "--finetune-epochs", "1"]
    assert main(["run", *OPTIONS[:4], *few, "--output", str(other.folder), "--logger", "mlflow"]) == 0
    for _ in range(2):
        assert main(["run", "--resume", str(finished.folder), "--logger", "mlflow"]) == 0
        assert mlflow(finished, server).keys() == expected_of(finished).keys()
    assert mlflow(other, server)["accuracy/cnn"]
    assert not (other.folder / "mlflow").exists()


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed; pip install 'podnet[wandb]'")
@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_its_id_and_knows_the_axes(finished, capsys):
    ids = set()
    for _ in range(2):
        assert main(["run", "--resume", str(finished.folder), "--logger", "wandb"]) == 0
        (path,) = (finished.folder / "wandb").glob("offline-run-*/*.wandb")
        records = list(wandb_records(path))
        (begun,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
        ids.add(begun.run_id)
        assert (begun.project, begun.display_name) == ("podnet", "first run")
        axes = {}
        for record in records:
            if record.WhichOneof("record_type") == "metric":
                axes[record.metric.name] = record.metric.step_metric
        assert axes["accuracy/cnn"] == axes["bytes/network"] == "classes"
        assert axes["loss train/nca"] == axes["learning rate/train"] == "epoch/train"
        assert axes["learning rate/finetune"] == "epoch/finetune"
    assert len(ids) == 1
