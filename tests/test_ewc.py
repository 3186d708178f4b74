"""EWC: its Fisher information against single images, its penalty against a loop, and what the state holds."""

import copy

import pytest
import torch

from podnet.io.tensors import load_tensors, save_tensors
from podnet.methods.ewc import EWC, fisher_diagonal
from podnet.methods.networks import new_network

IMAGES, TARGETS = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 2, 0])
BATCHES = [(IMAGES[:3], TARGETS[:3]), (IMAGES[3:], TARGETS[3:])]


@pytest.fixture
def network():
    torch.manual_seed(0)
    network = new_network(EWC(), 1)
    network.classifier.add_classes(3)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight)  # blocks start as their shortcut: then few parameters matter
    return network.eval()


def test_fisher_is_the_mean_of_the_squared_gradients_of_single_images(network):
    found = fisher_diagonal(network, BATCHES)
    expected = {name: torch.zeros_like(weight) for name, weight in network.named_parameters()}
    for image, target in zip(IMAGES, TARGETS, strict=True):
        network.zero_grad()
        network(image[None]).logits.log_softmax(1)[0, target].backward()
        for name, weight in network.named_parameters():
            expected[name] += weight.grad.square() / len(IMAGES)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    assert sum(float(value.sum()) for value in found.values()) > 0


def penalty_of(method, state):
    return method.phases(3, 2, state)[0].penalty


def moved(network, step):
    torch.manual_seed(1)
    there = copy.deepcopy(network)
    with torch.no_grad():
        for weight in there.parameters():
            weight += step * torch.randn_like(weight)
    return there


def test_the_penalty_is_the_papers_sum_over_parameters(network):
    method = EWC(strength=7.0, lr=1e-3)
    state = method.after_task(network, BATCHES, {})
    there = moved(network, 0.1)
    wanted = 0.0
    for (name, now), (_, before) in zip(there.named_parameters(), network.named_parameters(), strict=True):
        for fisher, a, b in zip(*(x.flatten().tolist() for x in (state[f"fisher.{name}"], now, before)), strict=True):
            wanted += 7 / 2 * fisher * (a - b) ** 2
    assert penalty_of(method, state)(there, None, None)["ewc"].item() == pytest.approx(wanted, rel=1e-4)


def test_at_the_anchor_the_penalty_and_its_gradient_are_zero(network):
    method = EWC()
    penalty = penalty_of(method, method.after_task(network, BATCHES, {}))(network, None, None)["ewc"]
    gradients = torch.autograd.grad(penalty, list(network.parameters()))
    assert penalty == 0
    assert all(not gradient.any() for gradient in gradients)


def test_new_classes_are_free(network):
    method = EWC(lr=1e-3)
    state = method.after_task(network, BATCHES, {})
    network.classifier.add_classes(2)
    penalty = penalty_of(method, state)(moved(network, 0.1), None, None)["ewc"]
    assert penalty > 0
    with torch.no_grad():
        network.classifier.weights[-1].fill_(99.0)
    assert penalty_of(method, state)(network, None, None)["ewc"] == 0
    later = method.after_task(network, BATCHES, state)
    assert later["fisher.classifier.weights.1"].shape == (2, 65)


def test_no_pull_is_so_strong_that_a_step_overshoots(network):
    """A step of gradient descent on the penalty alone moves no parameter beyond its anchor, however large λ is."""
    method = EWC(strength=1e12, lr=0.1)
    penalty = penalty_of(method, method.after_task(network, BATCHES, {}))
    there = moved(network, 0.1)
    gradients = torch.autograd.grad(penalty(there, None, None)["ewc"], list(there.parameters()))
    for weight, gradient, anchor in zip(there.parameters(), gradients, network.parameters(), strict=True):
        before, after = weight - anchor, weight - 0.1 * gradient - anchor
        assert (after * before.sign() >= -1e-6).all()
        assert (after.abs() <= before.abs() + 1e-6).all()


def test_tasks_add_up_and_the_anchor_is_the_newest(network):
    method = EWC(decay=0.5)
    first = method.after_task(network, BATCHES, {})
    there = moved(network, 0.1)
    second = method.after_task(there, BATCHES[:1], first)
    own = fisher_diagonal(there, BATCHES[:1])
    for name, weight in there.named_parameters():
        torch.testing.assert_close(second[f"fisher.{name}"], 0.5 * first[f"fisher.{name}"] + own[name])
        assert torch.equal(second[f"anchor.{name}"], weight)
    assert second.keys() == first.keys(), "the state does not grow"


def test_a_class_is_forgotten_alike_before_and_after_a_file(network, tmp_path):
    """A file has its tensors by name, and so the growth 10 before the growth 2."""
    method = EWC()
    for _ in range(10):
        network.classifier.add_classes(1)
    state = method.after_task(network, BATCHES, {})
    save_tensors(tmp_path / "state", state, {})
    read, _ = load_tensors(tmp_path / "state")
    network.classifier.remove_class(3)
    kept, again = (method.without_class(network, 3, each) for each in (state, read))
    assert kept.keys() == again.keys()
    for name, value in kept.items():
        assert torch.equal(value, again[name]), name
    for name, weight in network.named_parameters():
        assert torch.equal(kept[f"anchor.{name}"], weight), name
