"""User-defined methods from a file: `--method my_method.py:MyMethod`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args, get_type_hints

from podnet.errors import ConfigError, PodnetError, nearest
from podnet.io.files import expanded
from podnet.methods.base import Exemplars, Method
from podnet.metrics import INFERENCES

CALLED = ("phases", "after_task", "grow", "rebuild", "class_means", "without_class")  # with the arguments of Method's


def load_method(spec: str) -> type[Method]:
    """The class named by "FILE.py:CLASS". The file is executed: it is the user's program, not data."""
    file, _, name = spec.rpartition(":")
    path = expanded(file).resolve()
    if not path.is_file():
        raise ConfigError(f"method is {spec!r}, but there is no file {path}; give FILE.py:CLASS.")
    found = vars(_run(path))
    classes = {key: value for key, value in found.items() if isinstance(value, type) and issubclass(value, Method)}
    own = {key: value for key, value in classes.items() if value.__module__ == found["__name__"]}
    if name not in own:
        known = f"it defines {', '.join(own)}" if own else "it has no subclass of podnet.methods.Method"
        raise ConfigError(f"{path} has no method {name!r}; {known}.{nearest(name, own)}")
    method = own[name]
    for fault in _faults(method, f"{name} of {path}"):
        raise ConfigError(fault)
    method.source = f"{path}:{name}"
    return method


def _faults(method: type[Method], where: str) -> Iterator[str]:
    """What is wrong with a class, in sentences."""
    options = {field.name: field.default for field in fields(method)}
    hints = get_type_hints(method)
    for option, default in options.items():
        if default is MISSING:
            yield f"{where} has no default for {option}; every field needs one."
        elif not _fits(default, hints[option]):
            yield f"{where} has {option} = {default!r}, which is not {hints[option].__name__}; correct one of them."
    if "__dataclass_fields__" not in vars(method):
        yield f"{where} is not a dataclass; put @dataclass(frozen=True, kw_only=True) above it."
    for attribute in ("name", "summary"):
        if not isinstance(getattr(method, attribute, None), str):
            yield f'{where} lacks {attribute}, a text; add a line such as {attribute} = "...".'
    if method.phases is Method.phases:
        yield f"{where} has no phases(self, old, new, state); define it and return a list of Phase."
    for function in CALLED:
        given, wanted = (inspect.signature(getattr(each, function)).parameters for each in (method, Method))
        if len(given) != len(wanted):
            yield f"{function} of {where} takes {', '.join(given)}; it must take {', '.join(wanted)}."
    if not isinstance(method.inferences, tuple) or not set(method.inferences) <= set(INFERENCES):
        yield f"the inferences of {where} are {method.inferences!r}; give a tuple of 'cnn' and 'nme', such as ('cnn',)."
    if method.exemplars not in get_args(Exemplars):
        yield f"exemplars of {where} is {method.exemplars!r}; it must be one of {', '.join(get_args(Exemplars))}."
    sets = {f"the preset {preset!r}": values for preset, values in method.presets.items()}
    for what, named in (sets | {"later": method.later, "positive": method.positive}).items():
        for option in sorted(set(named) - set(options)):
            yield f"{what} of {where} has {option!r}, which is not one of its fields.{nearest(option, options)}"
    for what, values in sets.items():
        for option, value in values.items():
            if not _fits(value, hints[option]):
                yield f"{what} of {where} sets {option} to {value!r}, which is not {hints[option].__name__}."


def _fits(value: object, hint: object) -> bool:
    """Whether a value is of a plain type; of others, such as choices and tuples, nothing is said here."""
    plain: dict[object, tuple[type, ...]] = {float: (float, int), int: (int,), str: (str,), bool: (bool,)}
    if isinstance(value, bool) and hint in plain:
        return hint is bool
    return isinstance(value, plain.get(hint, object))


@contextmanager
def telling_the_line(method: Method) -> Iterator[None]:
    """An error in the file of a user-defined method becomes a sentence that names its line."""
    try:
        yield
    except PodnetError:
        raise
    except Exception as error:
        file = method.source.rpartition(":")[0]
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        if not lines:
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"{file}, line {lines[-1].lineno}, in {lines[-1].name}: {what}.") from error


def _run(path: Path) -> object:
    module_name = f"podnet_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look up their module to read annotations
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"cannot import {path}: {type(error).__name__}: {error}.") from error
    return module
