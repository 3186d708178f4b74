"""Tensor files that verify themselves.

A tensor file is plain safetensors (loading it executes no code). Its metadata holds JSON and the SHA-256 of the whole
file, so a truncated or changed file is reported as damaged instead of being partly used.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor

from podnet.errors import DamagedFileError, PodnetError
from podnet.io.files import write_atomically

_BLANK = b"0" * 64  # replaces the digest while the digest is computed
_KEY = b'"sha256":"'


def save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and JSON-able metadata to one self-verifying file."""
    header = {"podnet": json.dumps(meta), "sha256": _BLANK.decode()}
    data = bytearray(dump_tensors({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, header))
    start = _digest_position(data)
    data[start : start + 64] = hashlib.sha256(data).hexdigest().encode()
    write_atomically(path, bytes(data))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote; DamagedFileError if the file has changed."""
    try:
        data = bytearray(path.read_bytes())
    except OSError as error:
        raise PodnetError(f"cannot read {path}: {error.strerror}.") from error
    try:
        start = _digest_position(data)
        written = bytes(data[start : start + 64])
        data[start : start + 64] = _BLANK
        if hashlib.sha256(data).hexdigest().encode() != written:
            raise ValueError("its checksum does not match")
        length = int.from_bytes(data[:8], "little")
        meta = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["podnet"])
        return parse_tensors(bytes(data)), meta
    except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise DamagedFileError(f"{path} is damaged or was not written by podnet ({error}).") from error


def _digest_position(data: bytearray) -> int:
    length = int.from_bytes(data[:8], "little")
    start = data.find(_KEY, 8, 8 + length)
    if start < 0 or len(data) < 8 + length:
        raise ValueError("it has no checksum")
    return start + len(_KEY)
