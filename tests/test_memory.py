"""The exemplar memory over several tasks, counted image by image."""

from __future__ import annotations

import pytest
import torch

from podnet.errors import ConfigError
from podnet.memory.exemplars import ExemplarMemory, first_of_each_class


def exemplars(labels, count):
    """`count` images of each class, in the order herding chose them; pixels tell the class and the rank."""
    targets = torch.tensor(labels).repeat_interleave(count)
    ranks = torch.arange(count).repeat(len(labels))
    images = torch.stack([targets, ranks], dim=1).to(torch.uint8)[:, :, None, None].expand(-1, -1, 2, 2)
    return images, targets


def content(memory):
    """class -> the ranks kept of it, in the order they are kept; checks that images and targets go together."""
    kept = {}
    for image, target in zip(memory.images, memory.targets.tolist(), strict=True):
        assert (image[0] == target).all()
        kept.setdefault(target, []).append(int(image[1, 0, 0]))
    return kept


TASKS = [[0, 1, 2], [3], [4, 5], [6]]


def test_per_class_keeps_exactly_that_many_of_every_class_after_every_task():
    memory = ExemplarMemory(per_class=4)
    assert len(memory) == 0
    seen = 0
    for labels in TASKS:
        seen += len(labels)
        assert memory.quota(seen) == 4
        memory = memory.with_classes(*exemplars(labels, 4), seen)
        assert content(memory) == {c: [0, 1, 2, 3] for c in range(seen)}
        assert len(memory) == 4 * seen


def test_total_is_never_exceeded_and_every_class_keeps_the_exemplars_chosen_first():
    memory = ExemplarMemory(per_class=None, total=20)
    seen, quotas = 0, []
    for labels in TASKS:
        seen += len(labels)
        quota = memory.quota(seen)
        quotas.append(quota)
        memory = memory.with_classes(*exemplars(labels, quota), seen)
        assert len(memory) <= 20
        assert content(memory) == {c: list(range(quota)) for c in range(seen)}
    assert quotas == [6, 5, 3, 2]  # 20 // 3, // 4, // 6, // 7


def test_targets_stay_in_ascending_order_and_images_stay_bytes():
    memory = ExemplarMemory(per_class=2)
    seen = 0
    for labels in TASKS:
        seen += len(labels)
        memory = memory.with_classes(*exemplars(labels, 2), seen)
        assert memory.targets.tolist() == sorted(memory.targets.tolist())
        assert memory.images.dtype == torch.uint8


def test_an_update_leaves_the_memory_before_it_unchanged():
    before = ExemplarMemory(per_class=None, total=6).with_classes(*exemplars([0, 1], 3), 2)
    images, targets = before.images.clone(), before.targets.clone()
    after = before.with_classes(*exemplars([2], 2), 3)
    assert (after.per_class, after.total) == (None, 6)
    assert torch.equal(before.images, images)
    assert torch.equal(before.targets, targets)


def test_first_of_each_class_keeps_the_order_within_each_class():
    targets = torch.tensor([4, 7, 4, 4, 7, 9])
    assert first_of_each_class(targets, 2).tolist() == [0, 2, 1, 4, 5]
    assert first_of_each_class(targets, 99).tolist() == [0, 2, 3, 1, 4, 5]


def test_the_papers_memory_is_the_default():
    assert ExemplarMemory().per_class == 20
    assert ExemplarMemory().quota(1000) == 20


@pytest.mark.parametrize(("per_class", "total"), [(None, None), (20, 2000)])
def test_neither_or_both_sizes_are_refused(per_class, total):
    with pytest.raises(ConfigError, match="either memory_per_class or memory_total"):
        ExemplarMemory(per_class, total)


@pytest.mark.parametrize(("per_class", "total"), [(-3, None), (None, -1)])
def test_a_memory_of_less_than_no_images_is_refused(per_class, total):
    given = per_class if per_class is not None else total
    with pytest.raises(ConfigError, match=rf"is {given} images.*0 or more"):
        ExemplarMemory(per_class, total)
