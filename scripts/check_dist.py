"""Check what a source distribution and a wheel contain: python scripts/check_dist.py dist. See `make wheel`."""

import sys
import tarfile
import zipfile
from pathlib import Path

DATA = ["py.typed", "scenario/class_orders.json", "paper/numbers.json", "studio/static/index.html"]


def names_in(folder):
    """Names of files in the one source distribution (without its top folder) and in the one wheel."""
    [source], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with tarfile.open(source) as archive:
        in_source = [name.partition("/")[2] for name in archive.getnames()]
    return in_source, zipfile.ZipFile(wheel).namelist()


def main():
    in_source, in_wheel = names_in(Path(sys.argv[1]))
    wanted = {"sdist": ["LICENSE", "README.md", "pyproject.toml", "src/podnet/nets/winograd.cpp"], "wheel": []}
    wanted["sdist"] += [f"src/podnet/{name}" for name in DATA]
    wanted["wheel"] += [f"podnet/{name}" for name in DATA]
    wrong = []
    for kind, names in (("sdist", in_source), ("wheel", in_wheel)):
        wrong += [f"{name} is missing from the {kind}" for name in wanted[kind] if name not in names]
        unwanted = ("tests/", "docs/", "runs/", ".cpp") if kind == "wheel" else ("tests/", "runs/", ".so")
        wrong += [f"{name} does not belong in the {kind}" for name in names if name.startswith(unwanted[:-1])]
        wrong += [f"{name} does not belong in the {kind}" for name in names if name.endswith(unwanted[-1])]
    modules = {
        name.removeprefix("src/") for name in in_source if name.startswith("src/podnet/") and name.endswith(".py")
    }
    wrong += [f"{name} is in the sdist, but not in the wheel" for name in sorted(modules - set(in_wheel))]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"sdist: {len(in_source)} names, wheel: {len(in_wheel)} files, nothing missing, nothing that does not belong")


if __name__ == "__main__":
    main()
