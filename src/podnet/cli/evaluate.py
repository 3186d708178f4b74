"""`podnet evaluate`: the accuracy of a model on photos whose classes are known."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from podnet.cli.model_options import reject_rate, workers
from podnet.cli.printing import INFERENCE_NAMES, percent, plain_table, say, say_skipped
from podnet.data.collection import read_collection, refuse_lookalikes
from podnet.data.photos import Photos
from podnet.engine.device import choose_device, with_threads
from podnet.engine.extraction import Scores
from podnet.errors import DataError, counted, printable
from podnet.io.files import expanded
from podnet.model.loading import load_model
from podnet.model.measure import Measured, highest, measure
from podnet.model.model import Model
from podnet.report.plots import confusion, confusion_shares, require_picture, write_figure


def evaluate_command(known: argparse.Namespace) -> int:
    console = Console()
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
    files = tuple(photo.source for photo in usable.photos)
    targets = torch.tensor([label_of[photo.label] for photo in usable.photos])
    with with_threads(known.threads):
        scores = model.learner.predict(Photos(files, model.settings.image_size, workers(known, len(files))))
        strangers = tuple(photo.source for photo in collection.of(unknown).photos)
        count = workers(known, len(strangers))
        others = model.learner.predict(Photos(strangers, model.settings.image_size, count)) if strangers else None
    measured = measure(scores, targets, len(model.names))
    console.print(_table(model.names, targets, measured))
    if known.confusion:
        _draw(Path(known.confusion), path.stem, model.names, targets, measured)
    if reject and len(model.familiar):
        called = _called_unknown(model, scores, reject)
        say(console, f"called unknown: {called:.1f} % of these photos (--reject {reject})")
        if others is not None:
            called = _called_unknown(model, others, reject)
            say(console, f"called unknown: {called:.1f} % of {counted(len(strangers), 'photo')} of unknown classes")
    if unknown:
        say(console, f"unknown classes, not part of the accuracy: {', '.join(unknown)}")
    say_skipped(console, collection.skipped)
    if known.confusion:
        say(console, f"confusion matrix: {printable(known.confusion)}")
    return 0


def _called_unknown(model: Model, scores: Scores, rate: float) -> float:
    """The share of photos, in percent, that look like none of the classes."""
    familiar = model.familiarity(highest(scores))
    return 100 * float((familiar < model.familiarity.threshold(rate)).float().mean())


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
    matrices = {
        inference: confusion_shares(each.predicted, targets.numpy(), len(names)) for inference, each in measured.items()
    }
    write_figure(confusion(matrices, names, title), picture)
