"""Herding by hand, and against a search that tries every image at every step."""

from __future__ import annotations

import pytest
import torch

import reference
from podnet.memory.herding import herd


def features(count, dim, seed, dtype=torch.float64):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_the_order_of_a_hand_computed_class_with_a_tie_going_to_the_first():
    points = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [2.0, 2.0]])  # mean (1.5, 1.5)
    # alone: (2, 2) is nearest. With it: (1, 1) beats (3, 1) and (1, 3). With those: (2, 2/3) ties with (2/3, 2).
    assert herd(points, 4).tolist() == [3, 0, 1, 2]


def test_the_mean_of_the_chosen_counts_not_each_image_alone():
    points = torch.tensor([[0.0], [1.0], [1.1], [-2.1]])  # mean 0, to which they are nearest in this order
    assert herd(points, 4).tolist() == [0, 1, 3, 2]  # but -2.1 makes up for 1.0: (0 + 1 - 2.1) / 3 = -0.37 and not 0.7


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("count", "dim", "seed"), [(1, 3, 0), (7, 1, 1), (12, 4, 2), (15, 2, 3)])
def test_herding_equals_trying_every_image_at_every_step(count, dim, seed, dtype):
    points = features(count, dim, seed, dtype)
    assert herd(points, count).tolist() == reference.herd(points.tolist(), count)


def test_herding_of_float32_features_far_from_zero_equals_the_search_in_double_precision():
    points = (features(12, 3, 5) * 1e-3 + 100).float()  # float32 sums would lose the differences
    assert herd(points, 12).tolist() == reference.herd(points.tolist(), 12)


def test_fewer_exemplars_are_the_first_of_more():
    points = features(20, 5, 7)
    whole = herd(points, 20).tolist()
    assert sorted(whole) == list(range(20))
    for n in range(21):
        assert herd(points, n).tolist() == whole[:n]


def test_equal_images_are_each_chosen_once():
    assert herd(torch.ones(4, 3), 4).tolist() == [0, 1, 2, 3]


def test_no_exemplars_are_an_empty_list_of_indices_and_the_features_stay_as_they_are():
    points = features(3, 2, 0)
    copy = points.clone()
    chosen = herd(points, 0)
    assert chosen.shape == (0,)
    assert chosen.dtype == torch.int64
    herd(points, 3)
    assert torch.equal(points, copy)


@pytest.mark.parametrize("n", [-1, 4])
def test_more_exemplars_than_images_or_fewer_than_none_are_refused(n):
    with pytest.raises(ValueError, match=f"{n} exemplars from 3 images"):
        herd(torch.zeros(3, 2), n)
