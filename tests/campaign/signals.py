"""SIGKILL at random moments of the same commands, all of their processes or only the first."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

from forked import begin
from kills import Stage, aftermath, fresh_copy, scenarios, staged
from notes import Notes

SEED = 23
KILLS = 84  # of each of the twelve commands


def random_moments(notes: Notes, scratch: Path) -> None:
    for scenario in [each for each in scenarios() if notes.wants(each.name)]:
        stage = staged(scenario, scratch)
        for number in range(KILLS):
            notes.attempt(f"{scenario.name}/{number}", _killed, stage, number)
        shutil.rmtree(stage.root)


def _killed(stage: Stage, number: int) -> str | None:
    draws = random.Random(f"{SEED} {stage.scenario.name} {number}")
    folder = fresh_copy(stage)
    child = begin(lambda: stage.scenario.command(folder), stage.root / "output")
    time.sleep(draws.uniform(0, stage.seconds))
    kill = os.killpg if draws.random() < 0.5 else os.kill
    kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return aftermath(stage)
