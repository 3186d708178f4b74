"""A learner through its tasks: what it may see, what it keeps, what it trains."""

import copy
import json
from dataclasses import replace

import pytest
import torch

from podnet.data import load
from podnet.engine.learner import Learner
from podnet.engine.training import Epoch, make_optimizer
from podnet.errors import ConfigError, PodnetError
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import METHODS, PODNet, Replay, configured
from podnet.methods.phases import balanced
from podnet.methods.wa import PositiveClassifier
from podnet.nets.classifiers import BiasCorrectedClassifier, LinearClassifier
from podnet.scenario.orders import class_order
from podnet.scenario.tasks import class_incremental

FIVE_EACH = ExemplarMemory(5)
QUICK = {key: {"finetune_epochs": 1} for key in ("podnet", "afc", "cwd", "ucir")} | {"bic": {"bias_epochs": 2}}
QUICK |= {key: {"expansion": 50} for key in ("acil", "ranpac", "podnet-plus")}


@pytest.fixture(scope="module")
def digits():
    """The first 32 training and 10 test images of each digit: several updates an epoch, and quick."""
    whole = load("digits", None)
    train, test = (
        torch.cat([(targets == digit).nonzero().flatten()[:count] for digit in range(10)])
        for targets, count in ((whole.train_targets, 32), (whole.test_targets, 10))
    )
    return replace(
        whole,
        train_images=whole.train_images[train],
        train_targets=whole.train_targets[train],
        test_images=whole.test_images[test],
        test_targets=whole.test_targets[test],
    )


def make_learner(dataset, method="podnet", memory=FIVE_EACH, **options):
    chosen = configured(METHODS[method], "digits", {"epochs": 1, "batch_size": 24} | QUICK.get(method, {}) | options)
    return Learner(chosen, 1, dataset.transform, memory)


def make_tasks(dataset, sizes=(3, 1, 1), **options):
    order = class_order("natural", dataset, 1, sum(sizes))
    return class_incremental(dataset, order, sizes[0], sizes[1], **options)


def learn(learner, task):
    return [record for record in learner.learn(task) if isinstance(record, Epoch)]


class GuardedImages:
    """Images that refuse to be read again once their class is locked."""

    def __init__(self, images, targets):
        self.images, self.targets, self.locked = images, targets, set()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, indices):
        read = set(self.targets[indices].unique().tolist())
        assert not read & self.locked, f"training images of old classes {read & self.locked} were read again"
        return self.images[indices]


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"joint"}))
def test_old_training_images_are_never_read_again(method, digits):
    guard = GuardedImages(digits.train_images, digits.train_targets)
    tasks = make_tasks(replace(digits, train_images=guard))
    learner = make_learner(digits, method)
    for task in tasks:
        learn(learner, task)
        assert set(task.train_targets.tolist()) == set(range(task.old, task.seen))
        guard.locked |= set(range(task.seen))  # natural order: labels are class numbers
        learner.predict(task.test_images)
    with pytest.raises(AssertionError, match="read again"):
        tasks[0]


def test_a_task_holds_no_way_back_to_the_dataset(digits):
    task = make_tasks(digits)[1]
    own = (digits.train_targets == 3).sum()
    assert task.train_images.untyped_storage().nbytes() == own * 64
    assert len(task.train_images) == own


@pytest.mark.parametrize("memory", [ExemplarMemory(per_class=7), ExemplarMemory(per_class=None, total=22)])
def test_the_memory_holds_its_budget_exactly_after_every_task(memory, digits):
    learner = make_learner(digits, "icarl", memory)
    for task in make_tasks(digits):
        learn(learner, task)
        counts = torch.bincount(learner.memory.targets)
        quota = 7 if memory.per_class else 22 // task.seen
        assert counts.tolist() == [quota] * task.seen


def test_exemplars_are_images_of_their_class(digits):
    learner = make_learner(digits, "icarl")
    for task in make_tasks(digits):
        learn(learner, task)
    for image, label in zip(learner.memory.images, learner.memory.targets, strict=True):
        own = digits.train_images[digits.train_targets == label]
        assert (own == image).flatten(1).all(1).any()


def test_the_fine_tuning_with_batchnorm_fixed_moves_proxies_and_nothing_else(digits):
    plain, tuned = (make_learner(digits, finetune_epochs=n, finetune_batchnorm="fixed") for n in (0, 3))
    for task in list(make_tasks(digits))[:2]:
        learn(plain, task)
        learn(tuned, task)
    one, other = plain.network.state_dict(), tuned.network.state_dict()
    changed = {name for name in one if not torch.equal(one[name], other[name])}
    assert changed == {"classifier.weights.0", "classifier.weights.1"}
    images = digits.test_images[:50]
    assert torch.equal(plain.predict(images).nme, tuned.predict(images).nme)


def test_a_penalty_is_part_of_what_is_minimised(digits):
    """BiC's on β: the larger it is, the smaller the offset that the correction learns."""
    offsets = []
    for penalty in (0.0, 10.0):
        learner = make_learner(digits, "bic", bias_epochs=20, bias_penalty=penalty)
        for task in list(make_tasks(digits))[:2]:
            learn(learner, task)
        offsets.append(abs(learner.network.classifier.corrections[-1][1].item()))
    assert offsets[1] < 0.5 * offsets[0]


def test_the_fine_tuning_of_the_released_code_moves_batchnorm_statistics(digits):
    plain, tuned = (make_learner(digits, finetune_epochs=n) for n in (0, 1))
    for task in list(make_tasks(digits))[:2]:
        learn(plain, task)
        learn(tuned, task)
    one, other = plain.network.state_dict(), tuned.network.state_dict()
    changed = {name.rsplit(".", 1)[1] for name in one if not torch.equal(one[name], other[name])}
    assert changed >= {"running_mean", "running_var"}
    assert not {"scale", "bias"} & changed


@pytest.mark.parametrize("method", ["podnet", "ucir"])
def test_old_proxies_stay_put_in_the_main_phase(method, digits):
    learner = make_learner(digits, method, finetune_epochs=0)
    tasks = list(make_tasks(digits))
    learn(learner, tasks[0])
    before = learner.network.classifier.weights[0].detach().clone()
    learn(learner, tasks[1])
    assert torch.equal(before, learner.network.classifier.weights[0])
    assert learner.network.classifier.sizes == [3, 1]


@pytest.mark.parametrize("restored", [False, True])
def test_a_learner_in_the_middle_of_a_task_refuses_another_and_goes_on_with_it(restored, digits):
    learner = make_learner(digits, epochs=2)
    task_0, task_1, task_2 = make_tasks(digits)
    learn(learner, task_0)
    records = learner.learn(task_1)
    next(record for record in records if isinstance(record, Epoch))
    records.close()
    if restored:
        tensors, meta = learner.state()
        learner = make_learner(digits, epochs=2)
        learner.restore(tensors, json.loads(json.dumps(meta)))
    fewer = replace(task_1, train_images=task_1.train_images[:20], train_targets=task_1.train_targets[:20])
    for other in (task_0, task_2, fewer):
        with pytest.raises(PodnetError, match=r"in the middle of task 1 \('3', 32 images\) and cannot start task"):
            learn(learner, other)
    assert [(record.phase, record.epoch) for record in learn(learner, task_1)] == [("train", 1), ("finetune", 0)]
    assert learner.class_names == ["0", "1", "2", "3"]


def test_the_fine_tuning_set_is_balanced(digits):
    learner = make_learner(digits, memory=ExemplarMemory(6))
    task_0, task_1, _ = make_tasks(digits)
    learn(learner, task_0)
    for record in learner.learn(task_1):
        if record.phase == "finetune":
            break
    _, pool = learner._pool(task_1)
    chosen = pool.targets[learner.progress.chosen]
    assert torch.bincount(chosen).tolist() == [6, 6, 6, 6]


def test_bias_correction_trains_on_images_no_main_phase_ever_saw(digits):
    learner = make_learner(digits, "bic", memory=ExemplarMemory(20))
    trained_on, validated_on = set(), set()
    for task in make_tasks(digits):
        images, _ = learner._pool(task)
        for record in learner.learn(task):
            used = {image.numpy().tobytes() for image in images[learner.progress.chosen]}
            (trained_on if record.phase == "train" else validated_on).update(used)
            if record.phase == "bias":
                assert len(learner.progress.chosen) == 2 * task.seen  # a tenth of 20 exemplars of each class
    assert not trained_on & validated_on
    assert torch.bincount(learner.memory.targets).tolist() == [20] * 5


def test_only_the_newest_classes_are_bias_corrected(digits):
    learner = make_learner(digits, "bic", memory=ExemplarMemory(20))
    for task in make_tasks(digits):
        learn(learner, task)
    *old, newest = [correction.tolist() for correction in learner.network.classifier.corrections]
    assert old == [[1.0, 0.0]] * 2
    assert newest != [1.0, 0.0]


def test_joint_training_starts_anew_on_all_classes(digits):
    learner = make_learner(digits, "joint")
    tasks = make_tasks(digits, cumulative=True)
    learn(learner, tasks[0])
    before = learner.network.backbone
    learn(learner, tasks[1])
    assert learner.network.backbone is not before
    assert learner.network.classifier.sizes == [4]
    assert set(tasks[1].train_targets.tolist()) == {0, 1, 2, 3}
    assert len(learner.memory) == 0


@pytest.mark.parametrize(
    "distillation", ["gradcam", "perceptual_style", "pixels", "channels", "gap", "width", "height"]
)
def test_every_distillation_of_the_ablation_trains(distillation, digits):
    learner = make_learner(digits, distillation=distillation)
    for task in list(make_tasks(digits))[:2]:
        epochs = learn(learner, task)
    assert epochs[0].losses["pod"] > 0


def test_distillation_keeps_the_embedding_closer_to_the_old_one():
    """On all images; the first task, where there is nothing to distil, is learned once for both."""
    digits = load("digits", None)
    task_0, task_1, _ = make_tasks(digits)
    first = make_learner(digits, epochs=20, batch_size=64, finetune_epochs=0)  # in 6 the rate does not anneal enough
    learn(first, task_0)
    before = torch.nn.functional.normalize(first.features(task_0.test_images))
    drift = {}
    for strength in (0.0, 3.0):
        learner = copy.deepcopy(first)
        learner.method = replace(first.method, lambda_c=strength, lambda_f=strength)
        learn(learner, task_1)
        after = torch.nn.functional.normalize(learner.features(task_0.test_images))
        drift[strength] = float((before - after).norm(dim=1).mean())
    assert drift[3.0] < drift[0.0]


def test_an_update_that_float16_skips_leaves_no_trace():
    weight = torch.nn.Parameter(torch.zeros(64, 16, 3, 3))
    phase = replace(PODNet().phases(0, 2, {})[0], parameters=lambda _: [weight], lr=lambda epoch: 0.1)
    optimizer = make_optimizer(torch.nn.ParameterList([weight]), phase, PODNet(weight_decay=0.0))
    scaler = torch.amp.GradScaler("cpu")
    for factor in (float("inf"), 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    # By hand: the first is skipped, then -0.1 * 1 and -0.1 * (0.9 + 1).
    torch.testing.assert_close(weight.detach(), torch.full_like(weight, -0.29))


def test_tasks_out_of_order_are_refused(digits):
    learner = make_learner(digits)
    with pytest.raises(ValueError, match="expects 3 known classes, but this learner knows 0"):
        learn(learner, make_tasks(digits)[1])


def test_training_that_diverges_says_so(digits):
    learner = make_learner(digits, "replay", lr=1e30, epochs=3)
    with pytest.raises(PodnetError, match="diverged"):
        learn(learner, make_tasks(digits)[0])


def test_learning_does_not_touch_the_global_generator(digits):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    learn(make_learner(digits, "icarl"), make_tasks(digits)[0])
    assert torch.equal(torch.rand(3), wanted)


def test_results_depend_on_the_seed_alone(digits):
    states = []
    for seed in (1, 1, 2):
        method = configured(PODNet, "digits", {"epochs": 1, "finetune_epochs": 1})
        learner = Learner(method, 1, digits.transform, ExemplarMemory(5), seed=seed)
        torch.rand(len(states))  # what ran before must not matter
        learn(learner, make_tasks(digits)[0])
        states.append(learner.network.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], states[2][name]) for name in states[0])


def test_a_memory_without_room_for_every_class_is_refused_before_anything_changes(digits):
    learner = Learner(Replay(epochs=1), 1, digits.transform, ExemplarMemory(None, 3))
    first, second, *_ = make_tasks(digits, (3, 1))
    learn(learner, first)
    before, _ = learner.state()
    with pytest.raises(ConfigError, match="3 images is too small for 4 classes"):
        learn(learner, second)
    after, _ = learner.state()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_phase_without_images_does_not_start(digits):
    """As a second phase on a balanced set, where no exemplars are kept; it may begin by resetting something."""

    class Twice(Replay):
        def phases(self, old, new, state):
            [train] = super().phases(old, new, state)
            return [train, replace(train, name="again", images=balanced, start=lambda network: pytest.fail("started"))]

    learner = Learner(Twice(epochs=1), 1, digits.transform, ExemplarMemory(0))
    learn(learner, make_tasks(digits, (3, 1))[0])
    assert learner.class_names


@pytest.mark.parametrize("classifier", [LinearClassifier, PositiveClassifier, BiasCorrectedClassifier])
def test_a_classifier_without_classes_has_no_outputs(classifier):
    assert classifier(5)(torch.zeros(2, 5)).shape == (2, 0)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"joint"}))
def test_a_learner_goes_on_after_it_forgot_a_class(method, digits):
    learner = make_learner(digits, method)
    learn(learner, make_tasks(digits, (3, 1))[0])
    learner.forget(1)
    rest = class_incremental(digits, (0, 2, 5, 6), 2, 2)[1]
    learn(learner, rest)
    scores = learner.predict(rest.test_images)
    assert scores.cnn.shape == (40, 4)
    assert scores.cnn.isfinite().all()
    if "counts" in learner.kept:  # those of the forgotten class are not given to another
        assert learner.kept["counts"].tolist() == [32] * 4


def test_the_momentum_of_a_phase_that_ended_is_not_kept(digits):
    learner, task = make_learner(digits, epochs=2), make_tasks(digits)[0]
    states = [learner.state()[0] for record in learner.learn(task) if isinstance(record, Epoch)]
    assert [any(name.startswith("progress.optimizer") for name in state) for state in states] == [True, False]
