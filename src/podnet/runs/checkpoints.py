"""Checkpoints: the whole state of a learner on disk."""

from __future__ import annotations

from typing import Any

from podnet.engine.learner import Learner
from podnet.errors import DamagedFileError, PodnetError
from podnet.io.files import keep_lines
from podnet.io.tensors import load_tensors, save_tensors
from podnet.runs.folder import Run
from podnet.runs.history import History, history_from, history_of

KEPT = 2  # the newest, and one more in case that is damaged


def write_checkpoint(record: Run, learner: Learner, task: int, history: History) -> None:
    """Save the learner, in the middle of a task or after it, and what is kept of the results so far."""
    tensors, meta = learner.state()
    progress = meta["progress"]
    moment = "end" if progress is None else f"{progress['phase']}-{progress['epoch']:05d}"
    about = {"task": task, "learner": meta, "history": history.as_json()}
    save_tensors(record.checkpoints / f"{task:04d}-{moment}.safetensors", tensors, about)
    for old in record.checkpoint_files()[KEPT:]:
        if old != record.trained_first_task():  # others may start from it
            old.unlink()


def restore(record: Run, learner: Learner) -> tuple[int, History, list[str]]:
    """Restore the learner from the newest intact checkpoint, and truncate the records to it.

    Returns the task to continue with, the history of those before it, and messages for the user.
    """
    notices: list[str] = []
    task, stage, epoch = 0, 0, 0
    recorded: dict[str, Any] | None = None  # an earlier version had none
    files = record.checkpoint_files()
    for path in files:
        try:
            tensors, meta = load_tensors(path)
            learner.restore(tensors, meta["learner"])  # exemplars may be in separate files
        except DamagedFileError as error:
            notices.append(f"{error} Using the previous checkpoint.")
            continue
        for damaged in files[: files.index(path)]:
            damaged.unlink()
        recorded = meta.get("history")
        task = meta["task"] if learner.progress else meta["task"] + 1
        if learner.progress:
            stage, epoch = learner.progress.phase, learner.progress.epoch
        break
    else:
        if files:
            raise PodnetError(
                f"all checkpoints in {record.checkpoints} are damaged; the results so far are unchanged. "
                f"To start again, delete {record.folder} and repeat the command, or choose another --output."
            )
    results = record.results()[:task]
    if [line["task"] for line in results] != list(range(task)):
        raise PodnetError(
            f"{record.results_file} lacks results of tasks before {task}; restore the file or start a new run."
        )
    record.remove_unfinished()
    keep_lines(record.results_file, lambda line: line["task"] < task)
    position = (task, stage, epoch)
    keep_lines(record.epochs_file, lambda line: (line["task"], line["stage"], line["epoch"]) < position)
    return task, history_of(results) if recorded is None else history_from(recorded), notices
