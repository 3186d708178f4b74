"""Whether training the network on a user's photos is worth it: a trial on some of them, measured on the others."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from math import ceil

import torch

from podnet.engine.learner import Learner
from podnet.engine.training import Epoch, Iteration
from podnet.errors import counted
from podnet.grouping import positions_by_class
from podnet.metrics import accuracy
from podnet.model.measure import judged
from podnet.model.settings import Choice, new_learner
from podnet.ridge import Fitted
from podnet.scenario.tasks import Task

SHARE = 5  # one photo in this many is measured on
ENOUGH = 99.0  # accuracy in percent that leaves nothing to gain
SLOWER = 3.5  # how much longer training on a photo takes than looking at it


@dataclass(frozen=True)
class Trial:
    """Accuracy of both ways in percent on the same photos, or why training was not tried."""

    fixed: float | None = None
    trained: float | None = None
    minutes: float = 0.0
    allowed: float = 0.0
    few: bool = False  # too few photos to hold some back

    @property
    def wins(self) -> bool:
        return self.trained is not None and self.fixed is not None and self.trained > self.fixed

    @property
    def too_long(self) -> bool:
        return not self.few and self.minutes > self.allowed

    def words(self) -> str:
        if self.trained is None or self.fixed is None:
            why = f"no class has {SHARE} photos" if self.few else "there is little to gain"
            if self.too_long:
                why = f"it would take about {counted(ceil(self.minutes), 'minute')}"
            return f"training the network was not tried: {why}"
        better = "the network is trained" if self.wins else "the network is not trained"
        return (
            f"on held-out photos, fixed features reach {self.fixed:.1f} %, "
            f"a trained network {self.trained:.1f} %: {better}"
        )


def try_training(fixed: Learner, task: Task, choice: Choice, device: str) -> Generator[Iteration | Epoch, None, Trial]:
    """Compare the features of the learner, which knows just this task, with a network trained on most of its photos.

    `choice` is of the model that is trained.
    """
    photos, kept = len(task.train_targets), fixed.kept
    chosen = judged(kept["targets"])
    if chosen.any() and accuracy(kept["left_out_cnn"][chosen].numpy(), kept["targets"][chosen].numpy()) >= ENOUGH:
        return Trial(allowed=choice.minutes)
    looks = choice.training.epochs * (2 - 1 / SHARE)  # in the trial, and then with all photos
    minutes = SLOWER * looks * fixed.seconds["features"] / 60
    groups = positions_by_class(task.train_targets).values()
    measured = torch.cat([own[SHARE - 1 :: SHARE] for own in groups])
    if minutes > choice.minutes or not len(measured):
        return Trial(minutes=minutes, allowed=choice.minutes, few=not len(measured))
    rest = torch.ones(photos, dtype=torch.bool).index_fill_(0, measured, False).nonzero().flatten()
    targets = task.train_targets
    linear = Fitted(kept["features"][rest], targets[rest], task.seen).linear
    before = linear(kept["features"][measured].double()).argmax(1)
    learner = new_learner(choice, device)
    yield from learner.learn(replace(task, train_images=task.train_images[rest], train_targets=targets[rest]))
    after = learner.predict(task.train_images[measured]).cnn.argmax(1)
    found = [accuracy(own.cpu().numpy(), targets[measured].numpy()) for own in (before, after)]
    return Trial(found[0], found[1], minutes, choice.minutes)
