"""Losses against loops over elements (reference.py), and what must hold whatever the numbers."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from podnet import losses

POOLINGS = ("pixels", "channels", "gap", "width", "height", "spatial")
FORMS = ("paper", "released")
SHAPES = ((2, 3, 3, 2), (2, 2, 1, 4))  # two stages; rows and columns differ so that mixing them up shows


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def maps(seed):
    return [normal(*shape, seed=seed + i) for i, shape in enumerate(SHAPES)]


def tensors(arrays):
    return [torch.tensor(array, dtype=torch.float64) for array in arrays]


# ---- POD ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", FORMS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_pod_equals_its_equations(pooling, fidelity):
    reference.assert_matches(
        lambda a, b, c, d: losses.pod([a, b], [c, d], pooling, fidelity),
        lambda a, b, c, d: reference.pod([a, b], [c, d], pooling, fidelity),
        *maps(seed=10),
        constants=maps(seed=20),
    )


def test_pod_of_a_hand_computed_map():
    old, new = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[1.0, 1.0]]]])  # one channel, one row, two columns
    # width: (1) and (2), both (1) as unit vectors. height: (1, 0) and (1, 1)/√2, squared distance 2 - √2.
    assert losses.pod([old], [new], "width", "paper").item() == 0
    assert losses.pod([old], [new], "height", "paper").item() == pytest.approx(2 - math.sqrt(2), abs=1e-6)
    assert losses.pod([old], [new], "spatial", "paper").item() == pytest.approx(2 - math.sqrt(2), abs=1e-6)
    # released: (1, 1, 0)/√2 and (2, 1, 1)/√6 together; squared distance 2 - 2 * 3/√12 = 2 - √3.
    released = losses.pod([old], [new], "spatial", fidelity="released").item()
    assert released == pytest.approx(math.sqrt(2 - math.sqrt(3)), abs=1e-6)


def test_pod_defaults_to_the_released_spatial_pooling():
    old, new = tensors(maps(1)), tensors(maps(5))
    assert losses.pod(old, new) == losses.pod(old, new, pooling="spatial", fidelity="released")


def test_the_papers_spatial_pooling_is_the_sum_of_width_and_height():
    old, new = tensors(maps(1)), tensors(maps(5))
    spatial, width, height = (losses.pod(old, new, each, "paper").item() for each in ("spatial", "width", "height"))
    assert spatial == pytest.approx(width + height, rel=1e-12)


@pytest.mark.parametrize("fidelity", FORMS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_pod_of_equal_maps_is_exactly_zero_with_finite_gradients(pooling, fidelity):
    old = [m.float() for m in tensors(maps(3))]
    old.append(torch.zeros(2, 3, 2, 2))  # a map that is zero everywhere has no direction
    new = [m.clone().requires_grad_() for m in old]
    loss = losses.pod(old, new, pooling, fidelity)
    loss.backward()
    assert loss.item() == 0
    assert all(m.grad.isfinite().all() for m in new)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    factor=st.floats(1e-2, 1e2),
    pooling=st.sampled_from(POOLINGS),
    fidelity=st.sampled_from(FORMS),
)
def test_pod_ignores_the_scale_and_the_signs_of_a_map_and_is_symmetric_and_bounded(seed, factor, pooling, fidelity):
    old, new = tensors(maps(seed)), tensors(maps(seed + 7))
    loss = losses.pod(old, new, pooling, fidelity).item()
    signs = [torch.tensor(np.sign(normal(*m.shape, seed=seed))) for m in new]
    changed = [factor * sign * m for sign, m in zip(signs, new, strict=True)]
    assert losses.pod(old, changed, pooling, fidelity).item() == pytest.approx(loss, abs=1e-12)
    assert losses.pod(new, old, pooling, fidelity).item() == pytest.approx(loss, abs=1e-12)
    # Unit vectors without negative entries are at most √2 apart; the paper's spatial sums two squared distances.
    limit = math.sqrt(2) if fidelity == "released" else 4 if pooling == "spatial" else 2
    assert 0 <= loss <= limit


@pytest.mark.parametrize("fidelity", FORMS)
@pytest.mark.parametrize(
    ("axis", "blind"), [(1, {"channels"}), (2, {"gap", "height"}), (3, {"gap", "width"})], ids=["c", "rows", "columns"]
)
def test_a_pooling_is_blind_to_order_along_the_axis_that_it_sums_over_and_to_no_other(axis, blind, fidelity):
    old = torch.tensor(normal(2, 3, 4, 5, seed=4))
    shuffled = old.roll(1, dims=axis)
    for pooling in POOLINGS:
        loss = losses.pod([old], [shuffled], pooling, fidelity).item()
        assert loss < 1e-7 if pooling in blind else loss > 1e-3, pooling


@pytest.mark.parametrize("fidelity", FORMS)
def test_width_pooling_of_a_map_is_height_pooling_of_its_transpose(fidelity):
    old, new = (torch.tensor(normal(2, 3, 4, 5, seed=seed)) for seed in (1, 2))
    width = losses.pod([old], [new], "width", fidelity)
    height = losses.pod([old.mT], [new.mT], "height", fidelity)
    assert width.item() == pytest.approx(height.item(), rel=1e-12)


def test_pod_refuses_unpaired_maps_and_unknown_poolings():
    old, new = tensors(maps(1)), tensors(maps(2))
    with pytest.raises(ValueError, match="2 old and 1 new"):
        losses.pod(old, new[:1])
    with pytest.raises(ValueError, match=r"'width and height'.*spatial"):
        losses.pod(old, new, "width and height")


@pytest.mark.parametrize("fidelity", FORMS)
def test_pod_flat_equals_its_equation(fidelity):
    reference.assert_matches(
        lambda old, new: losses.pod_flat(old, new, fidelity),
        lambda old, new: reference.pod_flat(old, new, fidelity),
        normal(3, 5, seed=2),
        constants=[normal(3, 5, seed=1)],
    )


def test_pod_flat_is_zero_for_equal_directions_and_largest_for_opposite_ones():
    old = torch.tensor(normal(4, 6))
    assert losses.pod_flat(old, old).item() == 0
    assert losses.pod_flat(old, 3 * old).item() == pytest.approx(0, abs=1e-12)
    assert losses.pod_flat(old, -old).item() == pytest.approx(2)
    assert losses.pod_flat(old, -old, "paper").item() == pytest.approx(4)


# ---- NCA and cross-entropy ----------------------------------------------------------------------------------------

SIMILARITIES = np.random.default_rng(5).uniform(-1, 1, size=(6, 4))
TARGETS = [0, 3, 1, 2, 2, 0]


@pytest.mark.parametrize("margin", [0.0, 0.6])
@pytest.mark.parametrize(
    ("fidelity", "hinge"), [("paper", True), ("paper", False), ("released", True), ("released", False)]
)
def test_nca_equals_its_equation_in_the_similarities_and_in_the_scale(fidelity, hinge, margin):
    targets = torch.tensor(TARGETS)
    reference.assert_matches(
        lambda s, scale: losses.nca(s, targets, scale, margin, hinge, fidelity),
        lambda s, scale: reference.nca(s, TARGETS, scale, margin, hinge, fidelity),
        SIMILARITIES,
        np.array(2.5),
    )


def test_the_data_of_that_test_lie_on_both_sides_of_the_hinge():
    each = [reference.nca([s], [t], 2.5, 0.0, False, "paper") for s, t in zip(SIMILARITIES, TARGETS, strict=True)]
    assert min(each) < -0.1
    assert max(each) > 0.1


def test_nca_of_hand_computed_similarities():
    similarities, targets = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([0])
    # -log(e^(2 * 0.4) / 2) = log 2 - 0.8 < 0
    nca = functools.partial(losses.nca, similarities, targets, scale=2.0)
    assert nca(hinge=False, fidelity="paper").item() == pytest.approx(math.log(2) - 0.8, abs=1e-6)
    assert nca(fidelity="paper").item() == 0
    # released, the default: similarities (2, 0, 0) less their maximum; -log(1 / (1 + 2 e^-2))
    assert nca().item() == pytest.approx(math.log(1 + 2 * math.exp(-2)), abs=1e-6)


def test_the_margin_moves_the_papers_nca_by_the_scaled_margin_and_the_released_one_not_at_all():
    similarities, targets = torch.tensor(SIMILARITIES), torch.tensor(TARGETS)
    paper = [losses.nca(similarities, targets, 2.0, m, hinge=False, fidelity="paper").item() for m in (0.0, 0.6)]
    assert paper[1] - paper[0] == pytest.approx(2.0 * 0.6)
    released = [losses.nca(similarities, targets, 2.0, m, fidelity="released") for m in (0.0, 0.6)]
    assert torch.equal(*released)


def test_a_margin_cut_from_the_graph_keeps_the_value_and_leaves_the_scale_only_the_similarities_gradient():
    similarities, targets = torch.tensor(SIMILARITIES), torch.tensor(TARGETS)
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    loss = losses.nca(scale * similarities, targets, margin=0.6 * scale.detach(), hinge=False, fidelity="paper")
    loss.backward()
    assert loss.item() == pytest.approx(reference.nca(SIMILARITIES, TARGETS, 2.0, 0.6, False, "paper"))
    without_margin = reference.numeric_gradient(
        lambda scale: reference.nca(SIMILARITIES, TARGETS, scale, 0.0, False, "paper"), [np.array(2.0)], 0
    )
    assert scale.grad.item() == pytest.approx(without_margin.item(), abs=1e-7)


def test_hinged_nca_of_well_separated_classes_is_zero_and_asks_for_no_change():
    similarities = torch.eye(3).mul(2).sub(1).requires_grad_()  # 1 for the true class, -1 for the two others
    loss = losses.nca(similarities, torch.arange(3), margin=0.6, fidelity="paper")  # log 2 - 1 + 0.6 - 1 < 0
    loss.backward()
    assert loss.item() == 0
    assert not similarities.grad.any()


@pytest.mark.parametrize("hinge", [True, False])
@pytest.mark.parametrize("fidelity", FORMS)
def test_nca_of_one_class_alone_is_zero_with_finite_gradients(fidelity, hinge):
    similarities = torch.rand(4, 1, requires_grad=True)
    scale = torch.tensor(2.0, requires_grad=True)
    loss = losses.nca(scale * similarities, torch.zeros(4, dtype=torch.int64), hinge=hinge, fidelity=fidelity)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(similarities.grad, torch.zeros(4, 1))
    assert scale.grad.item() == 0


@pytest.mark.parametrize("fidelity", FORMS)
def test_nca_of_huge_similarities_stays_finite(fidelity):
    similarities = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]], requires_grad=True)
    loss = losses.nca(similarities, torch.tensor([1, 1]), fidelity=fidelity)
    loss.backward()
    assert loss.isfinite()
    assert similarities.grad.isfinite().all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), shift=st.floats(-5, 5), fidelity=st.sampled_from(FORMS), hinge=st.booleans())
def test_nca_ignores_a_common_shift_and_the_order_of_the_classes(seed, shift, fidelity, hinge):
    similarities = torch.tensor(normal(4, 5, seed=seed))
    order = np.random.default_rng(seed).permutation(5)
    targets = torch.tensor([0, 4, 2, 2])
    moved = torch.tensor(np.argsort(order))[targets]  # class order[i] now stands at i
    loss = losses.nca(similarities, targets, 1.5, 0.6, hinge, fidelity).item()
    assert losses.nca(similarities + shift, targets, 1.5, 0.6, hinge, fidelity).item() == pytest.approx(loss, abs=1e-9)
    assert losses.nca(similarities[:, order], moved, 1.5, 0.6, hinge, fidelity).item() == pytest.approx(loss, abs=1e-9)


def test_lsc_cross_entropy_equals_its_equation_in_the_similarities_and_in_the_scale():
    targets = torch.tensor(TARGETS)
    reference.assert_matches(
        lambda s, scale: losses.lsc_cross_entropy(s, targets, scale),
        lambda s, scale: reference.cross_entropy(s, TARGETS, scale),
        SIMILARITIES,
        np.array(3.0),
    )


# ---- the ablation's other distillations ---------------------------------------------------------------------------

CURVATURE, SLOPE = normal(3, 2, 4, seed=8), normal(3, 2, 4, seed=9)  # score = Σ curvature m² + slope m


def scores(image):
    return (torch.tensor(CURVATURE).to(image) * image**2 + torch.tensor(SLOPE).to(image) * image).sum((1, 2, 3))


def gradient_of_scores(image):
    return 2 * CURVATURE * image + SLOPE


def test_gradcam_of_its_paper_equals_its_equations_second_derivatives_included():
    old, new = normal(2, 3, 2, 4, seed=1), normal(2, 3, 2, 4, seed=2)

    def implemented(old_map, new_map):
        old_map = old_map.requires_grad_()
        return losses.gradcam(old_map, scores(old_map), new_map, scores(new_map), "paper")

    reference.assert_matches(
        implemented,
        lambda a, b: reference.gradcam(a, gradient_of_scores(a), b, gradient_of_scores(b)),
        new,
        constants=[old],
    )
    pairs = zip(new, gradient_of_scores(new), strict=True)
    seen = np.array([reference.attention(image, gradient) for image, gradient in pairs])
    assert (seen > 0).any(1).all()  # some attention in each image
    assert (seen == 0).any()  # and some that is rectified away


def test_the_released_gradcam_keeps_channels_apart_and_takes_their_weights_as_constants():
    old, new = normal(2, 3, 2, 4, seed=1), normal(2, 3, 2, 4, seed=2)
    fixed = gradient_of_scores(new)  # does not move with the map

    def implemented(old_map, new_map):
        old_map = old_map.requires_grad_()
        return losses.gradcam(old_map, scores(old_map), new_map, scores(new_map))

    reference.assert_matches(
        implemented,
        lambda a, b: reference.gradcam_by_channel(a, gradient_of_scores(a), b, fixed),
        new,
        constants=[old],
    )


@pytest.mark.parametrize("fidelity", FORMS)
def test_gradcam_of_the_same_network_is_zero_and_sends_the_teacher_no_gradient(fidelity):
    image = torch.tensor(normal(2, 3, 2, 4, seed=1), requires_grad=True)
    assert losses.gradcam(image, scores(image), image, scores(image), fidelity).item() == 0
    old, new = (torch.tensor(normal(2, 3, 2, 4, seed=seed), requires_grad=True) for seed in (1, 2))
    losses.gradcam(old, scores(old), new, scores(new), fidelity).backward()
    assert old.grad is None
    assert new.grad.any()


def test_perceptual_features_equals_its_equation():
    reference.assert_matches(
        lambda a, b, c, d: losses.perceptual_features([a, b], [c, d]),
        lambda a, b, c, d: reference.perceptual_features([a, b], [c, d]),
        *maps(seed=10),
        constants=maps(seed=20),
    )


def test_perceptual_features_sees_signs_which_pod_pixels_does_not():
    old = torch.tensor(normal(2, 3, 4, 5))
    assert losses.perceptual_features([old], [3 * old]).item() == pytest.approx(0, abs=1e-15)
    assert losses.perceptual_features([old], [-old]).item() == pytest.approx(4 / (3 * 4 * 5))
    assert losses.pod([old], [-old], "pixels").item() == 0


def test_perceptual_style_equals_its_equation():
    reference.assert_matches(
        lambda a, b, c, d: losses.perceptual_style([a, b], [c, d]),
        lambda a, b, c, d: reference.perceptual_style([a, b], [c, d]),
        *maps(seed=10),
        constants=maps(seed=20),
    )


def test_perceptual_style_is_zero_for_equal_maps_and_blind_to_where_things_are():
    old = torch.tensor(normal(2, 3, 4, 5))
    assert losses.perceptual_style([old], [old]).item() == 0
    assert losses.perceptual_style([old], [old.roll((1, 2), (2, 3))]).item() == pytest.approx(0, abs=1e-15)
    assert losses.perceptual_style([old], [old.roll(1, 1)]).item() > 1e-4


# ---- the rivals ---------------------------------------------------------------------------------------------------


def test_less_forget_equals_one_less_the_cosine():
    reference.assert_matches(
        losses.less_forget,
        lambda old, new: reference.pod_flat(old, new, "released"),
        normal(3, 5, seed=2),
        constants=[normal(3, 5, seed=1)],
    )


@pytest.mark.parametrize("new", [1, 2, 3])
@pytest.mark.parametrize("negatives", [1, 2])
def test_margin_ranking_equals_its_equation_however_few_new_classes_there_are(new, negatives):
    old, targets = 3, [0, 3, 2, 1, 3]
    reference.assert_matches(
        lambda s: losses.margin_ranking(s, torch.tensor(targets), old, negatives, 0.5),
        lambda s: reference.margin_ranking(s, targets, old, negatives, 0.5),
        np.random.default_rng(new).uniform(-1, 1, size=(5, old + new)),
    )


def test_margin_ranking_of_hand_computed_similarities():
    similarities = torch.tensor([[0.9, 0.1, 0.8, 0.2, 0.5], [0.0, 0.0, 1.0, 1.0, 1.0]])
    # the first image is of old class 0: 0.5 - 0.9 + 0.8 = 0.4 and 0.5 - 0.9 + 0.5 = 0.1; the second is of a new class
    assert losses.margin_ranking(similarities, torch.tensor([0, 3]), old=2).item() == pytest.approx(0.25)


def test_margin_ranking_without_exemplars_in_the_batch_is_zero_with_zero_gradients():
    similarities = torch.rand(3, 4, requires_grad=True)
    loss = losses.margin_ranking(similarities, torch.tensor([2, 3, 2]), old=2)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(similarities.grad, torch.zeros(3, 4))


@pytest.mark.parametrize("old", [0, 2, 4])
def test_icarl_equals_binary_cross_entropy_of_every_output(old):
    targets, teacher = [0, 3, 2], normal(3, old, seed=6)
    reference.assert_matches(
        lambda logits: losses.icarl(logits, torch.tensor(targets), torch.tensor(teacher).to(logits) if old else None),
        lambda logits: reference.icarl(logits, targets, teacher if old else None),
        normal(3, 4, seed=7),
    )


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distillation_equals_cross_entropy_of_the_softened_old_outputs(temperature):
    reference.assert_matches(
        lambda teacher, logits: losses.distillation(logits, teacher, temperature),
        lambda teacher, logits: reference.distillation(logits, teacher, temperature),
        normal(3, 5, seed=2),
        constants=[normal(3, 3, seed=1)],
    )


def test_distillation_is_least_and_flat_where_the_old_outputs_are_the_teachers():
    teacher = torch.tensor(normal(4, 3))
    logits = torch.cat([teacher, torch.tensor(normal(4, 2, seed=1))], 1).requires_grad_()
    losses.distillation(logits, teacher).backward()
    assert logits.grad.abs().max() < 1e-15
