"""What plain fine-tuning keeps, beside a model of `podnet learn`: the same photos, network, epochs and order.

python examples/against_finetuning.py shop.podnet test-photos/ january/ february/ march/

The folders are those that the model learned, in that order. Fine-tuning trains the same network on the photos of each
folder alone, with cross-entropy: no exemplars, no distillation. Give --weights as the model was given them.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from podnet.data.collection import read_collection
from podnet.data.photos import Photos
from podnet.engine.learner import Learner
from podnet.methods import FineTuning
from podnet.model.lessons import split
from podnet.model.model import Model, load_model
from podnet.nets.building import start_from
from podnet.scenario.tasks import Task


class OnTheSameNetwork(FineTuning):
    """Fine-tuning of the network that `podnet learn` trains."""

    backbone_fidelity = "released"


def fine_tuned(model: Model, folders: list[str], weights: str) -> Learner:
    """A network that learned what the model learned, in the same steps."""
    settings = model.settings
    learner = Learner(OnTheSameNetwork(backbone=settings.backbone), 3, model.learner.transform, seed=settings.seed)
    start_from(learner.network.backbone, learner.method.backbone, weights, settings.seed)
    for number, (folder, entry) in enumerate(zip(folders, model.history, strict=True)):
        found = read_collection(Path(folder))
        share = entry["training"]["held_out"]
        photos = [photo for name in entry["new"] for photo in split(found.of([name]).photos, share)[0]]
        images = Photos(
            tuple(photo.path for photo in photos), settings.image_size, shrinks=True, least_area=settings.least_area
        )
        targets = torch.tensor([model.label_of(photo.label) for photo in photos])
        old, names = len(learner.class_names), tuple(entry["new"])
        training = {name: entry["training"][name] for name in ("epochs", "batch_size", "lr")}
        learner.method = replace(learner.method, **training)
        for _ in learner.learn(Task(number, old, len(names), names, images, targets, images[:0], targets[:0])):
            pass
    return learner


def main(model_file: str, test: str, *folders: str, weights: str = "none") -> None:
    model = load_model(Path(model_file))
    measured = read_collection(Path(test)).of(model.names)
    images = Photos(tuple(photo.path for photo in measured.photos), model.settings.image_size)
    targets = torch.tensor([model.label_of(photo.label) for photo in measured.photos])
    ours, naive = model.learner.predict(images), fine_tuned(model, list(folders), weights).predict(images)
    print(f"{'classes of':<24}{'PODNet CNN':>12}{'NME':>8}{'fine-tuning':>14}")
    for folder, entry in [*zip(folders, model.history, strict=True), ("all", {"new": model.names})]:
        chosen = torch.isin(targets, torch.tensor([model.label_of(name) for name in entry["new"]]))
        tables = (ours.cnn, ours.nme, naive.cnn)
        shares = [100 * (table.argmax(1)[chosen] == targets[chosen]).float().mean().item() for table in tables]
        print(f"{folder:<24}{shares[0]:>12.1f}{shares[1]:>8.1f}{shares[2]:>14.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="+", help="MODEL TEST FOLDER...")
    parser.add_argument("--weights", default="none")
    given = parser.parse_args()
    main(*given.words, weights=given.weights)
