"""Try an installed podnet as a new user would: the command, a short run, a classifier of photos. See `make wheel`.

Run it with the Python of the environment to try, in an empty folder.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (200, 40, 40), "blue": (40, 60, 210)}
PODNET = str(Path(sys.executable).with_name("podnet"))


def podnet(*arguments):
    """What a command prints; it must succeed."""
    print("$ podnet", *arguments, flush=True)
    done = subprocess.run([PODNET, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def make_photos(folder, count=8):
    draws = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = draws.normal(colour, 30, (24, 24, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def main():
    if any(Path().iterdir()):
        sys.exit("smoke.py writes files; run it in an empty folder.")
    import podnet as package

    print(f"podnet of {Path(package.__file__).parent}")
    assert Path(package.__file__).is_relative_to(sys.prefix), "this is not the installed package"
    assert Path(package.__file__).with_name("py.typed").is_file()
    assert "reproduce" in podnet("--help")
    podnet("run", "--epochs", "1", "--finetune-epochs", "1", "--classes", "4", "--base", "3", "--output", "digits")
    assert Path("digits/report.html").is_file()
    assert "proxies" in podnet("reproduce", "--list")  # reads the numbers of the paper
    make_photos(Path("photos"))
    options = ("--epochs", "10", "--finetune-epochs", "2", "--batch-size", "8", "--image-size", "16")
    podnet("learn", "colours.podnet", "photos", *options)
    for name in COLOURS:
        answer = json.loads(podnet("predict", "colours.podnet", f"photos/{name}/0.png", "--format", "jsonl"))
        assert answer["predictions"][0]["class"] == name, answer
    print("the smoke test passed")


if __name__ == "__main__":
    main()
