"""The closed forms against scikit-learn, against the paper's recursion, and against one task with all images."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier

from podnet.cli import main
from podnet.data import load
from podnet.engine.learner import Learner
from podnet.engine.training import Epoch
from podnet.errors import ConfigError
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import METHODS
from podnet.methods.acil import ACIL
from podnet.methods.base import phases_of
from podnet.methods.ncm import NCM
from podnet.methods.networks import network_from, new_network
from podnet.methods.ranpac import RIDGES, RanPAC
from podnet.nets.classifiers import LinearClassifier
from podnet.ridge import Sums, best_on_held_out, packed, solve, unpacked
from podnet.runs.folder import Run
from podnet.scenario.tasks import class_incremental

CLASSES = 6
QUICK = {"epochs": 2, "batch_size": 32, "expansion": 40}


@pytest.fixture
def points():
    """Features (N, 64) in clusters, with labels; classes have different numbers of them."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.repeat_interleave(torch.arange(CLASSES), torch.tensor([20, 9, 30, 14, 25, 17]))
    return torch.randn(CLASSES, 64, generator=draws)[labels] + torch.randn(len(labels), 64, generator=draws), labels


def after(method, points, tasks):
    """The network and the state after tasks of these labels, in this order; labels are renumbered as they come."""
    features, labels = points
    torch.manual_seed(3)
    network = new_network(method, 1)
    state, order = {}, [label for task in tasks for label in task]
    for task in tasks:
        method.grow(network, len(task), lambda: points, 0)
        own = torch.isin(labels, torch.tensor(task))
        renumbered = torch.tensor([order.index(label) for label in labels[own].tolist()])
        state = method.after_features(network, features[own], renumbered, state)
    return network, state, order


def lifted(network, features):
    """By hand, in float64."""
    return np.maximum(features.double().numpy() @ network.classifier.lift.double().numpy().T, 0)


SPLITS = [[[0, 1, 2, 3, 4, 5]], [[0, 1, 2], [3], [4], [5]], [[5, 2], [0], [4, 1, 3]], [[3], [1], [4], [0], [5], [2]]]


@pytest.mark.parametrize("tasks", SPLITS)
def test_any_tasks_give_the_ridge_regression_of_all_images(points, tasks):
    features, labels = points
    network, state, order = after(ACIL(expansion=40, gamma=0.5), points, tasks)
    targets = np.eye(CLASSES)[[order.index(label) for label in labels.tolist()]]
    theirs = Ridge(alpha=0.5, fit_intercept=False, solver="svd").fit(lifted(network, features), targets)
    np.testing.assert_allclose(network.classifier.solution.double().numpy(), theirs.coef_, atol=1e-7, rtol=1e-6)
    fresh = torch.randn(50, 64)
    scores = network.classifier(fresh)
    np.testing.assert_allclose(scores.numpy(), theirs.predict(lifted(network, fresh)), atol=1e-5)
    assert state["counts"].tolist() == [[20, 9, 30, 14, 25, 17][label] for label in order]


def test_the_labels_are_those_of_scikit_learns_ridge_classifier(points):
    features, labels = points
    network, _, _ = after(ACIL(expansion=40, gamma=0.5), points, [[0, 1, 2], [3, 4, 5]])
    theirs = RidgeClassifier(alpha=0.5, fit_intercept=False, solver="svd").fit(lifted(network, features), labels)
    fresh = torch.randn(200, 64)
    assert network.classifier(fresh).argmax(1).tolist() == theirs.predict(lifted(network, fresh)).tolist()


def test_the_sums_give_what_the_papers_recursion_gives(points):
    """Theorem 3.1: R and W updated task by task (equations 9 and 10), written with inverses."""
    features, labels = points
    tasks, gamma = [[0, 1, 2], [3, 4], [5]], 0.1
    network, _, _ = after(ACIL(expansion=40, gamma=gamma), points, tasks)
    inverse, weights = np.eye(40) / gamma, np.zeros((40, 0))
    for task in tasks:
        own = torch.isin(labels, torch.tensor(task))
        x, y = lifted(network, features[own]), np.eye(CLASSES)[labels[own]][:, task]
        inverse = inverse - inverse @ x.T @ np.linalg.inv(np.eye(len(x)) + x @ inverse @ x.T) @ x @ inverse
        weights = np.concatenate([weights - inverse @ x.T @ x @ weights, inverse @ x.T @ y], axis=1)
    np.testing.assert_allclose(network.classifier.solution.double().numpy(), weights.T, atol=1e-6)


def test_the_order_and_the_split_of_the_tasks_change_the_state_by_rounding_only(points):
    states = [after(ACIL(expansion=40), points, tasks)[1:] for tasks in SPLITS]
    (first, _), *others = states
    for state, order in others:
        torch.testing.assert_close(state["gram"], first["gram"], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(state["totals"], first["totals"][torch.tensor(order)], rtol=1e-12, atol=1e-12)


def test_a_packed_matrix_is_half_as_large_and_comes_back():
    matrix = torch.randn(7, 7).double()
    symmetric = matrix + matrix.t()
    assert len(packed(symmetric)) == 7 * 8 // 2
    assert torch.equal(unpacked(packed(symmetric), 7), symmetric)


def test_a_ridge_that_rounding_swallows_gets_a_sentence(points):
    with pytest.raises(ConfigError, match=r"with a ridge of 1e-30 the classifier of acil cannot be solved for; give"):
        after(ACIL(expansion=400, gamma=1e-30), points, [[0, 1]])
    with pytest.raises(ConfigError, match="gamma is 0"):
        ACIL(gamma=0)


def test_the_penalty_of_ranpac_is_the_papers_choice(points):
    """Solved by scikit-learn for each candidate; the largest that is as good as the best."""
    features, labels = points
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    x, y = features[mixed].relu().double(), labels[mixed]
    count, errors = int(0.8 * len(y)), {}
    for strength in RIDGES:
        model = Ridge(alpha=strength, fit_intercept=False, solver="svd")
        model.fit(x[:count].numpy(), np.eye(CLASSES)[y[:count]])
        errors[strength] = float(np.square(model.predict(x[count:].numpy()) - np.eye(CLASSES)[y[count:]]).mean())
    chosen = best_on_held_out(x, y, RIDGES, 0.2)
    assert errors[chosen] <= 1.01 * min(errors.values())
    assert all(errors[other] > 1.01 * min(errors.values()) for other in RIDGES if other > chosen)
    assert 1e-8 < chosen < 1e8


def test_ranpac_solves_with_the_penalty_it_chose(points):
    features, labels = points
    network, state, _ = after(RanPAC(expansion=40, backbone="resnet32"), points, [[0, 1, 2], [3, 4, 5]])
    chosen = float(state["strength"])
    assert chosen in RIDGES
    theirs = Ridge(alpha=chosen, fit_intercept=False, solver="svd").fit(
        lifted(network, features), np.eye(CLASSES)[labels]
    )
    np.testing.assert_allclose(network.classifier.solution.double().numpy(), theirs.coef_, atol=1e-7, rtol=1e-6)


def test_ranpac_learns_a_class_of_one_image(points):
    features, labels = points
    rest = labels != 5
    one = torch.cat([features[rest], features[~rest][:1]]), torch.cat([labels[rest], labels[~rest][:1]])
    network, state, _ = after(RanPAC(expansion=40, backbone="resnet32"), one, [[0, 1, 2, 3, 4], [5]])
    assert state["counts"].tolist()[-1] == 1
    assert network.classifier(features[~rest][:1]).argmax() == 5


@pytest.mark.parametrize("method", [ACIL(expansion=40), RanPAC(expansion=40, backbone="resnet32")])
def test_a_forgotten_class_leaves_the_others_as_they_were(method, points):
    """Each class's weights are a solution of their own, so removing one is exact for the others."""
    network, state, _ = after(method, points, [[0, 1, 2], [3], [4, 5]])
    before = network.classifier.solution.clone()
    kept = torch.tensor([0, 2, 3, 4, 5])
    network.classifier.remove_class(1)
    state = method.without_class(network, 1, state)
    assert torch.equal(network.classifier.solution, before[kept])
    sums = Sums(unpacked(state["gram"], 40), state["totals"], state["counts"])
    again = solve(sums, float(state["strength"])).t().float()
    torch.testing.assert_close(again, before[kept], rtol=1e-4, atol=1e-6)
    rebuilt = network_from(network.state_dict(), method, 1, network.classifier.sizes)
    assert torch.equal(rebuilt.classifier.solution, before[kept])


def digits_tasks(base=2, increment=2, classes=6):
    return class_incremental(load("digits", None), range(classes), base, increment, images_per_class=30)


def learner_of(method):
    return Learner(method, 1, load("digits", None).transform, ExemplarMemory(5))


def learned(method, tasks):
    learner = learner_of(method)
    for task in tasks:
        for _ in learner.learn(task):
            pass
    return learner


def test_the_first_task_trains_like_a_linear_layer_and_later_ones_do_not():
    learner = learner_of(ACIL(**QUICK))
    assert isinstance(learner.network.classifier, LinearClassifier)
    records = [record for record in learner.learn(digits_tasks()[0]) if isinstance(record, Epoch)]
    assert [record.phase for record in records] == ["train", "train"]
    backbone = {name: value.clone() for name, value in learner.network.backbone.state_dict().items()}
    lift = learner.network.classifier.lift.clone()
    assert [record for record in learner.learn(digits_tasks()[1]) if isinstance(record, Epoch)] == []
    assert torch.equal(lift, learner.network.classifier.lift)
    assert all(torch.equal(backbone[name], value) for name, value in learner.network.backbone.state_dict().items())


def test_the_base_phase_is_that_of_a_plain_classifier():
    """Before the first solution the random layer has no part in the outputs."""
    task = digits_tasks()[0]
    acil, plain = learner_of(ACIL(**QUICK)), learner_of(NCM(epochs=2, batch_size=32))
    plain.network.load_state_dict(
        {key: value for key, value in acil.network.state_dict().items() if key in plain.network.state_dict()}
    )
    losses = [[record.losses for record in each.learn(task) if isinstance(record, Epoch)] for each in (acil, plain)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("method", [NCM(epochs=2, batch_size=32), ACIL(**QUICK)])
def test_the_steps_of_a_run_can_be_one_step(method):
    """After the same base task: classes two by two, and the same classes at once."""
    by_two, at_once = (learned(method, digits_tasks(increment=increment)) for increment in (2, 4))
    test = digits_tasks()[2].test_images
    (inference,) = method.inferences
    one, other = (getattr(each.predict(test), inference) for each in (by_two, at_once))
    torch.testing.assert_close(one, other, atol=1e-4, rtol=0)


@pytest.mark.parametrize("method", [NCM(epochs=2, batch_size=32), ACIL(**QUICK)])
def test_a_fast_copy_of_the_backbone_is_never_an_old_one(method):
    """`predict` before, during and after training: the copy it makes must not outlive an update."""
    learner = learner_of(method)
    task = digits_tasks()[0]
    for record in learner.learn(task):
        if isinstance(record, Epoch):
            seen = learner.features(task.test_images)
    trained = learner.features(task.test_images)
    fresh = learner_of(method)
    fresh.restore(*learner.state())
    torch.testing.assert_close(trained, fresh.features(task.test_images))
    with torch.no_grad():
        plain = learner.network(learner.transform.normalise(task.test_images)).embedding
    torch.testing.assert_close(trained, plain, atol=1e-4, rtol=1e-4)
    assert seen.shape == trained.shape


def test_ncm_is_scikit_learns_nearest_neighbour_among_the_means():
    learner = learned(NCM(epochs=2, batch_size=32), digits_tasks())
    tasks = digits_tasks()
    images = torch.cat([task.train_images for task in tasks])
    labels = torch.cat([task.train_targets for task in tasks])
    unit = F.normalize(learner.features(images)).numpy()
    means = np.stack([unit[labels.numpy() == label].mean(0) for label in range(6)])
    theirs = KNeighborsClassifier(1).fit(means / np.linalg.norm(means, axis=1, keepdims=True), range(6))
    test = F.normalize(learner.features(tasks[2].test_images)).numpy()
    assert learner.predict(tasks[2].test_images).nme.argmax(1).tolist() == theirs.predict(test).tolist()
    learner.forget(1)
    assert learner.kept["totals"].shape == (5, 64)
    assert torch.equal(learner.method.class_means(learner.kept), learner.means)


@pytest.mark.parametrize("name", ["ncm", "acil", "ranpac"])
def test_a_stopped_run_resumes_to_the_same_state(name, tmp_path):
    """Stopped within the base task, and after it."""
    options = {"backbone": "resnet32", "weights": "none", "freeze": False, **QUICK}
    method = METHODS[name](**{key: value for key, value in options.items() if key != "expansion" or name != "ncm"})
    tasks = digits_tasks()
    whole = learned(method, tasks)
    resumed = learner_of(method)
    for task in tasks:
        for record in resumed.learn(task):
            if isinstance(record, Epoch) and record.epoch == 0:
                break
        tensors, meta = resumed.state()
        saved = {key: value.clone() for key, value in tensors.items()}, meta
        resumed = learner_of(method)
        resumed.restore(*saved)
        if resumed.progress is not None:
            for _ in resumed.learn(task):
                pass
    first, second = whole.state()[0], resumed.state()[0]
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_pretrained_network_has_no_base_phase():
    for method in (NCM(freeze=True), ACIL(freeze=True), RanPAC()):
        assert phases_of(method, 0, 10, {}, first=True) == []
        assert phases_of(method, 10, 5, {}, first=False) == []


def test_runs_and_their_report(tmp_path, capsys):
    """The nearest mean has no CNN: tables, curves and the page do without."""
    quick = ["--classes", "4", "--base", "2", "--images-per-class", "30", "--epochs", "2", "--threads", "1"]
    for name in ("ncm", "acil"):
        folder = tmp_path / name
        assert main(["run", "--method", name, *quick, "--output", str(folder)]) == 0
        found = [line["accuracy"] for line in Run(folder).results()]
        assert [line["cnn"] is None for line in found] == [name == "ncm"] * 3
        assert [line["nme"] is None for line in found] == [name == "acil"] * 3
        assert Run(folder).results()[-1]["memory"] == 0
    out = capsys.readouterr().out
    assert "no CNN: the nearest mean is the classifier." in out
    assert "no NME: nothing of single images or of their means is kept." in out
    assert main(["report", str(tmp_path / "ncm"), str(tmp_path / "acil"), "--output", str(tmp_path / "report")]) == 0
    assert main(["compare", str(tmp_path / "ncm"), str(tmp_path / "acil")]) == 0
