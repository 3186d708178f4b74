"""The learner: all the state there is. It learns a task, predicts, and can be saved and restored at any epoch."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.building import network_from, new_network
from podnet.data.augment import Transform
from podnet.data.images import (
    Images,
    from_tensors,
    join,
    require_every_class,
    self_contained,
    to_tensors,
)
from podnet.extraction import Extracted, extract
from podnet.herding import herd_classes
from podnet.memory import ExemplarMemory
from podnet.methods.base import Method, Phase, Pool
from podnet.network import Network, channels_last, compile_backbone, frozen_copy
from podnet.nme import class_means, nme_scores
from podnet.randomness import derive
from podnet.tasks import Task
from podnet.training import Epoch, Iteration, fit, make_optimizer, momenta, set_momenta

Precision = Literal["32", "tf32", "bf16-mixed"]


class Scores(NamedTuple):
    """What both inferences say of some images, (N, classes), the highest being the prediction; None where not made."""

    cnn: Tensor
    nme: Tensor | None
    indices: Tensor  # of the images: all of them, but for photos that could not be read and may be skipped


@dataclass
class Progress:
    """Where in a task the learner is: the epochs done of a phase, and the images it trains on."""

    phase: int = 0
    epoch: int = 0
    chosen: Tensor | None = None
    momenta: list[Tensor] | None = None


class Learner:
    """A network that learns classes in tasks by some method, with its memory of exemplars.

    `transform.flip` tells whether mirror images look like images of the class: then they count in the class means.
    """

    def __init__(
        self,
        method: Method,
        channels: int,
        transform: Transform,
        memory: ExemplarMemory | None = None,
        seed: int = 1,
        device: str = "cpu",
        compile: bool = False,
        precision: Precision = "32",
    ) -> None:
        self.method = method
        self.transform = replace(transform, intensity=method.intensity)
        self.memory = memory if memory is not None else ExemplarMemory()
        self.seed = seed
        self.device = torch.device(device)
        self.compile = compile
        self.precision = precision
        with self._seeded("network"):
            self.network = self._place(new_network(method, channels))
        self.class_names: list[str] = []
        self.means: Tensor | None = None  # (classes, D), of the exemplars
        self.previous: Network | None = None  # the network before the task under way, where the method distils
        self.progress: Progress | None = None  # None between tasks
        self.herded: Tensor | None = None  # the exemplars of the task under way, while the features stay as they are
        self.seconds: dict[str, float] = {}  # of each stage of the newest task

    def learn(self, task: Task) -> Iterator[Iteration | Epoch]:
        """Learn the classes of a task; yields a record of each iteration and each epoch.

        After an Epoch the state is complete: written down there and restored, `learn` of the same task goes on.
        """
        phases = self.method.phases(task.seen - len(task.taught), len(task.taught))
        if self.progress is None:
            if task.old != len(self.class_names):
                known = len(self.class_names)
                raise ValueError(f"task {task.index} comes after {task.old} classes, but this learner knows {known}.")
            self._begin(task, distils=any(phase.distils for phase in phases))
        assert self.progress is not None
        teacher = None if self.previous is None else self._place(frozen_copy(self.previous))
        images, pool = self._pool(task)
        trained = images.to(self.device) if isinstance(images, Tensor) else images
        targets = pool.targets.to(self.device)
        while self.progress.phase < len(phases):
            progress, phase = self.progress, phases[self.progress.phase]
            if progress.chosen is None:
                with self._timed("herd"):
                    progress.chosen = phase.images(pool)
            with self._timed(phase.name):
                optimizer = make_optimizer(self.network, phase, self.method.momentum, self.method.weight_decay)
                if progress.momenta is not None:
                    set_momenta(optimizer, progress.momenta)
                if self._moves_features(phase):
                    self.herded = None
                records = fit(
                    self.network,
                    phase,
                    optimizer,
                    trained[progress.chosen],
                    targets[progress.chosen],
                    self.transform,
                    self.method.batch_size,
                    (self.seed, task.index),
                    teacher,
                    progress.epoch,
                )
            while (record := self._next(records, phase.name)) is not None:
                if isinstance(record, Epoch):
                    progress.epoch = record.epoch + 1
                    progress.momenta = momenta(optimizer)
                yield record
            self.progress = Progress(progress.phase + 1)
        self._end(task, images, pool)

    def predict(self, images: Images) -> Scores:
        """Both inferences from one pass over photos or uint8 images (N, C, H, W)."""
        indices, features, logits = self._forward(images)
        return Scores(logits, None if self.means is None else nme_scores(features, self.means), indices)

    def features(self, images: Images) -> Tensor:
        """The embeddings (N, D) of un-augmented images."""
        return self._forward(images)[1]

    def forget(self, label: int) -> None:
        """Remove a class, its weights and its exemplars; the labels above it move down by one."""
        if self.progress is not None:
            raise ValueError("a class cannot be forgotten in the middle of a task.")
        self.network.classifier.remove_class(label)
        self.memory = self.memory.without_class(label)
        del self.class_names[label]
        if self.means is not None:
            self.means = torch.cat([self.means[:label], self.means[label + 1 :]])

    def _begin(self, task: Task, distils: bool) -> None:
        self.seconds = {}
        with self._timed("grow"):
            self.class_names += task.class_names
            self.previous = copy.deepcopy(self.network) if task.old and distils else None
            fresh = (task.train_targets >= task.old).nonzero().flatten() if task.refreshed else slice(None)
            with self._seeded("grow", task.index):
                if task.new:
                    self.method.grow(
                        self.network,
                        task.new,
                        lambda: self._features(task.train_images[fresh], task.train_targets[fresh]),
                        derive(self.seed, "imprint", task.index),
                    )
            self._place(self.network)
            self.progress = Progress()

    def _pool(self, task: Task) -> tuple[Images, Pool]:
        images, targets = task.train_images, task.train_targets
        if self.memory.images is not None and self.memory.targets is not None:
            images = join(images, self.memory.images)
            targets = torch.cat([targets, self.memory.targets])
        quota = self.memory.quota(task.seen)
        pool = Pool(targets, task.taught, quota, lambda: self._herd(images, targets, task.taught, quota))
        self.herded = None
        return images, pool

    def _moves_features(self, phase: Phase) -> bool:
        backbone = set(self.network.backbone.parameters())
        return phase.update_statistics or not backbone.isdisjoint(phase.parameters(self.network))

    def _herd(self, images: Images, targets: Tensor, taught: tuple[int, ...], quota: int) -> Tensor:
        """Indices of the exemplars of each class taught, in the order they were chosen."""
        if self.herded is None:
            own = torch.isin(targets, torch.tensor(taught)).nonzero().flatten()
            indices, features, _ = self._forward(images[own])
            require_every_class(targets[own], indices, self.class_names)
            own = own[indices]
            reserved = self.method.reserved(quota)
            self.herded = own[herd_classes(F.normalize(features).cpu(), targets[own], taught, quota, reserved)]
        return self.herded

    def _end(self, task: Task, images: Images, pool: Pool) -> None:
        if self.method.keeps_exemplars:
            with self._timed("herd"):
                chosen = pool.herded()
                exemplars = self_contained(images[chosen])
                self.memory = self.memory.with_classes(exemplars, pool.targets[chosen], task.seen)
        if "nme" in self.method.inferences:
            with self._timed("means"):
                kept, targets = self.memory.images, self.memory.targets
                assert kept is not None
                assert targets is not None
                features, targets = self._features(kept, targets)
                mirrored = self._features(kept, targets, mirror=True)[0] if self.transform.flip else None
                self.means = class_means(features, targets, mirrored)
        self.previous = None
        self.progress = None

    def _features(self, images: Images, targets: Tensor, mirror: bool = False) -> tuple[Tensor, Tensor]:
        """Embeddings of the images, or of their mirror images, and the targets, on the device."""
        indices, features, _ = self._forward(images, mirror)
        require_every_class(targets, indices, self.class_names)
        return features, targets[indices.to(targets.device)].to(self.device)

    def _forward(self, images: Images, mirror: bool = False) -> Extracted:
        return extract(self.network, images, self.transform, self.device, mirror)

    def _place(self, network: Network) -> Network:
        """The network on the device, in the layout and the form that are fastest there."""
        network.mixed = self.precision == "bf16-mixed"
        if self.compile:
            compile_backbone(network, self.method.batch_size)
        return channels_last(network.to(self.device))

    @contextmanager
    def _seeded(self, *purpose: object) -> Iterator[None]:
        """Initialisation draws from torch's global generator: set it for one purpose, then put it back."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(self.seed, *purpose))
            yield

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    def _next(self, records: Iterator[Iteration | Epoch], stage: str) -> Iteration | Epoch | None:
        with self._timed(stage):
            return next(records, None)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything, as tensors and JSON-able values."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        meta: dict[str, Any] = {
            "sizes": self.network.classifier.sizes,
            "class_names": self.class_names,
            "seconds": self.seconds,
            "progress": None,
            "previous_sizes": None,
        }
        if self.memory.images is not None and self.memory.targets is not None:
            tensors |= {f"memory.{name}": value for name, value in to_tensors(self.memory.images).items()}
            tensors["memory.targets"] = self.memory.targets
        if self.means is not None:
            tensors["means"] = self.means
        if self.previous is not None:
            tensors |= {f"previous.{name}": value for name, value in self.previous.state_dict().items()}
            meta["previous_sizes"] = self.previous.classifier.sizes
        if self.progress is not None:
            meta["progress"] = {"phase": self.progress.phase, "epoch": self.progress.epoch}
            if self.progress.chosen is not None:
                tensors["progress.chosen"] = self.progress.chosen
            for i, momentum in enumerate(self.progress.momenta or []):
                tensors[f"progress.momentum.{i}"] = momentum
        return tensors, meta

    def restore(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Become the learner whose `state` this is; method and seed must be the same."""
        self.network = self._network(tensors, "network.", meta["sizes"])
        self.previous = None
        if meta["previous_sizes"] is not None:
            self.previous = self._network(tensors, "previous.", meta["previous_sizes"])
        self.class_names = list(meta["class_names"])
        self.seconds = dict(meta["seconds"])
        memory = {name.removeprefix("memory."): value for name, value in tensors.items() if name.startswith("memory.")}
        self.memory = replace(self.memory, images=from_tensors(memory), targets=memory.get("targets"))
        self.means = tensors["means"].to(self.device) if "means" in tensors else None
        self.progress = None
        if meta["progress"] is not None:
            kept = [tensors[f"progress.momentum.{i}"] for i in range(_count(tensors, "progress.momentum."))]
            self.progress = Progress(chosen=tensors.get("progress.chosen"), momenta=kept or None, **meta["progress"])

    def _network(self, tensors: Mapping[str, Tensor], prefix: str, sizes: list[int]) -> Network:
        own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        return self._place(network_from(own, self.method, self.network.backbone.channels, sizes))


def _count(tensors: Mapping[str, Tensor], prefix: str) -> int:
    return sum(name.startswith(prefix) for name in tensors)
