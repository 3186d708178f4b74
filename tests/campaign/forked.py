"""Commands in forked processes: a copy of a process that has imported everything starts at once."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

TIMED_OUT = -1
COMMANDS = ("forget", "info", "learn", "predict", "report", "reproduce", "run")
PRELOADED = (
    *("matplotlib.pyplot", "sklearn.cluster", "sklearn.datasets", "torch", "torch._dynamo"),
    *(f"podnet.cli.{command}" for command in COMMANDS),
)


def warm_up() -> None:
    """Import what the commands need, and use one thread: a process with threads must not be forked."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("MPLBACKEND", "agg")
    for name in PRELOADED:
        importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)
    sys.modules["sklearn.datasets"].load_digits()


def forked(action: Callable[[], int | None], output: Path, seconds: float = 120, megabytes: int = 0) -> int:
    """Carry out the action in a process of its own, its output in a file; its exit code, negative for a signal.

    With `megabytes` the system allows it no more address space than it has now and that much.
    """
    child = begin(action, output, megabytes)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMED_OUT


def begin(action: Callable[[], int | None], output: Path, megabytes: int = 0) -> int:
    """Start such a process, the first of a group of its own; its number."""
    child = os.fork()
    if child == 0:
        _become(action, output, megabytes)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)  # here too: whoever is first
    return child


def _become(action: Callable[[], int | None], output: Path, megabytes: int) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    if megabytes:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    code: int | None = 70
    try:
        code = action()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def podnet(*arguments: str | Path) -> Callable[[], int]:
    """A command, as the user types it."""

    def command() -> int:
        from podnet.cli import main

        return main([str(word) for word in arguments])

    return command
