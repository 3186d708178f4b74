"""A phase of training as data: which images, which parameters, which loss, for how long, at which learning rate."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podnet.data.augment import MIXING, Augmentation, require_possible
from podnet.errors import ConfigError, one_of
from podnet.memory.exemplars import first_of_each_class
from podnet.nets.network import Network, Outputs

Terms = dict[str, Tensor]  # named terms of a loss; training minimises their sum
Loss = Callable[[Outputs, Outputs | None, Tensor], Terms]  # of student, teacher or None, and targets (B,)
Penalty = Callable[[Network, Outputs, Tensor], Terms]  # of the network, its outputs and targets
Schedule = Callable[[int], float]
Optimizer = Literal["sgd", "adamw"]
OPTIMIZERS: tuple[Optimizer, ...] = ("sgd", "adamw")


@dataclass(frozen=True)
class Pool:
    """The images a task may train on: those of the new classes, then the exemplars of the old ones."""

    targets: Tensor
    taught: tuple[int, ...]  # labels of the task's classes; the others have exemplars only
    quota: int  # exemplars a class may keep
    herded: Callable[[], Tensor]  # indices of the exemplars of the taught classes, chosen with the current features


def everything(pool: Pool) -> Tensor:
    """All new images and all exemplars."""
    return torch.arange(len(pool.targets))


def balanced(pool: Pool) -> Tensor:
    """As many images of each new class as of each old one: newly herded ones, and the exemplars within the quota."""
    kept = first_of_each_class(pool.targets, pool.quota)
    fresh = torch.isin(pool.targets[kept], torch.tensor(pool.taught))
    return torch.cat([pool.herded(), kept[~fresh]])


def cross_entropy(student: Outputs, teacher: Outputs | None, targets: Tensor) -> Terms:
    """The loss where nothing is distilled."""
    return {"ce": F.cross_entropy(student.logits, targets)}


def all_parameters(network: Network) -> list[nn.Parameter]:
    return list(network.parameters())


def all_but(fixed: Iterable[nn.Parameter], parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters without the fixed ones."""
    left_out = {id(parameter) for parameter in fixed}
    return [parameter for parameter in parameters if id(parameter) not in left_out]


def all_but_old_classes(network: Network) -> list[nn.Parameter]:
    """Backbone, scale and the newest classes; the proxies of old classes stay fixed."""
    return all_but(network.classifier.weights[:-1], network.parameters())


def without_scale(network: Network) -> list[nn.Parameter]:
    """Backbone and the newest classes."""
    return [*network.backbone.parameters(), network.classifier.weights[-1]]


def class_weights(network: Network) -> list[nn.Parameter]:
    """The classifier's weights for all classes, without its scale."""
    return list(network.classifier.weights)


def constant(lr: float) -> Schedule:
    return lambda epoch: lr


def cosine(lr: float, epochs: int, lag: int = 0) -> Schedule:
    """Cosine annealing to zero. With `lag` 1 the first two epochs have the same learning rate (released code)."""
    return lambda epoch: lr * (1 + math.cos(math.pi * max(0, epoch - lag) / epochs)) / 2


def stepwise(lr: float, epochs: int, milestones: Iterable[float], factor: float) -> Schedule:
    """The learning rate multiplied by `factor` at each milestone, given as a share of all epochs."""
    starts = [round(share * epochs) for share in milestones]
    return lambda epoch: lr * factor ** sum(epoch >= start for start in starts)


def warmed_up(schedule: Schedule, epochs: int) -> Schedule:
    """The schedule, reached by a linear rise over the first epochs."""
    return lambda epoch: schedule(epoch) * min(1.0, (epoch + 1) / (epochs + 1))


def _takes_three(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True


@dataclass(frozen=True)
class Phase:
    """One stage of training, carried out by the epoch loop."""

    name: str
    loss: Loss
    epochs: int
    lr: Schedule  # epoch -> learning rate
    images: Callable[[Pool], Tensor] = everything
    start: Callable[[Network], None] | None = None  # changes the network before the first epoch
    parameters: Callable[[Network], Iterable[nn.Parameter]] = all_parameters
    distils: bool = False  # run the teacher beside the student
    attention: bool = False  # Grad-CAM: scores must be differentiable in the last map
    augment: bool = True
    augmentation: tuple[Augmentation, ...] | None = None  # more than crops and mirror images; None: the method's
    soft_targets: bool = False  # the loss also takes targets (B, classes), which mixed images have
    update_statistics: bool = True  # BatchNorm in training mode
    optimizer: Optimizer | None = None  # None: the method's
    weight_decay: float | None = None  # None: the method's
    clip: float | None = None  # clamp each gradient element
    penalty: Penalty | None = None  # terms that need the network itself, added to those of the loss

    def __post_init__(self) -> None:
        examples = {"loss": "loss(student, teacher, targets)", "lr": "constant(0.1)"}
        if self.penalty is not None:
            examples["penalty"] = "penalty(network, student, targets)"
        for part, example in examples.items():
            if not callable(given := getattr(self, part)):
                raise ConfigError(f"the {part} of phase {self.name} is {given!r}; give a function, such as {example}.")
            if part != "lr" and not _takes_three(given):
                raise ConfigError(f"the {part} of phase {self.name} must take three arguments: {example}.")
        if not isinstance(self.epochs, int) or self.epochs < 0:
            raise ConfigError(f"the epochs of phase {self.name} are {self.epochs!r}; give a whole number, 0 or more.")
        if self.clip is not None and not self.clip > 0:
            raise ConfigError(f"the clip of phase {self.name} is {self.clip!r}; it must be above 0, or None.")
        if self.optimizer is not None:
            one_of(f"the optimizer of phase {self.name}", self.optimizer, OPTIMIZERS)
        require_possible(f"phase {self.name}", self.augmentation or ())

    def images_of(self, pool: Pool) -> Tensor:
        """Indices of the images to train on, checked: the method may be user-defined."""
        chosen = self.images(pool)
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < len(pool.targets):
            raise ConfigError(
                f"phase {self.name} chooses images {int(chosen.min())} to {int(chosen.max())}; "
                f"the task has 0 to {len(pool.targets) - 1}."
            )
        return chosen

    def lr_of(self, epoch: int) -> float:
        lr = self.lr(epoch)
        if not 0 <= lr < math.inf:
            raise ConfigError(f"the lr of phase {self.name} is {lr} in epoch {epoch + 1}; it must be 0 or more.")
        return lr

    @property
    def mixing(self) -> frozenset[Augmentation]:
        """How images are mixed with others: one way, or none."""
        return MIXING.intersection(self.augmentation or ()) if self.augment else frozenset()


def frozen(phase: Phase, method: str) -> Phase:
    """The phase without the backbone: it trains the other parameters only, and BatchNorm keeps its statistics."""

    def parameters(network: Network) -> list[nn.Parameter]:
        if others := all_but(network.backbone.parameters(), phase.parameters(network)):
            return others
        raise ConfigError(
            f"phase {phase.name} of {method} trains the backbone only, and freeze keeps it as it is; "
            "leave --freeze out."
        )

    return replace(phase, parameters=parameters, update_statistics=False)
