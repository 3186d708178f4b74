"""Bad input: fuzzed model files, checkpoints and run folders, damaged photos, hostile YAML, CSV, npz and tar files.

Each file is read by the commands that a user would give it to, in a process whose memory the system limits. They may
succeed or say what is wrong; an exception, a signal, too much memory or a minute without an end is a failure.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import torch
from forked import TIMED_OUT, forked, podnet
from kills import CLOSED, SMALL, TRAINED
from notes import Notes
from PIL import Image

from coloured import photos_of
from podnet.errors import PodnetError
from podnet.io.tensors import load_tensors, save_tensors

SEED = 23
BATCH = 25  # cases a process; the seconds are for all of them
MEGABYTES = 1500
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**9, 10**30, -(10**30), 1e308, float("nan"), float("inf"), "", "x" * 1000, "\x1b[31m",
    "../../etc",
    "[/red]", "\ud800", [], {}, [[]], {"a": 1}, [None] * 5, {"cnn": None, "nme": None}, [1] * 1000,
)  # fmt: skip
Case = Callable[[random.Random, Path], Iterable[Callable[[], object]]]  # makes the files; the readers to call


def bad_input(notes: Notes, scratch: Path) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    material = _material(scratch / "material")
    counts: list[tuple[str, int, Case]] = [
        ("run content", 1000, lambda draws, folder: _run(draws, folder, material, _content_changed)),
        ("run bytes", 1000, lambda draws, folder: _run(draws, folder, material, _bytes_changed)),
        ("hostile", 500, lambda draws, folder: hostile.readers(draws, folder, material)),
        *((f"photo {kind}", 500, _photo_of(kind, material)) for kind in ("jpeg", "png", "webp", "gif", "bmp", "tiff")),
        ("model content", 1000, lambda draws, folder: _model(draws, folder, material, _tensors_changed)),
        ("model bytes", 1000, lambda draws, folder: _model(draws, folder, material, _bytes_changed)),
    ]
    for name, count, case in counts:
        for first in range(0, count, BATCH):
            notes.attempt(f"{name}/{first}-{min(first + BATCH, count) - 1}", _batch, name, case, first, scratch)


def _batch(name: str, case: Case, first: int, scratch: Path) -> str | None:
    """Several cases in one process; what failed first."""
    folder, output = scratch / "case", scratch / "output"
    position = scratch / "position"

    def act() -> int:
        for number in range(first, first + BATCH):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            position.write_text(f"{name} {number}")
            for read in case(random.Random(f"{SEED} {name} {number}"), folder):
                _told(read)
        return 0

    code = forked(act, output, seconds=60 * BATCH, megabytes=MEGABYTES)
    if code == 0 and not list(Path("/tmp").glob("podnet-was-here*")):
        return None
    lines = output.read_text(errors="replace").strip().splitlines() or [""]
    how = "no end" if code == TIMED_OUT else f"exit code {code}"
    where = [line.strip() for line in lines if "/podnet/" in line][-1:]
    return f"{position.read_text()}: {how}: {lines[-1][:200]} {where}"


def _told(read: Callable[[], object]) -> None:
    """Call a reader, as the command line does: what is wrong is a sentence."""
    out, err = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with out, err, contextlib.suppress(PodnetError, OSError):  # which the command line and the page tell
        read()


# ---- what is damaged ----------------------------------------------------------------------------------------------


def _material(folder: Path) -> Path:
    folder.mkdir()
    photos_of(folder / "photos", "red", "green", "blue", count=6)
    nothing = Path("/dev/null")
    assert forked(podnet("learn", folder / "closed", folder / "photos", *CLOSED), nothing) == 0
    assert forked(podnet("learn", folder / "trained", folder / "photos", *TRAINED), nothing) == 0
    options = ["--finetune-epochs", "1", "--method", "podnet", "--output", folder / "run", "--logger", "csv"]
    assert forked(podnet("run", *SMALL, *options), nothing) == 0
    shutil.rmtree(folder / "run" / "tensorboard", ignore_errors=True)
    return folder


def _bytes_changed(draws: random.Random, path: Path) -> None:
    """Bits flipped, a piece cut out, doubled or replaced, the file cut short, emptied or of another kind."""
    data = bytearray(path.read_bytes())
    for _ in range(draws.choice((1, 1, 1, 3, 20))):
        where = draws.randrange(min(len(data), draws.choice((16, 3000, 10**9))) or 1)
        how = draws.randrange(6)
        length = draws.choice((1, 8, 100, 10_000))
        if how == 0 and data:
            data[min(where, len(data) - 1)] ^= 1 << draws.randrange(8)
        elif how == 1:
            del data[where : where + length]
        elif how == 2:
            data[where:where] = data[where : where + length]
        elif how == 3:
            data[where : where + length] = draws.randbytes(length)
        elif how == 4:
            del data[where:]
        else:
            data[where : where + length] = bytes(length)
    path.write_bytes(data)


def _tensors_changed(draws: random.Random, path: Path) -> None:
    """A value, a shape or a type is another; the checksum is right."""
    tensors, meta = load_tensors(path)
    for _ in range(draws.choice((1, 1, 2))):
        if draws.random() < 0.6:
            meta = _value_changed(draws, meta)
        else:
            name = draws.choice(sorted(tensors))
            tensors[name] = _tensor_changed(draws, tensors[name])
            if draws.random() < 0.2:
                tensors[draws.choice(("other", "learner.means", "held_out.data"))] = tensors.pop(name)
    with contextlib.suppress(TypeError, ValueError, UnicodeError):
        save_tensors(path, tensors, meta)


def _tensor_changed(draws: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    how = draws.randrange(6)
    if how == 0:
        return tensor.to(draws.choice((torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool)))
    if how == 1:
        return tensor.flatten()[: draws.randrange(tensor.numel() + 1)].clone()
    if how == 2:
        return tensor.new_zeros(draws.choice(((0,), (), (1, 1, 1, 1), (3, 2), (1000, 3))))
    if how == 3:
        return tensor.unsqueeze(0).clone()
    changed = tensor.clone().flatten()
    if changed.numel():
        values = (float("nan"), float("inf"), -1e30, 1e30) if changed.is_floating_point() else (0, 1, 100)
        changed[draws.randrange(changed.numel())] = draws.choice(values)
    return changed.reshape(tensor.shape)


def _value_changed(draws: random.Random, value: Any) -> Any:
    """One value somewhere inside is another, is missing or is there twice."""
    changed = copy.deepcopy(value)
    place, here = None, changed
    while isinstance(here, dict | list) and here and (place is None or draws.random() < 0.8):
        place = (here, draws.choice(list(here) if isinstance(here, dict) else range(len(here))))
        here = here[place[1]]
    if place is None:
        return draws.choice(VALUES)
    container, key = place
    how = draws.randrange(5)
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(container, list):
        container.append(copy.deepcopy(container[key]))
    else:
        container[key] = copy.deepcopy(draws.choice(VALUES))
    return changed


def _content_changed(draws: random.Random, path: Path) -> None:
    """A value in a file that can still be parsed is another."""
    if path.suffix == ".safetensors":
        _tensors_changed(draws, path)
    elif path.suffix in (".jsonl", ".json", ".yaml"):
        import yaml

        if path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps(line) + "\n" for line in _as_list(_value_changed(draws, lines))))
        elif path.suffix == ".json":
            path.write_text(json.dumps(_value_changed(draws, json.loads(path.read_text()))))
        else:
            with contextlib.suppress(yaml.YAMLError, UnicodeError):
                path.write_text(yaml.safe_dump(_value_changed(draws, yaml.safe_load(path.read_text()))))
    else:
        _bytes_changed(draws, path)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# ---- who reads it -------------------------------------------------------------------------------------------------


def _model(
    draws: random.Random, folder: Path, material: Path, change: Callable[[random.Random, Path], None]
) -> Iterable[Callable[[], object]]:
    path = folder / "m.podnet"
    shutil.copy(material / draws.choice(("closed", "trained")), path)
    change(draws, path)
    photo = material / "photos" / "red" / "0.png"
    yield podnet("info", path)
    yield podnet("predict", path, photo, "--workers", "0")
    if draws.random() < 0.2:
        yield podnet("card", path)
        yield podnet("forget", path, "red")


def _run(
    draws: random.Random, folder: Path, material: Path, change: Callable[[random.Random, Path], None]
) -> Iterable[Callable[[], object]]:
    run = folder / "runs" / "run"
    shutil.copytree(material / "run", run)
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.suffix not in (".png", ".svg", ".html"))
    files = [path for path in files if path.name != ".lock"]
    for _ in range(draws.choice((1, 1, 2))):
        path = draws.choice(files)
        how = draws.randrange(20)
        if not path.is_file():
            continue
        if how == 0:
            path.unlink()
        elif how == 1:
            path.unlink()
            path.mkdir()
        elif how == 2:
            path.unlink()
            path.symlink_to(path)
        else:
            change(draws, path)
    yield lambda: _on_the_page(run.parent)
    yield podnet("report", run, "--output", folder / "report")
    yield podnet("compare", run)
    results = run / "results.jsonl"
    if results.is_file() and draws.random() < 0.5:  # as if it had stopped before the last task
        results.write_bytes(b"".join(results.read_bytes().splitlines(keepends=True)[:1]))
        with contextlib.suppress(OSError):
            (run / "checkpoints" / "0001-end.safetensors").unlink()
    yield podnet("run", "--resume", run)


def _on_the_page(folder: Path) -> None:
    """What the page reads of the runs below a folder."""
    from podnet.studio.comparison import compare
    from podnet.studio.index import RunIndex
    from podnet.studio.run_routes import _damage_told, epochs, of_classes, results, run

    index = RunIndex(folder)
    index.refresh()
    for text in index.since(0).runs:
        found = index.entry(json.loads(text)["id"])
        assert found is not None
        for read in (run, results, epochs, of_classes):
            _told(lambda read=read, found=found: read(found))

        def compared(found: Any = found) -> None:
            with _damage_told():  # as its route does
                compare([found.run], [found.summary.name])

        _told(compared)


def _photo_of(kind: str, material: Path) -> Case:
    def case(draws: random.Random, folder: Path) -> Iterable[Callable[[], object]]:
        noise = np.random.default_rng(draws.randrange(2**32)).integers(0, 256, (40, 56, 3), dtype=np.uint8)
        path = folder / f"photo.{kind}"
        Image.fromarray(noise).convert(draws.choice(("RGB", "L") if kind != "webp" else ("RGB",))).save(path)
        _bytes_changed(draws, path)
        yield podnet("predict", material / "closed", path, "--workers", "0")
        if draws.random() < 0.1:
            photos_of(folder / "photos", "red", "green", count=2)
            shutil.copy(path, folder / "photos" / "red" / path.name)
            yield podnet("learn", folder / "m.podnet", folder / "photos", *CLOSED)

    return case
