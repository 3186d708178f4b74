"""Classifiers against loops over classes and proxies, their growth, and imprinting against k-means by definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import reference
from podnet.methods import PODNet
from podnet.methods.networks import new_network
from podnet.nets import classifiers
from podnet.nets.classifiers import (
    BiasCorrectedClassifier,
    CosineClassifier,
    LinearClassifier,
    LocalSimilarityClassifier,
    imprint,
)

DIM, SIZES = 4, (2, 1)  # two growths
EMBEDDING = np.random.default_rng(0).normal(size=(3, DIM))
MIX = np.random.default_rng(1).normal(size=(3, sum(SIZES)))  # makes one number of all outputs

GROWING = {
    "lsc": lambda dim: LocalSimilarityClassifier(dim, proxies=3),
    "lsc distance": lambda dim: LocalSimilarityClassifier(dim, proxies=3, similarity="distance"),
    "cosine": CosineClassifier,
    "linear": LinearClassifier,
    "bias corrected": BiasCorrectedClassifier,
}


def assert_outputs_match(classifier, outputs, weights, corrections=()):
    """forward is outputs(embedding, weights, corrections) in all its values and in its gradient in every input."""
    for size, own in zip(SIZES, np.split(weights, np.cumsum(SIZES)[:-1]), strict=True):
        classifier.add_classes(size, torch.tensor(own))
    classifier.double()
    inputs = [EMBEDDING, weights, *corrections]

    def mixed(embedding, weights, *corrections):
        return float((MIX * np.array(outputs(embedding, weights, *corrections))).sum())

    for parameter, value in zip(getattr(classifier, "corrections", ()), corrections, strict=True):
        parameter.data = torch.tensor(value)
    embedding = torch.tensor(EMBEDDING, requires_grad=True)
    result = classifier(embedding)
    np.testing.assert_allclose(result.detach().numpy(), outputs(*inputs), rtol=0, atol=1e-12)
    (result * torch.tensor(MIX)).sum().backward()
    own = [torch.cat([w.grad for w in classifier.weights])]
    own += [parameter.grad for parameter in getattr(classifier, "corrections", ())]
    for position, gradient in enumerate([embedding.grad, *own]):
        expected = reference.numeric_gradient(mixed, inputs, position)
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6, atol=1e-8)


def weights(*shape):
    return np.random.default_rng(2).normal(size=(sum(SIZES), *shape))


@pytest.mark.parametrize("similarity", ["cosine", "distance"])
@pytest.mark.parametrize("proxies", [1, 3])
def test_local_similarity_equals_its_equation(proxies, similarity):
    assert_outputs_match(
        LocalSimilarityClassifier(DIM, proxies, similarity=similarity),
        lambda h, theta: reference.local_similarity(h, theta, similarity),
        weights(proxies, DIM),
    )


def test_a_sharpness_of_nine_is_vectors_three_times_as_long_as_the_released_code_has_them_for_nme():
    assert_outputs_match(
        LocalSimilarityClassifier(DIM, 3, similarity="distance", sharpness=9.0),
        lambda h, theta: reference.local_similarity(h, theta, "distance", factor=3.0),
        weights(3, DIM),
    )


def test_the_cosine_classifier_gives_the_cosine():
    assert_outputs_match(
        CosineClassifier(DIM),
        lambda h, theta: [[reference.cosine(own[0], x) for own in theta] for x in h],
        weights(1, DIM),
    )


def test_the_linear_classifier_gives_weights_times_embedding_plus_bias():
    assert_outputs_match(LinearClassifier(DIM), reference.linear, weights(DIM + 1))


def test_bias_correction_applies_alpha_and_beta_of_each_growth_to_its_own_outputs():
    def corrected(h, w, first, second):
        alpha, beta = ([pair[i] for pair in (first, first, second)] for i in (0, 1))
        return [[alpha[c] * o + beta[c] for c, o in enumerate(row)] for row in reference.linear(h, w)]

    corrections = (np.array([1.5, -0.3]), np.array([0.7, 0.2]))
    assert_outputs_match(BiasCorrectedClassifier(DIM), corrected, weights(DIM + 1), corrections)


def test_a_new_bias_correction_changes_nothing():
    torch.manual_seed(0)
    corrected, plain = BiasCorrectedClassifier(DIM), LinearClassifier(DIM)
    corrected.add_classes(3)
    plain.add_classes(3, corrected.weights[0])
    embedding = torch.randn(5, DIM)
    assert torch.equal(corrected(embedding), plain(embedding))


def test_one_proxy_is_the_cosine_classifier():
    own, embedding = torch.tensor(weights(1, DIM)), torch.tensor(EMBEDDING)
    one, cosine = LocalSimilarityClassifier(DIM, proxies=1), CosineClassifier(DIM)
    one.add_classes(3, own)
    cosine.add_classes(3, own)
    assert torch.equal(one(embedding), cosine(embedding))


def test_equal_proxies_count_as_one_and_lengths_do_not_count():
    many, one = LocalSimilarityClassifier(DIM, proxies=4), CosineClassifier(DIM)
    own = torch.tensor(weights(1, DIM))
    many.add_classes(3, own.repeat(1, 4, 1) * torch.tensor([1.0, 0.1, 30.0, 2.0])[None, :, None])
    one.add_classes(3, own)
    embedding = torch.tensor(EMBEDDING)
    torch.testing.assert_close(many(7 * embedding), one(embedding), rtol=0, atol=1e-12)


def test_the_class_similarity_leans_to_the_nearer_proxies():
    classifier = LocalSimilarityClassifier(2, proxies=2)
    classifier.add_classes(1, torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]]))
    # cosines 1 and -1, weights e/(e + 1/e) and (1/e)/(e + 1/e): tanh(1), above their mean of 0
    assert classifier(torch.tensor([[5.0, 0.0]])).item() == pytest.approx(math.tanh(1), abs=1e-6)


# ---- growth -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GROWING)
def test_growing_leaves_the_old_classes_as_they_were(kind):
    torch.manual_seed(0)
    classifier = GROWING[kind](64)
    classifier.add_classes(10)
    embedding = torch.randn(32, 64)
    before, weight = classifier(embedding), classifier.weights[0]
    state = {name: value.clone() for name, value in classifier.state_dict().items()}
    classifier.add_classes(2)
    classifier.add_classes(1)
    assert classifier.weights[0] is weight
    for name, value in state.items():
        assert torch.equal(classifier.state_dict()[name], value)
    after = classifier(embedding)
    assert after.shape == (32, 13)
    # A matrix product may round otherwise when it has more columns, so the outputs agree but to the last bits.
    torch.testing.assert_close(after[:, :10], before, rtol=0, atol=1e-6)
    # the old outputs carry no gradient to the new weights, nor the other way round
    after[:, :10].sum().backward(retain_graph=True)
    assert not classifier.weights[1].grad.any()
    assert not classifier.weights[2].grad.any()
    classifier.zero_grad()
    after[:, 10:].sum().backward()
    assert not classifier.weights[0].grad.any()


@pytest.mark.parametrize("kind", GROWING)
def test_sizes_and_classes_follow_the_growth(kind):
    classifier = GROWING[kind](DIM)
    assert classifier.classes == 0
    for size in (3, 1, 2):
        classifier.add_classes(size)
        assert len(classifier.weights[-1]) == size
        assert classifier.weights[-1].requires_grad
    assert classifier.sizes == [3, 1, 2]
    assert classifier.classes == 6


@pytest.mark.parametrize("kind", GROWING)
def test_given_weights_are_copied_not_shared(kind):
    classifier = GROWING[kind](DIM)
    classifier.add_classes(2)
    given = torch.zeros_like(classifier.weights[0].detach())
    classifier.add_classes(2, given)
    given += 1
    assert not classifier.weights[1].any()


@pytest.mark.parametrize("kind", GROWING)
def test_weights_of_a_wrong_shape_are_refused(kind):
    classifier = GROWING[kind](DIM)
    classifier.add_classes(2)
    right = classifier.weights[0].detach()
    for wrong in (right[:1], right[..., :-1], torch.cat([right, right])):
        with pytest.raises(ValueError, match="2"):
            classifier.add_classes(2, wrong)
    assert classifier.classes == 2


def test_first_proxies_are_random_with_unit_length_on_average():
    torch.manual_seed(0)
    classifier = LocalSimilarityClassifier(256, proxies=10)
    classifier.add_classes(20)
    (drawn,) = classifier.weights
    assert drawn.shape == (20, 10, 256)
    assert drawn.std().item() == pytest.approx(1 / 16, rel=0.02)  # Kaiming: 1/√256
    assert abs(drawn.mean().item()) < 0.002
    lengths = [math.sqrt(sum(x * x for x in proxy)) for proxy in drawn.detach().flatten(0, 1).tolist()]
    assert classifier.mean_norm() == pytest.approx(sum(lengths) / 200, rel=1e-5)


def test_mean_norm_counts_the_proxies_of_every_growth():
    classifier = LocalSimilarityClassifier(2, proxies=2)
    classifier.add_classes(1, torch.tensor([[[3.0, 4.0], [0.0, 1.0]]]))  # lengths 5 and 1
    classifier.add_classes(1, torch.tensor([[[0.0, 2.0], [0.0, 0.0]]]))  # 2 and 0
    assert classifier.mean_norm() == 2


@pytest.mark.parametrize("learned", [True, False])
def test_the_scale_is_a_parameter_only_if_learned_and_is_saved_either_way(learned):
    classifier = LocalSimilarityClassifier(DIM, proxies=2, scale=3.5, learn_scale=learned)
    classifier.add_classes(2)
    assert classifier.scale.item() == 3.5
    assert ("scale" in dict(classifier.named_parameters())) == learned
    assert classifier.scale.requires_grad == learned
    other = LocalSimilarityClassifier(DIM, proxies=2, learn_scale=learned)
    other.add_classes(2)
    other.load_state_dict(classifier.state_dict())
    assert other.scale.item() == 3.5


def test_the_released_scale_acts_after_the_softmax_over_proxies():
    torch.manual_seed(0)
    small, large = (LocalSimilarityClassifier(DIM, 3, scale, similarity="distance") for scale in (1.0, 9.0))
    for classifier in (small, large):
        classifier.add_classes(3, torch.tensor(weights(3, DIM)))
    assert torch.equal(small(torch.tensor(EMBEDDING)), large(torch.tensor(EMBEDDING)))


# ---- more proxies than are worked on at once ----------------------------------------------------------------------

MANY = {"one growth": [23], "small growths": [1] * 9 + [3, 2], "large and small": [17, 1, 1, 6, 1]}


def grown(sizes, proxies=3, similarity="cosine", dim=DIM, dtype=torch.float64):
    torch.manual_seed(0)
    classifier = LocalSimilarityClassifier(dim, proxies, similarity=similarity)
    for size in sizes:
        classifier.add_classes(size)
    return classifier.to(dtype)


def values_and_gradients(classifier, embedding):
    """The outputs, and the gradients of a mix of them in the embedding and in the weights that train."""
    embedding = embedding.detach().clone().requires_grad_()
    classifier.zero_grad()
    result = classifier(embedding)
    (result * torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view_as(result)).sum().backward()
    return [result.detach(), embedding.grad, *(w.grad for w in classifier.weights if w.grad is not None)]


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr(classifiers, "MOST_AT_ONCE", 5)
    monkeypatch.setattr(classifiers, "CHUNK", 13)


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("similarity", ["cosine", "distance"])
@pytest.mark.parametrize("proxies", [1, 3, 20])
@pytest.mark.parametrize("sizes", MANY.values(), ids=MANY)
def test_chunks_give_the_values_and_gradients_of_all_at_once(monkeypatch, sizes, proxies, similarity, frozen):
    embedding = torch.randn(7, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    classifier = grown(sizes, proxies, similarity)
    for weight in classifier.weights[:-1] if frozen else ():
        weight.requires_grad_(False)
    whole = values_and_gradients(classifier, embedding)
    monkeypatch.setattr(classifiers, "MOST_AT_ONCE", 5)
    monkeypatch.setattr(classifiers, "CHUNK", 13)
    chunked = values_and_gradients(classifier, embedding)
    with torch.no_grad():
        without = classifier.eval()(embedding)
    assert len(chunked) == len(whole)  # no gradient more
    for found, wanted in zip([*chunked, without], [*whole, whole[0]], strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_chunks_go_through_all_weights_once_without_a_copy(few_at_once):
    classifier = grown([17, 1, 1, 6, 1])
    for weight in classifier.weights[:2]:
        weight.requires_grad_(False)
    chunks = list(classifier._chunks())
    assert torch.equal(torch.cat([part for chunk in chunks for part in chunk]), torch.cat(list(classifier.weights)))
    assert [[len(part) for part in chunk] for chunk in chunks] == [[4], [4], [4], [4], [1, 1], [1], [4], [2, 1]]
    memory = {weight.untyped_storage().data_ptr() for weight in classifier.weights}
    assert {part.untyped_storage().data_ptr() for chunk in chunks for part in chunk} == memory
    assert [{part.requires_grad for part in chunk} for chunk in chunks] == [{False}] * 5 + [{True}] * 3


def test_what_is_kept_for_backward_is_less_than_the_cosines_of_many_classes(monkeypatch):
    classes, proxies, batch = 2000, 10, 16
    classifier = grown([classes - 100, 100], proxies, dim=8, dtype=torch.float32)
    classifier.weights[0].requires_grad_(False)

    def bytes_kept():
        kept = {}

        def keep(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        embedding = torch.randn(batch, 8, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            similarities = classifier(embedding)
        for weight in classifier.weights:
            kept.pop(weight.untyped_storage().data_ptr(), None)  # there anyway
        similarities.sum().backward()
        return sum(kept.values())

    cosines = 4 * batch * classes * proxies
    assert bytes_kept() < cosines / 10
    monkeypatch.setattr(classifiers, "MOST_AT_ONCE", classes * proxies)
    assert bytes_kept() > 2 * cosines


def test_as_many_proxies_as_imagenet_needs_are_worked_on_at_once(monkeypatch):
    monkeypatch.setattr(LocalSimilarityClassifier, "_chunks", None)  # the numbers of the runs there are depend on it
    classifier = grown([500, 500], 10)
    assert classifier(torch.randn(2, DIM, dtype=torch.float64)).shape == (2, 1000)


def test_chunks_can_be_differentiated_twice_as_gradcam_does(few_at_once, monkeypatch):
    classifier = grown([17, 6])

    def twice():
        embedding = torch.ones(2, DIM, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(
            classifier(embedding * embedding).square().sum(), embedding, create_graph=True
        )
        gradient.square().sum().backward()
        return embedding.grad

    chunked = twice()
    monkeypatch.setattr(classifiers, "MOST_AT_ONCE", 1000)
    torch.testing.assert_close(chunked, twice(), rtol=1e-9, atol=1e-9)


def test_chunks_can_be_exported_for_any_number_of_images(few_at_once):
    classifier = grown([9, 1, 1], dtype=torch.float32).requires_grad_(False).eval()
    shapes = ({0: torch.export.Dim("images")},)
    program = torch.export.export(classifier, (torch.randn(2, DIM),), dynamic_shapes=shapes)
    embedding = torch.randn(5, DIM)
    torch.testing.assert_close(program.module()(embedding), classifier(embedding), rtol=0, atol=1e-6)


# ---- imprinting ---------------------------------------------------------------------------------------------------


def matching(found, wanted):
    """The largest difference between two sets of points, in the best pairing."""
    orders = itertools.permutations(range(len(found)))
    return min(np.abs(found[list(order)] - wanted).max() for order in orders)


def cloud(axes, per_axis=6, dim=6, seed=0, spread=0.05):
    """Points of differing lengths in bundles around coordinate axes."""
    random = np.random.default_rng(seed)
    centres = np.repeat(np.eye(dim)[axes], per_axis, axis=0)
    points = centres + spread * random.normal(size=centres.shape)
    return torch.tensor(points * random.uniform(0.5, 3, size=(len(points), 1)), dtype=torch.float32)


def test_imprinting_separated_clusters_gives_the_means_of_their_unit_features_times_the_norm():
    features = torch.cat([cloud([3, 4, 5], seed=1), cloud([0, 1, 2], seed=2)])
    targets = torch.tensor([8] * 18 + [7] * 18)
    shuffle = torch.randperm(36, generator=torch.Generator().manual_seed(0))
    imprinted = imprint(features[shuffle], targets[shuffle], proxies=3, seed=0) * 2.5
    assert imprinted.shape == (2, 3, 6)
    for row, start in ((0, 18), (1, 0)):  # the lower target comes first
        bundles = features[start : start + 18].tolist()
        units = np.array([reference.unit(f) for f in bundles]).reshape(3, 6, 6)
        assert matching(imprinted[row].numpy(), 2.5 * units.mean(1)) < 1e-5


def inertia(points, centres):
    return sum(min(((p - c) ** 2).sum() for c in centres) for p in points)


def lloyd(points, k, random):
    centres = points[random.choice(len(points), k, replace=False)]
    for _ in range(30):
        nearest = np.array([np.argmin([((p - c) ** 2).sum() for c in centres]) for p in points])
        centres = np.array([points[nearest == j].mean(0) if (nearest == j).any() else centres[j] for j in range(k)])
    return centres


def test_the_first_classes_of_a_pretrained_network_are_imprinted_when_asked():
    """With one proxy a class its centre is the mean of the class's unit features, at unit length."""
    method = PODNet(proxies=1, imprint_first=True)
    network = new_network(method, 1)
    features = torch.randn(8, 64, generator=torch.Generator().manual_seed(0)) + torch.eye(64)[:8] * 3
    targets = torch.tensor([0, 1] * 4)
    method.grow(network, 2, lambda: (features, targets), seed=0)
    for label in (0, 1):
        centre = torch.stack([row / row.norm() for row in features[label::2]]).mean(0)
        torch.testing.assert_close(network.classifier.weights[0][label, 0].detach(), centre / centre.norm())


def test_imprinted_centres_are_a_good_fixed_point_of_k_means():
    features = torch.randn(30, 3, generator=torch.Generator().manual_seed(4))
    centres = imprint(features, torch.zeros(30), proxies=4, seed=1)[0].double().numpy()
    points = np.array([reference.unit(f) for f in features.tolist()])
    nearest = np.array([np.argmin([((p - c) ** 2).sum() for c in centres]) for p in points])
    for j in range(4):
        np.testing.assert_allclose(centres[j], points[nearest == j].mean(0), atol=1e-5)
    random = np.random.default_rng(0)
    best = min(inertia(points, lloyd(points, 4, random)) for _ in range(8))
    assert inertia(points, centres) <= best * 1.02


def test_imprinting_depends_on_its_arguments_alone():
    features, targets = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    first = imprint(features, targets, 6, seed=3)
    np.random.seed(123)
    torch.manual_seed(5)
    assert torch.equal(imprint(features, targets, 6, seed=3), first)
    assert not torch.equal(imprint(features, targets, 6, seed=4), first)
    assert imprint(features, targets, 6, seed=2**63 - 1).isfinite().all()  # as long as seeds get


def test_imprinting_ignores_the_lengths_of_the_features():
    features = cloud([0, 1], seed=3)
    a, b = (imprint(f, torch.zeros(12), 2, seed=0) for f in (features, 40 * features))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("images", [1, 2, 3])
def test_a_class_with_fewer_images_than_proxies_repeats_them(images):
    features = 3 * torch.eye(5)[:images]
    imprinted = imprint(features, torch.zeros(images), proxies=4, seed=0) * 2.0
    assert imprinted.shape == (1, 4, 5)
    uses = [sum(torch.allclose(proxy, 2 * axis) for proxy in imprinted[0]) for axis in torch.eye(5)[:images]]
    assert sum(uses) == 4  # nothing but the images themselves
    assert max(uses) - min(uses) <= 1  # each as often as the others


@pytest.mark.parametrize("distinct", [1, 2])
def test_duplicate_images_give_each_distinct_one_as_a_centre_and_nothing_else(distinct):
    axes = torch.eye(4)[:distinct]
    imprinted = imprint(axes.repeat(4, 1), torch.zeros(4 * distinct), proxies=3, seed=0)[0]
    assert all(any(torch.allclose(proxy, axis) for axis in axes) for proxy in imprinted)
    assert all(any(torch.allclose(proxy, axis) for proxy in imprinted) for axis in axes)
