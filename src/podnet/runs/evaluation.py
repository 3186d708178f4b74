"""The measures after a task: both inferences from one pass over the test images of all classes seen."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from podnet import metrics
from podnet.data.images import require_every_class
from podnet.engine.learner import Learner
from podnet.methods.base import Method
from podnet.metrics import INFERENCES
from podnet.runs.history import History, Past
from podnet.runs.lines import SHARES
from podnet.scenario.tasks import Task

TOP = 5  # for top-5 accuracy
MEASURES = (*SHARES, "accuracy_per_task")


def evaluate(
    learner: Learner, task: Task, sizes: Sequence[int], history: History
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Each measure as {"cnn": ..., "nme": ...} (None if the method lacks the inference), and the top-1 predictions.

    `sizes` are the numbers of classes of the tasks so far, `history` is of the earlier tasks.
    """
    best = learner.rank(task.test_images, TOP)
    require_every_class(task.test_targets, best.indices, learner.class_names)
    tested = task.test_targets[best.indices]
    targets = tested.numpy()
    task_of_class = np.repeat(np.arange(len(sizes)), sizes).tolist()
    result: dict[str, Any] = {measure: dict.fromkeys(INFERENCES) for measure in MEASURES}
    predictions = {"targets": tested}
    for inference in INFERENCES:
        labels = getattr(best, inference)
        if labels is None or inference not in learner.method.inferences:
            continue
        ranked = labels.cpu()
        predictions[inference] = ranked[:, 0].contiguous()
        measured = _measure(ranked.numpy(), targets, task.old, task_of_class, history.of(inference))
        for measure, value in measured.items():
            result[measure][inference] = value
    return result, predictions


def why_missing(method: Method, accuracy: Mapping[str, float | None]) -> str:
    """Why an inference has no accuracy; empty if all have one."""
    if None not in accuracy.values():
        return ""
    return method.no_inference or "no NME: this run keeps no exemplars."


def _measure(
    ranked: NDArray[np.int64], targets: NDArray[np.int64], old: int, task_of_class: list[int], past: Past
) -> dict[str, Any]:
    first, is_old = ranked[:, 0], targets < old
    accuracy = metrics.accuracy(first, targets)
    row = metrics.accuracy_per_task(first, targets, task_of_class)
    return {
        "accuracy": accuracy,
        "accuracy_top5": metrics.accuracy(ranked, targets),
        "average_incremental_accuracy": metrics.average_incremental_accuracy([*past.accuracies, accuracy]),
        "forgetting": metrics.fallen(past.best, row),
        "backward_transfer": metrics.risen(past.first, row),
        "learning_accuracy": float(np.mean([*past.first, row[-1]])),
        "old_accuracy": metrics.accuracy(first[is_old], targets[is_old]) if old else None,
        "new_accuracy": metrics.accuracy(first[~is_old], targets[~is_old]),
        "accuracy_per_task": row,
    }
