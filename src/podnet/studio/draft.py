"""Photos dropped on the page, waiting to be taught: checked on arrival, kept in a temporary folder."""

from __future__ import annotations

import csv
import hashlib
import io
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podnet.errors import DataError
from podnet.io.files import write_atomically

MOST_PHOTOS = 5000
MOST_BYTES = 4_000_000_000
THUMBNAIL = 96


@dataclass(frozen=True)
class DraftPhoto:
    """A readable photo and its class."""

    id: str  # of its content
    label: str
    file: Path
    bytes: int


class Draft:
    """The photos of the classes that will be taught next."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="podnet-studio-")
        self._photos: dict[str, DraftPhoto] = {}
        self._lock = threading.Lock()

    def add(self, name: str, content: bytes, require_idle: Callable[[], None]) -> DraftPhoto:
        """Accept a photo of a class, or fail with the reason. `require_idle` is called again after the upload."""
        from podnet.data.collection import class_name, refuse_lookalikes  # imports torch, so only when needed
        from podnet.data.decode import measure, reason

        label = class_name(name.strip())
        if not label:
            raise DataError("the class has no name; give it one first.")
        try:
            measure(content)
        except Exception as error:  # Pillow raises almost anything on damaged files
            raise DataError(f"the photo cannot be read: {reason(error)}.") from error
        key = hashlib.sha256(content).hexdigest()[:32]
        with self._lock:
            require_idle()
            refuse_lookalikes([label], list(dict.fromkeys(photo.label for photo in self._photos.values())))
            known = self._photos.get(key)
            if known is not None and known.label != label:
                raise DataError(f"the same photo was already added to '{known.label}'.")
            held = sum(photo.bytes for photo in self._photos.values())
            if len(self._photos) >= MOST_PHOTOS or held + len(content) > MOST_BYTES:
                raise DataError(
                    f"too many photos: at most {MOST_PHOTOS} and {MOST_BYTES // 10**9} GB at a time; "
                    "teach these first, or run podnet learn on a folder."
                )
            photo = DraftPhoto(key, label, Path(self._folder.name) / key, len(content))
            if known is None:
                write_atomically(photo.file, content)
            self._photos[key] = photo
        return photo

    def thumbnail(self, key: str) -> bytes | None:
        photo = self._photos.get(key)
        return None if photo is None else small_jpeg(photo.file, THUMBNAIL, quality=85)

    def remove(self, key: str) -> bool:
        """Remove a photo; returns whether it was there."""
        with self._lock:
            photo = self._photos.pop(key, None)
            if photo is not None:
                photo.file.unlink(missing_ok=True)
        return photo is not None

    def clear(self, name: str | None = None) -> None:
        """Remove the photos of a class, or all."""
        from podnet.data.collection import class_name

        label = None if name is None else class_name(name.strip())
        for photo in self._list():
            if label in (None, photo.label):
                self.remove(photo.id)

    def describe(self) -> list[dict[str, Any]]:
        """Each class with the ids of its photos, in the order they came."""
        found: dict[str, list[str]] = {}
        for photo in self._list():
            found.setdefault(photo.label, []).append(photo.id)
        return [{"name": label, "photos": ids} for label, ids in found.items()]

    def write_table(self) -> tuple[list[DraftPhoto], Path]:
        """The photos as `podnet learn` reads them."""
        photos = self._list()
        rows = io.StringIO(newline="")
        csv.writer(rows).writerows([("path", "label"), *((photo.file.name, photo.label) for photo in photos)])
        table = Path(self._folder.name) / "photos.csv"
        write_atomically(table, rows.getvalue())
        return photos, table

    def _list(self) -> list[DraftPhoto]:
        with self._lock:
            return list(self._photos.values())

    def close(self) -> None:
        self._folder.cleanup()


def small_jpeg(source: Path | bytes, size: int, quality: int) -> bytes:
    """A photo decoded and drawn anew."""
    from PIL import Image

    from podnet.data.decode import decode

    drawn = io.BytesIO()
    Image.fromarray(decode(source, size)).save(drawn, "JPEG", quality=quality)
    return drawn.getvalue()
