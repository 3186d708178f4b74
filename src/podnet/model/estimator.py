"""PODNet as a scikit-learn estimator: `partial_fit` accepts new classes at any call."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.decode import decode
from podnet.engine.device import Compute, choose_device
from podnet.engine.learner import Learner
from podnet.errors import DamagedFileError
from podnet.io.tensors import load_tensors, save_tensors
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import PODNet, configured
from podnet.metrics import INFERENCES
from podnet.model.measure import tables
from podnet.nets.building import require_known, require_room, start_from
from podnet.nets.timm import expected_images
from podnet.scenario.tasks import Task

SHIFT = 1 / 8  # share of the shorter side by which a random crop may move: CIFAR's 4 of 32 pixels


class PODNetClassifier(ClassifierMixin, BaseEstimator):
    """An image classifier that learns classes in steps and keeps what it learned before.

    X is a uint8 array of images, (N, H, W) or (N, H, W, channels), or a list of paths or Pillow images, which are
    scaled and cropped to `image_size`. y holds labels of any hashable kind. Each call of `partial_fit` is a task: it
    adds new classes and refreshes known ones; `memory_per_class` images of each are kept for later.

    Parameters
    ----------
    epochs
        Epochs of each task.
    finetune_epochs
        Epochs of the balanced fine-tuning after each task except the first.
    batch_size
        Images per update.
    lr
        The learning rate.
    proxies
        Proxies per class.
    fidelity
        "released" follows the authors' code, "paper" follows the paper's text.
    backbone
        "resnet18", "resnet32", or "timm:NAME", a network of timm.
    weights
        Initial weights of a timm backbone: "hub", a .safetensors file, or "none".
    memory_per_class
        Images kept of each class.
    image_size
        The side in pixels that paths and Pillow images are scaled to; arrays keep their size.
    mirror
        Whether a mirror image shows the same class.
    inference
        "cnn", the classifier, or "nme", the nearest mean of exemplars.
    device
        "cpu", "cuda" ...; "auto" is a GPU if there is one.
    random_state
        With an integer, the same data gives the same model.
    """

    def __init__(
        self,
        *,
        epochs: int = 30,
        finetune_epochs: int = 10,
        batch_size: int = 64,
        lr: float = 0.1,
        proxies: int = 10,
        fidelity: str = "released",
        backbone: str = "resnet32",
        weights: str = "none",
        memory_per_class: int = 20,
        image_size: int = 32,
        mirror: bool = True,
        inference: str = "cnn",
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.epochs = epochs
        self.finetune_epochs = finetune_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.proxies = proxies
        self.fidelity = fidelity
        self.backbone = backbone
        self.weights = weights
        self.memory_per_class = memory_per_class
        self.image_size = image_size
        self.mirror = mirror
        self.inference = inference
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PODNetClassifier:
        """Learn these images and forget all others."""
        with self._restored_on_error():
            self.__dict__.pop("learner_", None)
            return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> PODNetClassifier:
        """Learn these images, of new or known classes, in addition to what is known. `classes` is not needed.

        If it fails or is interrupted, the classifier is as before the call.
        """
        if self.inference not in INFERENCES:
            raise ValueError(f"inference is {self.inference!r}; it must be 'cnn' or 'nme'.")
        images, labels = to_images(X, self.image_size), to_labels(y)
        if len(images) != len(labels):
            raise ValueError(f"X has {len(images)} images and y {len(labels)} labels; give a label for each image.")
        with self._restored_on_error():
            if hasattr(self, "learner_"):
                self._require_shape(images)
                self.learner_: Learner = copy.deepcopy(self.learner_)
            else:
                self.shape_ = tuple(images.shape[1:])
                self.learned_: list[Any] = []  # the classes in the order they were learned
                self.tasks_ = 0
                self.learner_ = self._new_learner(images)
            for _ in self.learner_.learn(self._task(images, labels)):
                pass
            self.tasks_ += 1
            self.classes_, self.order_ = _sorted(self.learned_)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Confidences (N, classes), in the order of `classes_`."""
        check_is_fitted(self, "learner_")
        images = to_images(X, self.image_size)
        self._require_shape(images)
        table = tables(self.learner_.predict(images))[self.inference]
        chances: np.ndarray = table.double().softmax(1).cpu().numpy()[:, self.order_]
        return chances

    def predict(self, X: Any) -> np.ndarray:
        """The most likely class of each image."""
        chances = self.predict_proba(X)
        found: np.ndarray = self.classes_[chances.argmax(1)]
        return found

    def save(self, path: str | Path) -> None:
        """Write one file that `load` reads; labels must be strings, numbers or booleans."""
        check_is_fitted(self, "learner_")
        if not all(isinstance(label, str | int | float | bool) for label in self.learned_):
            raise ValueError("only labels that are texts, numbers or truth values can be saved.")
        tensors, learned = self.learner_.state()
        meta = {
            "parameters": self.get_params() | {"random_state": None},
            "seed": self.learner_.seed,
            "mean": self.learner_.transform.mean,
            "std": self.learner_.transform.std,
            "shape": self.shape_,
            "labels": self.learned_,
            "tasks": self.tasks_,
            "learner": learned,
        }
        save_tensors(Path(path), tensors, meta)

    @classmethod
    def load(cls, path: str | Path) -> PODNetClassifier:
        """Load the classifier that `save` wrote."""
        tensors, meta = load_tensors(Path(path))
        try:
            made = cls(**meta["parameters"])
            require_room(made.backbone, int(meta["shape"][0]), tensors)
            made.shape_, made.learned_, made.tasks_ = tuple(meta["shape"]), list(meta["labels"]), int(meta["tasks"])
            made.learner_ = made._learner(tuple(meta["mean"]), tuple(meta["std"]), int(meta["seed"]))
            made.learner_.restore(tensors, meta["learner"])
            made.classes_, made.order_ = _sorted(made.learned_)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DamagedFileError(f"{path} is damaged or not of a PODNetClassifier ({error}).") from error
        return made

    @contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        """After any exception, Ctrl-C included, all attributes are restored; inside, replace them, never mutate."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _new_learner(self, images: Tensor) -> Learner:
        require_known(self.backbone, self.weights)
        pixels = images.double() / 255
        mean = tuple(pixels.mean((0, 2, 3)).tolist())
        std = tuple(pixels.std((0, 2, 3)).clamp(min=0.01).tolist())
        if self.weights != "none" and self.shape_[0] == 3:  # as in pretraining
            expected = expected_images(self.backbone)
            mean, std = expected.mean, expected.std
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        learner = self._learner(mean, std, seed)
        start_from(learner.network.backbone, learner.method.backbone, self.weights, seed)
        return learner

    def _learner(self, mean: tuple[float, ...], std: tuple[float, ...], seed: int) -> Learner:
        options = {
            name: getattr(self, name)
            for name in ("epochs", "finetune_epochs", "batch_size", "lr", "proxies", "fidelity", "backbone")
        }
        if self.weights != "none":
            options |= PODNet.presets["pretrained"]
        transform = Transform(mean, std, round(SHIFT * min(self.shape_[1:])), self.mirror)
        memory = ExemplarMemory(self.memory_per_class)
        method = configured(PODNet, "cifar", options)
        return Learner(method, self.shape_[0], transform, memory, seed, Compute(choose_device(self.device)))

    def _task(self, images: Tensor, labels: list[Any]) -> Task:
        old = len(self.learned_)
        known = set(self.learned_)
        new = [label for label in _sorted(list(dict.fromkeys(labels)))[0].tolist() if label not in known]
        self.learned_ = [*self.learned_, *new]
        position = {label: i for i, label in enumerate(self.learned_)}
        targets = torch.tensor([position[label] for label in labels])
        refreshed = tuple(sorted({label for label in targets.tolist() if label < old}))
        names = tuple(str(label) for label in new)
        return Task(self.tasks_, old, len(new), names, images, targets, images[:0], targets[:0], refreshed)

    def _require_shape(self, images: Tensor) -> None:
        if tuple(images.shape[1:]) != self.shape_:
            channels, height, width = self.shape_
            raise ValueError(
                f"X has images of {images.shape[2]} x {images.shape[3]} pixels and {images.shape[1]} channels; this "
                f"classifier was fitted to {height} x {width} and {channels}."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.non_deterministic = self.random_state is None
        return tags


def to_images(X: Any, size: int) -> Tensor:
    """uint8 (N, channels, H, W) from an array of images or a list of paths or Pillow images."""
    if isinstance(X, list | tuple) and X and isinstance(X[0], str | os.PathLike | Image.Image):
        return torch.from_numpy(np.stack([_pixels(each, size) for each in X])).permute(0, 3, 1, 2).contiguous()
    array = np.asarray(X)
    if array.ndim not in (3, 4) or array.dtype != np.uint8:
        raise ValueError(
            f"X is an array of {array.dtype} with {array.ndim} dimensions; give uint8 images, (N, H, W) or "
            "(N, H, W, channels), or a list of paths or Pillow images."
        )
    if not len(array):
        raise ValueError("X has no images (0 samples); at least one is needed.")
    with_channels = array[..., None] if array.ndim == 3 else array
    return torch.from_numpy(np.ascontiguousarray(with_channels.transpose(0, 3, 1, 2)))


def _pixels(source: Any, size: int) -> np.ndarray:
    if isinstance(source, Image.Image):
        file = io.BytesIO()
        source.save(file, "TIFF" if source.mode == "CMYK" else "PNG")
        return decode(file.getvalue(), size)
    return decode(Path(source), size)


def to_labels(y: Any) -> list[Any]:
    """Labels as Python objects."""
    if y is None:
        raise ValueError("PODNetClassifier requires y to be passed, but the target y is None.")
    if isinstance(y, list | tuple):
        return list(y)
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    return list(y.tolist())


def _sorted(labels: list[Any]) -> tuple[np.ndarray, list[int]]:
    """The labels as an array, sorted if possible; and the original index of each."""
    try:
        order = sorted(range(len(labels)), key=lambda i: labels[i])
    except TypeError:
        order = list(range(len(labels)))
    kinds = {type(label) for label in labels}
    found = np.empty(len(labels), dtype=object)
    found[:] = [labels[i] for i in order]
    plain = len(kinds) == 1 and kinds <= {str, int, float, bool}
    return np.array(found.tolist()) if plain else found, order
