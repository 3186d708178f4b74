"""The response types of the API, for its documentation and for clients."""

from __future__ import annotations

from dataclasses import dataclass

from podnet.studio.summary import Summary


@dataclass(frozen=True)
class Curve:
    """Accuracy on all classes seen; the mean of the runs of a group, and their sample standard deviation."""

    label: str
    colour: str
    dashed: bool
    seen: list[int]
    mean: list[float]
    std: list[float] | None  # None for a single run


@dataclass(frozen=True)
class Published:
    """An average that the paper prints."""

    label: str
    mean: float
    std: float | None


@dataclass(frozen=True)
class Value:
    """A number of a table; None if not measured."""

    mean: float | None
    std: float | None
    runs: int


@dataclass(frozen=True)
class Row:
    label: str
    values: list[Value]


@dataclass(frozen=True)
class Comparison:
    """The comparison of several runs."""

    curves: list[Curve]
    paper: list[Published]
    columns: list[str]
    rows: list[Row]
    notes: list[str]
    options: dict[str, list[str]]  # those that differ, one value per run
    names: list[str]  # of the runs
    left_out: list[str]  # runs without a finished task


@dataclass(frozen=True)
class AllRuns:
    """The list of runs, and what else a page needs at the start."""

    version: str  # of the list
    folder: str
    runs: list[Summary]
    model: str | None  # the name of its file
    model_version: str  # changes with the file
