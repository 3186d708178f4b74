"""The settings of a model, chosen from the photos unless given by the user."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

from podnet.data.augment import Transform
from podnet.data.collection import Collection
from podnet.data.decode import LEAST_AREA
from podnet.data.imagenet import MEAN, STD
from podnet.engine.device import Compute
from podnet.engine.learner import Learner
from podnet.errors import ConfigError, counted, nearest
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import Method, PODNet, configured
from podnet.methods.ridge import Keep, Ridge, RidgeWithPhotos
from podnet.nets.backbones import Expected
from podnet.nets.building import default_weights, expected_images, require_known, start_from

PRETRAINED = "lite0"  # the backbone unless another is given
SMALL = 64  # pixels of the network's input; up to this ResNet-32, which was made for CIFAR's 32
LENGTH, PRETRAINED_LENGTH = (2000, 20, 60), (500, 5, 30)  # of training: about so many updates, fewest and most epochs
PRETRAINED_LR = 5e-4
UPDATES_PER_EPOCH = 8  # at least, so that few photos do not form a single batch
BATCH_SIZES = (64, 32, 16, 8)
FEW_FROM_NOTHING = 300  # photos a class that a network without pretrained weights wants
TRAIN = ("auto", "never", "always")
KEEPS = get_args(Keep)

Suggestion = tuple[Any, str]  # a value and the reason for it
Made = TypeVar("Made", "Settings", "Training")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings fixed when the model is created."""

    backbone: str
    image_size: int
    mirror: bool = True  # whether a mirror image shows the same class; for training
    exemplars: int = 20  # photos kept of each class, if photos are kept
    seed: int = 1
    weights: str = "none"  # initial weights of the backbone: "package", "hub", or the name of a file
    keep: str = "features"  # what is kept of the photos: "features", "photos" or "sums"
    trained: bool = False  # whether lessons train the backbone; otherwise it stays as it is

    def __post_init__(self) -> None:
        for known in fields(self):  # else the file that is saved could not be loaded
            if type(value := getattr(self, known.name)).__name__ != known.type:
                raise ConfigError(f"{known.name} is {value!r}; its type must be {known.type}.")
        require_known(self.backbone, self.weights)
        if not 8 <= self.image_size <= 1024:
            raise ConfigError(f"image_size is {self.image_size}; it must be from 8 to 1024.")
        if self.exemplars < 1:
            raise ConfigError(f"exemplars is {self.exemplars}; it must be at least 1 photo per class.")
        if self.keep not in KEEPS:
            raise ConfigError(f"keep is {self.keep!r}; it must be features, photos or sums.{nearest(self.keep, KEEPS)}")
        if self.trained and self.keep != "photos":
            raise ConfigError(f"keep is {self.keep!r}, but training needs photos of the old classes; set it to photos.")

    @property
    def pretrained(self) -> bool:
        return self.weights != "none"

    @property
    def expected(self) -> Expected | None:
        """The images that the pretrained weights expect."""
        return expected_images(self.backbone) if self.pretrained else None

    @property
    def least_area(self) -> float:
        """Least area of a random crop: larger for the few epochs on pretrained features."""
        return 0.35 if self.pretrained else LEAST_AREA


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the classes of one call are trained on, if they are."""

    epochs: int
    batch_size: int
    finetune_epochs: int = 20
    lr: float = 0.05
    held_out: float = 0.15  # share of photos held out to measure with


# What a user can give, in the command line and in Python.
OPTIONS = ("train", "minutes", *(f.name for kind in (Settings, Training) for f in fields(kind) if f.name != "trained"))


@dataclass(frozen=True)
class Choice:
    """Settings, and the reason for each that was not given."""

    settings: Settings
    training: Training
    reasons: dict[str, str] = field(default_factory=dict)
    weights: str = "none"  # source of a new backbone's initial weights
    trial: bool = False  # whether to train if that is better in a trial
    minutes: float = 1.0  # for the trial and the training


def make_learner(settings: Settings, training: Training, device: str) -> Learner:
    """A learner without classes."""
    expected = settings.expected
    mean, std = (expected.mean, expected.std) if expected else (MEAN, STD)
    transform = Transform(mean, std, pad=0, flip=settings.mirror)
    memory = ExemplarMemory(per_class=settings.exemplars)
    return Learner(_method(settings, training), 3, transform, memory, settings.seed, Compute(device))


def new_learner(choice: Choice, device: str) -> Learner:
    """A learner without classes, with the initial weights that were chosen."""
    learner = make_learner(choice.settings, choice.training, device)
    start_from(learner.network.backbone, choice.settings.backbone, choice.weights, choice.settings.seed)
    return learner


def _podnet(settings: Settings, training: Training) -> Method:
    options = {name: value for name, value in asdict(training).items() if name != "held_out"}
    special = PODNet.presets["pretrained"] if settings.pretrained else {}
    return configured(PODNet, "imagenet", {"backbone": settings.backbone, **options, **special})


def _method(settings: Settings, training: Training) -> Method:
    if settings.trained:
        return _podnet(settings, training)
    if settings.keep == "photos":
        return RidgeWithPhotos(backbone=settings.backbone)
    return Ridge(backbone=settings.backbone, keep="sums" if settings.keep == "sums" else "features")


def choose(collection: Collection, given: Mapping[str, Any], known: Settings | None, on_gpu: bool) -> Choice:
    """The settings of a new model, or of another call for a model with settings `known`; `given` has priority."""
    given = dict(given)
    train, minutes = given.pop("train", "auto"), given.pop("minutes", Choice.minutes)
    if train not in TRAIN or not minutes > 0:
        raise ConfigError(
            f"train is {train!r} and minutes is {minutes}; train must be auto, never or always, and minutes above 0."
        )
    source = given.get("weights")
    given |= {"weights": Path(source).name} if source else {}  # no path of this machine in the file
    for_training = {name: given.pop(name) for name in given.keys() - {f.name for f in fields(Settings)}}
    if known is not None:
        _require_same(known, given, train)
    suggested = {} if known is not None else _suggest_settings(collection, given, train, on_gpu)
    settings = known or _made(Settings, suggested, given)
    expected = expected_images(settings.backbone)
    if expected and expected.fixed and settings.image_size != expected.size:
        raise ConfigError(f"image_size is {settings.image_size}; {settings.backbone} needs {expected.size}.")
    in_training = _suggest_training(len(collection.photos), for_training.get("batch_size"), settings.pretrained)
    training = _made(Training, in_training, for_training)
    _podnet(settings, training)  # refuses what it cannot train with, whether or not it will
    suggested |= in_training if settings.trained else {}
    reasons = {name: why for name, (_, why) in suggested.items() if name not in given | for_training}
    decided = settings.trained or known is not None or given.get("keep", "photos") != "photos"
    return Choice(settings, training, reasons, source or settings.weights, train == "auto" and not decided, minutes)


def _require_same(known: Settings, given: Mapping[str, Any], train: str) -> None:
    for name, value in asdict(known).items():
        if given.get(name, value) != value:
            raise ConfigError(
                f"the model was created with {name} {value}, not {given[name]}; leave the option out "
                "or create another model."
            )
    if (train, known.trained) in (("always", False), ("never", True)):
        made = "trained its network" if known.trained else "did not train its network"
        raise ConfigError(
            f"the model {made} in its first lesson, which cannot change; leave train out or create another model."
        )


def _made(kind: type[Made], suggested: Mapping[str, Suggestion], given: Mapping[str, Any]) -> Made:
    """Settings as given, or else as suggested."""
    return kind(**({name: value for name, (value, _) in suggested.items()} | dict(given)))


def _suggest_settings(
    collection: Collection, given: Mapping[str, Any], train: str, on_gpu: bool
) -> dict[str, Suggestion]:
    weights = given.get("weights")
    named = given.get("backbone", "" if weights == "none" else PRETRAINED)
    if named:
        require_known(named)
    from_nothing = (weights or default_weights(named)) == "none"
    by_photos = _suggest_for_nothing(collection, on_gpu)
    if from_nothing and train == "never":
        raise ConfigError(f"{named or 'a network'} with random weights must be trained; train cannot be never.")
    trained = {"trained": (True, "asked for"), "keep": ("photos", "for later training")}
    expected = expected_images(named)
    if from_nothing:
        needed = {"image_size": (expected.size, f"{named} needs it")} if expected and expected.fixed else {}
        return by_photos | needed | trained
    return {
        "backbone": (named, "pretrained, fast on a CPU"),  # unless it is given
        "image_size": (expected.size, f"native size of {named}") if expected else by_photos["image_size"],
        "weights": (default_weights(named), "pretrained features need few photos"),
        **(trained if train == "always" else {}),
    }


def _suggest_for_nothing(collection: Collection, on_gpu: bool) -> dict[str, Suggestion]:
    side = round(statistics.median(min(photo.size) for photo in collection.photos))
    largest = 224 if on_gpu else 48
    size = min(largest, max(32, side // 16 * 16))
    limit = "; more would be slow on a CPU" if size == largest and not on_gpu else ""
    return {
        "image_size": (size, f"the shorter side of most photos is about {side} pixels{limit}"),
        "backbone": ("resnet32" if size <= SMALL else "resnet18", f"for images of {size} pixels"),
    }


def _suggest_training(photos: int, batch_size: int | None, pretrained: bool) -> dict[str, Suggestion]:
    updates, fewest, most = PRETRAINED_LENGTH if pretrained else LENGTH
    suggested: dict[str, Suggestion] = {"lr": (PRETRAINED_LR, "to preserve the pretrained features")}
    fitting = (size for size in BATCH_SIZES if photos >= UPDATES_PER_EPOCH * size)
    batch = batch_size or next(fitting, BATCH_SIZES[-1])
    epochs = min(most, max(fewest, round(updates * batch / photos)))
    return (suggested if pretrained else {}) | {
        "batch_size": (batch, f"for {counted(photos, 'photo')}"),
        "epochs": (epochs, f"about {updates} updates, {fewest} to {most} epochs"),
    }
