"""Nearest mean of exemplars against loops over images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import reference
from podnet.memory.means import class_means, nme_scores

TARGETS = torch.tensor([2, 0, 1, 1, 0, 2, 2])


def features(count, seed, dtype):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("with_mirror", [False, True])
def test_means_and_scores_equal_loops_over_images(with_mirror, dtype):
    own, test = features(7, 0, dtype), features(5, 1, dtype)
    mirrored = features(7, 2, dtype) if with_mirror else None
    means = class_means(own, TARGETS, mirrored)
    wanted = reference.class_means(own.tolist(), TARGETS, None if mirrored is None else mirrored.tolist())
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    np.testing.assert_allclose(means.numpy(), wanted, rtol=0, atol=tolerance)
    scores = nme_scores(test, means)
    wanted = reference.nme_scores(test.tolist(), means.tolist())
    np.testing.assert_allclose(scores.numpy(), wanted, rtol=0, atol=4 * tolerance)


def test_a_hand_computed_mean_normalises_before_and_after_averaging():
    own = torch.tensor([[9.0, 0.0], [0.0, 0.5]])  # as unit vectors (1, 0) and (0, 1)
    torch.testing.assert_close(class_means(own, torch.tensor([0, 0])), torch.full((1, 2), 0.5**0.5))


def test_the_mirror_images_count_as_much_as_the_images():
    own, mirrored = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 7.0]])
    torch.testing.assert_close(class_means(own, torch.tensor([0]), mirrored), torch.full((1, 2), 0.5**0.5))


def test_the_nearest_mean_scores_highest_whatever_the_length_of_a_feature():
    means = torch.eye(3)
    scores = nme_scores(torch.tensor([[0.1, 9.0, 0.2], [1e-3, 0.0, 2e-3]]), means)
    assert scores.argmax(1).tolist() == [1, 2]
    assert (scores <= 0).all()
    assert nme_scores(5 * means, means).diagonal().tolist() == [0, 0, 0]
