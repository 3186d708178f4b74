"""The errors a user can cause, each reported in one sentence: what was given, what was expected, what to do."""

import difflib
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


class PodnetError(Exception):
    """An error the user can fix. The command line prints its message without a traceback."""


class DataError(PodnetError, ValueError):
    """A dataset that is missing, damaged or unusable; in Python, and for scikit-learn, a wrong value."""


class ConfigError(PodnetError, ValueError):
    """Invalid settings, refused before training starts; in Python a wrong value, too."""


class BusyError(PodnetError):
    """A run that another process is writing."""


class MissingPackageError(PodnetError):
    """An optional package is required but missing."""


class DamagedFileError(PodnetError):
    """One of our files, truncated or changed after it was written."""


class NotAModelError(PodnetError):
    """A picture or a folder where a model file is expected."""


@contextmanager
def importing(extra: str, need: str) -> Iterator[None]:
    """Around the import of an optional package: if it is missing, the error tells the need and how to install it."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(f"{need}: pip install 'podnet[{extra}]'.") from error


@dataclass(frozen=True)
class Finding:
    """What `podnet doctor` or `podnet check` found, in a sentence, and the one command that helps, if any."""

    text: str
    state: Literal["ok", "note", "broken"] = "ok"
    command: str = ""


# What reading a file can raise if it is whole, but not what we wrote.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint such as " Did you mean 'epochs'?", or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def one_of(option: str, value: object, known: Iterable[str]) -> str:
    """The value, if it is one of the known ones."""
    if value not in (names := sorted(known)):
        raise ConfigError(f"{option} is {value!r}; it must be one of {', '.join(names)}.{nearest(str(value), names)}")
    return str(value)


def counted(count: int, word: str) -> str:
    """The number and the word, such as 1 photo, 2 photos, 3 classes."""
    return f"{count} {word}" if count == 1 else f"{count} {word}{'es' if word.endswith('s') else 's'}"


def in_words(names: Iterable[str], most: int = 10) -> str:
    """Names as text: "a, b and c". Of a long list the first ones and the number of the others."""
    words = list(names)
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def some(names: Sequence[str], most: int = 5) -> str:
    """The first names, with dots if there are more."""
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")


def printable(name: str | Path) -> str:
    """An external name, safe to display: no control characters, no bytes that are not Unicode."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(path: Path) -> str:
    """A path in a command to copy."""
    return shlex.quote(printable(path))
