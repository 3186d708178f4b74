"""Disks: a quota, a read-only folder, locks that are missing or do not hold, renames that cross file systems.

The former state must stay, or the command be complete; a sentence says what is wrong; then the same command works.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forked import forked, podnet
from kills import Stage, aftermath, fresh_copy, scenarios, staged
from notes import Notes

SEED = 23
QUOTAS = 12  # sizes, for each command
NOBODY = 65534


def bad_disks(notes: Notes, scratch: Path) -> None:
    scratch.chmod(0o755)
    for scenario in [each for each in scenarios() if notes.wants(each.name)]:
        stage = staged(scenario, scratch)
        for number in range(QUOTAS):
            notes.attempt(f"quota/{scenario.name}/{number}", _limited, stage, number)
        for name, condition in CONDITIONS.items():
            notes.attempt(f"{name}/{scenario.name}", _refused, stage, condition)
        if os.getuid() == 0:
            notes.attempt(f"read-only/{scenario.name}", _read_only, stage)
        shutil.rmtree(stage.root)


def _limited(stage: Stage, number: int) -> str | None:
    """No file may grow beyond a size."""
    largest = max((path.stat().st_size for path in (stage.root / "whole").rglob("*") if path.is_file()), default=1)
    most = random.Random(f"{SEED} {stage.scenario.name} {number}").randrange(largest)
    folder = fresh_copy(stage)

    def act() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        return stage.scenario.command(folder)

    return _sentence(forked(act, stage.root / "output"), stage, (0, 1, 2)) or aftermath(stage)


def _refused(stage: Stage, condition: Callable[[], None]) -> str | None:
    """The command says why it cannot work here, and nothing has changed."""
    folder = fresh_copy(stage)

    def act() -> int:
        condition()
        return stage.scenario.command(folder)

    code = forked(act, stage.root / "output")
    wrong = _sentence(code, stage, (1, 2))
    if not wrong and stage.scenario.bits(folder) != stage.before:
        wrong = "the former state is gone"
    return wrong or aftermath(stage)


def _read_only(stage: Stage) -> str | None:
    """Another user owns the folder; what only reads still works."""
    folder = fresh_copy(stage)

    def act(command: Callable[[Path], int]) -> int:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return command(folder)

    wrong = _sentence(forked(lambda: act(stage.scenario.command), stage.root / "output"), stage, (1, 2))
    if not wrong and stage.scenario.bits(folder) != stage.before:
        return "the former state is gone"
    model = folder / "m.podnet"
    if model.exists() and forked(lambda: act(lambda folder: podnet("info", model)()), stage.root / "output") != 0:
        return "info does not work in a folder that is read-only"
    return wrong or aftermath(stage)


def _sentence(code: int, stage: Stage, expected: tuple[int, ...]) -> str | None:
    told = (stage.root / "output").read_text()
    if "Traceback" in told or code not in expected:
        return f"exit code {code}: {told.strip()[-300:]}"
    if code == 2 and "error: " not in told:
        return f"no sentence: {told.strip()[-300:]}"
    return None


def _raising(number: int) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    return call


def _no_locks() -> None:
    fcntl.flock = _raising(errno.ENOLCK)


def _unsupported_locks() -> None:
    fcntl.flock = _raising(errno.EOPNOTSUPP)


def _locks_that_do_not_hold() -> None:
    fcntl.flock = lambda *arguments: None


def _renames_across() -> None:
    os.replace = os.rename = _raising(errno.EXDEV)


CONDITIONS = {
    "no locks": _no_locks,
    "unsupported locks": _unsupported_locks,
    "locks that do not hold": _locks_that_do_not_hold,
    "renames across": _renames_across,
}
