"""The field's usual metrics, in percent; plain numbers and numpy arrays, no torch. Formulas: docs/metrics.md."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

INFERENCES = ("cnn", "nme")  # the classifier, and the nearest mean of exemplars
REJECT = 0.05  # share of photos of known classes that a model may call unknown, so that it finds others


def accuracy(predictions: NDArray[np.integer], targets: NDArray[np.integer]) -> float:
    """Share of correct predictions, percent. Predictions (N,), or (N, k) where any of the k counts (top-k)."""
    if len(targets) == 0:
        raise ValueError("accuracy needs at least one prediction.")
    return 100.0 * float(np.mean(_hits(predictions, targets)))


def _hits(predictions: NDArray[np.integer], targets: NDArray[np.integer]) -> NDArray[np.bool_]:
    hits: NDArray[np.bool_] = (predictions.reshape(len(targets), -1) == targets[:, None]).any(1)
    return hits


def average_incremental_accuracy(accuracies: Sequence[float]) -> float:
    """Mean of the accuracies on all seen classes after each task, the first included (Rebuffi et al., 2017)."""
    if len(accuracies) == 0:
        raise ValueError("average incremental accuracy needs the accuracy of at least one task.")
    return float(np.mean(accuracies))


def accuracy_per_task(
    predictions: NDArray[np.integer], targets: NDArray[np.integer], task_of_class: Sequence[int]
) -> list[float]:
    """One row of the accuracy matrix: accuracy on the classes of each task; task_of_class[c] is the task of c."""
    tasks = np.asarray(task_of_class)[targets]
    shares = _shares(_hits(predictions, targets), tasks, max(task_of_class) + 1)
    if None in shares:
        raise ValueError("accuracy per task needs at least one prediction for each task.")
    return [share for share in shares if share is not None]


def accuracy_per_class(
    predictions: NDArray[np.integer], targets: NDArray[np.integer], classes: int
) -> list[float | None]:
    """Accuracy on each class, percent; None for a class without images."""
    return _shares(_hits(predictions, targets), targets, classes)


def _shares(hits: NDArray[np.bool_], groups: NDArray[np.integer], count: int) -> list[float | None]:
    """The share of hits in each of `count` groups, percent."""
    images, right = np.bincount(groups, minlength=count).tolist(), np.bincount(groups[hits], minlength=count).tolist()
    return [100.0 * (some / all_of) if all_of else None for some, all_of in zip(right, images, strict=True)]


def forgetting(matrix: Sequence[Sequence[float]]) -> float:
    """Mean over the earlier tasks j of `max_{l<k} a[l][j] - a[k][j]` after the last task k (Chaudhry et al., 2018).

    `matrix[l][j]` is the accuracy on the classes of task j after task l (j <= l). Zero after the first task.
    """
    *before, last = matrix or [[]]
    return fallen([max(row[j] for row in before[j:]) for j in range(len(before))], last)


def fallen(before: Sequence[float], row: Sequence[float]) -> float:
    """Mean over the earlier tasks of an accuracy before, minus that in the row after the last task; 0 without any."""
    return float(np.mean([then - now for then, now in zip(before, row, strict=False)])) if before else 0.0


def backward_transfer(matrix: Sequence[Sequence[float]]) -> float:
    """Mean over the earlier tasks j of `a[k][j] - a[j][j]` after the last task k (Lopez-Paz and Ranzato, 2017).

    `matrix` as in `forgetting`; below zero if old tasks got worse since they were learned. Zero after the first task.
    """
    *before, last = matrix or [[]]
    return risen([row[j] for j, row in enumerate(before)], last)


def risen(before: Sequence[float], row: Sequence[float]) -> float:
    """The opposite of `fallen`."""
    return float(np.mean([now - then for then, now in zip(before, row, strict=False)])) if before else 0.0


def learning_accuracy(matrix: Sequence[Sequence[float]]) -> float:
    """Mean over the tasks j of `a[j][j]`, the accuracy on a task right after it was learned (Riemer et al., 2019)."""
    if not matrix:
        raise ValueError("learning accuracy needs the accuracies of at least one task.")
    return float(np.mean([row[j] for j, row in enumerate(matrix)]))


def intransigence(matrix: Sequence[Sequence[float]], joint: Sequence[Sequence[float]]) -> float:
    """Mean over the tasks k of `r[k][k] - a[k][k]`: what is missing to joint training (Chaudhry et al., 2018).

    `joint` is the matrix r of a run that trains on the images of all tasks so far; it has at least as many rows.
    """
    if len(joint) < len(matrix):
        raise ValueError(f"intransigence of {len(matrix)} tasks needs as many of joint training, not {len(joint)}.")
    return learning_accuracy(joint[: len(matrix)]) - learning_accuracy(matrix)


def confusion_matrix(predictions: NDArray[np.integer], targets: NDArray[np.integer], classes: int) -> NDArray[np.int64]:
    """Counts (classes, classes): row = true class, column = predicted class."""
    if len(targets) and max(int(predictions.max()), int(targets.max())) >= classes:
        raise ValueError(f"labels must be below the number of classes, {classes}.")
    counts = np.bincount(targets.astype(np.int64) * classes + predictions.astype(np.int64), minlength=classes**2)
    return counts.reshape(classes, classes)
