"""SS-IL against loops: who competes with whom, and the distillation of each old task by itself."""

import numpy as np
import pytest
import torch

import reference
from podnet.methods.ssil import SSIL, separated_softmax, taskwise_distillation
from reference import assert_matches

RNG = np.random.default_rng(0)
LOGITS, OLD_LOGITS = RNG.normal(size=(5, 7)), RNG.normal(size=(5, 5))
TARGETS = [0, 6, 4, 5, 1]


def test_old_and_new_classes_never_meet_in_a_softmax():
    def loops(logits):
        return reference.cross_entropy_among(logits, TARGETS, lambda target: range(5) if target < 5 else range(5, 7))

    assert_matches(lambda logits: separated_softmax(logits, torch.tensor(TARGETS), 5), loops, LOGITS)


def test_raising_all_new_outputs_changes_nothing():
    logits, targets = torch.tensor(LOGITS), torch.tensor(TARGETS)
    raised = logits + 3.0 * (torch.arange(7) >= 5)
    torch.testing.assert_close(separated_softmax(raised, targets, 5), separated_softmax(logits, targets, 5))


def test_each_old_task_is_distilled_by_itself():
    def loops(old_logits, logits):
        return reference.taskwise_distillation(logits, old_logits, [3, 2], 2.0)

    def ours(old_logits, logits):
        return taskwise_distillation(logits, old_logits, [3, 2], 2.0)

    assert_matches(ours, loops, LOGITS, constants=(OLD_LOGITS,))


def test_equal_outputs_have_no_distillation_and_tasks_may_shift():
    logits = torch.tensor(LOGITS, requires_grad=True)
    shifted = logits.detach()[:, :5] + torch.tensor([1.0, 1.0, 1.0, -2.0, -2.0])
    loss = taskwise_distillation(logits, shifted, [3, 2], 2.0)
    loss.backward()
    assert abs(loss.item()) < 1e-12
    assert logits.grad.abs().max() < 1e-12


def test_the_learning_rate_falls_with_the_tasks_and_the_state_counts_them():
    rates = [SSIL(lr=0.6).phases(*task)[0].lr(0) for task in ((0, 3, {}), (3, 2, {"sizes": torch.tensor([3])}))]
    assert rates == pytest.approx([0.6, 0.3])
    lr = SSIL().phases(0, 3, {})[0].lr
    assert [lr(epoch) for epoch in (39, 40, 79, 80)] == pytest.approx([0.1, 0.01, 0.01, 0.001])
