"""The paper's own numbers, each found by the labels of its row and column."""

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

PAPER: dict[str, Any] = json.loads(resources.files("podnet.benchmarks").joinpath("paper.json").read_text())


def with_std(table: str) -> Numbers:
    """A table by number of steps whose rows may carry standard deviations."""
    numbers = {}
    for row, values in PAPER[table]["rows"].items():
        spread = values.get("std", [None] * len(values["mean"]))
        for steps, mean, std in zip(PAPER[table]["steps"], values["mean"], spread, strict=True):
            numbers[row, f"{steps} steps"] = Number(mean, std)
    return numbers


def plain(table: str, columns: Iterable[str]) -> Numbers:
    """A table of rows with a number for each column."""
    names = list(columns)
    return {
        (row, column): Number(value)
        for row, values in PAPER[table]["rows"].items()
        for column, value in zip(names, values, strict=True)
    }


def by_inference(rows: Iterable[tuple[str, Iterable[float]]]) -> Numbers:
    """An ablation: the columns are the two inferences."""
    return {
        (row, inference): Number(value)
        for row, values in rows
        for inference, value in zip(("NME", "CNN"), values, strict=True)
    }
