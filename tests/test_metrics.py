"""Metrics computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from podnet.metrics import (
    accuracy,
    accuracy_per_class,
    accuracy_per_task,
    average_incremental_accuracy,
    backward_transfer,
    confusion_matrix,
    forgetting,
    intransigence,
    learning_accuracy,
)

PREDICTIONS = np.array([0, 0, 1, 2, 2, 3, 0, 3])
TARGETS = np.array([0, 0, 1, 1, 2, 2, 3, 3])  # right, right | right, wrong | right, wrong | wrong, right


def test_accuracy_is_the_percentage_of_right_predictions():
    assert accuracy(PREDICTIONS, TARGETS) == 62.5
    assert accuracy(TARGETS, TARGETS) == 100
    assert accuracy(TARGETS + 1, TARGETS) == 0


@pytest.mark.parametrize(("k", "percent"), [(1, 25.0), (2, 50.0), (3, 100.0)])
def test_top_k_accuracy_counts_a_hit_anywhere_among_the_k(k, percent):
    ranked = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]])
    assert accuracy(ranked[:, :k], np.array([0, 0, 0, 2])) == percent


def test_average_incremental_accuracy_counts_the_first_task_too():
    assert average_incremental_accuracy([90.0, 60.0, 30.0]) == 60.0
    assert average_incremental_accuracy([90.0]) == 90.0


def test_accuracy_per_task_equals_the_accuracy_of_each_task_alone():
    random = np.random.default_rng(0)
    task_of_class = np.repeat(np.arange(20), 3)
    targets, predictions = random.permutation(np.arange(600) % 60), random.integers(0, 60, 600)
    own = [task_of_class[targets] == task for task in range(20)]
    wanted = [accuracy(predictions[chosen], targets[chosen]) for chosen in own]
    assert accuracy_per_task(predictions, targets, task_of_class.tolist()) == wanted
    with pytest.raises(ValueError, match="each task"):
        accuracy_per_task(predictions[~own[3]], targets[~own[3]], task_of_class.tolist())


def test_accuracy_per_task_looks_at_the_images_of_each_tasks_classes():
    # classes 0 and 1 came first (3 of 4 right), then 2 (1 of 2), then 3 (1 of 2)
    assert accuracy_per_task(PREDICTIONS, TARGETS, [0, 0, 1, 2]) == [75.0, 50.0, 50.0]


def test_accuracy_per_class_by_hand():
    assert accuracy_per_class(PREDICTIONS, TARGETS, 5) == [100.0, 50.0, 50.0, 50.0, None]


def test_forgetting_of_a_worked_example():
    matrix = [
        [90.0],
        [80.0, 70.0],
        [60.0, 75.0, 50.0],
    ]
    # task 0: best before was 90, now 60, lost 30. Task 1: was 70, now 75, lost -5. The last task has lost nothing yet.
    assert forgetting(matrix) == 12.5
    assert forgetting(matrix[:2]) == 10.0  # after the second task: 90 - 80
    assert forgetting(matrix[:1]) == 0.0


def test_forgetting_counts_from_the_best_accuracy_ever_had_before_the_last_task():
    matrix = [[60.0], [85.0, 50.0], [70.0, 40.0, 90.0], [65.0, 45.0, 80.0, 99.0]]
    # 85 - 65, 50 - 45, 90 - 80
    assert forgetting(matrix) == pytest.approx((20 + 5 + 10) / 3)


MATRIX = [[90.0], [80.0, 70.0], [60.0, 75.0, 50.0]]
JOINT = [[92.0], [85.0, 80.0], [84.0, 78.0, 76.0], [1.0, 2.0, 3.0, 4.0]]


def test_backward_transfer_of_a_worked_example():
    # task 0: 90 when it was learned, now 60. Task 1: was 70, now 75.
    assert backward_transfer(MATRIX) == (-30 + 5) / 2
    assert backward_transfer(MATRIX[:2]) == -10.0
    assert backward_transfer(MATRIX[:1]) == 0.0


def test_learning_accuracy_of_a_worked_example():
    assert learning_accuracy(MATRIX) == (90 + 70 + 50) / 3
    assert learning_accuracy(MATRIX[:1]) == 90.0
    with pytest.raises(ValueError, match="at least one task"):
        learning_accuracy([])


def test_intransigence_of_a_worked_example():
    # 92 - 90, 80 - 70, 76 - 50; later tasks of the joint run do not count
    assert intransigence(MATRIX, JOINT) == pytest.approx((2 + 10 + 26) / 3)
    assert intransigence(MATRIX[:1], JOINT) == 2.0
    assert intransigence(JOINT, JOINT) == 0.0
    with pytest.raises(ValueError, match="3 tasks needs as many of joint training, not 2"):
        intransigence(MATRIX, JOINT[:2])


def test_transfer_by_loops_over_the_papers_formulas():
    random = np.random.default_rng(0)
    tasks = 7
    whole, joint = random.uniform(0, 100, (2, tasks, tasks))
    matrix, reference = ([list(row[: k + 1]) for k, row in enumerate(each)] for each in (whole, joint))
    moved, learned, missing = 0.0, 0.0, 0.0
    for i in range(tasks - 1):
        moved += whole[tasks - 1, i] - whole[i, i]  # R_{T,i} - R_{i,i} of Lopez-Paz and Ranzato
    for k in range(tasks):
        learned += whole[k, k]
        missing += joint[k, k] - whole[k, k]  # a*_k - a_{k,k} of Chaudhry et al.
    assert backward_transfer(matrix) == pytest.approx(moved / (tasks - 1))
    assert learning_accuracy(matrix) == pytest.approx(learned / tasks)
    assert intransigence(matrix, reference) == pytest.approx(missing / tasks)


def test_backward_transfer_is_forgetting_where_a_task_is_never_better_than_when_it_was_learned():
    falling = [[90.0], [80.0, 70.0], [60.0, 65.0, 50.0]]
    assert backward_transfer(falling) == -forgetting(falling)


def test_confusion_matrix_has_true_classes_in_rows():
    wanted = [
        [2, 0, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [1, 0, 0, 1, 0],
        [0, 0, 0, 0, 0],  # a class that nothing was or was taken for
    ]
    matrix = confusion_matrix(PREDICTIONS, TARGETS, classes=5)
    assert matrix.tolist() == wanted
    assert 100 * np.trace(matrix) / matrix.sum() == accuracy(PREDICTIONS, TARGETS)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_confusion_matrix_of_small_integers_does_not_overflow(dtype):
    many = np.arange(100, dtype=dtype)
    assert (confusion_matrix(many, many, 100) == np.eye(100)).all()


def test_nothing_to_measure_is_refused():
    nothing = np.array([], dtype=np.int64)
    with pytest.raises(ValueError, match="at least one prediction"):
        accuracy(nothing, nothing)
    with pytest.raises(ValueError, match="at least one task"):
        average_incremental_accuracy([])
