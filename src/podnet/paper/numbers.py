"""The paper's own numbers, by the labels of row and column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, NamedTuple


class Number(NamedTuple):
    """A number as the paper prints it."""

    mean: float
    std: float | None = None


Numbers = Mapping[tuple[str, str], Number]  # (row, column) -> number

PAPER: dict[str, Any] = json.loads(resources.files("podnet.paper").joinpath("numbers.json").read_text())


def with_std(table: str) -> Numbers:
    """A table by number of steps; rows may have standard deviations."""
    numbers = {}
    for row, values in PAPER[table]["rows"].items():
        spread = values.get("std", [None] * len(values["mean"]))
        for steps, mean, std in zip(PAPER[table]["steps"], values["mean"], spread, strict=True):
            numbers[row, f"{steps} steps"] = Number(mean, std)
    return numbers


def reported(table: str) -> Numbers:
    """Numbers that the paper copied from Hou et al. (2019), its rows with an asterisk."""
    rows = PAPER[table]["reported_by_hou_2019"].items()
    return {(f"{row}*", f"{steps} steps"): Number(mean) for row, values in rows for steps, mean in values.items()}


def plain(rows: Iterable[tuple[str, Iterable[float]]], columns: Iterable[str] = ("NME", "CNN")) -> Numbers:
    """A table with one number per column in each row; in ablations the columns are the two inferences."""
    names = tuple(columns)
    return {(row, column): Number(value) for row, values in rows for column, value in zip(names, values, strict=True)}


ROWS = {"icarl": "iCaRL", "bic": "BiC", "ucir": "UCIR", "podnet": "PODNet"}
CLASSES = {"cifar100": 100, "imagenet100": 100, "imagenet1000": 1000}
# PODNet with all its parts
WHOLE = {"distillation": "spatial", "classification": "nca", "proxies": 10, "adaptive_c": True}


def published(config: Mapping[str, Any]) -> dict[str, Number]:
    """The average incremental accuracies in tables 1 and 2 for a run's method and protocol, labelled."""
    dataset, method = str(config.get("dataset")), ROWS.get(str(config.get("method")), "")
    classes, increment = CLASSES.get(dataset, 0), config.get("increment")
    half = classes // 2
    protocol = (config.get("classes") or classes, config.get("base") or half, config.get("memory_per_class"))
    changed = any(config.get(option) for option in ("images_per_class", "validation", "memory_total", "sizes"))
    changed |= config.get("visits", 1) != 1 or config.get("freeze", False) or config.get("weights", "none") != "none"
    changed |= config.get("image_size") not in (None, 32 if dataset == "cifar100" else 224)
    ablated = any(config.get(option, value) != value for option, value in WHOLE.items())
    ablated |= any(config.get(option) == 0 for option in ("lambda_c", "lambda_f"))
    if not method or not classes or protocol != (classes, half, 20) or changed or ablated:
        return {}
    if not isinstance(increment, int) or increment < 1 or half % increment:
        return {}
    column = f"{half // increment} steps"
    found = with_std(dataset).items()
    return {
        f"{row}, {steps}": number
        for (row, steps), number in found
        if row.partition(" ")[0] == method and steps == column
    }
