"""The mistakes a person can make, each told in one sentence: what was given, what was expected, what to do."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path


class PodnetError(Exception):
    """Something the user can mend. The command line prints its sentence and no traceback."""


class DataError(PodnetError):
    """A dataset that is missing, damaged or unusable."""


class ConfigError(PodnetError):
    """A configuration that cannot work, refused before any training."""


class BusyError(PodnetError):
    """A run that another process is writing."""


class MissingPackageError(PodnetError):
    """An optional package that what was asked for needs."""


class DamagedFileError(PodnetError):
    """A file of ours that was cut short or changed after it was written."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint such as " Did you mean 'epochs'?", or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def printable(name: str | Path) -> str:
    """A name that comes from outside, fit to be shown: no control characters, no bytes that are not Unicode."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
