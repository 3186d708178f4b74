"""How far a learner is in a task."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from podnet.errors import PodnetError
from podnet.scenario.tasks import Task


@dataclass
class Progress:
    """The current task, the finished epochs of a phase, and the images it trains on."""

    task: dict[str, Any] | None = None  # see `summary_of`; None in checkpoints of earlier versions
    phase: int = 0
    epoch: int = 0
    chosen: Tensor | None = None
    moments: list[dict[str, Tensor]] | None = None  # of the optimiser
    scaler: dict[str, Any] | None = None  # of the loss scaler, for float16


def summary_of(task: Task) -> dict[str, Any]:
    """What distinguishes a task from others, as JSON-able values."""
    return {
        "index": task.index,
        "new": list(task.class_names),
        "refreshed": list(task.refreshed),
        "images": len(task.train_targets),
    }


def require_same_task(begun: dict[str, Any] | None, given: dict[str, Any]) -> None:
    """Refuse a task other than the current one."""
    if begun is not None and begun != given:
        raise PodnetError(
            f"this learner is in the middle of {_words(begun)} and cannot start {_words(given)}; "
            "finish the first with learn() and the same task, or restore a state from before it."
        )


def _words(summary: dict[str, Any]) -> str:
    new = ", ".join(map(repr, summary["new"])) or "no new classes"
    return f"task {summary['index']} ({new}, {summary['images']} images)"
