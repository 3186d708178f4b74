"""A method: its hyper-parameters as fields, a classifier, how it grows, and its phases of training as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podnet.data.augment import Intensity
from podnet.errors import ConfigError
from podnet.fidelity import Fidelity
from podnet.memory.exemplars import first_of_each_class
from podnet.nets.classifiers import GrowingClassifier, LinearClassifier, LocalSimilarityClassifier, imprint
from podnet.nets.network import Network, Outputs

# (student, teacher or None, targets) -> named terms; training minimises their sum.
Loss = Callable[[Outputs, Outputs | None, Tensor], dict[str, Tensor]]
Schedule = Callable[[int], float]
State = dict[str, Tensor]  # what a method keeps from task to task; part of every checkpoint


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


def all_parameters(network: Network) -> list[nn.Parameter]:
    return list(network.parameters())


def all_but_old_classes(network: Network) -> list[nn.Parameter]:
    """Backbone, scale and the newest classes; the proxies of old classes stay fixed."""
    old = {id(weight) for weight in network.classifier.weights[:-1]}
    return [parameter for parameter in network.parameters() if id(parameter) not in old]


def without_scale(network: Network) -> list[nn.Parameter]:
    """Backbone and the newest classes."""
    return [*network.backbone.parameters(), network.classifier.weights[-1]]


def class_weights(network: Network) -> list[nn.Parameter]:
    """The classifier's weights for all classes, without its scale."""
    return list(network.classifier.weights)


def imprint_new_classes(
    network: Network,
    new: int,
    features: Callable[[], tuple[Tensor, Tensor]],
    seed: int,
    unit: bool = False,
    first: bool = False,
) -> None:
    """Random proxies for the first classes, imprinted ones (k-means of their features) for later classes.

    With `unit` the centres are normalised before they are scaled to the length of the old proxies. With `first` the
    first classes are imprinted too, with unit length.
    """
    classifier = network.classifier
    assert isinstance(classifier, LocalSimilarityClassifier)
    weights = None
    if classifier.classes:
        weights = imprint(*features(), classifier.proxies, seed)
        weights = (F.normalize(weights, dim=2) if unit else weights) * classifier.mean_norm()
    elif first:
        weights = F.normalize(imprint(*features(), classifier.proxies, seed), dim=2)
    classifier.add_classes(new, weights)


@dataclass(frozen=True)
class Phase:
    """One stage of training, carried out by the epoch loop."""

    name: str
    loss: Loss
    epochs: int
    lr: Schedule  # epoch -> learning rate
    images: Callable[[Pool], Tensor] = everything
    parameters: Callable[[Network], Iterable[nn.Parameter]] = all_parameters
    distils: bool = False  # run the teacher beside the student
    attention: bool = False  # Grad-CAM: scores must be differentiable in the last map
    augment: bool = True
    update_statistics: bool = True  # BatchNorm in training mode
    weight_decay: float | None = None  # None: the method's
    clip: float | None = None  # clamp each gradient element
    penalty: Callable[[Network], dict[str, Tensor]] | None = None  # terms of the weights, added to those of the loss

    def __post_init__(self) -> None:
        for part, example in {"loss": "loss(student, teacher, targets)", "lr": "constant(0.1)"}.items():
            if not callable(getattr(self, part)):
                given = getattr(self, part)
                raise ConfigError(f"the {part} of phase {self.name} is {given!r}; give a function, such as {example}.")
        if self.penalty is not None and not callable(self.penalty):
            raise ConfigError(f"the penalty of phase {self.name} is {self.penalty!r}; give a function of the network.")


def constant(lr: float) -> Schedule:
    return lambda epoch: lr


def cosine(lr: float, epochs: int, lag: int = 0) -> Schedule:
    """Cosine annealing to zero. With `lag` 1 the first two epochs have the same learning rate (released code)."""
    return lambda epoch: lr * (1 + math.cos(math.pi * max(0, epoch - lag) / epochs)) / 2


def stepwise(lr: float, epochs: int, milestones: Iterable[float], factor: float) -> Schedule:
    """The learning rate multiplied by `factor` at each milestone, given as a share of all epochs."""
    starts = [round(share * epochs) for share in milestones]
    return lambda epoch: lr * factor ** sum(epoch >= start for start in starts)


DIGITS = {"epochs": 20, "batch_size": 64}  # enough for 8x8 digits, which the papers do not use


@dataclass(frozen=True, kw_only=True)
class Method:
    """The base of all methods: epochs and learning rates, and what every method must define.

    Defaults are each paper's for CIFAR-100; `presets` hold what differs for other data, and for the choices of the
    field named by `switch`.
    """

    epochs: int = 160
    step_epochs: int | None = None  # for tasks after the first; None: the same as the first
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    intensity: Intensity = "none"
    backbone: str = "resnet32"

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str] = ""  # FILE.py:CLASS of a user-defined method
    inferences: ClassVar[tuple[str, ...]] = ("cnn", "nme")
    no_inference: ClassVar[str] = ""  # why an inference is missing
    keeps_exemplars: ClassVar[bool] = True
    fixed: ClassVar[bool] = False  # whether the backbone never changes
    wants_features: ClassVar[bool] = False  # whether `after_task` gets the features of the task's images
    sees_all_data: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    switch: ClassVar[str] = ""  # the field whose choices also have presets
    later: ClassVar[frozenset[str]] = frozenset()  # hyper-parameters without effect in the first task
    positive: ClassVar[frozenset[str]] = frozenset(
        {
            "epochs",
            "step_epochs",
            "batch_size",
            "lr",
            "proxies",
            "eta",
            "sharpness",
            "temperature",
            "negatives",
            "total_classes",
        }
    )

    def __post_init__(self) -> None:
        for option, value in vars(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if number and not (0 <= value < math.inf and (value > 0 or option not in self.positive)):
                least = "above 0" if option in self.positive else "0 or more"
                raise ConfigError(f"{option} is {value}; it must be {least}.")

    @property
    def backbone_fidelity(self) -> Fidelity:
        return "paper"

    @property
    def rectifies(self) -> bool:
        """Whether the classifier gets the last map after ReLU."""
        return False

    @property
    def roots(self) -> bool:
        """Whether the embedding is the signed square root of the backbone's."""
        return False

    def of_run(self, classes: int) -> Method:
        """The method for a run of this many classes in total, if it depends on that."""
        return self

    def reserved(self, quota: int) -> int:
        """How many of a class's `quota` exemplars the main phase never trains on; they come first."""
        return 0

    def classifier(self, dim: int) -> GrowingClassifier:
        """A classifier without classes."""
        return LinearClassifier(dim)

    def grow(self, network: Network, new: int, features: Callable[[], tuple[Tensor, Tensor]], seed: int) -> None:
        """Add `new` classes to the network. `features()` returns the new images' features and targets."""
        network.classifier.add_classes(new)

    def phases(self, old: int, new: int) -> list[Phase]:
        """The phases of a task that adds `new` classes to `old` ones."""
        raise NotImplementedError

    def after_task(self, network: Network, features: Tensor, targets: Tensor, state: State) -> State:
        """What the method keeps after a task, given what it kept before. May set the classifier's weights.

        `features` (N, D) are those of the task's images, if the method wants them, each computed once.
        """
        return state

    def without_class(self, network: Network, label: int, state: State) -> State:
        """What the method keeps without a class; the network's classifier has lost it already."""
        return state

    def class_means(self, state: State) -> Tensor | None:
        """The class means (classes, D) for NME; None: those of the exemplars."""
        return None


def phases_of(method: Method, old: int, new: int) -> list[Phase]:
    """The phases of a task, checked: the method may be user-defined."""
    if old and method.step_epochs is not None:
        method = replace(method, epochs=method.step_epochs)
    phases: Any = method.phases(old, new)
    if not isinstance(phases, list) or not all(isinstance(phase, Phase) for phase in phases):
        raise ConfigError(f"phases() of {method.name} returned {phases!r}; it must return a list of Phase.")
    return phases
