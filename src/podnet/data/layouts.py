"""Photo datasets as their authors laid them out: TinyImageNet and CUB-200-2011."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from podnet.data.dataset import Dataset, is_number, reading
from podnet.data.imagenet import Split, class_folders, list_photos, photo_dataset
from podnet.data.photos import Unreadable
from podnet.errors import DataError, printable

TINY = "tiny-imagenet-200"
CUB = "CUB_200_2011"


def load_tinyimagenet(path: Path, image_size: int = 64, workers: int = 0, unreadable: Unreadable = "error") -> Dataset:
    """TinyImageNet: train/SYNSET/images/*.JPEG, and val/images/*.JPEG with their classes in val/val_annotations.txt.

    `path` is its folder, or one that contains tiny-imagenet-200. Its test photos have no labels and are not used.
    """
    with reading(Path(path)):
        root = _root(Path(path), TINY, ("train", "val/images", "val/val_annotations.txt"))
        folders = [entry.name for entry in class_folders(root / "train")]
        listed = list_photos(root / "train", folders, "images", "(.JPEG); get the dataset again")
        train = Split.in_turn(*listed, folders)
        val = _tiny_val(root / "val", train.classes)
    return photo_dataset("tinyimagenet", train, val, train.classes, image_size, workers, unreadable)


def load_cub200(path: Path, image_size: int = 224, workers: int = 0, unreadable: Unreadable = "error") -> Dataset:
    """CUB-200-2011: images.txt, image_class_labels.txt and train_test_split.txt beside the folder images.

    `path` is its folder, or one that contains CUB_200_2011. A class is called what the folder of its photos is.
    """
    with reading(Path(path)):
        files = ("images", "images.txt", "image_class_labels.txt", "train_test_split.txt")
        root = _root(Path(path), CUB, files)
        names, labels, trains = (_numbered(root / name) for name in files[1:])
    if not names:
        raise DataError(f"{root / files[1]} is empty; get the file again.")
    for other, file in ((labels, files[2]), (trains, files[3])):
        if odd := sorted(names.keys() ^ other.keys())[:1]:
            where = (files[1], file) if odd[0] in names else (file, files[1])
            raise DataError(f"{root}: photo {odd[0]} is in {where[0]}, but not in {where[1]}; get the files again.")
    if wrong := [photo for photo, trained in trains.items() if trained not in (b"0", b"1")]:
        raise DataError(f"{root}: {files[3]} says neither 0 nor 1 of photo {wrong[0]}; get the file again.")
    folder_of = {labels[photo]: printable(os.fsdecode(name.partition(b"/")[0])) for photo, name in names.items()}
    classes = tuple(folder_of[label] for label in sorted(folder_of, key=lambda label: (len(label), label)))

    def split(wanted: bytes) -> Split:
        own = [photo for photo in names if trains[photo] == wanted]
        shown = [folder_of[labels[photo]] for photo in own]
        return Split.of(root / "images", [names[photo] for photo in own], shown, classes)

    return photo_dataset("cub200", split(b"1"), split(b"0"), classes, image_size, workers, unreadable)


def _root(path: Path, folder: str, parts: tuple[str, ...]) -> Path:
    """The folder that has all parts: the given one, or the one of that name in it."""
    for root in (path, path / folder):
        if all((root / part).exists() for part in parts):
            return root
    raise DataError(f"{path} has no {', '.join(parts)}; give the folder {folder}, or one that holds it.")


def _tiny_val(folder: Path, classes: tuple[str, ...]) -> Split:
    """Lines "file, class, box", with tabs between them."""
    file = folder / "val_annotations.txt"
    names, shown = [], []
    known = set(classes)
    for count, (name, *rest) in _lines(file, most=3):
        shown.append(printable(os.fsdecode(b"".join(rest[:1]))))
        if shown[-1] not in known:
            line = printable(os.fsdecode(b" ".join([name, *rest[:1]])))
            raise DataError(f"{file}, line {count}: {line!r} is not a photo and a class of train; get the file again.")
        names.append(name)
    return Split.of(folder / "images", names, shown, classes)


def _numbered(file: Path) -> Mapping[int, bytes]:
    """Lines "number value" as a mapping, in their order."""
    found: dict[int, bytes] = {}
    for count, words in _lines(file, most=2):
        number = os.fsdecode(words[0])
        if len(words) != 2 or not is_number(number) or int(number) in found:
            shown = printable(os.fsdecode(b" ".join(words)))
            raise DataError(f"{file}, line {count}: {shown!r} is not a new number and a value; get the file again.")
        found[int(number)] = words[1]
    return found


def _lines(file: Path, most: int) -> Iterator[tuple[int, list[bytes]]]:
    """Number and words of each line that has any; what follows the first words is the last one."""
    for count, line in enumerate(file.read_bytes().splitlines(), start=1):
        if line.strip():
            yield count, line.strip().split(maxsplit=most - 1)
