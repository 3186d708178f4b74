"""Positions by class, and what uses them, against a search for each class."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import reference
from podnet.grouping import positions_by_class
from podnet.memory.herding import herd_classes
from podnet.nets.classifiers import imprint

SHUFFLED = torch.randint(0, 40, (300,), generator=torch.Generator().manual_seed(0)) * 3
FEATURES = torch.randn(300, 16, generator=torch.Generator().manual_seed(1))


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


def test_exemplars_are_herded_class_by_class_after_those_reserved():
    labels = SHUFFLED.unique().tolist()[::-2]  # in any order, and not all
    wanted = []
    for label in labels:
        first, *others = [place for place, other in enumerate(SHUFFLED.tolist()) if other == label]
        wanted += [first, *(others[k] for k in reference.herd(FEATURES[others].tolist(), min(3, len(others))))]
    assert herd_classes(FEATURES, SHUFFLED, labels, quota=4, reserved=1).tolist() == wanted


def test_imprinted_proxies_equal_those_of_each_class_alone():
    few = SHUFFLED % 4
    alone = [imprint(FEATURES[own], few[own], 2, seed=0) for own in searched(few).values()]
    assert torch.equal(imprint(FEATURES, few, 2, seed=0), torch.cat(alone))
