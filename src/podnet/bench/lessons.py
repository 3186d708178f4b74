"""A lesson of `podnet learn`: beside the bare network in onnxruntime, and in a model that knows many classes."""

import logging
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from podnet.bench.measure import Figure, Work, figure, in_turns, ratio, seconds
from podnet.data.collection import read_collection
from podnet.data.images import feed
from podnet.data.photos import Photos
from podnet.engine.learner import Learner
from podnet.errors import importing
from podnet.methods.ridge import Ridge
from podnet.model.lessons import teach
from podnet.model.loading import load_model
from podnet.model.model import ClassRecord, Model
from podnet.model.planning import prepare
from podnet.model.predict import predict
from podnet.model.settings import Settings, Training, make_learner
from podnet.nets.building import start_from
from podnet.nets.network import frozen_copy
from podnet.processes import keep_freed_memory

PER_CLASS, FEATURES = 20, 1280
SETTINGS = Settings(backbone="lite0", image_size=224, weights="package")


def write_photos(folder: Path, classes: int, count: int) -> Path:
    """JPEG photos of 384 x 256 pixels: blurred noise, which decodes as slowly as a photo of that size."""
    draws = np.random.default_rng(0)
    for label in range(classes):
        (folder / f"class {label}").mkdir(parents=True)
        for number in range(count):
            coarse = Image.fromarray(draws.integers(256, size=(16, 24, 3), dtype=np.uint8))
            coarse.resize((384, 256), Image.Resampling.BICUBIC).save(folder / f"class {label}" / f"{number}.jpg")
    return folder


def lesson(quick: bool) -> dict[str, Figure]:
    """A whole first lesson, files to file, and one pass of the same photos through the network in onnxruntime."""
    keep_freed_memory()  # as the command does
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = write_photos(folder / "photos", 4, 16 if quick else 64)
        images = Photos(tuple(photo.source for photo in read_collection(photos).photos), SETTINGS.image_size)
        learner = _pretrained()
        parts = torch.arange(len(images)).split(32)
        inputs = [learner.transform.normalise(pixels).contiguous().numpy() for _, pixels in feed(images, parts)]
        session = _in_onnxruntime(learner, folder / "lite0.onnx")
        works: dict[str, Work] = {
            "lesson": lambda: _teach(folder / "m.podnet", photos, anew=True),
            "onnxruntime": lambda: [session.run(None, {"images": batch}) for batch in inputs],
        }
        taken = in_turns(works, 2 if quick else 5, clock=time.process_time)
    speed = [len(images) / took for took in taken["lesson"]]
    return {
        "lesson_photos_per_second": figure(
            speed, "photos/s of CPU", "a whole lesson of podnet learn, lite0, 224 x 224"
        ),
        "lesson_vs_onnxruntime": ratio(
            taken["lesson"], taken["onnxruntime"], "CPU time of a lesson compared with the network alone in onnxruntime"
        ),
    }


def _pretrained() -> Learner:
    learner = make_learner(SETTINGS, Training(epochs=1, batch_size=8), "cpu")
    start_from(learner.network.backbone, "lite0", "package", seed=1)
    return learner


def _teach(path: Path, photos: Path, anew: bool = False) -> None:
    if anew:
        path.unlink(missing_ok=True)
    for _ in teach(path, prepare(path, photos, {"train": "never"}, False, "cpu"), "cpu", workers=0):
        pass


class _Embedding(nn.Module):
    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        embedding: Tensor = self.backbone(images)[1]
        return embedding


def _in_onnxruntime(learner: Learner, path: Path) -> Any:
    with importing("onnx", "the measurement 'lesson' needs onnxruntime"):
        import onnxruntime

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about itself
        module, example = _Embedding(frozen_copy(learner.network).backbone).eval(), torch.zeros(2, 3, 224, 224)
        shapes = ({0: torch.export.Dim("photos")},)
        program = torch.onnx.export(module, (example,), input_names=["images"], dynamic_shapes=shapes, dynamo=True)
    assert program is not None
    program.save(path, external_data=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def many_classes(quick: bool) -> dict[str, Figure]:
    """One more class of 30 photos, in a model of 10 classes and in one of 1,000 (simulated features)."""
    few, many = (_one_more(classes, quick) for classes in (10, 100 if quick else 1000))
    return few | many


def _one_more(classes: int, quick: bool) -> dict[str, Figure]:
    with tempfile.TemporaryDirectory() as name:
        path, photos = Path(name) / "m.podnet", write_photos(Path(name) / "photos", 1, 30)
        simulated(classes).save(path)
        files = [(str(file), file) for file in sorted(photos.rglob("*.jpg"))[:1]]
        works: dict[str, Work] = {
            "load": lambda: load_model(path),
            "predict": lambda: list(predict(load_model(path), files, "cnn")),
        }
        taken = in_turns(works, 1 if quick else 3, clock=time.process_time)
        took = seconds(lambda: _teach(path, photos), clock=time.process_time)
        size = path.stat().st_size / 1e6
    known = f"a model of {classes} classes of {PER_CLASS} photos"
    return {
        f"class_added_to_{classes}_seconds": figure([took], "s of CPU", f"learn 30 photos of a new class, {known}"),
        f"load_{classes}_seconds": figure(taken["load"], "s of CPU", f"load (info), {known}"),
        f"predict_{classes}_seconds": figure(taken["predict"], "s of CPU", f"load and predict one photo, {known}"),
        f"file_{classes}_megabytes": figure([size], "MB", f"size of the file, {known} and one more class"),
    }


def simulated(classes: int) -> Model:
    """A model that knows classes of made-up features."""
    learner = _pretrained()
    assert isinstance(learner.method, Ridge)
    draws = torch.Generator().manual_seed(0)
    targets = torch.arange(classes).repeat_interleave(PER_CLASS)
    centres = torch.rand(classes, FEATURES, generator=draws)
    features = centres[targets] + 0.7 * torch.rand(len(targets), FEATURES, generator=draws)
    learner.network.classifier.add_classes(classes)
    learner.kept = learner.method.after_features(learner.network, F.normalize(features), targets, {})
    learner.means = learner.method.class_means(learner.kept)
    learner.class_names = [f"known {label}" for label in range(classes)]
    records = [ClassRecord(name, "2026-01-01", PER_CLASS) for name in learner.class_names]
    empty: dict[str, dict[str, float]] = {"accuracy": {}, "old_accuracy": {}, "new_accuracy": {}, "per_class": {}}
    entry = {"date": "2026-01-01", "new": learner.class_names, "refreshed": [], "photos": len(targets)}
    history = [entry | {"measured": len(targets), "training": {}, "seconds": 0.0} | empty]
    model = Model(SETTINGS, learner, records, history, digests=[str(i) for i in range(len(targets))])
    model.adopt()
    return model
