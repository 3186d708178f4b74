"""Folders of photos that a small network tells apart at once, and models of them."""

import numpy as np
from PIL import Image

from podnet.cli import main
from podnet.model.predict import predict

HUES = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (40, 60, 210), "grey": (128, 128, 128)}
TRAINED = ["--backbone", "resnet32", "--image-size", "16", "--epochs", "4", "--finetune-epochs", "2"]
TRAINED += ["--exemplars", "4", "--workers", "0"]


def photos_of(folder, *names, count=10, first=0, varied=0):
    """Photos of coloured noise, a folder for each colour; `varied`: how much the colour differs from photo to photo."""
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(first, first + count):
            draws = np.random.default_rng([i, *name.encode()])
            hue = HUES[name] + draws.normal(0, varied, 3) if varied else HUES[name]
            noise = draws.normal(hue, 30, (24, 28, 3))
            Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder


def two_lessons(root, options):
    """m.podnet, which learned three classes and then one more; before.podnet, what it was between; and the photos."""
    model = root / "m.podnet"
    assert main(["learn", str(model), str(photos_of(root / "first", "red", "green", "blue")), *options]) == 0
    before = model.read_bytes()
    assert main(["learn", str(model), str(photos_of(root / "second", "grey")), *options]) == 0
    (root / "before.podnet").write_bytes(before)
    return root


def copied(model, folder):
    """A copy of a model file, to be changed."""
    path = folder / "m.podnet"
    path.write_bytes(model.read_bytes())
    return path


def accuracy(model, collection):
    answers = predict(model, [(photo.label, photo.source) for photo in collection.photos], "nme")
    return np.mean([answer.file == answer.ranked[0][0] for answer in answers])
