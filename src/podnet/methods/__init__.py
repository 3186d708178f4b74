"""The methods: one file each, close to its paper. May import `nets`, `memory` and all below them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args

from podnet.errors import ConfigError, one_of
from podnet.methods.base import Idea, Method
from podnet.methods.bic import BiC
from podnet.methods.icarl import ICaRL
from podnet.methods.own import load_method
from podnet.methods.phases import Phase, Pool
from podnet.methods.podnet import PODNet
from podnet.methods.replay import FineTuning, Joint, Replay
from podnet.methods.ucir import UCIR

__all__ = [
    "METHODS",
    "UCIR",
    "BiC",
    "FineTuning",
    "ICaRL",
    "Joint",
    "Method",
    "PODNet",
    "Phase",
    "Pool",
    "Replay",
    "configured",
    "find_method",
    "load_method",
]


def _found() -> dict[str, type[Method]]:
    """The methods in the files of this folder, by idea and year. A class without a summary of its own is a part."""
    found: set[type[Method]] = set()
    for file in iter_modules(__path__):
        members = vars(import_module(f"{__name__}.{file.name}")).values()
        found |= {m for m in members if isinstance(m, type) and issubclass(m, Method) and "summary" in vars(m)}
    ideas = get_args(Idea)
    return {m.name: m for m in sorted(found, key=lambda m: (ideas.index(m.idea), m.year, m.name))}


METHODS = _found()


def find_method(name: str) -> type[Method]:
    """The class of a method, by its name or by FILE.py:CLASS."""
    if name.endswith(".py"):
        raise ConfigError(f"method is {name!r}; add the name of a class in that file: {name}:CLASS.")
    return load_method(name) if ".py:" in name else METHODS[one_of("method", name, METHODS)]


def configured(method: type[Method], family: str, overrides: Mapping[str, Any], dataset: str = "") -> Method:
    """The method with its defaults for a family of data ("cifar", "imagenet", "digits"), then the given values."""
    defaults = {each.name: each.default for each in fields(method)}  # a class with slots does not have them
    choice = overrides.get(method.switch, defaults.get(method.switch))
    values: dict[str, Any] = {}
    for preset in (family, choice, f"{family} {choice}", f"{dataset} {choice}"):
        values |= method.presets.get(preset, {})
    return method(**values | dict(overrides))
