"""PODNet+: the first task is PODNet's, and later tasks only add to sums."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge as SklearnRidge

from podnet.cli import main
from podnet.data import load
from podnet.engine.learner import Learner
from podnet.engine.training import Epoch
from podnet.io.tensors import load_tensors
from podnet.methods import PODNet
from podnet.methods.networks import network_from, new_network
from podnet.methods.podnet_plus import PODNetPlus, pooled
from podnet.ridge import Sums
from podnet.runs.folder import Run
from podnet.scenario.tasks import class_incremental

QUICK = {"epochs": 2, "batch_size": 32, "expansion": 50}
PLAIN = {"epochs": 2, "batch_size": 32}


@pytest.fixture(scope="module")
def digits():
    """With mirror images allowed, so that they are averaged; the numbers do not matter here."""
    whole = load("digits", None)
    return replace(whole, transform=replace(whole.transform, flip=True))


def tasks_of(dataset, order, base, increment):
    return class_incremental(dataset, order, base, increment, images_per_class=40)


def taught(dataset, order=range(6), base=3, increment=1, **options):
    learner = Learner(PODNetPlus(**QUICK | options), 1, dataset.transform)
    tasks = tasks_of(dataset, order, base, increment)
    for task in tasks:
        for _ in learner.learn(task):
            pass
    return learner, tasks[-1]


def test_forgetting_a_class_leaves_its_scatter_but_not_its_mean():
    """λ is relative to the scatter around the centre, to which the mean of a class that is gone must not add."""
    features = torch.randn(30, 4, dtype=torch.float64) + 3
    labels = torch.arange(30) % 3
    state = PODNetPlus().without_class(None, 1, Sums.of(features, labels, 3).as_state(1.0))
    sums = Sums.kept_in(state, 4, torch.device("cpu"))
    within = torch.zeros(4, 4, dtype=torch.float64)
    for label in range(3):
        own = features[labels == label]
        for row in own:
            within += torch.outer(row - own.mean(0), row - own.mean(0))
    means = torch.stack([features[labels == label].mean(0) for label in (0, 2)])
    between = sum(10 * torch.outer(mean, mean) for mean in means)
    torch.testing.assert_close(sums.gram, within + between)


def test_the_maps_are_pooled_cell_by_cell():
    maps = [torch.randn(2, 3, 4, 4), torch.randn(2, 5, 2, 2)]
    found = pooled(maps, cells=2)
    wanted = []
    for image in range(2):
        parts = []
        for each, side in ((maps[0], 2), (maps[1], 1)):
            cells = [
                each[image, c, i * side : (i + 1) * side, j * side : (j + 1) * side].mean()
                for c in range(each.shape[1])
                for i in range(2)
                for j in range(2)
            ]
            parts.append(torch.stack(cells) / torch.stack(cells).norm())
        wanted.append(torch.cat(parts))
    torch.testing.assert_close(found, torch.stack(wanted))


def test_the_first_task_is_podnets_to_the_bit(digits):
    plus, plain = (Learner(m(**PLAIN), 1, digits.transform) for m in (PODNetPlus, PODNet))
    task = tasks_of(digits, range(4), 3, 1)[0]
    losses = [
        [record.losses["nca"] for record in learner.learn(task) if isinstance(record, Epoch)]
        for learner in (plus, plain)
    ]
    assert losses[0] == losses[1]
    ours, theirs = (learner.network.state_dict() for learner in (plus, plain))
    assert all(torch.equal(value, ours[name]) for name, value in theirs.items())


def test_it_starts_from_the_first_task_of_a_run_of_podnet(tmp_path):
    options = ["--classes", "5", "--base", "3", "--epochs", "2", "--images-per-class", "40", "--threads", "1"]
    assert main(["run", *options, "--finetune-epochs", "1", "--output", str(tmp_path / "podnet")]) == 0
    plus = ["run", "--method", "podnet-plus", "--expansion", "50", *options]
    assert main([*plus, "--output", str(tmp_path / "alone")]) == 0
    assert main([*plus, "--from-base", str(tmp_path / "podnet"), "--output", str(tmp_path / "based")]) == 0
    alone, based = (Run(tmp_path / name).results() for name in ("alone", "based"))
    assert [line["accuracy"] for line in alone] == [line["accuracy"] for line in based]
    states = [load_tensors(Run(tmp_path / name).checkpoint_files()[0])[0] for name in ("alone", "based")]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_steps_change_nothing_but_the_classifier_and_the_sums(digits):
    learner = Learner(PODNetPlus(**QUICK), 1, digits.transform)
    first, second = tasks_of(digits, range(4), 3, 1)
    for _ in learner.learn(first):
        pass
    before = {name: value.clone() for name, value in learner.network.backbone.state_dict().items()}
    assert not [record for record in learner.learn(second) if isinstance(record, Epoch)]
    assert all(torch.equal(value, before[name]) for name, value in learner.network.backbone.state_dict().items())
    assert len(learner.memory) == 0
    assert learner.kept["counts"].tolist() == [40] * 4


def test_one_class_a_step_equals_three_at_once(digits):
    """Up to the order of classes and rounding."""
    one, last = taught(digits)
    three, _ = taught(digits, increment=3)
    scores = [learner.predict(last.test_images).cnn for learner in (one, three)]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("expansion", [0, 50])
def test_the_classifier_is_scikit_learns_ridge(digits, expansion):
    """Classes have equally many images here; then the weights of classes do not matter."""
    learner, last = taught(digits, expansion=expansion)
    images, targets = [], []
    for task in tasks_of(digits, range(6), 3, 1):
        images.append(task.train_images)
        targets.append(task.train_targets)
    images, targets = torch.cat(images), torch.cat(targets)

    def described(of):
        inputs = learner.transform.normalise(of)
        network = learner.network.eval()
        with torch.no_grad():
            both = [network(each).embedding for each in (inputs, inputs.flip(3))]
            return F.normalize(network.classifier.lifted((both[0] + both[1]) / 2)).double().numpy()

    known, fresh = described(images), described(last.test_images)
    spread = ((known - known.mean(0)) ** 2).sum()
    alpha = float(learner.kept["strength"]) * spread  # ours is relative to the spread
    ridge = SklearnRidge(alpha=alpha).fit(known, np.eye(6)[targets.numpy()])
    found = learner.predict(last.test_images).cnn
    assert np.abs(ridge.predict(fresh) - found.numpy()).max() < 2e-3
    assert (ridge.predict(fresh).argmax(1) == found.argmax(1).numpy()).mean() > 0.995


def test_it_beats_podnet_on_digits_without_exemplars():
    digits = load("digits", None)
    accuracy = {}
    for method in (PODNetPlus(epochs=5, batch_size=64, expansion=500), PODNet(epochs=5, batch_size=64)):
        learner = Learner(method, 1, digits.transform)
        for task in class_incremental(digits, range(7), 4, 1):
            for _ in learner.learn(task):
                pass
        predicted = learner.predict(task.test_images).cnn.argmax(1)
        accuracy[method.name] = float((predicted == task.test_targets).float().mean())
    assert accuracy["podnet-plus"] > 0.95
    assert accuracy["podnet-plus"] > accuracy["podnet"]


@pytest.mark.parametrize("sizes", [[3], [3, 2, 1]])
def test_a_saved_network_is_made_again(sizes):
    method = PODNetPlus()
    network = new_network(method, 3)
    for size in sizes:
        method.grow(network, size, None, 0)
    dim = network.classifier.linear.dim
    network.classifier.linear.assign(torch.randn(dim, sum(sizes)), torch.randn(sum(sizes)))
    network.classifier.solved.fill_(True)
    again = network_from(network.state_dict(), method, 3, network.classifier.sizes)
    images = torch.randn(4, 3, 16, 16)
    network.eval(), again.eval()
    assert torch.equal(network(images).similarities, again(images).similarities)


def test_a_network_whose_first_classes_are_all_forgotten_is_made_again():
    method = PODNetPlus()
    network = new_network(method, 3)
    for size in (2, 2, 1):
        method.grow(network, size, None, 0)
    network.classifier.linear.assign(torch.randn(network.classifier.linear.dim, 5), torch.randn(5))
    network.classifier.solved.fill_(True)
    network.classifier.remove_class(0)
    network.classifier.remove_class(0)
    again = network_from(network.state_dict(), method, 3, network.classifier.sizes)
    images = torch.randn(4, 3, 16, 16)
    network.eval(), again.eval()
    assert torch.equal(network(images).similarities, again(images).similarities)


def test_forgetting_a_class_leaves_the_others(digits):
    learner, last = taught(digits)
    before = learner.predict(last.test_images).cnn
    learner.network.classifier.remove_class(1)
    after = learner.predict(last.test_images).cnn
    kept = [0, 2, 3, 4, 5]
    torch.testing.assert_close(after, before[:, kept])


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
def test_a_network_that_takes_only_its_own_size_has_maps_too():
    network = new_network(PODNetPlus(backbone="timm:vit_tiny_patch16_224"), 3)
    assert network.classifier.lift.shape == (2000, 2 * 192 * 4)  # two maps of 192 channels, pooled to 2 x 2
