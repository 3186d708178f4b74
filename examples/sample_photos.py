"""Photos to try `podnet learn` with: pieces of three photos that come with scikit-learn and matplotlib.

python examples/sample_photos.py [FOLDER]      # photos/, more-photos/, new-photo.jpg and strange-photo.jpg
"""

import argparse
import random
from pathlib import Path

import matplotlib.cbook
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

PIECES, SIDE = 12, 160  # per class, and their size in pixels


def pieces(photo: Image.Image, count: int, seed: int) -> list[Image.Image]:
    """Random squares of a photo, between a third and all of its shorter side."""
    draws, found = random.Random(seed), []
    for _ in range(count):
        side = int(min(photo.size) * draws.uniform(0.35, 1.0))
        left, top = draws.randint(0, photo.width - side), draws.randint(0, photo.height - side)
        found.append(photo.crop((left, top, left + side, top + side)).resize((SIDE, SIDE)))
    return found


def main(folder: Path) -> None:
    portrait = matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    photos = {
        "photos/temple": Image.fromarray(load_sample_image("china.jpg")),
        "photos/flower": Image.fromarray(load_sample_image("flower.jpg")),
        "more-photos/portrait": Image.open(portrait).convert("RGB"),
    }
    for seed, (name, photo) in enumerate(photos.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        *known, last = pieces(photo, PIECES + 1, seed)
        for number, piece in enumerate(known):
            piece.save(folder / name / f"{number}.jpg", quality=92)
        if name == "photos/flower":
            last.save(folder / "new-photo.jpg", quality=92)
    stripes = (127 + 127 * np.sin(np.indices((SIDE, SIDE)).sum(0) / 5)).astype(np.uint8)
    Image.fromarray(stripes).save(folder / "strange-photo.jpg")
    made = "photos/ (flower, temple), more-photos/ (portrait), new-photo.jpg and strange-photo.jpg"
    print(f"made {made} in {folder}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make photos to try podnet learn with.")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", type=Path, help="where (default: here)")
    main(parser.parse_args().folder)
