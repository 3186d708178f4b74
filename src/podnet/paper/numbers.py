"""The paper's own numbers, by the labels of row and column."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple


class Number(NamedTuple):
    """A number as the paper prints it."""

    mean: float
    std: float | None = None


Numbers = Mapping[tuple[str, str], Number]  # (row, column) -> number


def _numbers(table: Mapping[str, list[str]]) -> Numbers:
    """From the columns of a table and its rows, with texts such as "44.20 ± 0.98", or null where it has no number."""
    (_, columns), *rows = table.items()
    return {
        (row, column): Number(*map(float, text.split(" ± ")))
        for row, texts in rows
        for column, text in zip(columns, texts, strict=True)
        if text
    }


_PRINTED = json.loads(resources.files("podnet.paper").joinpath("numbers.json").read_text("utf-8"))
PAPER: dict[str, Numbers] = {benchmark: _numbers(table) for benchmark, table in _PRINTED["tables"].items()}

ROWS = {"icarl": "iCaRL", "bic": "BiC", "ucir": "UCIR", "podnet": "PODNet"}
CLASSES = {"cifar100": 100, "imagenet100": 100, "imagenet1000": 1000}
# What the paper's runs have: its protocol, no pretrained weights, and PODNet with all its parts.
AS_IN_THE_PAPER: dict[str, Any] = (
    {"memory_per_class": 20, "memory_total": None, "images_per_class": None, "validation": 0.0}
    | {"sizes": None, "visits": 1, "freeze": False, "weights": "none"}
    | {"distillation": "spatial", "classification": "nca", "proxies": 10, "adaptive_c": True}
)


def published(config: Mapping[str, Any]) -> dict[str, Number]:
    """The average incremental accuracies in tables 1 and 2 for a run's method and protocol, labelled."""
    dataset, method = str(config.get("dataset")), ROWS.get(str(config.get("method")))
    classes, increment = CLASSES.get(dataset, 0), config.get("increment")
    half = classes // 2
    other = any(config.get(option, usual) != usual for option, usual in AS_IN_THE_PAPER.items())
    other |= (config.get("classes") or classes, config.get("base") or half) != (classes, half)
    other |= config.get("image_size") not in (None, 32 if dataset == "cifar100" else 224)
    other |= any(config.get(option) == 0 for option in ("lambda_c", "lambda_f"))
    if not method or other or not isinstance(increment, int) or increment < 1 or half % increment:
        return {}
    column = f"{half // increment} steps"
    return {
        f"{row}, {steps}": number
        for (row, steps), number in PAPER.get(dataset, {}).items()
        if row.partition(" ")[0] == method and steps == column and not row.endswith("*")
    }
