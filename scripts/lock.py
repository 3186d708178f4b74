"""Write requirements/*.txt: the versions of constraints.txt with the hashes of all their files. See `make lock`.

Needs uv on the PATH. Each package is in exactly one file, torch in two, of which one is to be chosen:

    core.txt       what podnet always needs, but torch
    torch.txt      the registry's torch: on Linux for NVIDIA's GPUs, with several GB of their libraries
    torch-cpu.txt  PyTorch's build for CPUs (Linux on x86-64, Python 3.11), which is in its own index
    extras.txt     what the extras need, those for working on podnet included
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "requirements"
PYTHON = "3.11.5"  # the lowest that all pinned versions work with
COMPILE = ["uv", "pip", "compile", "--quiet", "pyproject.toml", "--universal", "--python-version", PYTHON]
COMPILE += ["--constraint", "constraints.txt", "--generate-hashes", "--no-header", "--no-annotate"]
COMPILE += ["--no-strip-extras", "--no-emit-package", "podnet"]  # pip wants extras in the line with the hashes
OF_TORCH = re.compile(r"(torch$|nvidia-|cuda-|triton$)")
CPU_TORCH = ("2.13.0", "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b")
HEADS = {
    "core": "What podnet always needs, but torch: pip install --require-hashes -r requirements/core.txt -r ...torch...",
    "torch": "torch as the registry has it, and on Linux the libraries it needs for NVIDIA's GPUs.",
    "torch-cpu": "torch for CPUs, from PyTorch's own index: the build for Linux on x86-64 and Python 3.11.",
    "extras": "What the extras of podnet need, with core.txt and one of the two for torch.",
}


def compiled(*options):
    """Name -> its lines in what uv writes."""
    done = subprocess.run([*COMPILE, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    entries = re.split(r"^(?=\S)", done.stdout, flags=re.M)
    return {re.split(r"[=\[]", entry)[0]: entry for entry in entries if "==" in entry}


def cpu_build(entry):
    """Lines for the build for CPUs, if its hash is that of the version of these lines."""
    version, digest = CPU_TORCH
    if not entry.startswith(f"torch=={version} "):
        sys.exit(f"CPU_TORCH is for torch {version}, but constraints.txt has {entry.split()[0]}; put its hash there.")
    return f"torch=={version}+cpu \\\n    --hash=sha256:{digest}\n"


def main():
    every, core = compiled("--all-extras"), compiled()
    files = {name: [] for name in HEADS}
    for name, entry in every.items():
        files["torch" if OF_TORCH.match(name) else "core" if name in core else "extras"].append(entry)
    files["torch-cpu"].append(cpu_build(every["torch"]))
    FOLDER.mkdir(exist_ok=True)
    for name, entries in files.items():
        head = f"# {HEADS[name]}\n# Written by make lock; for Python {PYTHON} and newer.\n"
        (FOLDER / f"{name}.txt").write_text(head + "".join(entries))
        print(f"requirements/{name}.txt: {len(entries)} packages")


if __name__ == "__main__":
    main()
