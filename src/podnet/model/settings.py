"""The settings of a model, chosen from the photos unless given by the user."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from podnet.data.augment import Transform
from podnet.data.collection import Collection
from podnet.data.decode import LEAST_AREA
from podnet.data.imagenet import MEAN, STD
from podnet.engine.device import Compute
from podnet.engine.learner import Learner
from podnet.errors import ConfigError
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import PODNet, configured
from podnet.nets.building import require_known
from podnet.nets.timm import PREFIX, expected_images

SMALL = 64  # pixels of the network's input; up to this ResNet-32, which was made for CIFAR's 32
UPDATES, FEWEST_EPOCHS, MOST_EPOCHS = 2000, 20, 60  # approximate length of training from random weights
PRETRAINED_UPDATES, PRETRAINED_FEWEST, PRETRAINED_MOST, PRETRAINED_LR = 500, 5, 30, 0.01
UPDATES_PER_EPOCH = 8  # at least, so that few photos do not form a single batch
BATCH_SIZES = (64, 32, 16, 8)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings fixed when the model is created."""

    backbone: str
    image_size: int
    mirror: bool = True  # whether a mirror image shows the same class
    exemplars: int = 20  # photos kept of each class
    seed: int = 1
    weights: str = "none"  # initial weights of the backbone: "hub", or the name of a file

    def __post_init__(self) -> None:
        require_known(self.backbone, self.weights)
        if not 8 <= self.image_size <= 1024:
            raise ConfigError(f"image_size is {self.image_size}; it must be from 8 to 1024.")
        if self.exemplars < 1:
            raise ConfigError(f"exemplars is {self.exemplars}; keep at least 1 photo of each class.")

    @property
    def of_timm(self) -> bool:
        return self.backbone.startswith(PREFIX)

    @property
    def pretrained(self) -> bool:
        return self.weights != "none"

    @property
    def least_area(self) -> float:
        """Least area of a random crop: larger for the few epochs on pretrained features."""
        return 0.35 if self.pretrained else LEAST_AREA


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the classes of one call are learned."""

    epochs: int
    batch_size: int
    finetune_epochs: int = 20
    lr: float = 0.05
    held_out: float = 0.15  # share of photos held out to measure with


@dataclass(frozen=True)
class Choice:
    """Settings, and the reason for each, one line each."""

    settings: Settings
    training: Training
    reasons: dict[str, str] = field(default_factory=dict)
    weights: str = "none"  # source of a new backbone's initial weights


def make_learner(settings: Settings, training: Training, device: str) -> Learner:
    """A PODNet learner without classes."""
    options = {
        "backbone": settings.backbone,
        "epochs": training.epochs,
        "batch_size": training.batch_size,
        "finetune_epochs": training.finetune_epochs,
        "lr": training.lr,
        **(PODNet.presets["pretrained"] if settings.pretrained else {}),
    }
    expected = expected_images(settings.backbone) if settings.of_timm else None
    mean, std = (expected.mean, expected.std) if expected else (MEAN, STD)
    transform = Transform(mean, std, pad=0, flip=settings.mirror)
    memory = ExemplarMemory(per_class=settings.exemplars)
    return Learner(configured(PODNet, "imagenet", options), 3, transform, memory, settings.seed, Compute(device))


def choose(collection: Collection, given: Mapping[str, Any], known: Settings | None, on_gpu: bool) -> Choice:
    """The settings of a new model, or of another call for a model with settings `known`; `given` has priority."""
    source = given.get("weights")
    given = dict(given) | ({"weights": Path(source).name} if source else {})  # no path of this machine in the file
    if known is not None:
        for name, value in asdict(known).items():
            if given.get(name, value) != value:
                raise ConfigError(
                    f"the model was made with {name} {value}, not {given[name]}; leave the option out, "
                    "or make another model."
                )
    suggested = {} if known is not None else _suggest_settings(collection, given.get("backbone", ""), on_gpu)
    fixed = {f.name for f in fields(Settings)}
    values = {name: value for name, (value, _) in suggested.items()} | given
    settings = known or Settings(**{name: value for name, value in values.items() if name in fixed})
    if settings.of_timm:
        _require_fitting_size(settings)
    suggested |= _suggest_training(len(collection.photos), given.get("batch_size"), settings.pretrained)
    values = {name: value for name, (value, _) in suggested.items()} | given
    training = Training(**{name: value for name, value in values.items() if name not in fixed})
    reasons = {name: why for name, (_, why) in suggested.items() if name not in given}
    return Choice(settings, training, reasons, source or settings.weights)


def _require_fitting_size(settings: Settings) -> None:
    expected = expected_images(settings.backbone)
    if expected.fixed and settings.image_size != expected.size:
        raise ConfigError(f"{settings.backbone} sees {expected.size} pixels, not {settings.image_size}.")


def _suggest_settings(collection: Collection, backbone: str, on_gpu: bool) -> dict[str, tuple[Any, str]]:
    """Name -> value and reason."""
    if backbone.startswith(PREFIX):
        return {
            "image_size": (expected_images(backbone).size, f"what {backbone} was made for"),
            "weights": ("hub", "pretrained features make a few photos enough"),
        }
    side = round(statistics.median(min(photo.size) for photo in collection.photos))
    largest = 224 if on_gpu else 48
    size = min(largest, max(32, side // 16 * 16))
    limit = "; a CPU would take long with more" if size == largest and not on_gpu else ""
    return {
        "image_size": (size, f"the shorter side of most photos is about {side} pixels{limit}"),
        "backbone": ("resnet32" if size <= SMALL else "resnet18", f"for images of {size} pixels"),
    }


def _suggest_training(photos: int, batch_size: int | None, pretrained: bool) -> dict[str, tuple[Any, str]]:
    updates, fewest, most = UPDATES, FEWEST_EPOCHS, MOST_EPOCHS
    suggested: dict[str, tuple[Any, str]] = {}
    if pretrained:
        updates, fewest, most = PRETRAINED_UPDATES, PRETRAINED_FEWEST, PRETRAINED_MOST
        suggested["lr"] = (PRETRAINED_LR, "to keep what pretrained features know")
    fitting = (size for size in BATCH_SIZES if photos >= UPDATES_PER_EPOCH * size)
    batch = batch_size or next(fitting, BATCH_SIZES[-1])
    epochs = min(most, max(fewest, round(updates * batch / photos)))
    return suggested | {
        "batch_size": (batch, f"for {photos} photos"),
        "epochs": (epochs, f"about {updates} updates, in {fewest} to {most} epochs"),
    }
