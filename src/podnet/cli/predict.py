"""`podnet predict`: predict the classes of photos."""

from __future__ import annotations

import argparse
import csv
import glob
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from podnet.cli.model_options import reject_rate, workers
from podnet.data.collection import files_below
from podnet.data.decode import is_picture
from podnet.engine.device import choose_device, with_threads
from podnet.errors import PodnetError, printable
from podnet.io.files import expanded
from podnet.model.loading import load_model
from podnet.model.measure import best_inference
from podnet.model.predict import Failure, Prediction, predict
from podnet.processes import keep_freed_memory

NamedSource = tuple[str, Path | bytes]


def predict_command(known: argparse.Namespace) -> int:
    """Returns 0, or 1 if some photos could not be read, or a folder has none."""
    if known.top < 1:
        raise PodnetError(f"--top is {known.top}; it must be at least 1.")
    reject = reject_rate(known)
    keep_freed_memory()
    model = load_model(expanded(known.model), choose_device(known.device))
    inference = known.inference or best_inference(model.history[-1])
    files, empty = _sources(known.images)
    shown = _as_table_of_one_class if known.format == "table" and len(model.names) == 1 else FORMATS[known.format]
    with with_threads(known.threads):
        if known.format == "csv":
            print("file,rank,class,confidence,unknown")
        failures = []
        for answer in predict(model, files, inference, known.top, workers(known, len(files)), reject):
            if isinstance(answer, Failure):
                failures.append(answer)
            else:
                print(shown(answer), flush=True)
    for failure in failures:
        print(f"cannot read {printable(failure.file)}: {failure.why}", file=sys.stderr)
    for word in empty:
        print(f"{'standard input' if word == '-' else printable(word)} has no photos", file=sys.stderr)
    return 1 if failures or empty else 0


def _sources(words: Iterable[str]) -> tuple[list[NamedSource], list[str]]:
    """The photos given by the words, sorted for each word, without duplicates; and the words that give none."""
    files: dict[str, Path | bytes] = {}
    empty = []
    for word in words:
        found = dict(_meant(word))
        files |= found
        if not found:
            empty.append(word)
    return list(files.items()), empty


def _meant(word: str) -> Iterator[NamedSource]:
    if word == "-":
        yield from _from_standard_input()
        return
    path = expanded(word)
    if path.is_dir():
        yield from ((str(file), file) for file in files_below(path))
    elif os.path.lexists(path) or not glob.has_magic(word):
        yield word, path
    else:
        found = sorted(glob.glob(os.path.expanduser(word), recursive=True))
        if not found:
            yield word, path  # reported with the others
        yield from ((name, Path(name)) for name in found if not Path(name).is_dir())


def _from_standard_input() -> Iterator[NamedSource]:
    """One image, or file names, one per line."""
    data = sys.stdin.buffer.read()
    if is_picture(data) or b"\0" in data:  # maybe a damaged one; no file name has a null character
        yield "-", data
        return
    for line in data.splitlines():
        if line.strip():
            yield os.fsdecode(line), Path(os.fsdecode(line))


def _as_table(answer: Prediction) -> str:
    best = "  ".join(f"{printable(name)} {100 * value:.1f}%" for name, value in answer.ranked)
    return f"{printable(answer.file)}: " + (f"unknown (nearest: {best})" if answer.unknown else best)


def _as_table_of_one_class(answer: Prediction) -> str:
    """Its confidence is the share of its photos that look less familiar: no news about an unknown photo, or if 0."""
    ((name, value),) = answer.ranked
    if value and not answer.unknown:
        return _as_table(answer)
    shown = printable(name)
    return f"{printable(answer.file)}: " + (f"unknown (nearest: {shown})" if answer.unknown else shown)


def _as_json_line(answer: Prediction) -> str:
    ranked = [{"class": name, "confidence": round(value, 6)} for name, value in answer.ranked]
    return json.dumps({"file": answer.file, "unknown": answer.unknown, "predictions": ranked})


def _as_csv(answer: Prediction) -> str:
    text, unknown = io.StringIO(), "yes" if answer.unknown else "no"
    ranks = enumerate(answer.ranked, start=1)
    rows = [(printable(answer.file), rank, name, f"{value:.6f}", unknown) for rank, (name, value) in ranks]
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().removesuffix("\n")


FORMATS: dict[str, Callable[[Prediction], str]] = {"table": _as_table, "jsonl": _as_json_line, "csv": _as_csv}
