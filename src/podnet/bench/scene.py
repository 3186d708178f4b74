"""A learner in the middle of the paper's CIFAR-100 protocol, on noise: time does not depend on image content."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from podnet.data import Transform
from podnet.engine.learner import Learner
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import PODNet
from podnet.methods.base import State
from podnet.methods.phases import Phase
from podnet.scenario.tasks import Task

TRANSFORM = Transform((0.5,) * 3, (0.25,) * 3, intensity="shift")
IMAGES = 500  # per class, as in CIFAR-100


@dataclass(frozen=True, kw_only=True)
class Untrained(PODNet):
    """PODNet without training: only the steps before and after remain."""

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        return []


def noise(count: int, side: int = 32) -> Tensor:
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)


def before_a_step(
    old: int, method: PODNet, images: int = IMAGES, tested: int = 1, side: int = 32, per_class: int = 20
) -> tuple[Learner, Task]:
    """A learner that knows `old` classes and a task with one more; `tested` test images of each class."""
    learner = Learner(method, 3, TRANSFORM, ExemplarMemory(per_class))
    learner.network.classifier.add_classes(old)
    learner.class_names = [str(label) for label in range(old)]
    targets = torch.arange(old).repeat_interleave(per_class)
    learner.memory = replace(learner.memory, images=noise(len(targets), side), targets=targets)
    every = torch.arange(old + 1).repeat_interleave(tested)
    new = torch.full((images,), old)
    return learner, Task(1, old, 1, ("new",), noise(images, side), new, noise(len(every), side), every)


def stages(learner: Learner, task: Task) -> dict[str, float]:
    """Seconds of each stage of learning the task."""
    for _ in learner.learn(task):
        pass
    return learner.seconds
