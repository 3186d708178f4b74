"""An experiment and the only task loop: learn each task, evaluate, write a line of results and a checkpoint."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from podnet.runs.checkpoints import restore, write_checkpoint
from podnet.data import PHOTO_OPTIONS, SOURCES, Dataset, Photos, load
from podnet.data.sources import Shelf
from podnet.engine.device import Compute, Precision, choose_device
from podnet.engine.learner import Learner
from podnet.engine.team import ALONE, Team
from podnet.engine.training import Epoch, Iteration
from podnet.runs.environment import describe_environment
from podnet.errors import ConfigError, DamagedFileError
from podnet.runs.evaluation import TOP, evaluate
from podnet.io.files import append_line
from podnet.io.tensors import load_tensors, save_tensors
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods.base import Method
from podnet.processes import decoding_workers, keep_freed_memory
from podnet.runs.folder import Run
from podnet.scenario.orders import class_order
from podnet.scenario.tasks import Task, Tasks, class_incremental, images_of_each_class


@dataclass(frozen=True)
class Experiment:
    """A method, a dataset and a protocol: all that decides the numbers of a run."""

    method: Method
    dataset: str = "digits"
    data_path: str | None = None
    classes: int | None = None  # only the first so many of the order
    base: int | None = None  # classes of the first task; half of them unless told otherwise
    increment: int = 1  # classes of each later task
    order: str = "random"
    memory_per_class: int | None = 20
    memory_total: int | None = None
    images_per_class: int | None = None  # only the first so many training images of each class
    validation: float = 0.0  # share of the training images held out to test on, instead of the test images
    mirror: bool | None = None  # whether a mirror image shows the same class; None: as the dataset says
    subset: str | None = None  # which classes of a larger dataset: for imagenet100 released, ucir or a file
    image_size: int | None = None  # side of the crops of photos; None: 224. Of CIFAR-100 32 (None), 16 or 8
    unreadable: Literal["error", "skip"] | None = None  # what to do about a photo that cannot be read; None: error
    seed: int = 1
    device: str = "auto"  # a GPU where there is one
    compile: bool = False  # the backbone by torch.compile: minutes once, then faster iterations
    precision: Precision = "32"  # tf32, bf16-mixed and 16-mixed are for GPUs that have them
    devices: int = 1  # processes on each machine: a GPU each, or a share of the cores; batch_size is that of all
    num_nodes: int = 1  # machines
    sync_batchnorm: bool = True  # statistics of whole batches, also of several processes
    exemplar_megabytes: float = 256.0  # of photos, which memory holds; further exemplars are in files of the run
    threads: int = 0  # 0: as many as torch would take
    workers: int | None = None  # processes that decode photos; None: one a core, at most 8
    checkpoint_seconds: float = 30.0  # at most this much training is lost to a crash, but never less than an epoch

    def options(self) -> dict[str, Any]:
        """Everything as one flat mapping, in the words of the command line; `podnet.runs.config.resolve` reads it back."""
        values: dict[str, Any] = {"method": self.method.source or self.method.name}
        values |= {f.name: getattr(self, f.name) for f in fields(self) if f.name != "method"}
        values |= asdict(self.method)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    def __post_init__(self) -> None:
        leasts = {"threads": 0, "checkpoint_seconds": 0, "exemplar_megabytes": 0, "devices": 1, "num_nodes": 1}
        for option, least in leasts.items():
            if not getattr(self, option) >= least:
                raise ConfigError(f"{option} is {getattr(self, option)}; it must be {least} or more.")
        if self.compile and not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
            raise ConfigError("compile needs a C++ compiler, g++ or clang++; install one, or leave --compile out.")

    def first_task(self) -> Experiment:
        """The experiment that ends after the first task: the same one for all whose training differs only later.

        How many exemplars a class may keep matters to the training of a first task only where a method reserves some.
        """
        method = self.method if self.classes is None else self.method.of_run(self.classes)
        later = method.later | {"step_epochs"}
        defaults: dict[str, Any] = {f.name: f.default for f in fields(method) if f.name in later}
        alone = replace(self, method=replace(method, **defaults), classes=self.base, increment=1)
        if self.base is None or method.reserved(self.memory().quota(self.base)):
            return alone
        return replace(alone, memory_per_class=1, memory_total=None)  # exemplars are chosen after training

    def load_dataset(self, team: Team = ALONE) -> Dataset:
        given = {option: value for option in PHOTO_OPTIONS if (value := getattr(self, option)) is not None}
        if "workers" in SOURCES[self.dataset].options:
            given.setdefault("workers", decoding_workers(team.cores()))
        return load(self.dataset, self.data_path, given)

    def tasks(self, dataset: Dataset) -> Tasks:
        """The tasks, after checking that the protocol can work on this data."""
        order = class_order(self.order, dataset, self.seed, self.classes)
        base = self.base if self.base is not None else max(1, len(order) // 2)
        cumulative = self.method.sees_all_data
        tasks = class_incremental(
            dataset, order, base, self.increment, self.validation, cumulative, self.images_per_class
        )
        self._check_memory(dataset, order)
        return tasks

    def memory(self) -> ExemplarMemory:
        return ExemplarMemory(self.memory_per_class, self.memory_total)

    def learner(self, dataset: Dataset, team: Team = ALONE, folder: Path | None = None) -> Learner:
        transform = dataset.transform if self.mirror is None else replace(dataset.transform, flip=self.mirror)
        device = team.device(choose_device(self.device))
        compute = Compute(device, self.compile, self.precision, team, self.sync_batchnorm)
        shelf = Shelf(folder, int(self.exemplar_megabytes * 1e6)) if folder else None
        method = self.method.of_run(len(class_order(self.order, dataset, self.seed, self.classes)))
        return Learner(method, dataset.shape[0], transform, self.memory(), self.seed, compute, shelf)

    def _check_memory(self, dataset: Dataset, order: list[int]) -> None:
        if not self.method.keeps_exemplars:
            return
        self.method.reserved(self.memory().quota(len(order)))
        counts = images_of_each_class(dataset, self.images_per_class)[order]
        counts = counts - (self.validation * counts).round().long()
        smallest = int(counts.argmin())
        if self.memory_per_class is not None and self.memory_per_class > int(counts[smallest]):
            raise ConfigError(
                f"memory_per_class is {self.memory_per_class}, but class {dataset.class_names[order[smallest]]!r} has "
                f"only {int(counts[smallest])} training images; lower it, or add images to the class."
            )
        if self.memory_total is not None and not len(order) <= self.memory_total <= int(counts.sum()):
            raise ConfigError(
                f"memory_total is {self.memory_total}; it must be from {len(order)} (one image for each class) "
                f"to {int(counts.sum())} (all training images)."
            )


@dataclass(frozen=True)
class TaskStarted:
    """A task begins, or goes on after a resume."""

    task: int
    tasks: int
    old: int
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class TaskDone:
    """A task is learned, evaluated and written down."""

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
) -> Iterator[Record]:
    """Run the experiment, or the rest of it, leaving its record on disk; yields what happens as it happens.

    A run that is in the folder already is refused, resumed or replaced. A new one may start from a finished run of its
    first task (`Experiment.first_task`) and comes to exactly what it would have come to. Of a team, every process calls
    this; only the main one writes and has something to tell.
    """
    keep_freed_memory()
    torch.set_num_threads(experiment.threads or (torch.get_num_threads() if team.size == 1 else team.cores()))
    torch.set_float32_matmul_precision("high" if experiment.precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = experiment.precision == "tf32"
    dataset = experiment.load_dataset(team)
    tasks = experiment.tasks(dataset)
    learner = experiment.learner(dataset, team, record.exemplars)
    if not team.is_main:
        _take_part(learner, tasks)
        _left_out(dataset, team)
        return
    with record.locked():
        if record.exists() and existing == "refuse":
            raise ConfigError(
                f"{record.folder} already holds a run; go on with it (--resume {record.folder}), "
                "replace it (--overwrite) or choose another --output."
            )
        with record.noting_failure():
            if existing == "resume" and record.config_file.exists():
                first, notices = restore(record, learner)
                yield from map(Notice, notices)
            else:
                record.clear()
                record.write_config(experiment.options())
                if first_task is not None:
                    yield from _begin_as(record, first_task, len(tasks))
                first, _ = restore(record, learner)
            if team.size > 1:
                tensors, meta = learner.state()
                on_cpu = {name: value.cpu() for name, value in tensors.items()}  # theirs is not the main one's GPU
                team.from_main(lambda: (first, (on_cpu, meta)))
            yield from _run(experiment, record, learner, tasks, first)
        if text := _left_out(dataset, team):
            yield Notice(text)


def _take_part(learner: Learner, tasks: Tasks) -> None:
    """What a process does that is not the main one: its share of every task, from where that one goes on."""
    first, state = learner.team.from_main(lambda: (0, learner.state()))
    learner.restore(*state)
    for index in range(first, len(tasks)):
        task = tasks[index]
        for _ in learner.learn(task):
            pass
        learner.rank(task.test_images, TOP)


def _run(experiment: Experiment, record: Run, learner: Learner, tasks: Tasks, first: int) -> Iterator[Record]:
    if first < len(tasks):
        record.write_environment(describe_environment())
        file = experiment.method.source.rpartition(":")[0]
        if file and not record.keeps_method(Path(file)):
            yield Notice(f"{file} was changed since this run began; what it was then is in {record.folder}.")
    for index in range(first, len(tasks)):
        task = tasks[index]
        yield TaskStarted(index, len(tasks), task.old, task.class_names)
        yield from _learn(record, learner, task, len(tasks), experiment.checkpoint_seconds)
        result = _evaluate(record, learner, task, tasks.sizes)
        append_line(record.results_file, result)
        write_checkpoint(record, learner, index)
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
    """The photos that could not be read and were done without, by any process, named and counted."""
    names: dict[str, str] = {}
    for images in (dataset.train_images, dataset.test_images):
        if isinstance(images, Photos):
            names |= images.unreadable_names()
    names = {name: why for found in team.collected(names) for name, why in found.items()}
    shown = "; ".join(f"{name} ({why})" for name, why in list(names.items())[:10])
    more = f"; and {len(names) - 10} more" if len(names) > 10 else ""
    count = "1 photo" if len(names) == 1 else f"{len(names)} photos"
    return f"left out, because they cannot be read: {count}: {shown}{more}" if names else ""


def _learn(record: Run, learner: Learner, task: Task, tasks: int, checkpoint_seconds: float) -> Iterator[Record]:
    saved = time.monotonic()
    for event in learner.learn(task):
        if isinstance(event, Epoch):
            assert learner.progress is not None
            line = {"task": task.index, "tasks": tasks, "stage": learner.progress.phase, **asdict(event)}
            append_line(record.epochs_file, line)
            trained = task.index == 0 and event.epoch + 1 == event.epochs  # what other runs may begin from
            if trained or time.monotonic() - saved >= checkpoint_seconds:
                write_checkpoint(record, learner, task.index)
                saved = time.monotonic()
        yield event


def _evaluate(record: Run, learner: Learner, task: Task, sizes: tuple[int, ...]) -> dict[str, Any]:
    """The line of results of a task; its predictions go to a file of their own."""
    began = time.perf_counter()
    measured, predictions = evaluate(learner, task, sizes[: task.index + 1], record.results())
    save_tensors(record.predictions / f"task-{task.index:04d}.safetensors", predictions, {"task": task.index})
    return {
        "task": task.index,
        "tasks": len(sizes),
        "seen": task.seen,
        "new_classes": list(task.class_names),
        **measured,
        "memory": len(learner.memory),
        "exemplars": learner.fingerprint,
        "seconds": learner.seconds | {"evaluate": time.perf_counter() - began},
    }
