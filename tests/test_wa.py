"""WA: aligned norms, weights that are never negative, and its two terms."""

import pytest
import torch

from podnet.losses import distillation
from podnet.methods.networks import new_network
from podnet.methods.wa import WA
from podnet.nets.network import Outputs


@pytest.fixture
def network():
    torch.manual_seed(0)
    network = new_network(WA(), 1)
    for new in (3, 2):
        network.classifier.add_classes(new)
    with torch.no_grad():
        network.classifier.weights[1].mul_(5)  # the bias to new classes that the paper describes
    return network.eval()


def norms(rows):
    """The L1 norm of each class's weights, in a loop."""
    return [sum(abs(x) for x in row) for row in rows.tolist()]


def mean(values):
    return sum(values) / len(values)


def test_after_aligning_the_mean_norms_are_equal(network):
    old, new = (weight.detach().clone().clamp(min=0) for weight in network.classifier.weights)
    gamma = mean(norms(old)) / mean(norms(new))
    assert WA().after_task(network, [], {}) == {}
    aligned_old, aligned_new = (weight.detach() for weight in network.classifier.weights)
    assert mean(norms(aligned_new)) == pytest.approx(mean(norms(old)), rel=1e-5)
    torch.testing.assert_close(aligned_new, gamma * new)
    torch.testing.assert_close(aligned_old, old)


def test_aligning_multiplies_the_outputs_of_new_classes_and_no_others(network):
    images = torch.randn(20, 1, 8, 8)
    with torch.no_grad():
        before = network(images).logits
        WA().after_task(network, [], {})
        after = network(images).logits
    torch.testing.assert_close(after[:, :3], before[:, :3])
    ratio = after[:, 3:] / before[:, 3:]
    torch.testing.assert_close(ratio, torch.full_like(ratio, float(ratio[0, 0])))
    assert ratio[0, 0] < 0.5


def test_many_small_weights_are_as_long_as_few_large_ones(network):
    """Not so by Euclidean length: new classes with more, smaller weights would seem too short, and be raised."""
    old, new = network.classifier.weights
    with torch.no_grad():
        old.zero_()[:, :8] = 1.0
        new.zero_()[:, :32] = 0.45  # longer by 1.8, but shorter in Euclidean terms
        WA().after_task(network, [], {})
    assert norms(new) == pytest.approx([8.0, 8.0])
    assert norms(old) == pytest.approx([8.0, 8.0, 8.0])


def test_new_classes_are_never_raised(network):
    with torch.no_grad():
        network.classifier.weights[1].mul_(0.01)
    images = torch.randn(3, 1, 8, 8)
    before = network(images).logits
    WA().after_task(network, [], {})
    assert torch.equal(network(images).logits, before)


def test_the_first_task_has_nothing_to_align():
    network = new_network(WA(), 1)
    network.classifier.add_classes(3)
    network(torch.randn(2, 1, 8, 8))  # cuts the negative weights
    before = network.classifier.weights[0].detach().clone()
    WA().after_task(network, [], {})
    assert torch.equal(network.classifier.weights[0], before)


def test_the_classifier_is_a_product_with_weights_cut_at_zero(network):
    outputs = network(torch.randn(4, 1, 8, 8))
    features = outputs.maps[-1].relu().mean((2, 3)).tolist()
    rows = torch.cat(list(network.classifier.weights)).tolist()
    assert min(map(min, rows)) == 0
    for found, own in zip(outputs.logits.tolist(), features, strict=True):
        assert found == pytest.approx([sum(w * x for w, x in zip(row, own, strict=True)) for row in rows], abs=1e-5)


def test_a_weight_at_zero_can_grow_again(network):
    """It is set to zero, not held there: its gradient is that of an ordinary weight."""
    weight = network.classifier.weights[0]
    with torch.no_grad():
        weight.fill_(-1.0)
    network(torch.randn(4, 1, 8, 8)).logits[:, :3].sum().backward()
    assert not weight.any()
    assert (weight.grad > 0).any()


def test_new_weights_that_are_all_zero_stay_finite(network):
    with torch.no_grad():
        network.classifier.weights[1].fill_(-1.0)
    WA().after_task(network, [], {})
    assert network.classifier.weights[1].isfinite().all()


def test_the_two_terms_are_weighed_by_the_share_of_old_classes():
    torch.manual_seed(0)
    student, teacher = (Outputs([], torch.empty(0), torch.randn(4, n), torch.ones(())) for n in (8, 6))
    targets = torch.tensor([0, 3, 6, 7])
    terms = WA().phases(old=6, new=2, state={})[0].loss(student, teacher, targets)
    torch.testing.assert_close(terms["ce"], 2 / 8 * torch.nn.functional.cross_entropy(student.logits, targets))
    torch.testing.assert_close(terms["kd"], 6 / 8 * distillation(student.logits, teacher.logits, 2.0))
