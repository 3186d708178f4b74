"""Read a pickle of plain values without executing anything in it.

A pickle is a program: `pickle.load` lets it call any function. Here it may only build dicts, lists, tuples, strings,
bytes, numbers and numpy arrays of numbers. The few functions such pickles call are replaced by the stand-ins below,
because numpy's own trust their arguments: with a forged dtype, numpy follows pointers found in the file.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from podnet.errors import DataError


def load_plain(data: bytes, name: str) -> object:
    """The value in the pickle `data`; errors call it `name`. Strings written by Python 2 are returned as bytes."""
    try:
        return _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except _RefusedError as refused:
        raise DataError(f"{name} tried to use {refused}, which was not run; download the official file.") from None
    except Exception as error:  # a damaged pickle can raise nearly anything, as the pickle documentation says
        reason = str(error) or type(error).__name__
        raise DataError(f"{name} is damaged and cannot be unpickled ({reason}); download it again.") from error


class _RefusedError(Exception):
    """The pickle asked for something that is not allowed."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        stand_in = _STAND_INS.get((module.replace("numpy._core", "numpy.core"), name))
        if stand_in is None:
            raise _RefusedError(repr(f"{module}.{name}"[:80]))
        return stand_in


class _DType:
    """Stands in for numpy.dtype: a kind of number; the pickle may only set its byte order."""

    def __init__(self, kind: bytes | str) -> None:
        self.kind = _text(kind)
        if not re.fullmatch(r"[biufc]\d{1,2}", self.kind):
            raise _RefusedError(f"a numpy array of {self.kind[:80]!r} instead of numbers")
        self.dtype = np.dtype(self.kind)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _text(state[1])
        if order not in ("<", ">", "|"):
            raise ValueError(f"unknown byte order {order[:80]!r}")
        self.dtype = np.dtype(order + self.kind)


class _Array(np.ndarray):
    """Stands in for the empty array that numpy creates first and fills by `__setstate__`."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, kind, fortran, raw = state
        if not isinstance(kind, _DType) or not isinstance(raw, bytes) or min(shape, default=0) < 0:
            raise ValueError("an array without numbers or shape")
        if math.prod(shape) * kind.dtype.itemsize != len(raw):
            raise ValueError(f"an array of shape {shape} has {len(raw)} bytes")
        super().__setstate__((version, shape, kind.dtype, fortran, raw))


def _dtype(kind: bytes | str, _align: object = False, _copy: object = True) -> _DType:
    return _DType(kind)


def _reconstruct(_class: object, _shape: object, _kind: object) -> _Array:
    return _Array((0,), np.uint8)


def _scalar(kind: _DType, raw: bytes) -> Any:
    return np.frombuffer(raw, kind.dtype, count=1)[0]


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in the pickle protocols of Python 2."""
    if encoding != "latin1":
        raise _RefusedError(f"the codec {encoding[:80]!r}")
    return text.encode("latin1")


def _text(value: bytes | str) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value


_STAND_INS: dict[tuple[str, str], Callable[..., object] | str] = {
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): "ndarray",  # only passed to _reconstruct; a string, so nothing can call it
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("_codecs", "encode"): _encode,
}
