"""The methods after PODNet's list on digits: they resume to the same state."""

import pytest
import torch

from podnet.data import load
from podnet.engine.learner import Learner
from podnet.engine.training import Epoch
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import METHODS, configured
from podnet.scenario.tasks import class_incremental

RIVALS = ["lwf", "ewc", "wa", "ssil", "afc", "cwd"]
KEPT = {
    "ewc": {"fisher.classifier.weights.0", "anchor.backbone.stem.0.conv.weight"},
    "ssil": {"sizes"},
    "afc": {"importance.0", "importance.1", "importance.2", "importance.3"},
}


@pytest.fixture(scope="module")
def digits():
    return load("digits", None)


def learner_of(method, digits, memory=5, **options):
    chosen = configured(METHODS[method], "digits", options)
    return Learner(chosen, 1, digits.transform, ExemplarMemory(memory))


@pytest.mark.parametrize("method", RIVALS)
def test_a_run_goes_on_from_a_checkpoint_with_what_the_method_kept(method, digits):
    tasks = class_incremental(digits, range(4), 2, 2, images_per_class=20)
    options = {"epochs": 2} | ({"finetune_epochs": 1} if method in ("afc", "cwd") else {})
    whole = learner_of(method, digits, **options)
    for _ in whole.learn(tasks[0]):
        pass
    assert KEPT.get(method, set()) <= whole.kept.keys()
    for record in whole.learn(tasks[1]):
        if isinstance(record, Epoch) and record.epoch == 0 and record.phase == "train":
            tensors, meta = whole.state()
            saved = {name: value.clone() for name, value in tensors.items()}, meta
    resumed = learner_of(method, digits, **options)
    resumed.restore(*saved)
    for _ in resumed.learn(tasks[1]):
        pass
    first, second = whole.state()[0], resumed.state()[0]
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
