"""Estimate how long runs take: from the speed of a few iterations on this machine, and from the tasks that are done."""

import time
from collections.abc import Sequence
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
from podnet.methods.phases import Phase
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
    speed = _speed(kind, side, choose_device(experiment.device), experiment.threads)
    return sum(_costs(planned, *speed)[done:])


def seconds_left(runs: Sequence[Planned], share: bool = True) -> float | None:
    """Time that the rest of the runs takes one after the other, at the pace of the tasks done so far, if there are any.

    With `share` they start from shared first tasks.
    Runs of one benchmark mostly differ in the number of images they train on, not in the time that an image takes.
    """
    spent = work_done = work_left = 0.0
    shared = set()
    for run in runs:
        costs = _costs(run, step=3.0, forward=1.0)  # a step is a forward and a backward pass
        begun = run.first_task if share and run.has_first_task and not run.record.exists() else run
        if begun.record.folder in shared:  # another run counts this first task
            work_left += sum(costs[1:])
            continue
        shared.add(begun.record.folder)
        done = begun.tasks_done()
        spent += sum(sum(line["seconds"].values()) for line in (begun.record.results() if done else []))
        work_done += sum(costs[:done])
        work_left += sum(costs[done:])
    return spent / work_done * work_left if work_done else None


def _costs(planned: Planned, step: float, forward: float) -> list[float]:
    """What each task costs, if a training step and a forward pass of an image cost this much."""
    method, memory = planned.experiment.method, planned.experiment.memory()
    costs, old = [], 0
    for new in planned.sizes:
        kept, cost = memory.quota(old + new), 0.0
        seen_again = planned.images if method.sees_all_data else 0 if method.exemplars == "none" else kept
        for number, phase in enumerate(_phases(method, old, new)):
            if number == 0:
                cost += phase.epochs * (new * planned.images + old * seen_again) * (step + forward * phase.distils)
            else:  # on a balanced set, training only the classifier
                cost += phase.epochs * (old + new) * (method.reserved(kept) or kept) * forward
        costs.append(cost)
        old += new
    return costs


def _phases(method: Method, old: int, new: int) -> list[Phase]:
    """The phases of a task. One's own method may need its state for them: then those of a first task."""
    try:
        return phases_of(method, old, new, {}, first=not old)
    except Exception:
        return phases_of(method, 0, new, {}, first=True)


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
