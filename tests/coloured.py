"""Folders of photos that a small network tells apart at once."""

import numpy as np
from PIL import Image

HUES = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (40, 60, 210), "grey": (128, 128, 128)}


def photos_of(folder, *names, count=10, first=0):
    """Photos of coloured noise, a folder for each colour."""
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(first, first + count):
            draws = np.random.default_rng([i, *name.encode()])
            noise = draws.normal(HUES[name], 30, (24, 28, 3))
            Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder
