"""Export a model for other programs: one graph from pixels to the confidences of both inferences.

    input    pixels   uint8 (N, 3, S, S), RGB; N may be any number. Normalisation is inside.
    output   cnn      float (N, classes), the confidences of the classifier
             nme      float (N, classes), those of the nearest mean of exemplars

The file describes the remaining preprocessing of a photo: rotate it upright, scale it, cut out the centre.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podnet.data.decode import shorter_side
from podnet.data.images import feed
from podnet.data.photos import Photos
from podnet.errors import PodnetError, printable
from podnet.metrics import INFERENCES
from podnet.model.measure import UNMEASURED, best_inference, confidences, tables
from podnet.model.model import Model
from podnet.nets.network import frozen_copy

Format = Literal["onnx", "torch"]
ENDINGS: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}
TOLERANCE = 1e-4  # largest allowed difference of a confidence between file and model
MOST_CHECKED = 200  # photos
NEEDED = {"onnx": ("onnx", "onnxscript", "onnxruntime")}


class Exported(nn.Module):
    """The model as one function of pixels."""

    mean: Tensor
    std: Tensor
    means: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        learner = model.learner
        assert learner.means is not None
        self.network = frozen_copy(learner.network).cpu()
        for name in ("mean", "std"):
            value = torch.tensor(getattr(learner.transform, name)).view(1, -1, 1, 1)
            self.register_buffer(name, 255 * value)
        self.register_buffer("means", learner.means.cpu())
        self.temperatures = UNMEASURED | model.temperatures

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.network((pixels.float() - self.mean) / self.std)
        # Equals `memory.means.nme_scores`, which uses cdist; ONNX lacks that. The export is checked against it.
        distances = (F.normalize(outputs.embedding)[:, None] - self.means).square().sum(2)
        cnn = confidences(outputs.logits, self.temperatures["cnn"])
        return cnn, confidences(-distances, self.temperatures["nme"])


def describe(model: Model) -> dict[str, str]:
    """What a program must know to use the graph, as strings."""
    size = model.settings.image_size
    shorter = shorter_side(size)
    return {
        "classes": json.dumps(model.names),
        "input": f"pixels: uint8 (N, 3, {size}, {size}), RGB, 0 to 255; normalisation is inside",
        "preprocessing": f"turn upright by EXIF; scale the shorter side to {shorter}, bilinear; cut out the centre",
        "outputs": "cnn, nme: confidences (N, classes) of the two inferences",
        "better_inference": best_inference(model.history[-1]),
    }


def export(model: Model, path: Path, kind: Format) -> tuple[int, float]:
    """Check the exported model and write the file; returns how many photos were checked and the largest difference."""
    missing = [name for name in NEEDED.get(kind, ()) if find_spec(name) is None]
    if missing:
        raise PodnetError(f"export to {kind} needs {' and '.join(missing)}: pip install 'podnet[onnx]'.")
    unfinished = path.with_name(f".exporting-{path.name}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warnings about itself
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # about packages that are not needed
            run = (_write_onnx if kind == "onnx" else _write_torch)(model, unfinished)
        photos = _real_photos(model)
        difference = _largest_difference(model, photos, run)
        if difference > TOLERANCE:
            raise PodnetError(f"the exported graph differs from the model by {difference:.1e}; nothing was written.")
        os.replace(unfinished, path)
    except OSError as error:
        raise PodnetError(f"cannot write {printable(path)}: {error.strerror}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return len(photos), difference


def _write_onnx(model: Model, path: Path) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    import onnxruntime

    program = torch.onnx.export(
        Exported(model).eval(),
        (_example(model),),
        input_names=["pixels"],
        output_names=list(INFERENCES),
        dynamic_shapes=({0: torch.export.Dim("photos")},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props.update(describe(model))
    program.save(path, external_data=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(pixels: Tensor) -> tuple[Tensor, Tensor]:
        cnn, nme = session.run(list(INFERENCES), {"pixels": pixels.numpy()})
        return torch.from_numpy(cnn), torch.from_numpy(nme)

    return run


def _write_torch(model: Model, path: Path) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    shapes = ({0: torch.export.Dim("photos")},)
    program = torch.export.export(Exported(model).eval(), (_example(model),), dynamic_shapes=shapes)
    torch.export.save(program, path, extra_files={"podnet.json": json.dumps(describe(model))})
    return torch.export.load(path).module()


def _example(model: Model) -> Tensor:
    return torch.zeros(2, 3, model.settings.image_size, model.settings.image_size, dtype=torch.uint8)


def _real_photos(model: Model) -> Photos:
    """The photos in the model file, those never trained on first."""
    kept = [images for images in (model.held_out, model.learner.memory.images) if isinstance(images, Photos)]
    if not kept:
        raise PodnetError("the model was saved without photos; export the file that has them, to check the result on.")
    photos = kept[0] if len(kept) == 1 else kept[0].followed_by(kept[1])
    return photos[torch.arange(min(MOST_CHECKED, len(photos)))]


@torch.no_grad()
def _largest_difference(model: Model, photos: Photos, run: Callable[[Tensor], Any]) -> float:
    scores = model.learner.predict(photos)
    temperatures = UNMEASURED | model.temperatures
    wanted = [confidences(table.cpu(), temperatures[name]) for name, table in tables(scores).items()]
    parts = [run(pixels.contiguous()) for _, pixels in feed(photos, torch.arange(len(photos)).split(32))]
    found = [torch.cat(side) for side in zip(*parts, strict=True)]
    return max(float((a - b).abs().max()) for a, b in zip(wanted, found, strict=True))
