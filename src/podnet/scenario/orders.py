"""The order in which classes are learned: natural, random, the paper's, or the user's list."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from pathlib import Path

import torch

from podnet.data.dataset import Dataset, is_number
from podnet.errors import ConfigError
from podnet.randomness import generator


def class_order(spec: str, dataset: Dataset, seed: int, classes: int | None = None) -> list[int]:
    """The labels in the order they are learned, the first `classes` of them.

    spec: "natural", "random" (by the seed), "paper:N" (the authors' N-th order of the dataset), a list such as
    "3,1,2" or "cat,dog", or a file with such a list, one class per line or separated by commas. A list must name all
    classes of the dataset unless `classes` is given.
    """
    total = len(dataset.class_names)
    kind, _, number = spec.partition(":")
    if spec == "natural":
        order = list(range(total))
    elif spec == "random":
        order = torch.randperm(total, generator=generator(seed, "class order")).tolist()
    elif kind == "paper":
        orders = _paper_orders(dataset)
        if not orders:
            raise ConfigError(f"the paper has no class order for {dataset.name}; use natural, random or a list.")
        if not is_number(number) or int(number) >= len(orders):
            names = ", ".join(f"paper:{i}" for i in range(len(orders)))
            raise ConfigError(f"order is paper:{number}; for {dataset.name} it must be {names}.")
        order = orders[int(number)]
    else:
        order = _explicit_order(spec, dataset)
    if classes is None and len(order) < total:
        raise ConfigError(
            f"order has {len(order)} of the {total} classes of {dataset.name}; list all of them, "
            f"or use --classes {len(order)} to learn only these."
        )
    if classes is not None and not 1 <= classes <= len(order):
        raise ConfigError(f"classes is {classes}; it must be from 1 to {len(order)}, the classes of the order.")
    return order[:classes]


def _paper_orders(dataset: Dataset) -> list[list[int]]:
    orders = json.loads(resources.files("podnet.scenario").joinpath("class_orders.json").read_text())
    return [order for order in orders.get(dataset.name, []) if len(order) == len(dataset.class_names)]


def _explicit_order(spec: str, dataset: Dataset) -> list[int]:
    by_name = {name: label for label, name in enumerate(dataset.class_names)}
    order = []
    for word in listed_classes(spell_out(spec)):
        if word in by_name:
            order.append(by_name[word])
        elif is_number(word) and int(word) < len(dataset.class_names):
            order.append(int(word))
        else:
            paper = ", paper:0" if _paper_orders(dataset) else ""
            raise ConfigError(
                f"order has {word!r}, which is not a class of {dataset.name}; use class names or the numbers "
                f"0 to {len(dataset.class_names) - 1}, or natural, random{paper}, or the path of a file."
            )
    if twice := [label for label, times in Counter(order).items() if times > 1]:
        raise ConfigError(f"order has class {dataset.class_names[twice[0]]!r} twice; list each class once.")
    if not order:
        raise ConfigError(f"order {spec!r} has no classes; list at least one.")
    return order


def listed_classes(spec: str) -> list[str]:
    """The classes named by a list; none for natural, random and the paper's orders."""
    return [] if _is_named(spec) else [word for word in map(str.strip, spec.split(",")) if word]


def spell_out(spec: str) -> str:
    """The order as given; if it names a file, the list in that file."""
    if _is_named(spec):
        return spec
    try:
        lines = Path(spec).read_text().replace(",", "\n").splitlines()
        return ",".join(filter(None, map(str.strip, lines)))
    except UnicodeDecodeError as error:
        raise ConfigError(f"the order file {spec} is not text.") from error
    except (OSError, ValueError):  # not a file, or no name that a file can have
        return spec


def _is_named(spec: str) -> bool:
    return spec in ("natural", "random") or spec.partition(":")[0] == "paper"
