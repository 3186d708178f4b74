"""Cutout, Mixup and CutMix against loops; shares of batches; what is refused before training."""

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

from podnet.cli import main
from podnet.data import load
from podnet.data.augment import Transform
from podnet.data.mixing import boxes, cut_and_mixed, mixed_up
from podnet.engine.batches import TrainingSet
from podnet.engine.learner import Learner
from podnet.engine.team import ALONE, Team
from podnet.errors import ConfigError
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import METHODS, Method, Phase, Replay
from podnet.methods.base import phases_of
from podnet.methods.phases import constant
from podnet.nets.network import Outputs
from podnet.runs.config import resolve
from podnet.scenario.tasks import class_incremental

PLAIN = Transform((0.0,) * 3, (1 / 255,) * 3, pad=0, flip=False)  # the normalisation that changes nothing
EVERYTHING = [("trivial",), ("cutout",), ("mixup",), ("cutmix",), ("trivial", "cutout", "mixup")]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def some_images(count, channels=3, size=8, low=1):
    return torch.randint(low, 256, (count, channels, size, size), generator=seeded(7), dtype=torch.uint8)


def phase_with(*augmentation, soft=True):
    return Phase("train", lambda *_: {}, 1, constant(0.1), augmentation=augmentation, soft_targets=soft)


# ---- cutout -------------------------------------------------------------------------------------------------------


def test_a_hole_is_a_square_around_any_pixel_cut_at_the_border():
    """8x8 images have holes of 2x2: its centre is their lower right pixel, as in the paper's code."""
    images = some_images(6400)
    outputs = PLAIN.augment(images, seeded(), None, ("cutout",))
    centres = Counter()
    for image, output in zip(images, outputs, strict=True):
        hole = (output == 0).all(0)
        assert torch.equal(output[:, ~hole], image[:, ~hole].float())
        rows, columns = (line.nonzero().flatten().tolist() for line in (hole.any(1), hole.any(0)))
        assert hole.sum() == len(rows) * len(columns)
        assert 1 <= len(rows) <= 2
        assert rows == list(range(rows[0], rows[-1] + 1))
        centres[rows[-1] if len(rows) == 2 else 0, columns[-1] if len(columns) == 2 else 0] += 1
    assert len(centres) == 64
    assert all(50 < count < 150 for count in centres.values())  # 100 each, five standard deviations


def test_a_hole_has_the_mean_colour():
    transform = Transform((0.5, 0.2, 0.7), (0.1, 0.3, 0.25), pad=0, flip=False)
    images = some_images(20)
    plain, holed = (transform.augment(images, seeded(3), None, more) for more in ((), ("cutout",)))
    hole = (plain != holed).any(1)
    assert hole.any()
    assert (holed.movedim(1, -1)[hole] == 0).all()


def test_a_box_equals_a_loop_over_pixels():
    draws = seeded(5)
    rows, columns, heights, widths = (torch.randint(0, end, (40,), generator=draws) for end in (6, 9, 7, 10))
    found = boxes(rows, columns, heights, widths, torch.zeros(40, 2, 6, 9))
    for i in range(40):
        top, bottom = max(0, rows[i] - heights[i] // 2), min(6, rows[i] + heights[i] // 2)
        left, right = max(0, columns[i] - widths[i] // 2), min(9, columns[i] + widths[i] // 2)
        expected = torch.zeros(6, 9, dtype=torch.bool)
        expected[top:bottom, left:right] = True
        assert torch.equal(found[i, 0], expected)


# ---- mixup and cutmix ---------------------------------------------------------------------------------------------


def one_image_a_class(count):
    """Images of one level each and a class each: what a mixed image consists of can be read from it."""
    levels = torch.arange(1, count + 1).float()
    images = levels.view(-1, 1, 1, 1).expand(count, 3, 12, 10)
    return images.contiguous(memory_format=torch.channels_last), torch.eye(count)


def test_mixup_mixes_images_and_targets_alike():
    inputs, targets = one_image_a_class(500)
    mixed, soft = mixed_up(inputs, targets, seeded())
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(soft.sum(1), torch.ones(500))
    partners, shares = [], []
    for i in range(500):
        found = soft[i].nonzero().flatten().tolist()
        assert i in found
        other = next((each for each in found if each != i), i)
        level = float(soft[i, i]) * (i + 1) + (float(soft[i, other]) * (other + 1) if other != i else 0)
        torch.testing.assert_close(mixed[i], torch.full((3, 12, 10), level))
        partners.append(other)
        shares.append(float(soft[i, i]))
    assert sorted(partners) == list(range(500)), "a permutation"
    assert abs(sum(shares) / 500 - 0.5) < 0.06
    assert abs(sum(share < 0.25 for share in shares) / 500 - 0.25) < 0.1, "uniform"


def test_cutmix_pastes_a_box_and_weighs_targets_by_area():
    inputs, targets = one_image_a_class(600)
    mixed, soft = cut_and_mixed(inputs, targets, seeded())
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    untouched = 0
    for i in range(600):
        pasted = mixed[i, 0] != i + 1
        if not pasted.any():
            untouched += 1
            assert torch.equal(soft[i], targets[i])
            continue
        other = int(mixed[i, 0][pasted][0]) - 1
        assert (mixed[i][:, pasted] == other + 1).all()
        assert pasted.sum() == pasted.any(0).sum() * pasted.any(1).sum(), "a box"
        assert soft[i, other].item() == pytest.approx(pasted.float().mean().item(), abs=1e-6)
        assert soft[i, i].item() == pytest.approx(1 - pasted.float().mean().item(), abs=1e-6)
    assert 0.45 < untouched / 600 < 0.65  # half of them, and boxes too small to see


def test_the_loss_of_mixed_targets_is_the_mixed_loss():
    """Cross-entropy is linear in its targets: λ CE(y) + (1 - λ) CE(y'), as the papers write it."""
    logits, targets, partners, kept = torch.randn(6, 5), torch.arange(6) % 5, torch.arange(6).flip(0) % 5, torch.rand(6)
    soft = kept[:, None] * F.one_hot(targets, 5) + (1 - kept[:, None]) * F.one_hot(partners, 5)
    phase = Replay().phases(0, 5, {})[0]
    assert phase.soft_targets
    found = phase.loss(Outputs([], logits, logits, torch.tensor(1.0)), None, soft)["ce"]
    parts = [F.cross_entropy(logits, each, reduction="none") for each in (targets, partners)]
    torch.testing.assert_close(found, (kept * parts[0] + (1 - kept) * parts[1]).mean())


# ---- shares, determinism ------------------------------------------------------------------------------------------


def shares_of(augmentation, team, seed=3):
    images, targets = some_images(28, channels=1), torch.arange(28) % 4
    data = TrainingSet(images, targets, Transform((0.3,), (0.4,), pad=1), 9, classes=4)
    count, batches = data.epoch(seeded(seed), phase_with(*augmentation), team)
    found = list(batches)
    assert len(found) == count == 3
    return found


@pytest.mark.parametrize("augmentation", EVERYTHING)
@pytest.mark.parametrize("size", [2, 3])
def test_shares_of_processes_make_up_the_batch(augmentation, size):
    whole = shares_of(augmentation, ALONE)
    teams = [shares_of(augmentation, Team(rank, size)) for rank in range(size)]
    for i, batch in enumerate(whole):
        assert batch.inputs.is_contiguous(memory_format=torch.channels_last)
        for rank, found in enumerate(teams):
            assert torch.equal(found[i].inputs, batch.inputs[rank::size])
            assert torch.equal(found[i].targets, batch.targets[rank::size])
        assert sum(found[i].counts for found in teams) == batch.counts == len(batch.inputs)


@pytest.mark.parametrize("augmentation", EVERYTHING)
def test_draws_come_from_the_generator_alone(augmentation):
    first = shares_of(augmentation, ALONE)
    torch.manual_seed(123)
    again, other = shares_of(augmentation, ALONE), shares_of(augmentation, ALONE, seed=4)
    assert all(torch.equal(one.inputs, two.inputs) for one, two in zip(first, again, strict=True))
    assert all(torch.equal(one.targets, two.targets) for one, two in zip(first, again, strict=True))
    assert not torch.equal(first[0].inputs, other[0].inputs)


def test_unreadable_images_count_nothing_in_any_share(monkeypatch):
    """Where photos are skipped, images are mixed with the readable ones, and each process keeps its own."""

    def half_readable(images, parts, draws=None, rows=None):
        assert rows is None, "all of the batch is read"
        return ((part[part % 2 == 0], images[part[part % 2 == 0]]) for part in parts)

    monkeypatch.setattr("podnet.engine.batches.feed", half_readable)
    whole = shares_of(("mixup",), ALONE)
    teams = [shares_of(("mixup",), Team(rank, 2)) for rank in range(2)]
    for i, batch in enumerate(whole):
        assert sum(found[i].counts for found in teams) == batch.counts == len(batch.inputs) < 9
        kept = [found[i].inputs[: int(found[i].counts)] for found in teams]
        assert Counter(map(_digest, torch.cat(kept))) == Counter(map(_digest, batch.inputs))


def _digest(image):
    return tuple(image.flatten().tolist())


# ---- learning, and what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "augmentation"),
    [*(("replay", each) for each in EVERYTHING), ("finetuning", EVERYTHING[-1]), ("joint", EVERYTHING[-1])],
)
def test_the_bounds_learn_from_mixed_images(name, augmentation):
    tasks = class_incremental(load("digits", None), range(4), 2, 2, images_per_class=20)
    method = METHODS[name](epochs=1, batch_size=16, augmentation=augmentation)
    learner = Learner(method, 1, load("digits", None).transform, ExemplarMemory(3))
    for task in tasks:
        losses = [record.losses for record in learner.learn(task) if hasattr(record, "losses")]
        assert all(0 < loss["ce"] < 20 for loss in losses)
    assert learner.predict(tasks[1].test_images).cnn.shape[1] == 4


@pytest.mark.parametrize("name", METHODS)
def test_a_loss_of_one_class_an_image_refuses_mixed_images(name):
    method = METHODS[name](augmentation=("trivial", "cutmix"))
    if any(not phase.soft_targets for phase in METHODS[name]().phases(0, 2, {})):
        words = f"of {name} cannot learn from mixed images, because .* leave cutmix out of the augmentation"
        with pytest.raises(ConfigError, match=words):
            phases_of(method, 0, 2, {}, first=True)


def test_a_phase_may_augment_otherwise_than_its_method():
    @dataclass(frozen=True, kw_only=True)
    class Two(Method):
        name = "two"

        def phases(self, old, new, state):
            return [phase_with("cutout", soft=False), Phase("rest", lambda *_: {}, 1, constant(0.1), augment=False)]

    first, second = phases_of(Two(augmentation=("mixup",)), 0, 2, {}, first=True)
    assert first.augmentation == ("cutout",)
    assert not second.mixing


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--augmentation", "trivail"], "it must be trivial, cutout, mixup or cutmix, several separated by commas"),
        (["--augmentation", "mixup,cutmix"], "has both mixup and cutmix; leave one of them out"),
        (["--method", "podnet", "--augmentation", "mixup"], "phase train of podnet cannot learn from mixed images"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(options, words, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["run", "--method", "replay", *options, "--output", str(folder)]) == 2
    assert words in capsys.readouterr().err
    assert not folder.exists()


def test_names_given_in_python_are_checked_too():
    with pytest.raises(ConfigError, match=r"an augmentation of Replay is 'trivail'; .* Did you mean 'trivial'"):
        Replay(augmentation=("trivail",))
    with pytest.raises(ConfigError, match="an augmentation of phase train is 'mix'"):
        phase_with("mix")
    with pytest.raises(ConfigError, match="the augmentation of phase train has both mixup and cutmix"):
        phase_with("mixup", "cutmix")


def test_the_option_is_read_from_text_from_a_list_and_from_a_run():
    for given in ("trivial,cutout", "trivial, cutout", ["trivial", "cutout"]):
        assert resolve({"method": "replay", "augmentation": given}).method.augmentation == ("trivial", "cutout")
    experiment = resolve({"method": "replay", "augmentation": "cutmix"})
    assert resolve(experiment.options()).method == experiment.method
