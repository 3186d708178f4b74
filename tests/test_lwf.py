"""LwF against loops written from its equations, with and without exemplars."""

import numpy as np
import pytest
import torch

from podnet.methods.lwf import LwF
from podnet.nets.network import Outputs
from reference import assert_matches, cross_entropy_among, distillation

OLD, NEW = 4, 3
RNG = np.random.default_rng(0)
LOGITS, OLD_LOGITS = RNG.normal(size=(5, OLD + NEW)), RNG.normal(size=(5, OLD))


def terms(logits, old_logits, targets, **options):
    """The terms of LwF's loss, of outputs that are given."""
    student, teacher = (Outputs([], given, given, torch.ones((), dtype=given.dtype)) for given in (logits, old_logits))
    return LwF(**options).phases(OLD, NEW, {})[0].loss(student, teacher, torch.tensor(targets))


@pytest.mark.parametrize(
    ("targets", "compared"),
    [([4, 5, 6, 6, 4], range(OLD, OLD + NEW)), ([4, 0, 6, 3, 4], range(OLD + NEW))],
    ids=["new images only", "with exemplars"],
)
def test_the_new_images_compete_with_the_old_classes_only_if_there_are_exemplars(targets, compared):
    def reference(old_logits, logits):
        return cross_entropy_among(logits, targets, lambda _: compared)

    def new(old_logits, logits):
        return terms(logits, old_logits, targets)["new"]

    assert_matches(new, reference, LOGITS, constants=(OLD_LOGITS,))


def test_the_old_outputs_are_distilled():
    def reference(old_logits, logits):
        return 3 * distillation(logits, old_logits, 2.0)

    def old(old_logits, logits):
        return terms(logits, old_logits, [4, 5, 6, 6, 4], lambda_o=3.0)["old"]

    assert_matches(old, reference, LOGITS, constants=(OLD_LOGITS,))


def test_equal_outputs_pull_nowhere():
    logits = torch.tensor(LOGITS, requires_grad=True)
    terms(logits, logits.detach()[:, :OLD], [4, 5, 6, 6, 4])["old"].backward()
    assert logits.grad.abs().max() < 1e-12
