"""What the measures of a task need of the tasks before it, and which rows of the accuracy matrix a run records.

The row after task k has k + 1 numbers for each inference, and its predictions are of all classes seen. Recorded after
every task they would grow with the square of the number of tasks. Up to a hundred tasks all are recorded; beyond, about
ten each time the number of tasks doubles, and those of the last task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from podnet.errors import PodnetError
from podnet.metrics import INFERENCES

COMPLETE = 100  # tasks after which all is recorded


def is_recorded(task: int, tasks: int) -> bool:
    """Whether a run of so many tasks records the accuracies per task, and the predictions, of this one for good."""
    spacing = 10 << (task // COMPLETE).bit_length() - 1 if task >= COMPLETE else 1
    return task % spacing == 0 or task == tasks - 1


class Past(NamedTuple):
    """Of one inference: the accuracy on all classes after each task, and of each task its first and best accuracy."""

    accuracies: tuple[float, ...] = ()
    first: tuple[float, ...] = ()
    best: tuple[float, ...] = ()

    def after(self, accuracy: float, row: list[float]) -> Past:
        best = (*map(max, self.best, row), row[-1])
        return Past((*self.accuracies, accuracy), (*self.first, row[-1]), best)


@dataclass(frozen=True)
class History:
    """The tasks so far, for each inference that the method has."""

    pasts: Mapping[str, Past]

    def of(self, inference: str) -> Past:
        return self.pasts.get(inference, Past())

    def after(self, line: Mapping[str, Any]) -> History:
        """With one more task, whose line has the accuracies of all tasks."""
        pasts = dict(self.pasts)
        for inference in INFERENCES:
            if (accuracy := line["accuracy"][inference]) is not None:
                if (row := line["accuracy_per_task"][inference]) is None:
                    raise PodnetError("the run has more tasks than its results tell all about; restore a checkpoint.")
                pasts[inference] = self.of(inference).after(accuracy, row)
        return History(pasts)

    def as_json(self) -> dict[str, Any]:
        return {inference: past._asdict() for inference, past in self.pasts.items()}


def history_of(lines: Iterable[Mapping[str, Any]]) -> History:
    """From the lines of results.jsonl, as long as these are complete."""
    return reduce(History.after, lines, History({}))


def history_from(recorded: Mapping[str, Any], tasks: int) -> History:
    """From what `as_json` gave after that many tasks; ValueError or the like if it is something else."""
    pasts = {name: Past(*(tuple(map(float, past[key])) for key in Past._fields)) for name, past in recorded.items()}
    if not all(len(values) == tasks for past in pasts.values() for values in past):
        raise ValueError(f"its history is not of {tasks} tasks")
    return History(pasts)
