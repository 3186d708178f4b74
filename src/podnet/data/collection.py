"""A user's own photos: one folder per class, or a CSV table. Every file is checked."""

from __future__ import annotations

import csv
import hashlib
import io
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from podnet.data.decode import is_picture, measure, open_photo, reason
from podnet.errors import DataError, counted, printable
from podnet.io.files import expanded

WANTED = "expected a folder with one subfolder of photos per class, or a CSV table with the columns path and label"
PATHS = ("path", "filepath", "imagepath", "filename", "file", "imagefile", "imagename", "image", "img", "photo")
LABELS = ("label", "labels", "labelname", "class", "classname", "category", "species", "target", "kind", "type", "tag")
WITHOUT_HEADER = "path,label, or a first row that names these two columns, for example filename,class"
LONGEST_NAME = 200  # characters of a class name
SHOWN = 10  # subfolders named in a sentence


@dataclass(frozen=True)
class Photo:
    """One readable photo and the class it shows."""

    source: Path | bytes  # a file, or the content of one
    label: str
    size: tuple[int, int]  # width and height
    digest: str  # of the content


@dataclass(frozen=True)
class Collection:
    """The usable photos, sorted by class, and the skipped files with their reasons."""

    photos: tuple[Photo, ...]
    skipped: tuple[tuple[str, str], ...] = ()  # name, reason
    nested: tuple[tuple[str, str], ...] = ()  # class whose subfolders may be meant as classes, a sentence about it

    @property
    def counts(self) -> dict[str, int]:
        """How many photos each class has."""
        return dict(Counter(photo.label for photo in self.photos))

    def of(self, labels: Iterable[str]) -> Collection:
        wanted = set(labels)
        return Collection(tuple(photo for photo in self.photos if photo.label in wanted))


def read_collection(path: Path) -> Collection:
    """Read all photos of a folder or table. Each is decoded once; unreadable files and duplicates are skipped."""
    path = expanded(path)
    if path.is_dir():
        listed, skipped = _list_folders(path)
    elif path.is_file():
        listed, skipped = _list_table(path), []
    else:
        raise DataError(f"there is no folder or file {printable(path)}; {WANTED}.")
    refuse_lookalikes([label for _, label in listed])
    measured = measure_all([file for file, _ in listed])
    photos: dict[str, Photo] = {}
    for (file, label), found in zip(listed, measured, strict=True):
        if isinstance(found, str):
            skipped.append((printable(file), found))
        elif (twin := photos.setdefault(found[1], Photo(file, label, *found))).source != file:
            skipped.append((printable(file), f"the same photo as {printable(str(twin.source))}"))
        elif twin.label != label:
            skipped.append((printable(file), f"listed as {printable(twin.label)} before"))
    if not photos:
        first = f" The first skipped file: {skipped[0][0]}: {skipped[0][1]}." if skipped else ""
        raise DataError(f"{printable(path)} has no readable photo; {WANTED}.{first}")
    left = {photo.label for photo in photos.values()}
    empty = dict.fromkeys(label for _, label in listed if label not in left)
    skipped += [(label, "a class without readable photos") for label in empty]
    ordered = in_order(photos.values())
    return Collection(ordered, tuple(skipped), _nested(path, ordered) if path.is_dir() else ())


def in_order(photos: Iterable[Photo]) -> tuple[Photo, ...]:
    """By class, then by path; images in memory keep their order."""
    return tuple(
        sorted(photos, key=lambda photo: (photo.label, Path() if isinstance(photo.source, bytes) else photo.source))
    )


def measure_all(sources: Sequence[Path | bytes]) -> list[tuple[tuple[int, int], str] | str]:
    """For each photo its width and height, and its digest; or the reason why it cannot be decoded."""
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.simplefilter("ignore")  # Pillow's warnings about odd but readable files
        return list(pool.map(_measure, sources))


def refuse_lookalikes(labels: Sequence[str], known: Sequence[str] = ()) -> None:
    """Refuse class names that differ only in case: many file systems treat them as one; usually it is a mistake."""
    seen: dict[str, str] = {}
    for label in (*known, *labels):
        other = seen.setdefault(label.casefold(), label)
        if other != label:
            where = "the model knows" if other in known else "there is"
            raise DataError(
                f"{where} a class {other!r}, and the photos have {label!r}, which differs only in case; rename one."
            )


def files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and its subfolders, sorted; links are followed, each folder is visited once.

    A link to a folder that contains this one is not followed: it would lead to other classes.
    """
    visited = {_identity(parent) for parent in (*folder.absolute().parents, *folder.resolve().parents)}
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        if _identity(here) in visited:
            continue
        visited.add(_identity(here))
        entries = _entries(here)
        yield from (entry for entry in entries if not entry.is_dir())
        waiting += reversed([entry for entry in entries if entry.is_dir()])


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _list_folders(root: Path) -> tuple[list[tuple[Path, str]], list[tuple[str, str]]]:
    """The files and their classes, and what is skipped."""
    listed: list[tuple[Path, str]] = []
    skipped: list[tuple[str, str]] = []
    entries = _entries(root)
    for entry in entries:
        if not entry.is_dir():
            skipped.append((printable(entry), "not in a class folder"))
            continue
        try:
            files = list(files_below(entry))
        except OSError as error:
            skipped.append((printable(entry), error.strerror or "cannot be opened"))
            continue
        label = class_name(entry.name)
        listed += [(file, label) for file in files]
        if not files:
            skipped.append((printable(entry), "a folder without photos"))
    if listed:
        return listed, skipped
    photos = sum(is_picture(entry) for entry in entries if not entry.is_dir())
    if not photos:
        raise DataError(f"{printable(root)} has no class folders with files; {WANTED}.")
    folders = "class folders with files" if any(entry.is_dir() for entry in entries) else "class folders"
    advice = f"move {'it' if photos == 1 else 'them'} to {printable(root / 'CLASS')}/"
    raise DataError(f"{printable(root)} has {counted(photos, 'photo')} but no {folders}; {advice}.")


def _nested(root: Path, photos: Iterable[Photo]) -> tuple[tuple[str, str], ...]:
    """Classes with several subfolders of photos."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for photo in photos:
        assert isinstance(photo.source, Path)
        folder, *below = photo.source.relative_to(root).parts
        if len(below) > 1:
            found.setdefault((photo.label, folder), {})[printable(below[0])] = None
    sentences = []
    for (label, folder), names in found.items():
        if len(names) > 1:
            shown = ", ".join([*names][:SHOWN]) + ", ..." * (len(names) > SHOWN)
            what = f"{label} has subfolders with photos ({shown}); they are learned as one class."
            sentences.append((label, f"{what} For classes of their own, give {printable(root / folder)}."))
    return tuple(sentences)


def _list_table(file: Path) -> list[tuple[Path, str]]:
    """Rows path,label, or a header that names these two columns; paths are relative to the table's folder."""
    if is_picture(file):
        raise DataError(f"{printable(file)} is a picture; give the folder that contains the class folders.")
    try:
        reader = csv.reader(io.StringIO(file.read_bytes().decode("utf-8-sig"), newline=""), strict=True)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except (UnicodeDecodeError, csv.Error) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        raise DataError(f"{printable(file)} is neither a folder nor a CSV table ({why}); {WANTED}.") from error
    header = rows[0][1] if rows else []
    path, label = _column(header, PATHS), _column(header, LABELS)
    named, width = True, len(header)
    if path is None or label is None:
        named, path, label, width = False, 0, 1, 2
    listed = []
    for line, row in rows[named:]:
        if len(row) != width or not row[path] or not row[label]:
            expected = f"{width} cells, with a path and a label" if named else WITHOUT_HEADER
            raise DataError(f"{printable(file)}, line {line}: {printable(','.join(row))!r}; expected {expected}.")
        if "\0" in row[path]:
            raise DataError(f"{printable(file)}, line {line}: a path cannot contain a null character.")
        listed.append((file.parent / row[path], class_name(row[label])))
    if not listed:
        raise DataError(f"{printable(file)} is empty; write a row path,label for each photo.")
    return listed


def _column(header: Sequence[str], names: Sequence[str]) -> int | None:
    """The column whose name is the first of these, whatever its case, spaces and underscores."""
    plain = ["".join(filter(str.isalnum, cell.lower())) for cell in header]
    return next((plain.index(name) for name in names if name in plain), None)


def class_name(name: str) -> str:
    """The name in one Unicode form: some letters can be written in two ways, and macOS uses the other one."""
    normal = unicodedata.normalize("NFC", name)
    if not normal.isprintable() or len(normal) > LONGEST_NAME:
        shown = printable(normal[:80])
        raise DataError(f"invalid class name '{shown}': use at most {LONGEST_NAME} characters, all of them printable.")
    return normal


def _measure(source: Path | bytes) -> tuple[tuple[int, int], str] | str:
    try:
        with open_photo(source) as opened:
            content = opened.read()
        return measure(content), hashlib.sha256(content).hexdigest()[:32]
    except Exception as error:  # Pillow raises almost anything on damaged files
        return reason(error)
