"""Where a result came from: versions, commit, machine."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from podnet.nets import kernels

PACKAGES = ("podnet", "torch", "numpy", "scikit-learn", "safetensors")


def describe_environment() -> dict[str, Any]:
    """Versions of the packages that affect results, the commit of the source, the machine, the command."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["podnet", *sys.argv[1:]]),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu_convolutions": "torch" if kernels.library() is None else "podnet",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """The commit of the source tree at first, with a + if files differed from it; None outside a checkout."""
    options = ["--always", "--dirty=+", "--abbrev=10", "--exclude=*"]
    command = ["git", "-C", str(Path(__file__).parent), "describe", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
