"""The learner: all the state there is. It learns tasks, predicts, and can be saved and restored at any epoch."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.images import Images, fingerprint, join, require_every_class, shelved
from podnet.data.sources import Shelf
from podnet.engine import saving
from podnet.engine.batches import TrainingSet
from podnet.engine.device import PLAIN, Compute
from podnet.engine.extraction import Pass, Ranked, Scores
from podnet.engine.progress import Progress, require_same_task, summary_of
from podnet.engine.remembering import TaskBatches, checked, embedding, own_means
from podnet.engine.timing import timed
from podnet.engine.training import Epoch, Iteration, Stepper, fit, make_optimizer, moments, set_moments
from podnet.memory.exemplars import ExemplarMemory, first_of_each_class
from podnet.memory.herding import herd_classes
from podnet.memory.means import class_means, nme_scores
from podnet.methods.base import Method, State, phases_of
from podnet.methods.networks import grow, new_network, require_rebuilt
from podnet.methods.phases import Phase, Pool
from podnet.nets.backbones import Backbone
from podnet.nets.building import start_from
from podnet.nets.network import Network, Outputs, frozen_copy, in_full_precision
from podnet.randomness import derive, seeded
from podnet.scenario.tasks import Task


class Learner:
    """A network that learns classes in tasks with some method, and its memory of exemplars.

    `transform.flip`: mirror images show the same class, so they count in the class means.
    """

    def __init__(
        self,
        method: Method,
        channels: int,
        transform: Transform,
        memory: ExemplarMemory | None = None,
        seed: int = 1,
        compute: Compute = PLAIN,
        shelf: Shelf | None = None,
    ) -> None:
        self.method = method
        self.transform = replace(transform, intensity=method.intensity)
        self.memory = memory if memory is not None else ExemplarMemory()
        self.seed = seed
        self.compute = compute
        self.shelf = shelf  # for exemplars that do not fit into memory
        self.device = torch.device(compute.device)
        self.team = compute.team  # the processes that learn together; their learners reach the same state
        with seeded(seed, "network"):
            self.network = self.placed(new_network(method, channels))
        self.started = method.weights == "none"  # whether the backbone has its initial weights
        self.class_names: list[str] = []
        self.means: Tensor | None = None  # (classes, D), of the exemplars
        self.kept: State = {}  # what the method keeps from task to task
        self.previous: Network | None = None  # the network before the current task, if the method distils
        self.progress: Progress | None = None  # None between tasks
        self.herded: Tensor | None = None  # the exemplars of the current task, valid while the features do not change
        self.fingerprint = ""  # of the exemplars chosen in the newest task
        self._fast: tuple[Backbone, Backbone] | None = None  # a backbone at rest, and its copy for inference
        self.seconds: dict[str, float] = {}  # of each stage of the newest task

    def start(self) -> None:
        """Load the pretrained weights that the method begins with. The first task does it, unless it is done."""
        if not self.started:
            start_from(self.network.backbone, self.method.backbone, self.method.weights, self.seed)
            self.started = True

    def learn(self, task: Task) -> Iterator[Iteration | Epoch]:
        """Learn the classes of a task; yields a record of each iteration and each epoch.

        After an Epoch record the state can be saved. Restored from it, `learn(task)` continues.
        Until that task is done, any other is refused.
        """
        summary = summary_of(task)
        taught = len(task.taught)
        placed = ((name, value.to(self.device)) for name, value in self.kept.items())  # phases keep what they need
        phases = phases_of(self.method, task.seen - taught, taught, dict(placed), first=not task.old)
        if self.method.exemplars != "none":
            self.memory.require_room(task.seen)
        if self.progress is None:
            if task.old != len(self.class_names):
                known = len(self.class_names)
                raise ValueError(f"task {task.index} expects {task.old} known classes, but this learner knows {known}.")
            self._begin(task, distils=any(phase.distils for phase in phases))
            self.progress = Progress(summary)
        require_same_task(self.progress.task, summary)
        teacher = None if self.previous is None else self.placed(frozen_copy(self.previous))
        images, pool = self._pool(task)
        there = images.to(self.device) if isinstance(images, Tensor) else images
        data = TrainingSet(there, pool.targets.to(self.device), self.transform, self.method.batch_size, task.seen)
        while self.progress.phase < len(phases):
            yield from self._train(phases[self.progress.phase], pool, data, teacher, (self.seed, task.index))
            self.progress = Progress(self.progress.task, self.progress.phase + 1)
        yield from self._remember(task)
        self._end(task, images, pool)

    def _train(
        self, phase: Phase, pool: Pool, data: TrainingSet, teacher: Network | None, seed: tuple[int, int]
    ) -> Iterator[Iteration | Epoch]:
        """Train through a phase, or through what remains of it."""
        progress = self.progress
        assert progress is not None
        if progress.chosen is None:
            with timed(self.seconds, "herd"):
                progress.chosen = phase.images_of(pool)
            if phase.start is not None and len(progress.chosen):
                with seeded(*seed, phase.name, "start"):
                    phase.start(self.network)
                self.team.copy_from_main(self.network)
        if not len(progress.chosen):  # a balanced set, and no memory
            return
        with timed(self.seconds, phase.name):
            optimizer = make_optimizer(self.network, phase, self.method)
            scaler = self.compute.scaler()
            if progress.moments is not None:
                set_moments(optimizer, progress.moments)
            if progress.scaler:
                scaler.load_state_dict(progress.scaler)
            moves = self._moves_features(phase)
            if moves:
                self.herded = None
            stepper = Stepper(self.network, phase, optimizer, teacher, scaler, self.team)
            records = fit(stepper, data.only(progress.chosen), seed, progress.epoch)
        while True:
            with timed(self.seconds, phase.name):
                record = next(records, None)
            if moves:
                self._fast = None  # a copy from before this update
            if record is None:
                return
            if isinstance(record, Epoch):
                progress.epoch = record.epoch + 1
                progress.moments = moments(optimizer) if progress.epoch < record.epochs else None  # then of no use
                progress.scaler = scaler.state_dict()
            yield record

    def predict(self, images: Images) -> Scores:
        """Scores of both inferences, from one pass over photos or uint8 images (N, C, H, W)."""
        indices, cnn, *nme = self._extract(images, self._scores)
        return Scores(cnn, nme[0] if nme else None, indices)

    def rank(self, images: Images, count: int) -> Ranked:
        """The `count` best classes by both inferences, without a table of all images and classes."""
        count = min(count, len(self.class_names))
        indices, cnn, *nme = self._extract(
            images, lambda outputs: tuple(scores.topk(count, dim=1).indices for scores in self._scores(outputs))
        )
        return Ranked(cnn, nme[0] if nme else None, indices)

    def features(self, images: Images) -> Tensor:
        """The embeddings (N, D) of un-augmented images."""
        return self._extract(images, embedding)[1]

    def forget(self, label: int) -> None:
        """Remove a class, its weights and its exemplars; the labels above it move down by one."""
        if self.progress is not None:
            raise ValueError("a class cannot be forgotten in the middle of a task.")
        self.network.classifier.remove_class(label)
        self.memory = self.memory.without_class(label)
        del self.class_names[label]
        if self.kept:
            self.kept = self.method.without_class(self.network, label, self.kept)
        if self.means is not None:
            self.means = torch.cat([self.means[:label], self.means[label + 1 :]])

    def _begin(self, task: Task, distils: bool) -> None:
        self.seconds = {}
        self.start()
        with timed(self.seconds, "grow"):
            self.class_names += task.class_names
            self.previous = copy.deepcopy(self.network) if task.old and distils else None
            fresh = (task.train_targets >= task.old).nonzero().flatten() if task.refreshed else slice(None)

            def features() -> tuple[Tensor, Tensor]:
                found, targets = self._features(task.train_images[fresh], task.train_targets[fresh])
                # Only the main process runs k-means. The others imprint one image per class; this is overwritten below.
                kept = slice(None) if self.team.is_main else first_of_each_class(targets, 1)
                return found[kept], targets[kept]

            with seeded(self.seed, "grow", task.index):
                if task.new:
                    grow(self.method, self.network, task.new, features, derive(self.seed, "imprint", task.index))
            self.placed(self.network)
            self.team.copy_from_main(self.network)
            self._fast = None  # the backbone may have grown

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
        """Indices of the exemplars of each taught class, in the order they were chosen."""
        if self.herded is None:
            own = torch.isin(targets, torch.tensor(taught)).nonzero().flatten()
            indices, features = self._extract(images[own], embedding)
            require_every_class(targets[own], indices, self.class_names)
            own = own[indices]
            reserved = self.method.reserved(quota)
            self.herded = self.team.from_main(
                lambda: own[herd_classes(F.normalize(features).cpu(), targets[own], taught, quota, reserved)]
            )
        return self.herded

    def _remember(self, task: Task) -> Iterator[Iteration]:
        """Let the method update what it keeps; yields the progress of the pass over the task's images."""
        batches = TaskBatches(self._pass(), task.train_images, task.train_targets, self.class_names, self.memory)
        if self.method.wants_features:
            with timed(self.seconds, "features"):
                yield from batches.compute_features()
        with timed(self.seconds, "after_task"), seeded(self.seed, "after_task", task.index):
            self.network.eval().requires_grad_()
            kept = checked(self.method.after_task(in_full_precision(self.network), batches, self.kept), self.method)
            self.network.zero_grad()
            self.kept = self.team.from_main(lambda: {name: value.cpu() for name, value in kept.items()})
            self.team.copy_from_main(self.network)
        require_rebuilt(self.method, self.network)

    def _end(self, task: Task, images: Images, pool: Pool) -> None:
        if self.method.exemplars != "none" and self.memory.quota(task.seen):
            with timed(self.seconds, "herd"):
                chosen = pool.herded()
                name = f"{task.index:04d}.pack"
                exemplars = shelved(images[chosen], self.shelf, name, self.memory.images, self.team.from_main)
                self.fingerprint = fingerprint(exemplars, pool.targets[chosen])
                self.team.require_same("exemplars", self.fingerprint)
                self.memory = self.memory.with_classes(exemplars, pool.targets[chosen], task.seen)
        means = own_means(self.method, self.kept, self.network)
        if means is not None:
            self.means = means.to(self.device, copy=True)  # it may be part of the state
        elif "nme" in self.method.inferences and self.memory.images is not None:
            with timed(self.seconds, "means"):
                kept, targets = self.memory.images, self.memory.targets
                assert targets is not None
                features, labels = self._features(kept, targets)
                mirrored = self._features(kept, targets, mirror=True)[0] if self.transform.flip else None
                self.means = class_means(features, labels, mirrored)
        self.previous = None
        self.progress = None

    def _features(self, images: Images, targets: Tensor, mirror: bool = False) -> tuple[Tensor, Tensor]:
        """Embeddings of the images, or of their mirror images, and the targets, on the device."""
        indices, features = self._extract(images, embedding, mirror)
        require_every_class(targets, indices, self.class_names)
        return features, targets[indices.to(targets.device)].to(self.device)

    def _scores(self, outputs: Outputs) -> tuple[Tensor, ...]:
        scores = (outputs.logits,)
        return scores if self.means is None else (*scores, nme_scores(outputs.embedding, self.means))

    def _extract(
        self, images: Images, wanted: Callable[[Outputs], tuple[Tensor, ...]], mirror: bool = False
    ) -> tuple[Tensor, ...]:
        through = self._pass(mirror)
        return through.gathered(through.rows(images, wanted), len(images))

    def _pass(self, mirror: bool = False) -> Pass:
        averages = self.method.averages_mirrors and self.transform.flip
        return Pass(self._ready(), self.transform, self.device, mirror, self.team, averages)

    def _ready(self) -> Network:
        """The network to look at images with: if the backbone is at rest, with a faster copy of it, made once."""
        if not (self.method.fixed or self.method.freeze):
            return self.network
        if self._fast is None or self._fast[0] is not self.network.backbone:
            self._fast = (self.network.backbone, frozen_copy(self.network).backbone)
        ready = copy.copy(self.network)  # the classifier is the same object
        ready._modules = {**self.network._modules, "backbone": self._fast[1]}
        return ready

    def placed(self, network: Network) -> Network:
        return self.compute.place(network, self.method.batch_size)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The whole state, as tensors and JSON-able values."""
        return saving.state(self)

    def restore(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Restore what `state` returned; method and seed must be the same."""
        saving.restore(self, tensors, meta)
