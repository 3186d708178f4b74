"""`podnet learn` as a scikit-learn estimator: the same model and the same file, from images in memory or files."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from podnet.data.collection import class_name
from podnet.data.photos import Photos
from podnet.engine.device import choose_device
from podnet.engine.extraction import Scores
from podnet.errors import counted
from podnet.io.files import expanded, in_its_place
from podnet.metrics import INFERENCES, REJECT
from podnet.model.changing import changing
from podnet.model.inputs import Label, collected, meanings, plain, to_labels, to_sources
from podnet.model.lessons import taught
from podnet.model.loading import load_model
from podnet.model.measure import UNMEASURED, best_inference, confidences, tables
from podnet.model.model import Model
from podnet.model.planning import planned
from podnet.model.settings import OPTIONS
from podnet.processes import decoding_workers


@dataclass(kw_only=True, eq=False, repr=False)  # its __init__ only stores, as scikit-learn wants it
class PODNetClassifier(ClassifierMixin, BaseEstimator):
    """An image classifier that learns new classes at any call and keeps what it learned before.

    It does what `podnet learn` does, and `save` writes the same file. X is a uint8 array of images, (N, H, W) or
    (N, H, W, channels), or a list of paths, Pillow images or single images as arrays. y holds text, numbers or
    booleans. As in `podnet learn`, an image counts once: copies, and images that it has learned, change nothing
    (a network that is trained is trained on them again).

    A single image must be in a list, `[image]`. An array (A, B, 3) or (A, B, 4) with B of at least 16 is taken for one
    colour image and refused. Greyscale images that narrow and that high are given as (N, H, W, 1).

    The parameters are the options of `podnet learn`; with None they are chosen as there.

    Parameters
    ----------
    backbone
        "lite0", "lite1", "lite2", "resnet18", "resnet32", or "timm:NAME", a network of timm.
    weights
        Initial weights of the backbone: "package" (lite), "hub" (timm), a file, or "none" for random ones.
    image_size
        Side of the network's input in pixels; images of any size are scaled to it.
    train
        Train the network on the images: "never", "always", or "auto" if that is better in a trial.
    minutes
        How long `train="auto"` may take.
    keep
        What is kept of the images: "features", "photos" (some photos too), or "sums" (only sums of features).
    exemplars
        Images kept of each class with `keep="photos"`.
    mirror
        Whether a mirror image shows the same class; for training.
    epochs, finetune_epochs, batch_size, lr, held_out
        Of training: epochs, epochs of the balanced fine-tuning, images per update, learning rate, and the share of
        images held out to measure with.
    inference
        "cnn", the classifier, or "nme", the nearest class mean; None is the one that measured better.
    device
        "cpu", "cuda" ...; "auto" is a GPU if there is one.
    random_state
        The seed; for training.
    """

    backbone: str | None = None
    weights: str | None = None
    image_size: int | None = None
    train: str = "auto"
    minutes: float | None = None
    keep: str | None = None
    exemplars: int | None = None
    mirror: bool | None = None
    epochs: int | None = None
    finetune_epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    held_out: float | None = None
    inference: str | None = None
    device: str = "auto"
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> PODNetClassifier:
        """Learn these images, of at least two classes, and forget all others."""
        return self._learn(None, X, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> PODNetClassifier:
        """Learn these images, of new or known classes, in addition to what is known. `classes` is not needed.

        If it fails or is interrupted, the classifier is as before the call.
        """
        return self._learn(getattr(self, "model_", None), X, y)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated confidences (N, classes), in the order of `classes_`."""
        scores, inference = self._scores(X), self._inference()
        temperature = self.model_.temperatures.get(inference, UNMEASURED[inference])
        chances = confidences(tables(scores)[inference].double(), temperature)
        found: np.ndarray = chances.cpu().numpy()[:, self.order_]
        return found

    def predict(self, X: Any) -> np.ndarray:
        """The most likely class of each image."""
        best = self.predict_proba(X).argmax(1)
        found: np.ndarray = self.classes_[best]
        return found

    def is_unknown(self, X: Any, rate: float = REJECT) -> np.ndarray:
        """Whether each image looks like none of the classes; a share `rate` of images of known classes does, too."""
        if not 0 <= rate < 1:
            raise ValueError(f"rate is {rate}; give a share from 0 (never unknown) to below 1.")
        scores = self._scores(X)
        return self.model_.unknown(scores, rate).numpy()

    def save(self, path: str | Path) -> None:
        """Write the model file that `podnet learn` writes."""
        check_is_fitted(self, "model_")
        file = in_its_place(path)
        with changing(file):
            self.model_.save(file)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> PODNetClassifier:
        """Load a model file that `save` or `podnet learn` wrote."""
        model = load_model(expanded(path), choose_device(device))
        values = asdict(model.settings)
        values["random_state"], values["train"] = values.pop("seed"), "always" if values.pop("trained") else "never"
        return cls(device=device, **values)._with(model)

    def _learn(self, model: Model | None, X: Any, y: Any) -> PODNetClassifier:
        self._inference()
        sources, labels = to_sources(X), to_labels(y)
        if len(sources) != len(labels):
            images, given = counted(len(sources), "image"), counted(len(labels), "label")
            raise ValueError(f"X has {images} and y has {given}; give one label per image.")
        meant = meanings(labels, {record.name: record.meant for record in model.classes} if model else {})
        collection = collected(sources, [class_name(str(label)) for label in labels])
        if model is not None:
            names, digests = set(model.names), {*model.digests, *model.held_out_digests}
            if all(photo.label in names and photo.digest in digests for photo in collection.photos):
                return self  # nothing to learn
        device = choose_device(self.device)
        lesson = planned(model, collection, self._given(model), include_known=True, device=device)
        *_, learned = taught(lesson, device, _workers(sources))
        assert isinstance(learned, Model)
        labels_of = {name: None if label == name else label for name, label in meant.items()}
        learned.classes = [replace(record, label=labels_of[record.name]) for record in learned.classes]
        return self._with(learned)

    def _given(self, model: Model | None) -> dict[str, Any]:
        """The options that are not left to be chosen."""
        given = {name: getattr(self, name) for name in OPTIONS if name != "seed"}
        if isinstance(self.random_state, numbers.Integral):
            given["seed"] = int(self.random_state)
        elif self.random_state is not None and model is None:
            given["seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        return {name: plain(value) for name, value in given.items() if value is not None}

    def _with(self, model: Model) -> PODNetClassifier:
        self.model_ = model
        self.classes_, self.order_ = _sorted([record.meant for record in model.classes])
        return self

    def _inference(self) -> str:
        if self.inference not in (None, *INFERENCES):
            raise ValueError(f"inference is {self.inference!r}; it must be 'cnn', 'nme' or None.")
        return self.inference or (best_inference(self.model_.history[-1]) if hasattr(self, "model_") else "cnn")

    def _scores(self, X: Any) -> Scores:
        check_is_fitted(self, "model_")
        sources = to_sources(X)
        return self.model_.learner.predict(Photos(tuple(sources), self.model_.settings.image_size, _workers(sources)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        return tags


def _workers(sources: Sequence[Path | bytes]) -> int:
    """Processes that decode files; images in memory are small, or would take as long to send."""
    return decoding_workers(photos=sum(isinstance(source, Path) for source in sources))


def _sorted(labels: list[Label]) -> tuple[np.ndarray, list[int]]:
    """The labels as an array, sorted if possible; and the original index of each."""
    try:
        order = sorted(range(len(labels)), key=lambda i: labels[i])
    except TypeError:  # text and numbers
        order = list(range(len(labels)))
    plain = len({type(label) for label in labels}) == 1
    return np.array([labels[i] for i in order], dtype=None if plain else object), order
