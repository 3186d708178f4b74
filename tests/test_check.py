"""`podnet check`: every kind of damage is found, nothing is changed, and what it says about recovery is true."""

import json
import lzma
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from coloured import TRAINED, photos_of
from podnet.cli import main
from podnet.io.files import locked
from podnet.model.loading import load_model
from podnet.runs.folder import Run

QUICK = ["--epochs", "1", "--finetune-epochs", "1", "--batch-size", "32", "--threads", "1", "--checkpoint-seconds", "0"]
DIGITS = [*QUICK, "--classes", "5", "--base", "3", "--images-per-class", "24", "--memory-per-class", "5"]
PHOTOS = ["--dataset", "imagenet", "--order", "natural", "--base", "2", "--memory-per-class", "3", "--workers", "0"]
PHOTOS += ["--image-size", "16", "--backbone", "resnet32", "--exemplar-megabytes", "0"]  # exemplars go to files
METHOD = "from podnet import PODNet\n\n\nclass Mine(PODNet):\n    pass\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["podnet", "run", *DIGITS, "--output", str(folder)])  # recorded as its command
        assert main(sys.argv[1:]) == 0
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a finished run of three tasks, to be damaged."""
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    root = tmp_path_factory.mktemp("taught")
    for name in ("red", "green"):
        assert main(["learn", str(root / "m.podnet"), str(photos_of(root / name, name, "blue")), *TRAINED]) == 0
    return root


@pytest.fixture
def model(taught, tmp_path):
    """A copy of a model of two lessons, with the state before the second, to be damaged."""
    return shutil.copytree(taught, tmp_path / "models") / "m.podnet"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(path, capsys):
    """Exit code and what was said; no file may change."""
    before = contents(path if path.is_dir() else path.parent)
    capsys.readouterr()
    code = main(["check", str(path)])
    told = capsys.readouterr()
    assert contents(path if path.is_dir() else path.parent) == before
    return code, told.out + told.err


def flip(path, position=-5):
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_finished_run_is_whole(run, capsys):
    code, told = check(run, capsys)
    assert code == 0
    assert "finished: all 3 tasks" in told


def test_a_run_with_a_damaged_checkpoint_resumes_from_the_one_it_names(run, capsys):
    flip(run / "checkpoints" / "0002-end.safetensors")
    code, told = check(run, capsys)
    assert code == 1
    assert "0002-end.safetensors is damaged" in told
    assert "goes on from the checkpoint in task 2, phase 1, after epoch 1:" in told
    assert f"podnet run --resume {run}" in told
    assert main(["run", "--resume", str(run)]) == 0
    assert check(run, capsys)[0] == 0


def test_a_run_of_an_earlier_version_is_whole(run, capsys):
    """It did not record the number of tasks."""
    replace(run / "results.jsonl", "tasks", "unread")
    assert check(run, capsys)[0] == 0


def cut_results(run):
    path = run / "results.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))


def test_a_checkpoint_newer_than_the_results_must_go(run, capsys):
    """Not by a crash: results are written first. What the command says mends it."""
    cut_results(run)
    code, told = check(run, capsys)
    assert code == 1
    [command] = [line.strip() for line in told.splitlines() if line.strip().startswith("rm ")]
    remove, _, resume = command.partition(" && ")
    for path in shlex.split(remove)[1:]:
        Path(path).unlink()
    assert main(shlex.split(resume)[1:]) == 0
    assert check(run, capsys)[0] == 0


DAMAGE = {
    "config gone": (lambda run: (run / "config.yaml").unlink(), "--print-config > "),
    "config of bytes": (lambda run: (run / "config.yaml").write_bytes(b"\xff\x00"), "config.yaml"),
    "config with another option": (lambda run: (run / "config.yaml").write_text("nonsense: 3"), "no option 'nonsense'"),
    "results": (lambda run: flip(run / "results.jsonl", 0), "results.jsonl is damaged"),
    "a task without results": (lambda run: without_line(run / "results.jsonl", 1), "its tasks are 0 and 2"),
    "results without accuracy": (
        lambda run: replace(run / "results.jsonl", "accuracy", "a"),
        "line 1, has no accuracy",
    ),
    "results with a word for a number": (
        lambda run: replace(run / "results.jsonl", 'tasks": 3, "seen', 'tasks": "3", "seen'),
        "line 1 is not the results of a task (tasks is not a number)",
    ),
    "epochs": (lambda run: flip(run / "epochs.jsonl", 0), "epochs.jsonl is damaged"),
    "epochs without stage": (lambda run: replace(run / "epochs.jsonl", "stage", "s"), "line 1, has no stage"),
    "predictions": (lambda run: flip(run / "predictions" / "task-0001.safetensors"), "confusion matrix"),
    "predictions gone": (lambda run: (run / "predictions" / "task-0001.safetensors").unlink(), "predictions of task 1"),
    "environment": (lambda run: (run / "environment.json").write_text("[{"), "environment.json is damaged"),
    "failure": (lambda run: (run / "failure.json").write_text("{"), "failure.json is damaged"),
}


def without_line(path, number):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:number] + lines[number + 1 :]))


def replace(path, old, new):
    path.write_text(path.read_text().replace(f'"{old}"', f'"{new}"'))


@pytest.mark.parametrize("kind", DAMAGE)
def test_each_damage_of_a_run_is_named(run, capsys, kind):
    damage, words = DAMAGE[kind]
    damage(run)
    code, told = check(run, capsys)
    assert code == 1
    assert words in told
    assert "Traceback" not in told


def test_no_checkpoint_is_whole(run, capsys):
    for path in (run / "checkpoints").iterdir():
        flip(path)
    cut_results(run)
    code, told = check(run, capsys)
    assert code == 1
    assert f"podnet run --config {run}/config.yaml --output {run}-again" in told


def test_what_a_killed_process_leaves_is_told_and_is_no_damage(run, capsys):
    (run / "checkpoints" / ".0123456789abcdef.unfinished").write_bytes(b"x" * 500_000)
    with (run / "epochs.jsonl").open("a") as file:
        file.write('{"task": 2, "st')
    Run(run).failure_file.write_text('{"message": "the disk is full."}')
    code, told = check(run, capsys)
    assert code == 0
    for words in ("1 partial file of killed processes, 0.5 MB", "cut short", "error: the disk is full."):
        assert words in told


def test_a_run_that_is_being_written_is_told(run, capsys):
    with locked(run / ".lock", "busy"):
        assert "a process is writing this run" in check(run, capsys)[1]


def test_a_resumed_run_replaces_a_damaged_environment(run):
    """It was a traceback."""
    (run / "environment.json").write_text("[{")
    flip(run / "checkpoints" / "0002-end.safetensors")
    assert main(["run", "--resume", str(run)]) == 0
    assert len(Run(run).environments()) == 1


def test_exemplars_in_files_belong_to_a_checkpoint(tmp_path, capsys):
    for split in ("train", "val"):
        photos_of(tmp_path / "photos" / split, "red", "green", "blue", count=6)
    run = tmp_path / "run"
    assert main(["run", *QUICK, *PHOTOS, "--data-path", str(tmp_path / "photos"), "--output", str(run)]) == 0
    assert check(run, capsys)[0] == 0
    flip(max((run / "exemplars").iterdir()))
    code, told = check(run, capsys)
    assert code == 1
    assert "which contains exemplars, is missing or damaged" in told
    assert "goes on from the checkpoint" in told


def test_the_copy_of_a_method_is_read_but_not_executed(run, tmp_path, capsys):
    own, trap = tmp_path / "own.py", tmp_path / "executed"
    source = METHOD + f"\n\nopen({str(trap)!r}, 'w')\n"
    config = (run / "config.yaml").read_text().replace("method: podnet", f"method: {own}:Mine", 1)
    (run / "config.yaml").write_text(config)
    assert "is missing" in check(run, capsys)[1]
    (run / "method.py").write_text(source)
    assert "cp " in check(run, capsys)[1]
    own.write_text(source)
    assert check(run, capsys)[0] == 0
    own.write_text(source + "# edited")
    assert "was changed after the run began" in check(run, capsys)[1]
    (run / "method.py").write_text("class Other: pass")
    assert check(run, capsys)[0] == 1
    assert not trap.exists()


def test_a_folder_without_a_run_and_other_files_are_refused(run, tmp_path, capsys):
    assert check(tmp_path, capsys)[0] == 2
    assert check(tmp_path / "absent", capsys)[0] == 2
    code, told = check(run / "checkpoints" / "0002-end.safetensors", capsys)
    assert code == 2
    assert "give the folder of the run" in told


def test_a_model_is_whole_and_so_is_one_of_the_first_format(model, tmp_path, capsys):
    code, told = check(model, capsys)
    assert code == 0
    assert "3 classes, 2 lessons" in told
    assert f"podnet undo {model}" in told
    old = tmp_path / "old.podnet"
    old.write_bytes(lzma.decompress((Path(__file__).parent / "data" / "format-1.podnet.xz").read_bytes()))
    assert check(old, capsys)[0] == 0


@pytest.mark.parametrize("damage", [flip, lambda path: path.write_bytes(path.read_bytes()[:5000]), Path.unlink])
def test_a_damaged_or_lost_model_comes_back_from_the_state_before_it(model, capsys, damage):
    damage(model)
    code, told = check(model, capsys)
    assert code == 1
    [command] = [line.strip() for line in told.splitlines() if line.strip().startswith("mv ")]
    os.replace(*shlex.split(command)[1:])
    assert len(load_model(model).classes) == 2
    assert check(model, capsys)[0] == 0


@pytest.mark.parametrize("command", ["undo", "learn", "forget"])
def test_no_command_removes_the_backup_of_a_damaged_model(model, taught, capsys, command):
    """It is what `podnet check` recovers."""
    flip(model)
    more = {"undo": [], "learn": [str(taught / "green")], "forget": ["red"]}[command]
    assert main([command, str(model), *more]) == 2
    assert "damaged" in capsys.readouterr().err
    [before] = model.parent.glob(".m.podnet.before-*")
    assert len(load_model(before).classes) == 2


def test_the_command_for_a_lost_configuration_is_that_of_this_run(run, capsys):
    """Not of the run that its first task came from, nor one that made several."""
    own = json.loads((run / "environment.json").read_text())[0]
    others = ["podnet run --seeds 1,2", "podnet run --resume runs/x", "podnet reproduce cifar100"]
    (run / "environment.json").write_text(json.dumps([own | {"command": "podnet run --epochs 9"}, own]))
    wanted = own["command"] + " --print-config > "
    (run / "config.yaml").unlink()
    assert wanted in check(run, capsys)[1]
    (run / "environment.json").write_text(json.dumps([own | {"command": other} for other in others]))
    assert "--print-config" not in check(run, capsys)[1]


def test_a_damaged_backup_and_a_damaged_lesson_are_found(model, capsys):
    [before] = model.parent.glob(".m.podnet.before-*")
    flip(before)
    (model.parent / ".m.podnet.learning").write_bytes(b"half a lesson")
    code, told = check(model, capsys)
    assert code == 1
    assert "the model before its last change" in told
    assert "checkpoint of an interrupted lesson" in told
    assert "3 classes" in told
