"""A method: its hyper-parameters as fields, a classifier, how it grows, its phases of training, what it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.data.augment import Augmentation, Intensity, require_possible
from podnet.errors import ConfigError
from podnet.fidelity import Fidelity
from podnet.methods.phases import Optimizer, Phase, frozen, warmed_up
from podnet.nets.backbones import Backbone
from podnet.nets.classifiers import GrowingClassifier, LinearClassifier, LocalSimilarityClassifier, imprint
from podnet.nets.network import Network

Idea = Literal["own", "bounds", "replay", "distillation", "regularisation", "expansion", "closed form"]
Exemplars = Literal["none", "optional", "needed"]  # "optional": a memory of 0 images works too
Features = Callable[[], tuple[Tensor, Tensor]]  # computes the embeddings (N, D) of the new images, and their targets
State = dict[str, Tensor]  # what a method keeps from task to task; part of every checkpoint


def imprint_new_classes(
    network: Network, new: int, features: Features, seed: int, unit: bool = False, first: bool = False
) -> None:
    """Random proxies for the first classes, imprinted ones (k-means of their features) for later classes.

    With `unit` the centres are normalised before they are scaled to the length of the old proxies. With `first` the
    first classes are imprinted too, with unit length.
    """
    classifier = network.classifier
    assert isinstance(classifier, LocalSimilarityClassifier)
    weights = None
    if classifier.classes or first:
        weights = imprint(*features(), classifier.proxies, seed)
        if unit or not classifier.classes:
            weights = F.normalize(weights, dim=2)
        if classifier.classes:
            weights = weights * classifier.mean_norm()
    classifier.add_classes(new, weights)


IMAGENET = {"epochs": 90, "milestones": (1 / 3, 2 / 3), "weight_decay": 1e-4, "backbone": "resnet18"}  # UCIR's
DIGITS = {"epochs": 20, "batch_size": 64}  # enough for 8x8 digits, which the papers do not use


STEP = {"step_epochs": "epochs", "step_lr": "lr"}  # for tasks after the first -> what it stands in for


class Batches(Protocol):
    """The images of a task for `after_task`, un-augmented, in a fixed order."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs (B, C, H, W), normalised, and their targets (B,)."""

    def features(self) -> tuple[Tensor, Tensor]:
        """The embeddings (N, D) of all images, and their targets."""

    def with_exemplars(self) -> Batches:
        """The same, followed by the exemplars of the old classes."""


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
    step_lr: float | None = None  # of the main phase, for tasks after the first; None: the same as in the first
    warmup_epochs: int = 0  # the learning rate of the main phase rises over this many epochs
    optimizer: Optimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    intensity: Intensity = "none"
    augmentation: tuple[Augmentation, ...] = ()  # beyond crops, mirror images and intensity
    backbone: str = "resnet32"
    weights: str = "none"  # initial weights of the backbone: "package" (lite), "hub" (timm) or a file; "none": random
    freeze: bool = False  # the backbone stays as it is: phases train the classifier only

    name: ClassVar[str]
    summary: ClassVar[str]
    idea: ClassVar[Idea] = "own"  # what it does against forgetting
    year: ClassVar[int] = 0  # of its paper
    verified: ClassVar[str] = ""  # what the implementation was compared with
    source: ClassVar[str] = ""  # FILE.py:CLASS of a user-defined method
    inferences: ClassVar[tuple[str, ...]] = ("cnn", "nme")
    no_inference: ClassVar[str] = ""  # why an inference is missing
    exemplars: ClassVar[Exemplars] = "needed"
    fixed: ClassVar[bool] = False  # whether the backbone changes in the first task at most
    wants_features: ClassVar[bool] = False  # compute the features for `after_task` before it, showing progress
    sees_all_data: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    switch: ClassVar[str] = ""  # the field whose choices also have presets
    # By name and family of data: docs/recipes.md.
    recipes: ClassVar[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {"fast": {"cifar": {"step_epochs": 30}}}
    later: ClassVar[frozenset[str]] = (
        frozenset()
    )  # hyper-parameters without effect in the first task, besides those in STEP
    positive: ClassVar[frozenset[str]] = frozenset({"epochs", "step_epochs", "batch_size", "lr", "step_lr"})

    def __post_init__(self) -> None:
        for option, value in vars(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if number and not (0 <= value < math.inf and (value > 0 or option not in self.positive)):
                least = "above 0" if option in self.positive else "0 or more"
                raise ConfigError(f"{option} is {value}; it must be {least}.")
        require_possible(type(self).__name__, self.augmentation)

    @property
    def backbone_fidelity(self) -> Fidelity:
        return "paper"

    @property
    def rectifies(self) -> bool:
        """Whether the classifier gets the last map after ReLU."""
        return False

    @property
    def differentiates_maps(self) -> bool:
        """Whether it needs gradients of the scores with respect to the maps."""
        return False

    @property
    def averages_mirrors(self) -> bool:
        """Whether the embedding of an image is averaged with that of its mirror image, except in training."""
        return False

    def of_run(self, classes: int) -> Method:
        """The method for a run of this many classes in total, if it depends on that."""
        return self

    def of_first_task(self) -> Method:
        """The method that trains the first task in the same way: their runs can share it."""
        return self

    def reserved(self, quota: int) -> int:
        """How many of a class's `quota` exemplars the main phase never trains on; they come first."""
        return 0

    def network(self, backbone: Backbone) -> Network:
        """A network without classes."""
        return Network(backbone, self.classifier(backbone.dim), self.rectifies)

    def classifier(self, dim: int) -> GrowingClassifier:
        """A classifier without classes."""
        return LinearClassifier(dim)

    def grow(self, network: Network, new: int, features: Features, seed: int) -> None:
        """Add `new` classes to the network. `features()` returns the new images' features and targets."""
        network.classifier.add_classes(new)

    def rebuild(self, network: Network, new: int) -> None:
        """Add the parameters that `grow` adds, with any values: a saved network is made again by one call a growth."""
        # Not random ones: they would make torch import its compiler.
        network.classifier.add_classes(new, torch.empty(new, *network.classifier.shape))

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        """The phases of a task that adds `new` classes to `old` ones; `state` is what the task before left."""
        raise NotImplementedError

    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        """What the method keeps after a task, given what it kept before. May set weights of the network.

        Every process of a run calls it; what the main one returns counts in all of them.
        """
        return state

    def without_class(self, network: Network, label: int, state: State) -> State:
        """What the method keeps without a class; the network's classifier has lost it already."""
        return state

    def class_means(self, state: State) -> Tensor | None:
        """The class means (classes, D) for NME; None: those of the exemplars."""
        return None


def phases_of(method: Method, old: int, new: int, state: State, *, first: bool) -> list[Phase]:
    """The phases of a task, checked: the method may be user-defined. With --visits a later one may lack old classes."""
    if not first:
        own = {option: getattr(method, of_steps) for of_steps, option in STEP.items()}
        method = replace(method, **{option: value for option, value in own.items() if value is not None})
    phases: Any = method.phases(old, new, state)
    if not isinstance(phases, list) or not all(isinstance(phase, Phase) for phase in phases):
        raise ConfigError(f"phases() of {method.name} returned {phases!r}; it must return a list of Phase.")
    names = [phase.name for phase in phases]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two phases of {method.name} are called {twice}; give each its own name.")
    if phases and method.warmup_epochs:
        phases[0] = replace(phases[0], lr=warmed_up(phases[0].lr, method.warmup_epochs))
    if method.freeze:
        phases = [frozen(phase, method.name) for phase in phases]
    augmented = [replace(p, augmentation=method.augmentation) if p.augmentation is None else p for p in phases]
    for phase in augmented:
        if phase.mixing and not phase.soft_targets:
            raise ConfigError(
                f"phase {phase.name} of {method.name} cannot learn from mixed images, because its loss takes one class "
                f"an image; leave {min(phase.mixing)} out of the augmentation."
            )
    return augmented
