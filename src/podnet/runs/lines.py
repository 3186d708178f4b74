"""What a line of results.jsonl must be: it may be edited or come from elsewhere, and others compute with it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podnet.errors import PodnetError, printable
from podnet.metrics import INFERENCES

COUNTS = ("task", "seen", "memory")
SHARES = (
    "accuracy",
    "accuracy_top5",
    "average_incremental_accuracy",
    "forgetting",
    "backward_transfer",
    "learning_accuracy",
    "old_accuracy",
    "new_accuracy",
)
PARTS = {"network", "exemplars", "method_state", "class_means"}
NEEDED = ("accuracy", "average_incremental_accuracy", "forgetting", "old_accuracy", "new_accuracy")


def require_whole(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Fail with a sentence if a line lacks what reports need, or has another type; earlier versions recorded less."""
    seen = 0
    for number, line in enumerate(lines):
        try:
            _check(line, number)
            seen += len(line["new_classes"])
            if line["seen"] != seen:
                raise ValueError("seen does not add up")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            why = printable(str(error))[:100]
            raise PodnetError(
                f"{path} is damaged: line {number + 1} is not the results of a task ({why}); fix it or start again."
            ) from error


def _check(line: Mapping[str, Any], number: int) -> None:
    if line["task"] != number:
        raise ValueError(f"task is {line['task']!r}")
    for name in COUNTS:
        if not isinstance(line[name], int) or not 0 <= line[name] < 2**53:
            raise ValueError(f"{name} is not a count")
    for name in SHARES:
        if name in NEEDED or name in line:
            for inference in INFERENCES:
                _number(line[name][inference], name)
    for inference in INFERENCES:
        row = line["accuracy_per_task"][inference]
        if row is not None and len(row) != number + 1:
            raise ValueError("accuracy_per_task has another length")
        for value in row or ():
            _number(value, "accuracy_per_task", missing=False)
    for name in ("seconds", *(["bytes"] if "bytes" in line else [])):
        for value in line[name].values():
            _number(value, name, missing=False)
    for name in ("tasks", "parameters", "multiply_adds"):
        if name in line:  # earlier versions did not record it
            _number(line[name], name, missing=name == "multiply_adds")
    if line.get("tasks", number + 1) <= number:
        raise ValueError("tasks is too small")
    if "bytes" in line and not line["bytes"].keys() >= PARTS:
        raise ValueError("bytes lacks a part")
    if not isinstance(line["new_classes"], list) or not all(isinstance(name, str) for name in line["new_classes"]):
        raise ValueError("new_classes is not a list of names")


def _number(value: object, name: str, missing: bool = True) -> None:
    if value is None and missing:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is not a number")
