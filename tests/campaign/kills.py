"""Kills: each command fails or stops at every single change of a file, then goes on, and the end is the same."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faults import HOWS, STOPPED, Faults
from forked import forked, podnet
from notes import Notes

from coloured import photos_of
from podnet.io.files import is_locked
from podnet.io.tensors import load_tensors
from podnet.model.changing import can_undo
from podnet.runs.folder import Run

SMALL = ["--classes", "3", "--base", "2", "--epochs", "1", "--batch-size", "8", "--images-per-class", "3"]
SMALL += ["--memory-per-class", "2", "--checkpoint-seconds", "0", "--threads", "1", "--device", "cpu"]
METHODS = {"podnet": ["--finetune-epochs", "1"], "ewc": [], "ridge": [], "bic": ["--bias-epochs", "2"]}
CLOSED = ["--train", "never", "--image-size", "32", "--workers", "0"]
TRAINED = ["--backbone", "resnet32", "--weights", "none", "--train", "always", "--image-size", "16", "--workers", "0"]
TRAINED += ["--epochs", "1", "--finetune-epochs", "1", "--exemplars", "2"]
REPRODUCE = ["proxies", "--scale", "smoke", "--columns", "1,2"]


@dataclass(frozen=True)
class Scenario:
    """A command that changes files in its folder, and what must hold after a fault and at the end."""

    name: str
    prepare: Callable[[Path], None]
    command: Callable[[Path], int]
    again: Callable[[Path], int]  # goes on after a fault
    bits: Callable[[Path], str]  # of what the command is for
    check: Callable[[Path, str, str], str | None]  # folder, bits before, bits at the end: after a fault
    leftovers: Callable[[Path], list[str]]  # at the end
    undoable: bool = False


# ---- runs ---------------------------------------------------------------------------------------------------------


def run_bits(folder: Path) -> str:
    """All that a run leaves, without the seconds."""
    record, digest = Run(folder / "run"), hashlib.sha256()
    if not record.config_file.exists():
        return ""
    for line in (*record.results(), *record.epochs()):
        digest.update(json.dumps({k: v for k, v in line.items() if k != "seconds"}).encode())
    for path in (*record.checkpoint_files()[:1], *sorted(record.predictions.glob("*.safetensors"))):
        for name, tensor in sorted(load_tensors(path)[0].items()):
            digest.update(name.encode() + tensor.contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def whole_run(folder: Path, before: str, end: str) -> str | None:
    """Every tensor file is whole, every line is JSON, nobody holds the lock."""
    for record in [Run(path.parent) for path in folder.rglob(".lock")]:
        if record.is_being_written():
            return f"{record.folder.name} is locked, and nobody writes it"
        try:
            record.results(), record.epochs()
            for path in (*record.checkpoint_files(), *record.predictions.glob("*.safetensors")):
                load_tensors(path)
            if record.config_file.exists():
                record.config()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None


def run_leftovers(folder: Path) -> list[str]:
    """Unfinished files, failures, and more than the newest two checkpoints and that of the first task."""
    found = [path.name for path in folder.rglob("*") if "unfinished" in path.name or path.name == "failure.json"]
    for checkpoints in folder.rglob("checkpoints"):
        files = sorted(path.name for path in checkpoints.iterdir())
        found += files if len(files) > 3 else []
    return found


def run_scenario(method: str) -> Scenario:
    options = ["run", "--method", method, *SMALL, *METHODS[method]]
    return Scenario(
        f"run {method}",
        lambda folder: None,
        lambda folder: podnet(*options, "--output", folder / "run")(),
        lambda folder: podnet(*options, "--output", folder / "run", "--resume")(),
        run_bits,
        whole_run,
        run_leftovers,
    )


# ---- models -------------------------------------------------------------------------------------------------------


def model_bits(folder: Path) -> str:
    """The model without the seconds of its lessons."""
    path = folder / "m.podnet"
    if not path.exists():
        return ""
    tensors, meta = load_tensors(path)
    meta["history"] = [{k: v for k, v in entry.items() if k != "seconds"} for entry in meta["history"]]
    meta["learner"].pop("seconds")
    digest = hashlib.sha256(json.dumps(meta).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode() + tensor.contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def whole_model(folder: Path, before: str, end: str) -> str | None:
    """The model is that before the command or that at its end, and nobody holds its lock."""
    try:
        found = model_bits(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found not in (before, end):
        return "the model is neither that before the command nor that after it"
    if is_locked(folder / ".m.podnet.lock"):
        return "the model is locked, and nobody changes it"
    return None


def model_leftovers(folder: Path) -> list[str]:
    """All but the model, the photos and what undo needs."""
    known = {"m.podnet", "photos", "more"}
    found = sorted(path.name for path in folder.iterdir() if path.name not in known)
    backups = [name for name in found if name.startswith(".m.podnet.before-")]
    if backups and not (len(backups) == 1 and can_undo(folder / "m.podnet")):
        return found
    return [name for name in found if name not in backups]


def _taught(options: list[str], lessons: int) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        photos_of(folder / "photos", "red", "green", "blue", count=6)
        photos_of(folder / "more", "grey", count=6)
        for photos in ("photos", "more")[:lessons]:
            assert forked(podnet("learn", folder / "m.podnet", folder / photos, *options), Path("/dev/null")) == 0

    return prepare


def _until_done(command: Callable[[Path], int]) -> Callable[[Path], int]:
    """Go on as a user does: repeat the command; where it was complete before the fault, a sentence says so."""

    def again(folder: Path) -> int:
        return 0 if command(folder) in (0, 2) else 1

    return again


def model_scenario(name: str, options: list[str], lessons: int, command: Callable[[Path], int]) -> Scenario:
    return Scenario(
        name,
        _taught(options, lessons),
        command,
        _until_done(command),
        model_bits,
        whole_model,
        model_leftovers,
        undoable=name.endswith("more"),
    )


def _learn(photos: str, options: list[str]) -> Callable[[Path], int]:
    return lambda folder: podnet("learn", folder / "m.podnet", folder / photos, *options)()


def _checkpointing(command: Callable[[Path], int]) -> Callable[[Path], int]:
    """A lesson with a checkpoint after every epoch."""

    def act(folder: Path) -> int:
        import podnet.model.lessons

        podnet.model.lessons.CHECKPOINT_SECONDS = 0
        return command(folder)

    return act


def _forget(folder: Path) -> int:
    return podnet("forget", folder / "m.podnet", "grey")()


def _undo(folder: Path) -> int:
    return podnet("undo", folder / "m.podnet")()


# ---- reproduce with two workers -----------------------------------------------------------------------------------


def _reproduce(folder: Path) -> int:
    """Its workers are forked, not started anew: that takes seconds each."""
    plain = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: plain("fork")
    return podnet("reproduce", *REPRODUCE, "--jobs", "2", "--output", folder / "all")()


def reproduce_bits(folder: Path) -> str:
    found = {}
    for path in sorted(folder.rglob("config.yaml")):
        place = folder / "one"
        place.mkdir(exist_ok=True)
        (place / "run").symlink_to(path.parent)
        found[str(path.parent.relative_to(folder))] = run_bits(place)
        shutil.rmtree(place)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


REPRODUCED = Scenario(
    "reproduce", lambda folder: None, _reproduce, _reproduce, reproduce_bits, whole_run, run_leftovers
)


def scenarios() -> list[Scenario]:
    return [
        model_scenario("learn closed first", CLOSED, 0, _learn("photos", CLOSED)),
        model_scenario("learn closed more", CLOSED, 1, _learn("more", CLOSED)),
        model_scenario("learn trained first", TRAINED, 0, _checkpointing(_learn("photos", TRAINED))),
        model_scenario("learn trained more", TRAINED, 1, _checkpointing(_learn("more", TRAINED))),
        model_scenario("forget", CLOSED, 2, _forget),
        model_scenario("forget trained", TRAINED, 2, _forget),
        model_scenario("undo", CLOSED, 2, _undo),
        *(run_scenario(method) for method in METHODS),
        REPRODUCED,
    ]


# ---- every change -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A scenario whose start and uninterrupted end are known."""

    scenario: Scenario
    root: Path
    before: str
    end: str
    changes: int
    seconds: float


def staged(scenario: Scenario, scratch: Path) -> Stage:
    """Prepare the scenario, and carry it out once without faults."""
    root = scratch / scenario.name.replace(" ", "-")
    (root / "start").mkdir(parents=True)
    scenario.prepare(root / "start")
    shutil.copytree(root / "start", root / "whole")
    faults, began = Faults(str(root / "whole")), time.monotonic()
    code = _with(faults, scenario.command, root / "whole", root / "output")
    assert code == 0, (root / "output").read_text()
    before, end = scenario.bits(root / "start"), scenario.bits(root / "whole")
    return Stage(scenario, root, before, end, faults.count, time.monotonic() - began)


def every_change(notes: Notes, scratch: Path) -> None:
    for scenario in [each for each in scenarios() if notes.wants(each.name)]:
        stage = staged(scenario, scratch)
        print(f"{scenario.name}: {stage.changes} changes", flush=True)
        for at in range(1, stage.changes + 1):
            for how in HOWS:
                notes.attempt(f"{scenario.name}/{how}/{at}", _case, stage, at, how)
        shutil.rmtree(stage.root)


def _with(faults: Faults, command: Callable[[Path], int], folder: Path, output: Path) -> int:
    def act() -> int:
        faults.install()
        return command(folder)

    return forked(act, output)


def _case(stage: Stage, at: int, how: str) -> str | None:
    folder = fresh_copy(stage)
    faults = Faults(str(folder), at, how)
    code = _with(faults, stage.scenario.command, folder, stage.root / "output")
    told = (stage.root / "output").read_text()
    if "Traceback" in told:
        return f"a traceback (exit code {code}): {told.strip().splitlines()[-1]}"
    if code not in (0, 1, 2, STOPPED):
        return f"exit code {code}"
    if faults.count < at and stage.scenario.name != "reproduce":  # whose two workers make another number of changes
        return "the fault did not happen"
    return aftermath(stage)


def fresh_copy(stage: Stage) -> Path:
    folder = stage.root / "case"
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(stage.root / "start", folder)


def aftermath(stage: Stage) -> str | None:
    """What does not hold after a fault, or after going on."""
    scenario, folder, output = stage.scenario, stage.root / "case", stage.root / "output"
    _wait_for_workers(folder)
    if wrong := scenario.check(folder, stage.before, stage.end):
        return wrong
    code = forked(lambda: scenario.again(folder), output)
    if code != 0 or "Traceback" in output.read_text():
        return f"going on ended with exit code {code}: {output.read_text().strip()[-300:]}"
    if scenario.bits(folder) != stage.end:
        return "the end differs from that of the uninterrupted command"
    if left := scenario.leftovers(folder):
        return f"left behind: {', '.join(left)}"
    if scenario.undoable and (forked(lambda: _undo(folder), output) != 0 or scenario.bits(folder) != stage.before):
        return "undo does not give the model before the command"
    return None


def _wait_for_workers(folder: Path) -> None:
    """Workers of a process that stopped end within a second or two."""
    while any(is_locked(path) for path in folder.rglob(".lock")):
        time.sleep(0.05)
