"""Look for damage in a run folder without changing it: what is whole, what is not, and from where the run goes on."""

import ast
import re
import shlex
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podnet.data.images import from_tensors
from podnet.data.sources import Shelf
from podnet.engine.saving import below
from podnet.errors import (
    MALFORMED,
    ConfigError,
    Finding,
    MissingPackageError,
    PodnetError,
    counted,
    in_words,
    printable,
    quoted,
)
from podnet.io.tensors import load_tensors
from podnet.runs.config import as_it_ran, resolve
from podnet.runs.folder import Run
from podnet.runs.history import is_recorded
from podnet.runs.lines import require_whole

SEVERAL = re.compile(" --(resume|seeds|orders)")  # in a command that does not print the configuration of one run
PLACE = ("task", "stage", "epoch")  # of a line of epochs.jsonl
Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Moment:
    """A checkpoint that is whole, and the task with which a run goes on from it."""

    path: Path
    next_task: int
    words: str


def check_run(record: Run) -> Iterator[Finding]:
    """Look at all files of a run; the last finding says how it can go on."""
    if not record.exists():
        raise ConfigError(f"{printable(record.folder)} contains no run; give the folder of one run, or a model file.")
    writing = record.is_being_written()
    if writing:
        yield Finding("a process is writing this run: what is said here may have changed already", "note")
    yield from _config(record)
    yield from _environment(record)
    results = yield from _lines(record.results_file, record.results, ("accuracy",))
    if results is not None and (tasks := [line["task"] for line in results]) != list(range(len(tasks))):
        yield Finding(f"results.jsonl: its tasks are {in_words(map(str, tasks))}; some are missing", "broken")
        results = None
    try:
        require_whole(results or [], record.results_file)
    except PodnetError as error:
        yield Finding(str(error), "broken")
        results = None
    yield from _lines(record.epochs_file, record.epochs, PLACE)
    yield from _predictions(record, results or [])
    moments = yield from _checkpoints(record)
    if not writing:
        yield from _leftovers(record)
    yield _way_on(record, results, moments)


def _config(record: Run) -> Iterator[Finding]:
    """The configuration can be read and used. The file of a user's own method is parsed, never executed."""
    if not record.config_file.exists():
        commands = (_quoted_again(str(entry.get("command"))) for entry in record.environments())
        alone = [command for command in commands if command.startswith("podnet run ") and not SEVERAL.search(command)]
        again = f"{alone[-1]} --print-config > {quoted(record.config_file)}" if alone else ""
        words = "config.yaml is missing: the run cannot be resumed, and a new run in this folder would replace it"
        yield Finding(f"{words}{'; to write it again:' * bool(again)}", "broken", again)
        return
    try:
        config = record.config()
        source, _, name = str(config.get("method")).rpartition(":")
        if source:
            yield from _own_method(record, Path(source), name)
        else:
            resolve(as_it_ran(config))
    except MissingPackageError as error:
        yield Finding(f"config.yaml: {error}", "note")
    except (PodnetError, *MALFORMED) as error:
        yield Finding(f"config.yaml cannot be used: {error}", "broken")
    else:
        yield Finding("config.yaml")


def _quoted_again(command: str) -> str:
    """A command of a run folder from elsewhere, as one that runs nothing else; empty if it is none."""
    try:
        return printable(shlex.join(shlex.split(command)))
    except ValueError:
        return ""


def _own_method(record: Run, source: Path, name: str) -> Iterator[Finding]:
    copy, resume = record.method_file, f"podnet run --resume {quoted(record.folder)}"
    restore = f"cp {quoted(copy)} {quoted(source)}"
    try:
        content = copy.read_bytes()
        classes = {node.name for node in ast.walk(ast.parse(content)) if isinstance(node, ast.ClassDef)}
    except FileNotFoundError:
        yield Finding(f"method.py, the copy of {printable(source)} when the run began, is missing", "broken")
        return
    except (OSError, SyntaxError, ValueError) as error:
        yield Finding(f"method.py, the copy of {printable(source)}, cannot be read ({error})", "broken")
        return
    if name not in classes:
        yield Finding(f"method.py has no class {printable(name)}, which is the method of the run", "broken")
    elif not source.is_file():
        yield Finding(f"{printable(source)} is gone; the run has a copy of it:", "note", restore)
    elif source.read_bytes() != content:
        words = f"{printable(source)} was changed after the run began; restore it, or use --allow-changed-method:"
        yield Finding(words, "note", f"{restore} && {resume}")
    else:
        yield Finding("method.py")


def _environment(record: Run) -> Iterator[Finding]:
    if record.environment_file.exists() and not record.environments():
        words = "environment.json is damaged: the versions and the machine are lost, the results are not affected"
        yield Finding(words, "broken", f"rm {quoted(record.environment_file)}")
    if failure := record.failure():
        yield Finding(f"the run ended with an error: {printable(failure)}", "note")
    elif record.failure_file.exists():
        yield Finding("failure.json is damaged: why the run ended is lost; --resume removes it", "broken")


def _lines(path: Path, read: Callable[[], Lines], needed: Sequence[str]) -> Generator[Finding, None, Lines | None]:
    """Look at a file of JSON lines; returns them, or None if they are damaged."""
    try:
        lines = read()
        cut = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    except (PodnetError, OSError) as error:
        yield Finding(str(error), "broken")
        return None
    for number, line in enumerate(lines, start=1):
        if missing := [key for key in needed if key not in line]:
            yield Finding(f"{path.name}, line {number}, has no {missing[0]}", "broken")
            return None
    if lines:
        yield Finding(f"{path.name}: {counted(len(lines), 'line')}")
    if cut:
        words = f"{path.name}: its last line was cut short by a crash; it is ignored, and removed by --resume"
        yield Finding(words, "note")
    return lines


def _predictions(record: Run, results: Lines) -> Iterator[Finding]:
    """One file for each task whose predictions are recorded for good, and for the newest."""
    whole = 0
    for line in [each for each in results if each is results[-1] or is_recorded(each["task"], each.get("tasks") or 0)]:
        try:
            tensors, _ = load_tensors(record.predictions_file(line["task"]))
            if len({len(tensor) for tensor in (tensors["targets"], *tensors.values())}) > 1:
                raise ValueError("its tensors differ in length")
        except (PodnetError, *MALFORMED) as error:
            words = f"predictions of task {line['task']}: {error} Only its confusion matrix is lost"
            yield Finding(words, "broken")
        else:
            whole += 1
    if whole:
        yield Finding(f"predictions: {counted(whole, 'file')}")


def _checkpoints(record: Run) -> Generator[Finding, None, list[Moment]]:
    """Look at the checkpoints and the exemplars they name, newest first; returns those that are whole."""
    whole = []
    for path in record.checkpoint_files():
        try:
            tensors, meta = load_tensors(path)
            from_tensors(below("memory.", tensors), Shelf(record.exemplars, 0))
            task, progress = int(meta["task"]), meta["learner"]["progress"]
            words = f"after task {task}"
            if progress is not None:
                words = f"in task {task}, phase {progress['phase']}, after epoch {progress['epoch']}"
        except (PodnetError, *MALFORMED) as error:
            if path.exists():  # a process that writes the run removes old ones
                yield Finding(f"checkpoint {path.name}: {error}", "broken")
            continue
        whole.append(Moment(path, task + (progress is None), words))
        yield Finding(f"checkpoint {path.name}: {words}")
    return whole


def _leftovers(record: Run) -> Iterator[Finding]:
    if files := list(record.unfinished()):
        size = sum(path.stat().st_size for path in files) / 1e6
        words = f"{counted(len(files), 'partial file')} of killed processes, {size:.1f} MB; --resume removes them"
        yield Finding(words, "note")


def _way_on(record: Run, results: Lines | None, moments: Sequence[Moment]) -> Finding:
    """How the run can go on: as it is, from an earlier checkpoint, or not at all."""
    folder, config = quoted(record.folder), quoted(record.config_file)
    again = f"podnet run --config {config} --output {quoted(record.folder.with_name(record.folder.name + '-again'))}"
    if results is None:
        return Finding("results.jsonl must be restored from a copy; or start the run again:", "broken", again)
    tasks = results[-1].get("tasks", 0) if results else 0
    fitting = [moment for moment in moments if moment.next_task <= len(results)]
    if tasks and len(results) == tasks and (not moments or moments[0].next_task == tasks):
        return Finding(f"the run is finished: all {counted(tasks, 'task')} have results")
    if not fitting and (moments or record.checkpoint_files() or results):
        return Finding("no checkpoint fits the results, so the run cannot go on; start it again:", "broken", again)
    resume = f"podnet run --resume {folder}"
    if not fitting:
        return Finding("no task is done yet; the run starts from the beginning:", "note", resume)
    newer = [moment.path for moment in moments[: moments.index(fitting[0])]]
    remove = f"rm {' '.join(map(quoted, newer))} && " if newer else ""
    words = f"the run goes on from the checkpoint {fitting[0].words}:"
    return Finding(words, "broken" if newer else "note", remove + resume)
