"""Read the lines of results.jsonl: their inferences and tasks, and their numbers as text."""

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from statistics import mean, stdev
from typing import Any

from podnet.metrics import INFERENCES, backward_transfer, learning_accuracy

Results = Sequence[dict[str, Any]]  # one line per task

MISSING = "—"


def number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """ "mean ± std" with the sample standard deviation (ddof=1); one value stands alone, none is a dash."""
    if len(values) > 1:
        return f"{mean(values):.2f} ± {stdev(values):.2f}"
    return number(values[0] if values else None)


def shown_inferences(results: Results) -> list[str]:
    """The inferences that the method has."""
    return [name for name in INFERENCES if results[0]["accuracy"][name] is not None]


def why_missing(results: Results) -> str:
    """Why an inference is missing, if it is; earlier versions did not record it."""
    return str(results[-1].get("no_inference", "")) if results else ""


def common_tasks(series: Sequence[Results]) -> list[tuple[dict[str, Any], ...]]:
    """The tasks that all of these runs have, from the first: for each task the runs' lines.

    They end where the first run ends or where the runs have seen different numbers of classes. So the averages in a
    line are over the same tasks in all runs.
    """
    return list(takewhile(lambda lines: len({line["seen"] for line in lines}) == 1, zip(*series, strict=False)))


def matrix_of(results: Results, inference: str) -> list[list[float]]:
    """The accuracy on the classes of each task (column) after each task (row).

    Of many tasks not all rows are recorded: these have NaN but for the accuracy on the new classes.
    """
    return [
        line["accuracy_per_task"][inference] or [math.nan] * int(line["task"]) + [line["new_accuracy"][inference]]
        for line in results
    ]


def has_row(line: Mapping[str, Any], inference: str) -> bool:
    """Whether the accuracy on the classes of each task was recorded after this task."""
    return line["accuracy_per_task"][inference] is not None


FROM_MATRIX = {"backward_transfer": backward_transfer, "learning_accuracy": learning_accuracy}


def measured(results: Results, measure: str, inference: str) -> float | None:
    """A measure after the last of these tasks; where an earlier version did not record it, it is computed."""
    if measure in results[-1]:
        value: float | None = results[-1][measure][inference]
        return value
    return FROM_MATRIX[measure](matrix_of(results, inference))


PARTS = {"network": "network", "exemplars": "exemplars", "method_state": "method state", "class_means": "class means"}
SIZES = ("million parameters", "million multiply-adds", *(f"{part} MB" for part in (*PARTS.values(), "all")))


def sizes(line: Mapping[str, Any]) -> dict[str, float]:
    """What the learner takes after a task, by SIZES; what an earlier version did not record is missing."""
    counts = zip(SIZES, (line.get("parameters"), line.get("multiply_adds")), strict=False)
    found = {name: count / 1e6 for name, count in counts if count is not None}
    if "bytes" in line:
        kept = {f"{name} MB": line["bytes"][part] / 1e6 for part, name in PARTS.items()}
        found |= kept | {"all MB": sum(kept.values())}
    return found


def progress(results: Results) -> str:
    """ "3 of 6 tasks" of a run that is not at its end, otherwise nothing."""
    expected = results[-1].get("tasks", 0)
    return f"{len(results)} of {expected} tasks" if len(results) < expected else ""
