"""The only task loop: learn each task, evaluate, write results and a checkpoint."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from podnet.data import Dataset, Photos
from podnet.engine.device import torch_settings
from podnet.engine.footprint import footprint
from podnet.engine.learner import Learner
from podnet.engine.saving import checkpointed
from podnet.engine.team import ALONE, Team
from podnet.engine.training import Epoch, Iteration
from podnet.errors import ConfigError, DamagedFileError, counted
from podnet.io.files import append_line
from podnet.io.tensors import load_tensors, save_tensors
from podnet.methods.own import telling_the_line
from podnet.metrics import INFERENCES
from podnet.runs.backbone import origin_of_weights
from podnet.runs.checkpoints import restore, write_checkpoint
from podnet.runs.environment import describe_environment
from podnet.runs.evaluation import TOP, evaluate, why_missing
from podnet.runs.experiment import Experiment
from podnet.runs.folder import Run
from podnet.runs.history import History, is_recorded
from podnet.scenario.tasks import Task, Tasks


@dataclass(frozen=True)
class TaskStarted:
    """A task begins, or continues after a resume."""

    task: int
    tasks: int
    old: int
    class_names: tuple[str, ...]
    refreshed: int = 0  # old classes that get more images


@dataclass(frozen=True)
class TaskDone:
    """A task is learned, evaluated and recorded."""

    result: dict[str, Any]


@dataclass(frozen=True)
class Notice:
    """Something the user should know."""

    text: str


Record = TaskStarted | Iteration | Epoch | TaskDone | Notice
Existing = Literal["refuse", "resume", "replace"]


def run(
    experiment: Experiment,
    record: Run,
    existing: Existing = "refuse",
    first_task: Run | None = None,
    team: Team = ALONE,
    allow_changed_method: bool = False,
) -> Iterator[Record]:
    """Run the experiment, or the rest of it, and record it on disk; yields events as they happen.

    An existing run in the folder is refused, resumed or replaced. A new run may start from a finished run of its first
    task (`Experiment.first_task`); its results are the same as without. In a team every process calls this, but only
    the main one writes and yields. If the file of a user-defined method was edited since the run began, the run
    continues only with `allow_changed_method`. torch's threads and precision are set for the run and restored after it.
    """
    threads = experiment.threads or (torch.get_num_threads() if team.size == 1 else team.cores())
    settings = torch_settings(threads, tf32=experiment.precision == "tf32")
    with settings, telling_the_line(experiment.method):
        begins = existing != "resume" or not record.checkpoint_files()
        dataset, tasks, learner = experiment.prepared(team, record.exemplars, begins)
        if not team.is_main:
            _take_part(learner, tasks)
            _left_out(dataset, team)
            return
        with record.locked():
            _require_permission(experiment, record, existing, len(tasks), allow_changed_method)
            origin = origin_of_weights(experiment.method) if begins else {}
            with record.noting_failure():
                start = yield from _first_to_learn(experiment, record, learner, len(tasks), existing, first_task)
                yield from _run(experiment, record, learner, tasks, start, origin)
            if text := _left_out(dataset, team):
                yield Notice(text)


def _require_permission(
    experiment: Experiment, record: Run, existing: Existing, tasks: int, allow_changed_method: bool
) -> None:
    """Refuse to touch an existing run, or to continue it with a changed method."""
    if record.exists() and existing == "refuse":
        raise ConfigError(
            f"{record.folder} already contains a run; continue it (--resume {record.folder}), "
            "replace it (--overwrite) or choose another --output."
        )
    file = _method_file(experiment)
    resumes = existing == "resume" and record.config_file.exists()
    if resumes and file and not allow_changed_method and len(record.results()) < tasks:
        record.require_unchanged_method(file)


def _first_to_learn(
    experiment: Experiment, record: Run, learner: Learner, tasks: int, existing: Existing, first_task: Run | None
) -> Generator[Notice, None, tuple[int, History]]:
    """Begin the run or restore its learner, in all processes; returns the task to continue with and those before."""
    if existing == "resume" and record.config_file.exists():
        first, history, notices = restore(record, learner)
        yield from map(Notice, notices)
    else:
        record.clear()
        record.write_config(experiment.options())
        if first_task is not None:
            yield from _begin_as(record, first_task, tasks)
        first, history, _ = restore(record, learner)
    if learner.team.size > 1:
        tensors, meta = learner.state()
        on_cpu = {name: value.cpu() for name, value in tensors.items()}  # not on the main process's GPU
        learner.team.from_main(lambda: (first, (on_cpu, meta)))
    return first, history


def _method_file(experiment: Experiment) -> Path | None:
    """The file of a user-defined method."""
    file = experiment.method.source.rpartition(":")[0]
    return Path(file) if file else None


def _take_part(learner: Learner, tasks: Tasks) -> None:
    """The loop of a process other than the main one: its share of every task."""
    first, state = learner.team.from_main(lambda: (0, learner.state()))
    learner.restore(*state)
    for index in range(first, len(tasks)):
        task = tasks[index]
        for _ in learner.learn(task):
            pass
        learner.rank(task.test_images, TOP)


def _run(
    experiment: Experiment,
    record: Run,
    learner: Learner,
    tasks: Tasks,
    start: tuple[int, History],
    origin: dict[str, Any],
) -> Iterator[Record]:
    first, history = start
    if first < len(tasks):
        record.write_environment(describe_environment() | origin)
        file = _method_file(experiment)
        if file and not record.keeps_method(file):
            yield Notice(f"{file} was changed after this run started; the original is {record.method_file}.")
    for index in range(first, len(tasks)):
        task = tasks[index]
        yield TaskStarted(index, len(tasks), task.old, task.class_names, len(task.refreshed))
        save = partial(write_checkpoint, record, learner, index, history)
        yield from _learn(record, learner, task, len(tasks), experiment.checkpoint_seconds, save)
        result = _evaluate(record, learner, task, tasks.sizes, history)
        history = history.after(result)
        if not is_recorded(index, len(tasks)):
            result["accuracy_per_task"] = dict.fromkeys(INFERENCES)
        append_line(record.results_file, result)
        write_checkpoint(record, learner, index, history)
        record.drop_predictions(index, len(tasks))
        yield TaskDone(result)


def _begin_as(record: Run, first_task: Run, tasks: int) -> Iterator[Notice]:
    trained = first_task.trained_first_task()
    try:
        if trained is not None:
            load_tensors(trained)
            record.begin_as(first_task, trained, tasks)
    except DamagedFileError as error:
        yield Notice(f"{error} Learning the first task again.")


def _left_out(dataset: Dataset, team: Team) -> str:
    """The unreadable photos that were skipped, over all processes, as one message."""
    names: dict[str, str] = {}
    for images in (dataset.train_images, dataset.test_images):
        if isinstance(images, Photos):
            names |= images.unreadable_names()
    names = {name: why for found in team.collected(names) for name, why in found.items()}
    shown = "; ".join(f"{name} ({why})" for name, why in list(names.items())[:10])
    more = f"; and {len(names) - 10} more" if len(names) > 10 else ""
    return f"skipped {counted(len(names), 'photo')} that cannot be read: {shown}{more}" if names else ""


def _learn(
    record: Run, learner: Learner, task: Task, tasks: int, checkpoint_seconds: float, save: Callable[[], None]
) -> Iterator[Record]:
    def noted() -> Iterator[Iteration | Epoch]:
        for event in learner.learn(task):
            if isinstance(event, Epoch):
                assert learner.progress is not None
                place = {"task": task.index, "tasks": tasks, "stage": learner.progress.phase}
                # "rate" is the key of the learning rate in run folders of all versions.
                values = {"rate" if name == "lr" else name: value for name, value in asdict(event).items()}
                append_line(record.epochs_file, place | values)
            yield event

    # After the training of the first task, because other runs may start from there.
    return checkpointed(noted(), save, checkpoint_seconds, lambda it: task.index == 0 and it.epoch + 1 == it.epochs)


def _evaluate(record: Run, learner: Learner, task: Task, sizes: tuple[int, ...], history: History) -> dict[str, Any]:
    """The results of a task, one line; its predictions go to a separate file."""
    began = time.perf_counter()
    measured, predictions = evaluate(learner, task, sizes[: task.index + 1], history)
    save_tensors(record.predictions_file(task.index), predictions, {"task": task.index})
    reason = why_missing(learner.method, measured["accuracy"])
    return {
        "task": task.index,
        "tasks": len(sizes),
        "seen": task.seen,
        "new_classes": list(task.class_names),
        **measured,
        **({"no_inference": reason} if reason else {}),
        "memory": len(learner.memory),
        **footprint(learner, task.test_images),
        "exemplars": learner.fingerprint,
        "seconds": learner.seconds | {"evaluate": time.perf_counter() - began},
    }
