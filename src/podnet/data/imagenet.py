"""ImageNet, or any photos in its layout: one folder per class, or lists of files with their classes."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from podnet.data.arrays import BROKEN
from podnet.data.augment import Transform
from podnet.data.dataset import Dataset, is_number, reading
from podnet.data.photos import Photos, Unreadable
from podnet.data.sources import FileNames
from podnet.errors import DataError, PodnetError, nearest, printable, some
from podnet.io.files import cache_folder, expanded, write_atomically

ENDINGS = (b".jpeg", b".jpg", b".png")  # in upper or lower case
WANTED = "expected train/CLASS/*.JPEG and val/CLASS/*.JPEG, or lists train.txt and val.txt with lines 'path class'"
MEAN = (0.485, 0.456, 0.406)  # of the training photos: red, green, blue
STD = (0.229, 0.224, 0.225)
SMALL = 100  # classes of the subsets that publications call ImageNet100
LARGE = 1000
UCIR_SEED = 1993
WORTH_CACHING = 20_000  # files; fewer are listed quickly enough
CACHE_FORMAT = 1
SKIP = "skip such files with --unreadable skip"
SUBSETS = ("all", "released", "ucir")  # by name; anything else is a file


@dataclass(frozen=True, eq=False)
class Split:
    """The files of train or val, and the class of each."""

    files: FileNames
    labels: np.ndarray  # (N,) int64, into classes
    classes: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, files: Sequence[bytes], shown: Sequence[str], classes: tuple[str, ...]) -> Split:
        """The files in a folder, and the name of the class that each shows."""
        label_of = {name: label for label, name in enumerate(classes)}
        labels = np.array([label_of[name] for name in shown], dtype=np.int64)
        return cls(FileNames.pack(folder, files), labels, classes)

    @classmethod
    def in_turn(cls, files: FileNames, counts: np.ndarray, classes: Collection[str]) -> Split:
        """The files class by class, so many of each."""
        return cls(files, np.repeat(np.arange(len(classes)), counts), tuple(map(printable, classes)))


def load_imagenet(
    path: Path, subset: str = "all", image_size: int = 224, workers: int = 0, unreadable: Unreadable = "error"
) -> Dataset:
    """The photos of a folder in the ILSVRC layout, classes sorted by name; photos are read when training needs them.

    A list train.txt or val.txt in the folder has priority over the folder train or val. For `subset` see
    `choose_classes`, for the other options `Photos`.
    """
    with reading(Path(path)):
        train = _read_split(Path(path), "train")
        val = _read_split(Path(path), "val", train.classes)
    classes = choose_classes(subset, train.classes)
    if absent := sorted(set(classes) - set(val.classes)):
        raise DataError(
            f"{path}: train has {_counted(absent)}, but val does not; add photos to val or leave the class out."
        )
    if subset == "all" and (strange := sorted(set(val.classes) - set(classes))):
        raise DataError(
            f"{path}: val has {_counted(strange)}, but train does not; remove it, or list the classes in --subset."
        )
    name = f"imagenet{len(classes)}" if len(classes) in (SMALL, LARGE) else "imagenet"
    return photo_dataset(name, train, val, classes, image_size, workers, unreadable)


def photo_dataset(
    name: str, train: Split, test: Split, classes: tuple[str, ...], size: int, workers: int, unreadable: Unreadable
) -> Dataset:
    """The photos of these classes in both splits; labels are positions in `classes`."""

    def photos(split: Split) -> tuple[Photos, Tensor]:
        targets = split.labels
        if split.classes != classes:  # only some, or in another order; names of the same classes may repeat
            position = {name: label for label, name in enumerate(classes)}
            targets = np.array([position.get(name, -1) for name in split.classes])[split.labels]
        rows = torch.from_numpy(np.flatnonzero(targets >= 0))
        return Photos(split.files, size, workers, unreadable, hint=SKIP)[rows], torch.from_numpy(targets)[rows]

    transform = Transform(MEAN, STD, pad=0, flip=True)
    return Dataset(name, *photos(train), *photos(test), classes, (3, size, size), transform)


def choose_classes(subset: str, classes: Sequence[str]) -> tuple[str, ...]:
    """The classes, out of the sorted ones, that `subset` selects.

    "all"; "released": the first 100, as PODNet's released code takes them; "ucir": the 100 of UCIR's authors, who
    seeded numpy's old global generator with 1993 and chose from the 1000 sorted names without replacement; else the
    path of a file with names, one per line.
    """
    if subset == "all":
        return tuple(classes)
    if subset == "released":
        if len(classes) < SMALL:
            raise DataError(
                f"subset released is the first {SMALL} classes, but there are only {len(classes)}; use --subset all."
            )
        return tuple(classes[:SMALL])
    if subset == "ucir":
        if len(classes) != LARGE:
            raise DataError(
                f"subset ucir is drawn from the {LARGE} classes of ImageNet, but there are {len(classes)}; "
                "use --subset all, or give a file with class names."
            )
        drawn = np.random.RandomState(UCIR_SEED).choice(LARGE, SMALL, replace=False)
        return tuple(classes[i] for i in sorted(drawn.tolist()))
    try:
        lines = expanded(subset).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"subset is {subset}; it must be all, released, ucir or the path of a text file with class names."
        ) from error
    wanted = set(filter(None, map(str.strip, lines)))
    if unknown := sorted(wanted - set(classes)):
        hint = nearest(unknown[0], classes)
        raise DataError(f"{subset} lists {_counted(unknown)}, but train has no such class; correct the list.{hint}")
    if not wanted:
        raise DataError(f"{subset} lists no classes; write one per line.")
    return tuple(name for name in classes if name in wanted)


def _counted(names: Sequence[str]) -> str:
    return f"class {names[0]}" if len(names) == 1 else f"{len(names)} classes ({some(names)})"


def _read_split(root: Path, split: str, known: tuple[str, ...] | None = None) -> Split:
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; {WANTED}: give the folder that contains them.")
    if (root / f"{split}.txt").is_file():
        return _read_list(root, split, known)
    if (root / split).is_dir():
        return _read_folders(root, split)
    raise DataError(f"{root} has neither a folder {split} nor a list {split}.txt; {WANTED}.")


def _read_list(root: Path, split: str, known: tuple[str, ...] | None) -> Split:
    """Lines "path class". Paths are relative to the folder or to that of the split; a class is a name or, if the names
    in `known` are not all numbers, an index into them.
    """
    file = root / f"{split}.txt"
    names, words = [], []
    names_known = set(known or ())
    indexed = not all(map(is_number, names_known))
    for count, line in enumerate(file.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        name, *rest = line.strip().rsplit(maxsplit=1)
        word = printable(os.fsdecode(b"".join(rest)))
        if not word or rest[0].lower().endswith(ENDINGS):
            raise DataError(f"{file}, line {count}: {os.fsdecode(line)!r} has no class; write 'path class'.")
        if known and indexed and is_number(word) and word not in names_known:
            if int(word) >= len(known):
                raise DataError(
                    f"{file}, line {count}: {word} is not a class; train has {len(known)}, 0 to {len(known) - 1}."
                )
            word = known[int(word)]
        names.append(name)
        words.append(word)
    if not names:
        raise DataError(f"{file} is empty; write a line 'path class' for each photo.")
    found = set(words)
    classes = tuple(sorted(found, key=int if all(map(is_number, found)) else None))
    first = os.fsdecode(names[0])
    base = root / split if not (root / first).exists() and (root / split / first).exists() else root
    return Split.of(base, names, words, classes)


def _read_folders(root: Path, split: str) -> Split:
    """One class per folder. The list of a large split is cached in a file until a class folder changes."""
    folder = root / split
    stamps = {entry.name: entry.stat().st_mtime_ns for entry in class_folders(folder)}
    if not stamps:
        raise DataError(f"{folder} has no class folders; {WANTED}.")
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    places = (root / f".podnet-{split}.npz", cache_folder() / f"{digest}.npz")
    # A folder's time changes whenever a file is added or removed.
    key = np.frombuffer(json.dumps([CACHE_FORMAT, stamps]).encode(), np.uint8)
    listed = next(filter(None, (_read_cache(place, folder, key) for place in places)), None)
    if listed is None:
        listed = list_photos(folder, stamps, "", "(.JPEG, .jpg or .png); add some or remove the folder")
        if len(listed[0]) >= WORTH_CACHING:
            _write_cache(places, key, *listed)
    return Split.in_turn(*listed, stamps)


def class_folders(folder: Path) -> list[os.DirEntry[str]]:
    """Sorted by name."""
    entries = (entry for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    return sorted(entries, key=lambda entry: entry.name)


def list_photos(folder: Path, classes: Iterable[str], below: str, advice: str) -> tuple[FileNames, np.ndarray]:
    """The photos of each class, in its folder or the folder `below` that one, and their numbers."""
    names: list[bytes] = []
    counts = []
    for name in classes:
        place = os.fsencode(os.path.join(name, below, ""))
        entries = os.listdir(os.path.join(os.fsencode(folder), place))
        photos = sorted(place + e for e in entries if e.lower().endswith(ENDINGS) and not e.startswith(b"."))
        if not photos:
            raise DataError(f"{folder / name / below} has no photos {advice}.")
        names += photos
        counts.append(len(photos))
    return FileNames.pack(folder, names), np.array(counts, np.int64)


def _write_cache(places: Sequence[Path], key: np.ndarray, files: FileNames, counts: np.ndarray) -> None:
    """Write to the first place that is writable; if none is, the list is made again each time."""
    packed = io.BytesIO()
    np.savez(packed, key=key, names=files.names, ends=files.ends, counts=counts)
    for place in places:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, packed.getvalue())
        except (OSError, PodnetError):
            continue
        return


def _read_cache(place: Path, folder: Path, key: np.ndarray) -> tuple[FileNames, np.ndarray] | None:
    """The cached list; None if it is missing, damaged or older than a change of the folders."""
    try:
        with open(place, "rb") as file, np.load(file, allow_pickle=False) as stored:
            if np.array_equal(stored["key"], key):
                return FileNames(folder, stored["names"], stored["ends"]), stored["counts"]
    except BROKEN:
        pass
    return None
