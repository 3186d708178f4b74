"""An experiment: everything that determines the results of a run."""

import math
import os
import shutil
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from podnet.data import PHOTO_OPTIONS, SOURCES, Dataset, load
from podnet.data.sources import Shelf
from podnet.engine.device import Compute, Precision, choose_device
from podnet.engine.learner import Learner
from podnet.engine.team import ALONE, Team
from podnet.errors import ConfigError
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods.base import STEP, Method, phases_of
from podnet.processes import decoding_workers
from podnet.runs.backbone import as_expected
from podnet.scenario.orders import class_order
from podnet.scenario.tasks import Tasks, class_incremental, sizes_in_words, task_sizes

LEAST = {"threads": 0, "checkpoint_seconds": 0, "exemplar_megabytes": 0, "devices": 1, "num_nodes": 1, "visits": 1}


@dataclass(frozen=True)
class Experiment:
    """A method, a dataset and a protocol: everything that determines the results of a run."""

    method: Method
    dataset: str = "digits"
    data_path: str | None = None
    classes: int | None = None  # only this many, from the start of the order
    base: int | None = None  # classes of the first task; None: half of them
    increment: int | None = 1  # classes of each later task; None with `sizes`
    sizes: tuple[int, ...] | None = None  # classes of each task, instead of base and increment
    visits: int = 1  # parts of a class's training images: the first comes with its own task, then one a task
    order: str = "random"
    memory_per_class: int | None = 20
    memory_total: int | None = None
    images_per_class: int | None = None  # only this many training images of each class
    validation: float = 0.0  # share of the training images to test on, instead of the test images
    mirror: bool | None = None  # whether a mirror image shows the same class; None: as the dataset says
    subset: str | None = None  # classes of a larger dataset; for imagenet100: released, ucir or a file
    image_size: int | None = None  # side of photo crops; None: 224. CIFAR-100: 32 (None), 16 or 8
    input_size: int | None = None  # side that other images are scaled to; None: they stay as they are
    unreadable: Literal["error", "skip"] | None = None  # for photos that cannot be read; None: error
    seed: int = 1
    device: str = "auto"  # auto: a GPU if there is one
    compile: bool = False  # torch.compile the backbone: takes minutes once, then iterations are faster
    precision: Precision = "32"  # tf32, bf16-mixed and 16-mixed need a GPU that supports them
    devices: int = 1  # processes per machine: one GPU each, or a share of the cores; batch_size is the total
    num_nodes: int = 1  # machines
    sync_batchnorm: bool = True  # BatchNorm statistics over whole batches, also with several processes
    exemplar_megabytes: float = 256.0  # photos kept in memory; further exemplars go to files of the run
    threads: int = 0  # 0: torch's default
    workers: int | None = None  # processes that decode photos; None: one per core, at most 8
    checkpoint_seconds: float = 30.0  # training time that a crash may lose; checkpoints are at least one epoch apart

    def options(self) -> dict[str, Any]:
        """All options as one flat mapping, as on the command line; `resolve` of runs.config reads it back."""
        values: dict[str, Any] = {"method": self.method.source or self.method.name}
        values |= {f.name: getattr(self, f.name) for f in fields(self) if f.name != "method"}
        values |= asdict(self.method)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    def __post_init__(self) -> None:
        for option, least in LEAST.items():
            if not least <= getattr(self, option) < math.inf:
                raise ConfigError(f"{option} is {getattr(self, option)}; it must be {least} or more.")
        if self.input_size is not None and not 8 <= self.input_size <= 1024:
            raise ConfigError(f"input_size is {self.input_size}; it must be from 8 to 1024.")
        if self.sizes is None and self.increment is None:
            raise ConfigError("increment is none; give the new classes of each later task, or --sizes.")
        if self.sizes is not None:
            task_sizes(sum(self.sizes), *self._base_and_increment(0))
        if self.compile and not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
            raise ConfigError("--compile needs a C++ compiler, g++ or clang++; install one or leave --compile out.")

    def first_task(self) -> Self:
        """The experiment cut off after the first task; equal for all that differ only in later training.

        The number of exemplars affects the training of the first task only if the method reserves some.
        """
        if self.visits > 1:
            raise ConfigError("with --visits a first task cannot be shared: it brings only a part of its images.")
        base = self.sizes[0] if self.sizes else self.base
        method = (self.method if self.classes is None else self.method.of_run(self.classes)).of_first_task()
        later = method.later | set(STEP)
        defaults: dict[str, Any] = {f.name: f.default for f in fields(method) if f.name in later}
        alone = replace(self, method=replace(method, **defaults), classes=base, base=base, increment=1, sizes=None)
        if base is None or method.reserved(self.memory().quota(base)):
            return alone
        return replace(alone, memory_per_class=1, memory_total=None)  # exemplars are chosen after training

    def load_dataset(self, team: Team = ALONE) -> Dataset:
        given = {option: value for option in PHOTO_OPTIONS if (value := getattr(self, option)) is not None}
        if "workers" in SOURCES[self.dataset].options:
            given.setdefault("workers", decoding_workers(team.cores()))
        return load(self.dataset, self.data_path, given)

    def tasks(self, dataset: Dataset) -> Tasks:
        """The tasks, after checking that the protocol can work on this data."""
        order = self._order(dataset)
        base, increment = self._base_and_increment(len(order))
        cumulative = self.method.sees_all_data
        whole = class_incremental(dataset, order, base, increment, self.validation, cumulative, self.images_per_class)
        tasks = whole.visited(self.visits)
        self._check_memory(tasks)
        return tasks

    def task_sizes(self, classes: int) -> tuple[int, ...]:
        """The number of new classes of each task of a run of this many classes."""
        return task_sizes(classes, *self._base_and_increment(classes))

    def _base_and_increment(self, classes: int) -> tuple[int, int | tuple[int, ...]]:
        """Classes of the first task, and of the later ones: one number for all of them, or one for each."""
        if self.sizes is not None:
            return (self.sizes or (0,))[0], self.sizes[1:]
        return max(1, classes // 2) if self.base is None else self.base, self.increment or 0

    def _order(self, dataset: Dataset) -> list[int]:
        known = len(dataset.class_names)
        if self.sizes is not None and sum(self.sizes) > known:
            words = f"sizes {sizes_in_words(self.sizes)} are {sum(self.sizes)} classes"
            raise ConfigError(f"{words}, but {dataset.name} has {known}; give fewer tasks or smaller ones.")
        return class_order(self.order, dataset, self.seed, self.classes)

    def memory(self) -> ExemplarMemory:
        return ExemplarMemory(self.memory_per_class, self.memory_total)

    def learner(self, dataset: Dataset, team: Team = ALONE, folder: Path | None = None) -> Learner:
        transform = as_expected(dataset.transform, self.method, self.input_size)
        if self.mirror is not None:
            transform = replace(transform, flip=self.mirror)
        device = team.device(choose_device(self.device))
        compute = Compute(device, self.compile, self.precision, team, self.sync_batchnorm)
        shelf = Shelf(folder, int(self.exemplar_megabytes * 1e6)) if folder else None
        method = self.method.of_run(len(self._order(dataset)))
        return Learner(method, dataset.shape[0], transform, self.memory(), self.seed, compute, shelf)

    def prepared(
        self, team: Team = ALONE, folder: Path | None = None, begins: bool = True
    ) -> tuple[Dataset, Tasks, Learner]:
        """What a run needs before it trains. Settings that do not fit the data or the machine fail here.

        A run that `begins` needs its initial weights; one that is resumed has its own.
        """
        dataset = self.load_dataset(team)
        tasks, learner = self.tasks(dataset), self.learner(dataset, team, folder)
        phases_of(learner.method, 0, tasks.sizes[0], {}, first=True)
        if begins and team.is_main:  # the others get them from the main process
            learner.start()
        return dataset, tasks, learner

    def _check_memory(self, tasks: Tasks) -> None:
        if self.method.exemplars == "none":
            return
        if self.memory_per_class == 0 or self.memory_total == 0:
            if self.method.exemplars == "needed":
                raise ConfigError(
                    f"{self.method.name} needs exemplars, and the memory is 0; give --memory-per-class 1 or more, "
                    "or a method that works without: 'podnet methods' says which."
                )
            return
        classes = len(tasks.order)
        self.method.reserved(self.memory().quota(classes))
        counts = tasks.images_at_first()
        fewest = min(counts)
        if self.memory_per_class is not None and self.memory_per_class > fewest:
            name = tasks.dataset.class_names[tasks.order[counts.index(fewest)]]
            raise ConfigError(
                f"memory_per_class is {self.memory_per_class}, but class {name!r} has only {fewest} training images"
                f"{' at its first visit' * (self.visits > 1)}; lower it or add images to the class."
            )
        if self.memory_total is not None and not classes <= self.memory_total <= sum(counts):
            raise ConfigError(
                f"memory_total is {self.memory_total}; it must be from {classes} (one image per class) "
                f"to {sum(counts)} (all training images{' of the first visits' * (self.visits > 1)})."
            )
