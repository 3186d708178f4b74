"""From options to an experiment: the command line, a YAML file and a run folder use the same flat mapping."""

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from podnet.data import SOURCES
from podnet.errors import ConfigError, in_words, nearest, one_of
from podnet.methods import Method, configured, find_method
from podnet.runs.backbone import sizes, with_weights
from podnet.runs.earlier import unrecorded
from podnet.runs.experiment import Experiment
from podnet.scenario.orders import listed_classes, spell_out
from podnet.scenario.tasks import sizes_in_words


def resolve(options: Mapping[str, Any]) -> Experiment:
    """The experiment described by a flat mapping of options; missing ones get their defaults.

    Keys are the fields of `Experiment` and of the chosen method; values have their types or are text to parse.
    """
    options = {key: value for key, value in options.items() if value is not None}
    if isinstance(options.get("order"), list):
        options["order"] = ",".join(map(str, options["order"]))
    method_class = find_method(str(options.pop("method", "podnet")))
    if taken := {field.name for field in fields(method_class)} & _experiment_options():
        raise ConfigError(f"{method_class.name} has a field {min(taken)}, which is an option of every run; rename it.")
    options.setdefault("dataset", "digits")
    source = SOURCES[one_of("dataset", options["dataset"], SOURCES)]
    recipe = _recipe(method_class, options.pop("recipe", None), source.family)
    own = _read(method_class, recipe | {k: v for k, v in options.items() if k not in _experiment_options()})
    given = _read(Experiment, {k: v for k, v in options.items() if k in _experiment_options()})
    given["order"] = spell_out(given.get("order", source.order))
    if given.get("sizes") is not None:
        given |= _counted(given)
    method = with_weights(configured(method_class, source.family, own, given["dataset"]), own)
    given |= sizes(method, source, given)
    usual = source.classes if given.get("subset", "released") in ("released", "ucir") else None  # a file has its own
    if classes := given.get("classes", len(listed_classes(given["order"])) or usual):
        given.setdefault("base", max(1, classes // 2))
        method = method.of_run(classes)
    if "memory_total" in given:
        given.setdefault("memory_per_class", None)
    return Experiment(method=method, **given)


def _recipe(method: type[Method], name: str | None, family: str) -> dict[str, Any]:
    """The hyper-parameters of a recipe of the method for a family of data; those given have priority."""
    if name is None:
        return {}
    families = method.recipes[one_of("recipe", name, method.recipes)]
    if family not in families:
        raise ConfigError(f"there is no recipe for {family}: {name} is for {in_words(families)}; leave --recipe out.")
    return dict(families[family])


def _counted(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the sizes of the tasks decide: the number of classes, and that there is no base and no increment."""
    total = sum(given["sizes"])
    for option in ("base", "increment"):
        if given.get(option) is not None:
            raise ConfigError(f"sizes and {option} are given; sizes alone tell the classes of each task: give one.")
    if given.get("classes", total) != total:
        raise ConfigError(
            f"sizes {sizes_in_words(given['sizes'])} are {total} classes, but classes is {given['classes']}; "
            "leave --classes out."
        )
    return {"classes": total, "base": None, "increment": None}


def as_it_ran(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run, with what earlier versions did where they recorded nothing.

    To them a list of some classes was a run of these classes.
    """
    before = {"classes": len(listed_classes(str(recorded.get("order", "")))) or None} | unrecorded(recorded)
    return before | {key: value for key, value in recorded.items() if value is not None or key != "classes"}


def describe(cls: type[Method] | type[Experiment]) -> dict[str, tuple[str, Any]]:
    """Name -> (type in words, default) of each option of a method or of the experiment."""
    hints = get_type_hints(cls)
    return {f.name: (_words(hints[f.name]), f.default) for f in fields(cls) if f.name != "method"}


def read_option(method: type[Method], option: str, value: str) -> Any:
    """The value of a hyper-parameter, from text."""
    return _read(method, {option: value})[option]


def numbers_of(method: type[Method], option: str) -> type[int] | type[float] | None:
    """int or float, if the hyper-parameter is a number."""
    kinds = _choices(get_type_hints(method)[option])
    return float if float in kinds else int if int in kinds else None


def _experiment_options() -> set[str]:
    return {f.name for f in fields(Experiment)} - {"method"}


def _read(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    known = {f.name for f in fields(cls)}
    for key in values:
        if key not in known:
            hint = nearest(key, known | _experiment_options() | {"method"})
            name = getattr(cls, "name", "an experiment")
            if key in vars(cls) and not key.startswith("_"):
                hint = f" {key} has no type; write for instance {key}: float = 1.0."
            raise ConfigError(f"{name} has no option {key!r}.{hint}")
    return {key: _read_value(key, value, hints[key]) for key, value in values.items()}


def _read_value(key: str, value: Any, hint: Any) -> Any:
    """The value as the annotated type, parsed from text if necessary."""
    for choice in _choices(hint):
        try:
            return _as_type(value, choice)
        except (TypeError, ValueError, OverflowError):
            continue
    raise ConfigError(f"{key} is {value!r}; it must be {_words(hint)}.")


def _choices(hint: Any) -> list[Any]:
    return list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]


def _as_type(value: Any, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        if str(value) not in get_args(kind):  # YAML reads a plain 32 as a number
            raise ValueError(value)
        return str(value)
    if get_origin(kind) is tuple:
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
        return tuple(_as_type(part, get_args(kind)[0]) for part in parts)
    if kind is type(None):
        if value not in (None, "none", "null"):
            raise ValueError(value)
        return None
    if kind is bool:
        if (word := str(value).lower()) not in ("true", "false", "yes", "no", "on", "off"):
            raise ValueError(value)
        return word in ("true", "yes", "on")
    if isinstance(value, bool) or (kind is int and isinstance(value, float) and value != int(value)):
        raise ValueError(value)
    return kind(value)


def _words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        *first, last = map(str, get_args(hint))
        return f"{', '.join(first)} or {last}"
    if get_origin(hint) is tuple:
        part = get_args(hint)[0]
        if get_origin(part) is Literal:
            return f"{_words(part)}, several separated by commas"
        return f"{'whole ' * (part is int)}numbers separated by commas"
    if len(choices := _choices(hint)) > 1:
        return " or ".join(_words(choice) for choice in choices)
    named = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "none"}
    return named.get(hint, str(hint))
