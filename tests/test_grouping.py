"""Positions by class, and all that uses them, against a search for each class: not a bit may differ."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from podnet.grouping import positions_by_class
from podnet.memory.exemplars import first_of_each_class
from podnet.memory.herding import herd, herd_classes
from podnet.memory.means import class_means
from podnet.nets.classifiers import imprint

SHUFFLED = torch.randint(0, 40, (300,), generator=torch.Generator().manual_seed(0)) * 3
FEATURES, MIRRORED = torch.randn(2, 300, 16, generator=torch.Generator().manual_seed(1))


def searched(targets):
    """The positions of each class by looking at all targets for it."""
    return {label: (targets == label).nonzero().flatten() for label in targets.unique().tolist()}


@pytest.mark.parametrize(
    "targets",
    [SHUFFLED, SHUFFLED.sort().values, SHUFFLED.flip(0), torch.tensor([5]), torch.zeros(9, dtype=torch.int64)],
    ids=["shuffled", "ascending", "reversed", "one image", "one class"],
)
def test_positions_equal_a_search_for_each_class(targets):
    found, wanted = positions_by_class(targets), searched(targets)
    assert list(found) == list(wanted)
    for label, own in found.items():
        assert torch.equal(own, wanted[label])
        assert own.dtype == torch.int64


def test_no_images_have_no_classes():
    assert positions_by_class(torch.zeros(0, dtype=torch.int64)) == {}


def test_targets_are_read_as_often_for_many_classes_as_for_few():
    class Operations(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            self.count += 1
            return operation(*args, **(kwargs or {}))

    counts = []
    for classes in (5, 500):
        targets = torch.arange(1000) % classes
        with Operations() as operations:
            positions_by_class(targets)
        counts.append(operations.count)
    assert counts[0] == counts[1] < 10


@pytest.mark.parametrize("mirrored", [None, MIRRORED], ids=["as they are", "and mirrored"])
def test_class_means_equal_those_of_a_search(mirrored):
    parts = [F.normalize(part) for part in (FEATURES, mirrored) if part is not None]
    means = [torch.cat([part[own] for part in parts]).mean(0) for own in searched(SHUFFLED).values()]
    assert torch.equal(class_means(FEATURES, SHUFFLED, mirrored), F.normalize(torch.stack(means)))


@pytest.mark.parametrize("count", [1, 4, 1000])
def test_first_of_each_class_equal_those_of_a_search(count):
    wanted = torch.cat([own[:count] for own in searched(SHUFFLED).values()])
    assert torch.equal(first_of_each_class(SHUFFLED, count), wanted)


def test_exemplars_of_classes_equal_those_of_a_search():
    labels = SHUFFLED.unique().tolist()[::-2]  # in any order, and not all
    wanted = []
    for label in labels:
        own = searched(SHUFFLED)[label]
        wanted += [own[:1], own[1:][herd(FEATURES[own[1:]], min(3, len(own) - 1))]]
    assert torch.equal(herd_classes(FEATURES, SHUFFLED, labels, 4, 1), torch.cat(wanted))


def test_imprinted_proxies_equal_those_of_each_class_alone():
    few = SHUFFLED % 4
    alone = [imprint(FEATURES[own], few[own], 2, seed=0) for own in searched(few).values()]
    assert torch.equal(imprint(FEATURES, few, 2, seed=0), torch.cat(alone))
