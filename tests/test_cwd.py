"""CwD against a loop over classes, and what its term rewards."""

from itertools import product

import numpy as np
import pytest
import torch

import reference
from podnet.methods import PODNet
from podnet.methods.cwd import CwD, correlation
from podnet.nets.network import Outputs
from reference import assert_matches

RNG = np.random.default_rng(0)
EMBEDDING, TARGETS = RNG.normal(size=(9, 4)), [0, 1, 0, 1, 2, 0, 1, 1, 3]  # two classes have a single image


def test_the_term_is_the_papers():
    def loops(embedding):
        return reference.correlation(embedding, TARGETS)

    found = correlation(torch.tensor(EMBEDDING), torch.tensor(TARGETS))
    assert found.item() == pytest.approx(loops(EMBEDDING), rel=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("podnet.methods.cwd.TINY", 0.0)  # the loop has no guard against equal features
        several = [row for row, target in enumerate(TARGETS) if target < 2]
        assert_matches(
            lambda embedding: correlation(embedding, torch.tensor(TARGETS)[several]),
            lambda embedding: reference.correlation(embedding, np.array(TARGETS)[several]),
            EMBEDDING[several],
        )


def of_one_class(rows):
    embedding = torch.tensor(rows, dtype=torch.float64)
    return correlation(embedding, torch.zeros(len(rows), dtype=torch.int64)).item()


def test_isotropic_features_have_the_least_and_features_on_a_line_the_most():
    """The corners of a cube all have the same length, and their coordinates are uncorrelated."""
    corners = list(product([-1, 1], repeat=3))
    line = [(-1, -1, -1), (1, 1, 1)]
    values = [of_one_class(rows) for rows in (corners, corners + 2 * line, line)]
    assert values[0] == pytest.approx(1 / 3)
    assert values[0] < values[1] < values[2] == pytest.approx(1)
    draws = [of_one_class(RNG.normal(size=(6, 3))) for _ in range(20)]
    assert min(draws) > 1 / 3


def test_nothing_to_compare_costs_nothing():
    embedding = torch.randn(3, 4, requires_grad=True)
    loss = correlation(embedding, torch.tensor([0, 1, 2]))
    loss.backward()
    assert loss == 0
    assert not embedding.grad.any()
    assert correlation(torch.ones(4, 3), torch.tensor([0, 0, 1, 1])) == 0


def test_only_the_first_task_has_the_term():
    torch.manual_seed(0)
    student = Outputs([torch.randn(4, 2, 3, 3)], torch.randn(4, 6), torch.rand(4, 5), torch.tensor(1.0))
    targets = torch.tensor([0, 1, 1, 0])
    (first,) = CwD().phases(0, 5, {})
    terms = first.loss(student, None, targets)
    torch.testing.assert_close(terms["cwd"], 0.05 * correlation(student.embedding, targets))
    assert set(terms) == {"nca", "cwd"}
    step, plain = (method().phases(4, 1, {})[0] for method in (CwD, PODNet))
    assert step.loss(student, student, targets).keys() == plain.loss(student, student, targets).keys()
    assert len(CwD().phases(4, 1, {})) == 2
