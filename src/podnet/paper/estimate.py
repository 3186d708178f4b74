"""Estimate how long a run takes, from the speed of a few iterations on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache

import torch

from podnet.data import SOURCES, Transform
from podnet.engine.device import Compute, choose_device
from podnet.engine.learner import Learner
from podnet.engine.training import Iteration
from podnet.fidelity import Fidelity
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import Method, Replay
from podnet.methods.base import phases_of
from podnet.paper.plan import Planned
from podnet.scenario.tasks import Task

SIDES = {"digits": 8, "cifar": 32, "imagenet": 224}  # image side, by family of datasets
ITERATIONS = 3


@dataclass(frozen=True, kw_only=True)
class Yardstick(Replay):
    """Plain training of a method's network."""

    fidelity: Fidelity = "paper"

    @property
    def backbone_fidelity(self) -> Fidelity:
        return self.fidelity


def seconds(planned: Planned, done: int = 0) -> float:
    """Training time of a run with `done` finished tasks; everything else takes little time."""
    experiment = planned.experiment
    method = experiment.method
    side = experiment.image_size or SIDES[SOURCES[experiment.dataset].family]
    # Losses cost little compared to the network.
    kind = Yardstick(backbone=method.backbone, batch_size=method.batch_size, fidelity=method.backbone_fidelity)
    step, forward = _speed(kind, side, choose_device(experiment.device), experiment.threads)
    memory = ExemplarMemory(experiment.memory_per_class, experiment.memory_total)
    total, old = 0.0, 0
    for task, new in enumerate(planned.sizes):
        kept = memory.quota(old + new)
        for number, phase in enumerate([] if task < done else phases_of(method, old, new, {})):
            if number == 0:
                total += phase.epochs * (new * planned.images + old * kept) * (step + forward * phase.distils)
            else:  # on a balanced set, training only the classifier
                total += phase.epochs * (old + new) * (method.reserved(kept) or kept) * forward
        old += new
    return total


@cache
def _speed(method: Method, side: int, device: str, threads: int) -> tuple[float, float]:
    """Seconds per image for a training iteration and for a forward pass, measured on noise."""
    torch.set_num_threads(threads or torch.get_num_threads())
    count = ITERATIONS * method.batch_size
    images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)
    targets = torch.arange(count) % 2
    task = Task(0, 0, 2, ("first", "second"), images, targets, images, targets)
    transform = Transform((0.5,) * 3, (0.25,) * 3)
    learner = Learner(replace(method, epochs=1), 3, transform, ExemplarMemory(2), 0, Compute(device))
    moments = [time.perf_counter() for event in learner.learn(task) if isinstance(event, Iteration)]
    began = time.perf_counter()
    learner.predict(images)
    step = (moments[-1] - moments[0]) / (ITERATIONS - 1) / method.batch_size
    return step, (time.perf_counter() - began) / count
