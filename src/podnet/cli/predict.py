"""`podnet predict` and `podnet evaluate`: what a model says of photos, and how often it is right."""

from __future__ import annotations

import argparse
import csv
import glob
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text

from podnet.cli.model_options import decoding_workers
from podnet.cli.printing import percent, plain_table, say, say_all
from podnet.data.collection import files_below, read_collection
from podnet.data.decode import decode
from podnet.data.photos import Photos
from podnet.engine.device import choose_device
from podnet.errors import DataError, PodnetError, printable
from podnet.model.measure import best_inference, measure
from podnet.model.model import load_model
from podnet.model.predict import TOGETHER, Failure, Prediction, predict
from podnet.report.plots import confusion, confusion_shares, write_figure

NamedSource = tuple[str, Path | bytes]


def predict_command(known: argparse.Namespace) -> int:
    """0, or 1 where some photos could not be read."""
    if known.top < 1:
        raise PodnetError(f"--top is {known.top}; it must be at least 1.")
    model = load_model(Path(known.model).expanduser(), choose_device(known.device))
    inference = known.inference or best_inference(model.history[-1])
    files = list(_sources(known.images))
    workers = decoding_workers(known.workers) if len(files) > TOGETHER else 0
    answers = predict(model, files, inference, known.top, workers)
    failures = list(WRITERS[known.format](answers))
    for failure in failures:
        print(f"cannot be read: {printable(failure.file)}: {failure.why}", file=sys.stderr)
    return 1 if failures else 0


def evaluate_command(known: argparse.Namespace) -> int:
    console = Console()
    path = Path(known.model).expanduser()
    model = load_model(path, choose_device(known.device))
    collection = read_collection(Path(known.photos))
    label_of = {name: label for label, name in enumerate(model.names)}
    unknown = [label for label in collection.counts if label not in label_of]
    usable = collection.of(label_of)
    if not usable.photos:
        raise DataError(f"the model knows none of the classes of these photos ({', '.join(unknown[:5])}).")
    photos = Photos(
        tuple(photo.path for photo in usable.photos), model.settings.image_size, decoding_workers(known.workers)
    )
    targets = torch.tensor([label_of[photo.label] for photo in usable.photos])
    scores = model.learner.predict(photos)
    measured = measure(scores, targets, len(model.names))
    table = plain_table("class", "photos", *(inference.upper() for inference in measured))
    counts = torch.bincount(targets, minlength=len(label_of)).tolist()
    for name, label in label_of.items():
        if count := counts[label]:
            table.add_row(Text(name), str(count), *(percent(m.per_class[label]) for m in measured.values()))
    table.add_row("all", str(len(targets)), *(percent(m.accuracy) for m in measured.values()), style="bold")
    console.print(table)
    predicted = {inference: getattr(scores, inference).argmax(1).cpu().numpy() for inference in measured}
    truth, count = targets.numpy(), len(model.names)
    matrices = {inference: confusion_shares(labels, truth, count) for inference, labels in predicted.items()}
    picture = Path(known.output or path.with_name(f"{path.stem}-confusion.png"))
    write_figure(confusion(matrices, model.names, path.stem), picture)
    if unknown:
        say(console, f"left out, because the model does not know them: {', '.join(unknown)}")
    if collection.skipped:
        say(console, f"skipped: {len(collection.skipped)}")
        say_all(console, [f"{name}: {why}" for name, why in collection.skipped])
    say(console, f"confusion matrix: {printable(picture)}")
    return 0


def _sources(words: Iterable[str]) -> Iterator[NamedSource]:
    """The photos that the words mean, those of each word sorted; a photo that two of them mean comes once."""
    seen: set[str] = set()
    for word in words:
        for name, source in _meant(word):
            if name not in seen:
                seen.add(name)
                yield name, source


def _meant(word: str) -> Iterator[NamedSource]:
    if word == "-":
        yield from _from_standard_input()
        return
    path = Path(word).expanduser()
    if path.is_dir():
        yield from ((str(file), file) for file in files_below(path))
    elif os.path.lexists(path) or not glob.has_magic(word):
        yield word, path
    else:
        found = sorted(glob.glob(os.path.expanduser(word), recursive=True))
        if not found:
            yield word, path  # to be reported with the others
        yield from ((name, Path(name)) for name in found if not Path(name).is_dir())


def _from_standard_input() -> Iterator[NamedSource]:
    """One image, or names of files, one a line."""
    data = sys.stdin.buffer.read()
    try:
        decode(data, size=8)
    except Exception:  # no image: damaged ones make Pillow raise almost anything
        for line in data.splitlines():
            if line.strip():
                yield os.fsdecode(line), Path(os.fsdecode(line))
    else:
        yield "-", data


def _write_table(answers: Iterable[Prediction | Failure]) -> Iterator[Failure]:
    for answer in answers:
        if isinstance(answer, Failure):
            yield answer
            continue
        best = "  ".join(f"{printable(name)} {100 * value:.1f}%" for name, value in answer.ranked)
        print(f"{printable(answer.file)}: {best}", flush=True)


def _write_json_lines(answers: Iterable[Prediction | Failure]) -> Iterator[Failure]:
    for answer in answers:
        if isinstance(answer, Failure):
            yield answer
            continue
        ranked = [{"class": name, "confidence": round(value, 6)} for name, value in answer.ranked]
        print(json.dumps({"file": answer.file, "predictions": ranked}), flush=True)


def _write_csv(answers: Iterable[Prediction | Failure]) -> Iterator[Failure]:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["file", "rank", "class", "confidence"])
    for answer in answers:
        if isinstance(answer, Failure):
            yield answer
            continue
        for rank, (name, value) in enumerate(answer.ranked, start=1):
            writer.writerow([printable(answer.file), rank, name, f"{value:.6f}"])
        sys.stdout.flush()


WRITERS: dict[str, Callable[[Iterable[Prediction | Failure]], Iterator[Failure]]] = {
    "table": _write_table,
    "jsonl": _write_json_lines,
    "csv": _write_csv,
}
