"""Checkpoints: the whole state of a learner on disk."""

from typing import Any

from podnet.engine.learner import Learner
from podnet.errors import MALFORMED, DamagedFileError, PodnetError, printable
from podnet.io.files import keep_lines
from podnet.io.tensors import load_tensors, save_tensors
from podnet.runs.folder import Run
from podnet.runs.history import History, history_from, history_of
from podnet.runs.lines import require_whole

MOST_TASKS = 10**6
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
    meta = _restored(record, learner, notices)
    progress = learner.progress
    position = (meta["task"], progress.phase, progress.epoch) if progress else (meta["task"] + 1 if meta else 0, 0, 0)
    task = position[0]
    results = record.results()[:task]
    if [line["task"] for line in results] != list(range(task)):
        raise PodnetError(
            f"{record.results_file} lacks results of tasks before {task}; restore the file or start a new run."
        )
    require_whole(results, record.results_file)
    record.remove_unfinished()
    try:
        history = history_from(meta["history"], task) if "history" in meta else history_of(results)
        keep_lines(record.results_file, lambda line: line["task"] < task)
        keep_lines(record.epochs_file, lambda line: (line["task"], line["stage"], line["epoch"]) < position)
    except MALFORMED as error:
        raise PodnetError(
            f"files in {record.folder} are damaged ({error!r}); restore them or start a new run."
        ) from error
    return task, history, notices


def _restored(record: Run, learner: Learner, notices: list[str]) -> dict[str, Any]:
    """Restore the learner from the newest intact checkpoint; what that tells besides, nothing if there is none."""
    files = record.checkpoint_files()
    for path in files:
        try:
            tensors, meta = load_tensors(path)
            learner.restore(tensors, meta["learner"])  # exemplars may be in separate files
            if not 0 <= int(meta["task"]) < MOST_TASKS:
                raise ValueError(f"task {meta['task']}")
        except DamagedFileError as error:
            notices.append(f"{error} Using the previous checkpoint.")
            continue
        except MALFORMED as error:  # it is as it was written, but not for this run: nothing is removed
            why = printable(" ".join(str(error).split()))[:200]
            way = "start a new run" if path == files[-1] else "remove it to continue from the checkpoint before it"
            raise PodnetError(f"{path} does not fit this run ({why}); {way}.") from error
        for damaged in files[: files.index(path)]:
            damaged.unlink()
        return meta
    if files or len(record.results()) > 1:  # one line may be ahead of its checkpoint
        raise PodnetError(
            f"all checkpoints in {record.checkpoints} are damaged or missing; the results so far are unchanged. "
            f"To start again, delete {record.folder} and repeat the command, or choose another --output."
        )
    return {}
