"""The packages podnet can use: those its own metadata names, their versions, and whether they can be imported.

Run as a program, it imports the modules of its arguments and tells of each; `podnet doctor` starts that as a process
of its own, which a broken package may end. Only the standard library is needed here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, requires, version
from urllib.parse import unquote

MODULES = {  # of distributions that are imported by another name
    "mlflow-skinny": "mlflow",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "tensorboard": "tensorboard.summary.writer.event_file_writer",  # the part that torch writes events with
}
TOOLS = ("docs", "dev")  # extras for working on podnet itself: not imported
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*?)\s*(?:;.*extra == ['\"](\w+)['\"].*)?")
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
REINSTALL = "pip install --force-reinstall --no-deps"
SECONDS = 300  # that the packages may take to import together, on a machine that is very busy


@dataclass(frozen=True)
class Package:
    """A distribution that podnet, or one of its extras, asks for."""

    name: str
    bounds: str  # such as ">=1.26,<3"
    extra: str  # "" for what is always needed

    @property
    def version(self) -> str | None:
        """The installed version; None if there is none."""
        try:
            return version(self.name)
        except PackageNotFoundError:
            return None

    @property
    def module(self) -> str:
        return MODULES.get(self.name, self.name.replace("-", "_"))


def wanted_packages() -> list[Package]:
    """What the installed podnet asks for; nothing if it is not installed, but run from its source."""
    try:
        lines = requires("podnet") or []
    except PackageNotFoundError:
        return []
    found = [match.groups(default="") for line in lines if (match := REQUIREMENT.fullmatch(line))]
    return [Package(name, bounds, extra) for name, bounds, extra in found if name != "podnet"]


def origin() -> str:
    """What to tell pip so that it installs this podnet again: its folder or address, or its version in the registry."""
    try:
        own = distribution("podnet")
    except PackageNotFoundError:
        return "-e ."
    told = json.loads(own.read_text("direct_url.json") or "{}")
    address = str(told.get("url", f"podnet=={own.version}"))
    source = unquote(address.removeprefix("file://")) if address.startswith("file://") else address
    return ("-e " if told.get("dir_info", {}).get("editable") else "") + shlex.quote(source)


def is_below(installed: str, bounds: str) -> bool:
    """Whether a version is older than the lowest one."""
    return any(_numbers(installed) < _numbers(low) for low in re.findall(r">=\s*([\d.]+)", bounds))


def is_beyond(installed: str, bounds: str) -> bool:
    """Whether a version is newer than those that are tested."""
    return any(_numbers(installed) >= _numbers(high) for high in re.findall(r"<\s*([\d.]+)", bounds))


def _numbers(text: str) -> list[int]:
    """ "2.13.0+cpu" -> [2, 13, 0]."""
    return [int(part) for part in re.split(r"[^\d.]", text)[0].split(".") if part]


@dataclass(frozen=True)
class Failure:
    """Why a module cannot be imported, and the top-level module that is to blame."""

    why: str
    culprit: str

    @property
    def command(self) -> str:
        """What fixes it: pip, for the distribution of the culprit, at its version."""
        found = packages_distributions().get(self.culprit, [])
        if not found:
            return f"pip install {self.culprit}"
        return f"{REINSTALL} {found[0]}=={version(found[0]).partition('+')[0]}"


def start_imports(modules: Sequence[str]) -> subprocess.Popen[str]:
    """A process that imports modules, while this one does something else."""
    command = [sys.executable, "-m", "podnet.cli.packages", *modules]
    to, silent = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=silent, stdout=to, stderr=silent, text=True, env=os.environ | OFFLINE)


def failed_imports(process: subprocess.Popen[str], modules: Sequence[str]) -> dict[str, Failure]:
    """The modules that cannot be imported. One that ends the process, or hangs, is skipped: the others are tried."""
    left, found = list(modules), {}
    while left:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        for line in output.splitlines():
            left.pop(0)
            module, culprit, why = line.split("\t")
            if why:
                found[module] = Failure(why, culprit)
        if left:
            module = left.pop(0)
            why = f"the import ends the process (code {process.returncode})"
            found[module] = Failure(why, module.partition(".")[0])
            process = start_imports(left)
    return found


def _try(module: str) -> tuple[str, str]:
    """The top-level module to blame if a module cannot be imported, and why; nothing if it can."""
    try:
        if module == "timm":  # it may need help with its torchvision
            from podnet.nets.timm import expected_of_timm

            expected_of_timm("timm:resnet18")
        else:
            import_module(module)
    except BaseException as error:  # a broken package can raise anything, or exit
        cause = error.__cause__ or error
        return _culprit(cause) or module, " ".join(f"{type(cause).__name__}: {cause}".split())[:300]
    return "", ""


def _culprit(error: BaseException) -> str:
    """The module that is missing, or in which the error was raised."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return error.name.partition(".")[0]
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    others = [name.partition(".")[0] for name in names if not name.startswith(("importlib", "podnet", "__main__"))]
    return others[-1] if others else ""


if __name__ == "__main__":
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print goes elsewhere
    for module in sys.argv[1:]:
        print(module, *_try(module), sep="\t", file=told, flush=True)
    os._exit(0)  # threads that a package started do not matter
