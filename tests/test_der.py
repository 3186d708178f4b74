"""DER: losses against loops, branches that stay as they were, networks that are made again, runs that go on."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from podnet.data import load
from podnet.engine.learner import Learner
from podnet.engine.training import Epoch
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods.base import phases_of
from podnet.methods.der import DER
from podnet.methods.networks import network_from, new_network
from podnet.nets.backbones import Backbone
from podnet.nets.branches import Branches
from podnet.nets.network import Outputs, frozen_copy
from podnet.scenario.tasks import class_incremental

QUICK = DER(epochs=2, classifier_epochs=2, batch_size=32, lr=0.05, warmup_epochs=1)


def digit_tasks():
    return class_incremental(load("digits", None), range(5), 3, 1, images_per_class=30)


def learner_of(method=QUICK):
    return Learner(method, 1, load("digits", None).transform, ExemplarMemory(5))


def grown(*sizes, method=QUICK):
    """A network in evaluation mode to which classes were added in groups of these sizes."""
    torch.manual_seed(3)
    network = new_network(method, 1)
    for size in sizes:
        method.grow(network, size, None, 0)
    with torch.no_grad():  # or new blocks would be their shortcuts
        for parameter in network.backbone.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return network.eval()


def copied(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def states():
    """The state after every epoch and every task of a run of three tasks, by (task, phase, epoch)."""
    learner, found = learner_of(), {}
    for task in digit_tasks():
        for record in learner.learn(task):
            if isinstance(record, Epoch):
                tensors, meta = learner.state()
                found[task.index, record.phase, record.epoch] = copied(tensors), copy.deepcopy(meta)
        tensors, meta = learner.state()
        found[task.index, "end", 0] = copied(tensors), copy.deepcopy(meta)
    return found


# ---- losses -------------------------------------------------------------------------------------------------------


def cross_entropy(logits, targets):
    """By its definition, one image after the other."""
    total = 0.0
    for row, target in zip(logits.tolist(), targets, strict=True):
        total -= row[target] - math.log(sum(math.exp(each) for each in row))
    return total / len(targets)


def test_the_auxiliary_loss_is_that_of_new_classes_and_one_for_all_old_ones():
    network = grown(3, 2, 2)
    images, targets = torch.randn(6, 1, 8, 8), torch.tensor([0, 5, 4, 6, 2, 5])
    train = replace(QUICK, lambda_a=0.5).phases(5, 2, {})[0]
    student = network(images)
    newest = network.backbone.branches[2](images)[1].tolist()  # (6, 64)
    weights = network.classifier.auxiliary.tolist()  # (1 + 2, 64)
    logits = [[sum(f * w for f, w in zip(x, row, strict=True)) for row in weights] for x in newest]
    places = [0 if target < 5 else int(target) - 5 + 1 for target in targets]
    found = train.penalty(network, student, targets)
    assert found["auxiliary"].item() == pytest.approx(0.5 * cross_entropy(torch.tensor(logits), places), rel=1e-5)
    assert train.loss(student, None, targets)["ce"].item() == pytest.approx(
        cross_entropy(student.logits, targets.tolist()), rel=1e-5
    )


def test_the_classifier_is_trained_again_with_a_temperature():
    logits = torch.randn(4, 6)
    student = Outputs([], torch.zeros(4, 2), logits, torch.tensor(1.0))
    classifier = QUICK.phases(5, 1, {})[1]
    expected = cross_entropy(logits / 5, [0, 3, 5, 5])
    assert classifier.loss(student, None, torch.tensor([0, 3, 5, 5]))["ce"].item() == pytest.approx(expected, rel=1e-5)


def test_the_logits_are_a_product_with_the_features_of_all_branches():
    network = grown(3, 2)
    images = torch.randn(4, 1, 8, 8)
    features = torch.cat([branch(images)[1] for branch in network.backbone.branches], dim=1)
    outputs = network(images)
    torch.testing.assert_close(outputs.embedding, features)
    torch.testing.assert_close(outputs.logits, features @ torch.cat(list(network.classifier.weights)).T)
    assert outputs.logits.shape == (4, 5)
    assert torch.equal(outputs.maps[-1], network.backbone.branches[1](images)[0][-1]), "maps of the newest branch"


def test_the_authors_schedule():
    train, classifier = phases_of(DER(), 50, 10, {}, first=False)
    rates = {0: 0.01, 4: 0.05, 9: 0.1, 109: 0.1, 110: 0.01, 129: 0.01, 130: 0.001, 169: 0.001}
    assert [train.lr(epoch) for epoch in rates] == pytest.approx(list(rates.values()))
    assert [classifier.lr(epoch) for epoch in (0, 14, 15, 29)] == pytest.approx([0.1, 0.1, 0.01, 0.01])
    assert len(phases_of(DER(), 0, 10, {}, first=True)) == 1
    assert len(phases_of(DER(classifier_epochs=0), 50, 10, {}, first=False)) == 1


def test_fewer_epochs_have_the_same_schedule_in_a_shorter_time():
    """With 14 epochs a warm-up of 9 would end where the rate is cut: no epoch would have the full one."""
    train = phases_of(DER(step_epochs=17), 50, 10, {}, first=False)[0]
    assert [train.lr(epoch) for epoch in (0, 1, 10, 11, 12, 13)] == pytest.approx([0.05, 0.1, 0.1, 0.01, 0.01, 0.001])
    for epochs in range(5, 170):
        train = phases_of(DER(epochs=epochs), 0, 10, {}, first=True)[0]
        assert sum(train.lr(epoch) == 0.1 for epoch in range(epochs)) >= 0.5 * epochs


# ---- growing ------------------------------------------------------------------------------------------------------


def test_a_new_branch_starts_as_the_newest_and_old_weights_stay_beside_random_ones():
    network = grown(3, 2)
    before = copied(network.state_dict())
    QUICK.grow(network, 4, None, 0)
    after = network.state_dict()
    second = {name for name in before if name.startswith("backbone.branches.1.")}
    assert second
    for name in second:
        assert torch.equal(after[name.replace("branches.1", "branches.2")], before[name])
    for group, rows in enumerate((3, 2)):
        weight, old = (state[f"classifier.weights.{group}"] for state in (after, before))
        assert weight.shape == (rows, 3 * 64)
        assert torch.equal(weight[:, : 2 * 64], old)
        assert 0.02 < weight[:, 2 * 64 :].std() < 1 / math.sqrt(3 * 64)
    assert after["classifier.weights.2"].shape == (4, 3 * 64)
    assert after["classifier.auxiliary"].shape == (1 + 4, 64)
    assert network.backbone.dim == network.classifier.dim == 3 * 64


def test_earlier_branches_stay_to_the_bit_and_the_newest_learns(states):
    ends = [below("network.backbone.", states[task, "end", 0][0]) for task in range(3)]
    for task in (1, 2):
        kept = {name: ends[task][name] for name in ends[task - 1]}
        assert equal(kept, ends[task - 1]), "weights, BatchNorm's statistics and its counter"
        newest, previous = (below(f"branches.{branch}.", ends[task]) for branch in (task, task - 1))
        changed = [name for name in newest if not torch.equal(newest[name], previous[name])]
        assert len(changed) > 0.9 * len(newest)
    sizes = [sum(tensor.numel() for tensor in end.values()) for end in ends]
    assert sizes[1] == 2 * sizes[0]
    assert sizes[2] == 3 * sizes[0]


def below(prefix, tensors):
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def test_only_the_newest_branch_is_ever_in_training_mode():
    network = grown(2, 1, 1).train()
    modes = [{module.training for module in branch.modules()} for branch in network.backbone.branches]
    assert modes == [{False}, {False}, {True}]
    assert not any(module.training for module in network.eval().modules())


def test_the_last_phase_begins_with_random_weights_and_leaves_the_features(states):
    trained = below("network.", states[1, "train", 1][0])
    first, last = (below("network.", states[1, "classifier", epoch][0]) for epoch in (0, 1))
    heads = {f"classifier.weights.{group}" for group in (0, 1)}
    assert all(torch.equal(trained[name], last[name]) for name in trained if name not in heads)
    for name in heads:
        assert not torch.equal(first[name], last[name])
        similar = torch.corrcoef(torch.stack([trained[name].flatten(), last[name].flatten()]))[0, 1]
        assert similar < 0.9, "two epochs from another start"


# ---- made again, resumed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(), (4,), (3, 1), (3, 2, 1)])
def test_a_saved_network_is_made_again(sizes):
    network = grown(*sizes)
    tensors = network.state_dict()
    again = network_from(tensors, QUICK, 1, sizes).eval()
    assert equal(again.state_dict(), dict(tensors))
    if sizes:
        images = torch.randn(3, 1, 8, 8)
        assert torch.equal(again(images).logits, network(images).logits)


@pytest.mark.parametrize("place", [(1, "train", 0), (1, "train", 1), (2, "train", 0), (2, "classifier", 0)])
def test_a_run_goes_on_from_any_epoch_to_the_same_bits(states, place):
    tensors, meta = states[place]
    resumed = learner_of()
    resumed.restore(copied(tensors), meta)
    for task in list(digit_tasks())[place[0] :]:
        list(resumed.learn(task))
    assert equal(resumed.state()[0], states[2, "end", 0][0])


def test_forgotten_classes_leave_a_network_that_can_be_made_again(states):
    learner = learner_of()
    learner.restore(copied(states[2, "end", 0][0]), states[2, "end", 0][1])
    images = digit_tasks()[2].test_images
    before = learner.predict(images).cnn
    for label in (4, 1):  # the only class of its growth, and one of three
        learner.forget(label)
    torch.testing.assert_close(learner.predict(images).cnn, before[:, [0, 2, 3]])
    again = learner_of()
    again.restore(*learner.state())
    assert torch.equal(again.predict(images).cnn, learner.predict(images).cnn)


# ---- the other forms of a network ---------------------------------------------------------------------------------


def test_a_frozen_copy_answers_alike():
    network = grown(3, 2)
    images = torch.randn(5, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(frozen_copy(network)(images).logits, network(images).logits, rtol=1e-4, atol=1e-5)


class Mean(Backbone):
    """The smallest backbone: less to compile."""

    channels, dim = 1, 1

    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, images):
        return [images], self.factor * images.mean((2, 3))


def test_only_the_newest_branch_is_compiled_and_only_when_called():
    runs = []

    def backend(graph, inputs):
        def counted(*given):
            runs.append(len(given))
            return graph.forward(*given)

        return counted

    backbone, images = Branches(Mean()), torch.randn(4, 1, 8, 8)
    backbone.add()
    backbone.compile(backend=backend, dynamic=False)
    expected = backbone.forward(images)
    assert not runs
    found = backbone(images)
    assert len(runs) == 1
    torch.testing.assert_close(found[1], expected[1])
    assert torch.equal(backbone.branches[0](images)[1], expected[1][:, :1])
    assert len(runs) == 1
