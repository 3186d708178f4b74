"""Ridge regression in closed form, against scikit-learn and against solving again without each photo."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from podnet.ridge import STRENGTHS, Fitted, Sums


def clusters(counts, dim=12, seed=0):
    draws = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    centres = torch.randn(len(counts), dim, generator=draws)
    return centres[labels] + torch.randn(len(labels), dim, generator=draws), labels


def by_scikit_learn(features, labels, classes, strength, shares=None):
    """The same problem handed to an independent solver: sample weights, an intercept, the same penalty."""
    x, own = features.double().numpy(), labels.numpy()
    counts = np.bincount(own, minlength=classes)
    shares = 1 / (classes * counts[own]) if shares is None else shares
    centre = shares @ x / shares.sum()
    spread = (shares[:, None] * (x - centre) ** 2).sum()
    penalty = strength * spread + 1e-12
    return Ridge(alpha=penalty, solver="svd").fit(x, np.eye(classes)[own], sample_weight=shares), penalty


@pytest.mark.parametrize("counts", [(5, 5, 5), (3, 9, 20), (40, 2, 7, 30)])  # fewer and more photos than features
def test_the_classifier_is_scikit_learns(counts):
    features, labels = clusters(counts)
    fitted = Fitted(features, labels, len(counts), strength=0.01)
    other, _ = by_scikit_learn(features, labels, len(counts), 0.01)
    fresh = torch.randn(50, features.shape[1]).double()
    np.testing.assert_allclose(fitted.linear(fresh).numpy(), other.predict(fresh.numpy()), atol=1e-9)


def test_a_matrix_that_torch_cannot_decompose_is_solved_all_the_same(monkeypatch):
    features, labels = clusters((3, 9, 20))
    sums = Sums.of(features, labels, 3)
    expected = [Fitted(features, labels, 3, strength=0.01, sums=own).linear for own in (None, sums)]

    def fail(matrix):
        raise torch.linalg.LinAlgError

    monkeypatch.setattr(torch.linalg, "eigh", fail)
    for own, linear in zip((None, sums), expected, strict=True):
        again = Fitted(features, labels, 3, strength=0.01, sums=own).linear
        torch.testing.assert_close(again.weights, linear.weights)


@pytest.mark.parametrize("counts", [(4, 4, 3), (3, 9, 20)])
def test_leaving_a_photo_out_is_solving_again_without_it(counts):
    features, labels = clusters(counts)
    classes = len(counts)
    fitted = Fitted(features, labels, classes, strength=0.01)
    scores = torch.cat([found for _, found in fitted.left_out()])
    _, penalty = by_scikit_learn(features, labels, classes, 0.01)
    shares = (1 / (classes * torch.bincount(labels)[labels].double())).numpy()
    for i in range(len(labels)):
        rest = np.arange(len(labels)) != i
        again = Ridge(alpha=penalty, solver="svd").fit(
            features[rest].double().numpy(), np.eye(classes)[labels[rest].numpy()], sample_weight=shares[rest]
        )
        np.testing.assert_allclose(scores[i].numpy(), again.predict(features[[i]].double().numpy())[0], atol=1e-8)


def test_the_penalty_has_the_least_error_of_photos_left_out():
    features, labels = clusters((8, 8, 8), dim=60)
    fitted = Fitted(features, labels, 3)
    errors = {}
    for strength in STRENGTHS:
        found = Fitted(features, labels, 3, strength)
        scores = torch.cat([part for _, part in found.left_out()])
        errors[strength] = float((scores - torch.eye(3, dtype=torch.float64)[labels]).square().sum())
    assert fitted.strength == min(errors, key=errors.get)


def test_sums_add_up_in_any_order_and_give_the_same_classifier():
    features, labels = clusters((15, 15, 15, 15))
    together = Fitted(features, labels, 4, strength=0.1)
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        sums = None
        for label in order:
            own = labels == label
            part = Sums.of(features[own], labels[own], 4)
            sums = part if sums is None else sums.plus(part)
        fresh = torch.randn(20, features.shape[1]).double()
        last = labels == order[-1]
        summed = Fitted(features[last], labels[last], 4, strength=0.1, sums=sums)
        torch.testing.assert_close(summed.linear(fresh), together.linear(fresh), rtol=0, atol=1e-9)
        rows = torch.cat([found for _, found in together.left_out()])[last]
        torch.testing.assert_close(torch.cat([found for _, found in summed.left_out()]), rows, rtol=0, atol=1e-9)


def test_sums_grow_with_the_classes():
    features, labels = clusters((6, 6, 6))
    first = labels < 2
    sums = Sums.of(features[first], labels[first], 2).plus(Sums.of(features[~first], labels[~first], 3))
    whole = Sums.of(features, labels, 3)
    torch.testing.assert_close(sums.totals, whole.totals)
    torch.testing.assert_close(sums.gram, whole.gram)
    assert sums.counts.tolist() == [6, 6, 6]


def test_a_large_class_does_not_count_more_than_a_small_one():
    """Photos of a class given twice change nothing."""
    features, labels = clusters((5, 5, 5))
    twice = labels == 0
    more = torch.cat([features, features[twice]]), torch.cat([labels, labels[twice]])
    fresh = torch.randn(20, features.shape[1]).double()
    torch.testing.assert_close(Fitted(*more, 3, 0.1).linear(fresh), Fitted(features, labels, 3, 0.1).linear(fresh))


def test_degenerate_features_are_answered_and_an_empty_class_is_refused():
    same = torch.ones(4, 3)
    linear = Fitted(same, torch.tensor([0, 0, 1, 1]), 2).linear
    torch.testing.assert_close(linear(same.double()), torch.full((4, 2), 0.5, dtype=torch.float64))
    one = Fitted(torch.randn(3, 5), torch.zeros(3, dtype=torch.int64), 1)
    assert torch.isfinite(torch.cat([part for _, part in one.left_out()])).all()
    with pytest.raises(ValueError, match="at least one photo"):
        Fitted(same, torch.tensor([0, 0, 2, 2]), 3)
