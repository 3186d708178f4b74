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

    fixed: float = 0.0
    trained: float = 0.0
    why_not: str = ""
    too_long: float = 0.0  # minutes, if that is why

    @property
    def wins(self) -> bool:
        return self.trained > self.fixed

    def words(self) -> str:
        if self.why_not:
            return f"training the network was not tried: {self.why_not}"
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
        return Trial(why_not="there is little to gain")
    looks = choice.training.epochs * (2 - 1 / SHARE)  # in the trial, and then with all photos
    minutes = SLOWER * looks * fixed.seconds["features"] / 60
    groups = positions_by_class(task.train_targets).values()
    measured = torch.cat([own[SHARE - 1 :: SHARE] for own in groups])
    if not len(measured):
        return Trial(why_not=f"no class has {SHARE} photos")
    if minutes > choice.minutes:
        return Trial(why_not=f"it would take about {counted(ceil(minutes), 'minute')}", too_long=minutes)
    rest = torch.ones(photos, dtype=torch.bool).index_fill_(0, measured, False).nonzero().flatten()
    targets = task.train_targets
    linear = Fitted(kept["features"][rest], targets[rest], task.seen).linear
    before = linear(kept["features"][measured].double()).argmax(1)
    learner = new_learner(choice, device)
    yield from learner.learn(replace(task, train_images=task.train_images[rest], train_targets=targets[rest]))
    after = learner.predict(task.train_images[measured]).cnn.argmax(1)
    both = [accuracy(own.cpu().numpy(), targets[measured].numpy()) for own in (before, after)]
    return Trial(both[0], both[1])
