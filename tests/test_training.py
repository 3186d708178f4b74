"""What training does to a network, against sums written by hand: rates, decay, clipping, batches, exemplars, means."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import reference
from podnet.cli import main
from podnet.data import load
from podnet.engine.learner import Learner
from podnet.engine.training import Epoch
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import METHODS, Method, Phase, PODNet, configured
from podnet.runs.config import resolve
from podnet.runs.evaluation import _measure
from podnet.runs.folder import Run
from podnet.runs.history import Past
from podnet.scenario.tasks import class_incremental

RATES = (0.1, 0.05, 0.2)
PUSHES = (10.0, 1.0, -20.0)  # gradients of the rows of three classes: two are clipped at 5
SEEN = []  # what each batch looked like to the loss


@dataclass(frozen=True, kw_only=True)
class Pushed(Method):
    """Its classifier begins at 1 and is pushed with the same gradient in every update."""

    name = "pushed"
    summary = "nothing is learned"

    def phases(self, old, new, state):
        def start(network):
            with torch.no_grad():
                network.classifier.weights[0].fill_(1)

        def loss(student, teacher, targets):
            SEEN.append((student.embedding.detach().clone(), targets.clone()))
            return {"nothing": 0 * student.logits.sum()}

        def penalty(network, student, targets):
            return {"push": (torch.tensor(PUSHES)[:, None] * network.classifier.weights[0]).sum()}

        def parameters(network):
            return [network.classifier.weights[0]]

        more = {"start": start, "penalty": penalty, "parameters": parameters, "clip": 5.0, "update_statistics": False}
        return [Phase("push", loss, len(RATES), RATES.__getitem__, **more)]


def pushed(images=24):
    """The rows of the classifier after each epoch; four updates an epoch."""
    SEEN.clear()
    digits = load("digits", None)
    task = class_incremental(digits, range(3), 3, 1, images_per_class=images)[0]
    learner = Learner(Pushed(batch_size=18, momentum=0.8, weight_decay=0.01), 1, digits.transform)
    found = []
    for record in learner.learn(task):
        if isinstance(record, Epoch):
            assert record.lr == RATES[record.epoch]
            found.append(learner.network.classifier.weights[0][:, 0].tolist())
    return found


def test_sgd_has_the_rate_of_the_epoch_momentum_decay_and_clipped_gradients():
    found = pushed()
    for row, push in enumerate((5.0, 1.0, -5.0)):
        weight, velocity = 1.0, 0.0
        for epoch, rate in enumerate(RATES):
            for _ in range(4):
                velocity = 0.8 * velocity + push + 0.01 * weight
                weight -= rate * velocity
            assert found[epoch][row] == pytest.approx(weight, rel=1e-5)


def test_every_epoch_has_all_images_in_another_order_and_augmented_anew():
    """The backbone rests, so what it makes of an image changes with the augmentation only."""
    pushed()
    epochs = [SEEN[start : start + 4] for start in (0, 4, 8)]
    targets = [torch.cat([batch[1] for batch in epoch]) for epoch in epochs]
    assert all(torch.equal(each.sort().values, targets[0].sort().values) for each in targets)
    assert not torch.equal(targets[0], targets[1])
    looks = [{tuple(row) for embedding, _ in epoch for row in embedding.tolist()} for epoch in epochs]
    assert len(looks[0] & looks[1]) < len(looks[0]) / 2
    before = [(embedding.clone(), labels) for embedding, labels in SEEN]
    pushed()
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(before, SEEN, strict=True))


@pytest.fixture(scope="module")
def after_two_tasks():
    """A learner of four classes whose mirror images count, and its tasks."""
    digits = load("digits", None)
    method = configured(PODNet, "digits", {"epochs": 1, "finetune_epochs": 1, "intensity": "shift"})
    learner = Learner(method, 1, replace(digits.transform, flip=True), ExemplarMemory(4))
    tasks = class_incremental(digits, range(4), 3, 1, images_per_class=20)
    for task in tasks:
        for _ in learner.learn(task):
            pass
    return learner, tasks


def test_the_exemplars_of_a_task_are_herded(after_two_tasks):
    learner, tasks = after_two_tasks
    new = tasks[1]
    features = [reference.unit(row) for row in learner.features(new.train_images).tolist()]
    own = learner.memory.images[learner.memory.targets == 3]
    assert torch.equal(own, new.train_images[reference.herd(features, 4)])


def test_class_means_are_of_exemplars_and_of_their_mirror_images(after_two_tasks):
    learner, _ = after_two_tasks
    images, targets = learner.memory.images, learner.memory.targets
    features, mirrored = (learner.features(each).tolist() for each in (images, images.flip(3)))
    expected = reference.class_means(features, targets.tolist(), mirrored)
    torch.testing.assert_close(learner.means, torch.tensor(expected), rtol=0, atol=1e-5)


def test_options_of_an_experiment_reach_the_learner(after_two_tasks):
    assert after_two_tasks[0].transform.intensity == "shift"
    digits = load("digits", None)
    for mirror in (True, False):
        assert resolve({"mirror": mirror}).learner(digits).transform.flip is mirror
    for synchronised in (True, False):
        assert resolve({"sync_batchnorm": synchronised}).learner(digits).compute.sync_batchnorm is synchronised


TERMS = {  # of the losses in a step
    "podnet": {"nca", "pod", "pod_flat"},
    "afc": {"nca", "discrepancy"},
    "cwd": {"nca", "pod", "pod_flat"},
    "ucir": {"ce", "less_forget", "ranking"},
    "icarl": {"bce"},
    "bic": {"ce", "distillation", "beta"},
    "wa": {"ce", "kd"},
    "lwf": {"new", "old"},
    "ssil": {"ss", "tkd"},
    "ewc": {"ce", "ewc"},
    "der": {"ce", "auxiliary"},
    "replay": {"ce"},
    "finetuning": {"ce"},
}
QUICK = {key: {"finetune_epochs": 1} for key in ("podnet", "afc", "cwd", "ucir")} | {"bic": {"bias_epochs": 1}}


@pytest.mark.parametrize("name", TERMS)
def test_a_step_has_every_term_of_the_method(name):
    """A loss that gets no teacher leaves its distillation out."""
    digits = load("digits", None)
    learner = Learner(
        configured(METHODS[name], "digits", {"epochs": 1} | QUICK.get(name, {})), 1, digits.transform, ExemplarMemory(4)
    )
    first, second = class_incremental(digits, range(4), 2, 2, images_per_class=20)
    for _ in learner.learn(first):
        pass
    steps = [record for record in learner.learn(second) if isinstance(record, Epoch)]
    assert {term for record in steps for term in record.losses} == TERMS[name]


def test_the_rates_of_podnet():
    (base,) = PODNet().phases(0, 50, {})
    step, tuning = PODNet().phases(50, 10, {})
    for phase in (base, step):  # the released code lags one epoch
        assert [phase.lr(epoch) for epoch in (0, 1)] == [0.1, 0.1]
        assert phase.lr(81) == pytest.approx(0.05)
        assert phase.lr(159) == pytest.approx(0.1 * (1 + math.cos(math.pi * 158 / 160)) / 2)
    assert PODNet(fidelity="paper").phases(0, 50, {})[0].lr(80) == pytest.approx(0.05)
    assert (tuning.epochs, tuning.lr(0), tuning.lr(19)) == (20, 0.05, 0.05)


def test_forgetting_is_from_the_best_and_transfer_from_the_first():
    past = Past(accuracies=(50.0, 60.0), first=(50.0, 40.0), best=(90.0, 40.0))
    ranked = np.array([[0], [1], [0], [2]])  # classes 0 and 1 right, 1 wrong, 2 right: one class a task
    found = _measure(ranked, np.array([0, 1, 1, 2]), 2, [0, 1, 2], past)
    assert found["accuracy_per_task"] == [100.0, 50.0, 100.0]
    assert found["forgetting"] == ((90 - 100) + (40 - 50)) / 2
    assert found["backward_transfer"] == ((100 - 50) + (50 - 40)) / 2
    assert found["learning_accuracy"] == pytest.approx((50 + 40 + 100) / 3)


def test_the_measures_of_a_run_by_counting(tmp_path):
    """From the predictions that it keeps, class by class; tasks of 3, 1 and 1 classes."""
    options = ["--classes", "5", "--base", "3", "--epochs", "2", "--images-per-class", "30", "--threads", "1"]
    assert main(["run", *options, "--method", "replay", "--output", str(tmp_path)]) == 0
    record = Run(tmp_path)
    lines = record.results()
    task_of = np.array([0, 0, 0, 1, 2])
    for inference in ("cnn", "nme"):
        rows = []
        for number, line in enumerate(lines):
            kept = load_file(record.predictions_file(number))
            right, targets = kept[inference] == kept["targets"], kept["targets"]
            rows.append([100 * right[task_of[targets] == task].mean() for task in range(number + 1)])
            old = targets < line["seen"] - len(line["new_classes"])
            assert line["accuracy"][inference] == pytest.approx(100 * right.mean())
            assert line["new_accuracy"][inference] == pytest.approx(100 * right[~old].mean())
            if number:
                assert line["old_accuracy"][inference] == pytest.approx(100 * right[old].mean())
        best = [max(rows[0][0], rows[1][0]), rows[1][1]]
        assert lines[-1]["forgetting"][inference] == pytest.approx(
            np.mean([b - r for b, r in zip(best, rows[2][:2], strict=True)])
        )
        moved = [rows[2][0] - rows[0][0], rows[2][1] - rows[1][1]]
        assert lines[-1]["backward_transfer"][inference] == pytest.approx(np.mean(moved))
        assert lines[-1]["learning_accuracy"][inference] == pytest.approx(
            np.mean([rows[task][task] for task in range(3)])
        )
        assert lines[-1]["accuracy_top5"][inference] == 100  # there are five classes
        assert lines[-1]["accuracy"][inference] < 100


OTHERS = {"distillation": "gap", "finetune_batchnorm": "moving", "adaptive_c": False, "adaptive_f": False}


@pytest.mark.parametrize("name", sorted(name for name, method in METHODS.items() if method.later))
def test_what_counts_later_changes_nothing_in_the_first_task(name):
    """Runs that differ only in these options share their first task."""
    digits = load("digits", None)
    task = class_incremental(digits, range(3), 3, 1, images_per_class=12)[0]

    def weights(**options):
        method = configured(METHODS[name], "digits", {"epochs": 1} | options)
        learner = Learner(method, 1, digits.transform, ExemplarMemory(4))
        for record in learner.learn(task):
            if isinstance(record, Epoch):
                break
        return method, learner.network.state_dict()

    usual, before = weights()
    changed = {}
    for option in usual.later:
        value = getattr(usual, option)
        changed[option] = OTHERS.get(option, value if isinstance(value, str) else not value if value is True else 2)
    _, after = weights(**changed)
    assert all(torch.equal(value, after[key]) for key, value in before.items())
