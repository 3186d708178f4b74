"""`podnet evaluate`: the accuracy of a model on photos whose classes are known."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from podnet.cli.model_options import reject_rate, workers
from podnet.cli.printing import INFERENCE_NAMES, percent, plain_table, say, say_skipped
from podnet.data.collection import Photo, read_collection, refuse_lookalikes
from podnet.data.photos import Photos
from podnet.engine.device import choose_device, with_threads
from podnet.engine.extraction import Scores
from podnet.errors import DataError, counted, printable
from podnet.io.files import expanded
from podnet.model.loading import load_model
from podnet.model.measure import Measured, measure
from podnet.model.model import Model
from podnet.report.plots import confusion, confusion_shares, require_picture, write_figure


def evaluate_command(known: argparse.Namespace) -> int:
    reject = reject_rate(known)
    if known.confusion:
        require_picture(Path(known.confusion))
    path = expanded(known.model)
    model = load_model(path, choose_device(known.device))
    collection = read_collection(Path(known.photos))
    refuse_lookalikes(list(collection.counts), model.names)
    label_of = {name: label for label, name in enumerate(model.names)}
    unknown = [label for label in collection.counts if label not in label_of]
    usable = collection.of(label_of)
    if not usable.photos:
        raise DataError(
            f"the model knows none of these classes: {', '.join(unknown[:5])}; give photos of classes it knows."
        )
    strangers = collection.of(unknown).photos
    targets = torch.tensor([label_of[photo.label] for photo in usable.photos])
    with with_threads(known.threads):
        scores = _scores(model, usable.photos, known)
        found = {f"these photos (--reject {reject})": scores}
        if strangers:
            found[f"{counted(len(strangers), 'photo')} of unknown classes"] = _scores(model, strangers, known)
    measured = measure(scores, targets, len(model.names))
    Console().print(_table(model.names, targets, measured))
    if known.confusion:
        _draw(Path(known.confusion), path.stem, model.names, targets, measured)
    if reject and len(model.familiar):
        for which, of_these in found.items():
            share = float(model.unknown(of_these, reject).float().mean())
            say(f"called unknown: {100 * share:.1f} % of {which}")
    if unknown:
        say(f"unknown classes, not part of the accuracy: {', '.join(unknown)}")
    say_skipped(collection.skipped)
    if known.confusion:
        say(f"confusion matrix: {printable(known.confusion)}")
    return 0


def _scores(model: Model, photos: Sequence[Photo], known: argparse.Namespace) -> Scores:
    files = tuple(photo.source for photo in photos)
    return model.learner.predict(Photos(files, model.settings.image_size, workers(known, len(files))))


def _table(names: list[str], targets: Tensor, measured: dict[str, Measured]) -> Table:
    """One row per class with photos."""
    table = plain_table("class", "photos", *(INFERENCE_NAMES[inference] for inference in measured))
    counts = torch.bincount(targets, minlength=len(names)).tolist()
    for label, (name, count) in enumerate(zip(names, counts, strict=True)):
        if count:
            table.add_row(Text(name), str(count), *(percent(m.per_class[label]) for m in measured.values()))
    table.add_row("all", str(len(targets)), *(percent(m.accuracy) for m in measured.values()), style="bold")
    return table


def _draw(picture: Path, title: str, names: list[str], targets: Tensor, measured: dict[str, Measured]) -> None:
    labels, count = targets.numpy(), len(names)
    matrices = {name: confusion_shares(each.predicted, labels, count) for name, each in measured.items()}
    write_figure(confusion(matrices, names, title), picture)
