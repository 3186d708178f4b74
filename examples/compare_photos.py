"""`podnet learn` compared with simpler alternatives: accuracy after each lesson, and CPU seconds.

python examples/compare_photos.py test-photos/ january/ february/ march/

Each folder is a lesson with new classes. The alternatives get the photos of all lessons so far, except for fine-tuning,
which sees only the newest: frozen features with scikit-learn's ridge regression, the nearest class mean of the same
features, and histograms of gradients with logistic regression.
"""

import argparse
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from sklearn.preprocessing import StandardScaler, normalize

from podnet.data.augment import Transform
from podnet.data.collection import Photo, read_collection
from podnet.data.decode import decode
from podnet.data.photos import Photos
from podnet.engine.learner import Learner
from podnet.methods import FineTuning
from podnet.methods.ridge import Ridge
from podnet.model.lessons import teach
from podnet.model.loading import load_model
from podnet.model.planning import prepare
from podnet.nets.building import start_from
from podnet.processes import keep_freed_memory
from podnet.scenario.tasks import Task

SIZE, TRANSFORM = 224, Transform((0.5,) * 3, (0.5,) * 3, 0, True)  # what EfficientNet-Lite0 expects
CELL, BINS = 8, 9  # pixels and directions of a histogram of gradients

Lessons = list[list[Photo]]
Answers = Iterator[list[str]]  # after each lesson, the classes of the test photos


def ours(folders: list[Path], lessons: Lessons, test: list[Photo]) -> Answers:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.podnet"
        for photos in folders:
            for _ in teach(path, prepare(path, photos, {}, False, "cpu"), "cpu", workers=0):
                pass
            model = load_model(path)
            scores = model.learner.predict(Photos(tuple(photo.source for photo in test), SIZE))
            yield [model.names[label] for label in scores.cnn.argmax(1).tolist()]


def lite0(method: FineTuning | Ridge) -> Learner:
    learner = Learner(method, 3, TRANSFORM)
    start_from(learner.network.backbone, "lite0", "package", seed=1)
    return learner


def features(photos: list[Photo]) -> np.ndarray:
    """The plain features of EfficientNet-Lite0."""
    learner = lite0(Ridge())
    return learner.features(Photos(tuple(photo.source for photo in photos), SIZE)).square().numpy()  # undo the root


def gradients(photos: list[Photo]) -> np.ndarray:
    """Histograms of the directions of gradients in cells of an image of 64 pixels, each block of 2 x 2 normalised."""
    found = []
    for photo in photos:
        grey = decode(photo.source, 64).astype(float).mean(2)
        y, x = np.gradient(np.sqrt(grey))
        direction = (np.arctan2(y, x) % np.pi / np.pi * BINS).astype(int) % BINS
        cells = np.zeros((64 // CELL, 64 // CELL, BINS))
        rows, columns = np.indices(grey.shape) // CELL
        np.add.at(cells, (rows, columns, direction), np.hypot(x, y))
        blocks = np.stack([cells[i : i + 7, j : j + 7] for i in (0, 1) for j in (0, 1)], axis=2).reshape(49, -1)
        found.append((blocks / (np.linalg.norm(blocks, axis=1, keepdims=True) + 1e-3)).ravel())
    return np.array(found)


def nearest_mean(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> list[str]:
    names = sorted(set(labels))
    means = normalize(np.stack([normalize(train)[labels == name].mean(0) for name in names]))
    return [names[i] for i in (normalize(test) @ means.T).argmax(1)]


def ridge(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> list[str]:
    return list(RidgeClassifierCV(np.logspace(-3, 4, 15)).fit(train, labels).predict(test))


def logistic(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> list[str]:
    scaler = StandardScaler().fit(train)
    return list(
        LogisticRegression(C=0.01, max_iter=500).fit(scaler.transform(train), labels).predict(scaler.transform(test))
    )


def on(describe: Callable, classify: Callable) -> Callable:
    """All photos so far, described by numbers, then classified."""

    def answers(folders: list[Path], lessons: Lessons, test: list[Photo]) -> Answers:
        shown, known, labels = describe(test), [], []
        for photos in lessons:
            known.append(describe(photos))
            labels += [photo.label for photo in photos]
            yield classify(np.concatenate(known), np.array(labels), shown)

    return answers


def fine_tuning(folders: list[Path], lessons: Lessons, test: list[Photo]) -> Answers:
    """The same network, trained on the photos of the newest lesson alone."""
    learner = lite0(FineTuning(backbone="lite0", epochs=5, batch_size=16, lr=0.01))
    for number, photos in enumerate(lessons):
        names = tuple(dict.fromkeys(photo.label for photo in photos))
        old = len(learner.class_names)
        targets = torch.tensor([old + names.index(photo.label) for photo in photos])
        images = Photos(tuple(photo.source for photo in photos), SIZE, least_area=0.35)
        for _ in learner.learn(Task(number, old, len(names), names, images, targets, images[:0], targets[:0])):
            pass
        scores = learner.predict(Photos(tuple(photo.source for photo in test), SIZE))
        yield [learner.class_names[label] for label in scores.cnn.argmax(1).tolist()]


WAYS = {
    "podnet learn": ours,
    "frozen features, ridge regression of scikit-learn": on(features, ridge),
    "frozen features, nearest mean": on(features, nearest_mean),
    "histograms of gradients, logistic regression": on(gradients, logistic),
    "fine-tuning of the same network": fine_tuning,
}


def seconds() -> float:
    """CPU seconds of this process and of those it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main(test_folder: str, *folders: str, ways: list[str] | None = None) -> None:
    keep_freed_memory()
    paths = [Path(folder) for folder in folders]
    lessons = [list(read_collection(path).photos) for path in paths]
    test = list(read_collection(Path(test_folder)).photos)
    for name in ways or WAYS:
        began, shares = seconds(), []
        seen: set[str] = set()
        for photos, answers in zip(lessons, WAYS[name](paths, lessons, test), strict=True):
            seen |= {photo.label for photo in photos}
            right = [answer == photo.label for answer, photo in zip(answers, test, strict=True) if photo.label in seen]
            shares.append(f"{100 * np.mean(right):6.1f}")
        print(f"{name:<50}{''.join(shares)}{seconds() - began:8.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="+", help="TEST FOLDER...")
    parser.add_argument("--ways", nargs="+", choices=WAYS)
    given = parser.parse_args()
    main(*given.words, ways=given.ways)
