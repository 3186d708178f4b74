"""One photo in detail: the answers of both inferences, and where the network looked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from podnet.data.decode import centre_box, decode, measure, reason
from podnet.data.images import to_device
from podnet.errors import DataError
from podnet.losses import attention
from podnet.metrics import REJECT
from podnet.model.measure import tables
from podnet.model.model import Model
from podnet.model.predict import rank


@dataclass(frozen=True)
class Look:
    """The most likely classes by each inference, and a Grad-CAM map for `label`."""

    ranked: dict[str, list[tuple[str, float]]]  # inference -> class and confidence, the most likely first
    label: int
    heat: Tensor | None  # (H, W) from 0 to 1; None if the answer does not depend on a map
    unknown: bool  # it looks like none of the classes
    seen: tuple[float, float, float, float]  # left, top, right, bottom of the seen part, as shares of the upright photo


def look(model: Model, photo: bytes, label: int | None = None, top: int = 5) -> Look:
    """Look at one encoded photo; the heat map is for the predicted class, or for `label`."""
    size = model.settings.image_size
    try:
        width, height = measure(photo)
        pixels = torch.from_numpy(decode(photo, size).copy()).permute(2, 0, 1)[None]
    except Exception as error:  # Pillow raises almost anything on damaged files
        raise DataError(f"the photo cannot be read: {reason(error)}.") from error
    scores = model.learner.predict(pixels)
    ranked = {name: rank(model, scores, name, top)[0] for name in tables(scores)}
    label = int(scores.cnn[0].argmax()) if label is None else label
    left, upper, right, lower = centre_box(width, height, size)
    seen = (left / width, upper / height, right / width, lower / height)
    return Look(ranked, label, _heat(model, pixels, label), bool(model.unknown(scores, REJECT)), seen)


def _heat(model: Model, pixels: Tensor, label: int) -> Tensor | None:
    learner = model.learner
    inputs = learner.transform.normalise(to_device(pixels, learner.device))
    learner.network.eval()
    with torch.enable_grad():
        outputs = learner.network(inputs.requires_grad_())
        try:
            heat = attention(outputs.maps[-1], outputs.logits[:, label])[0].detach().cpu()
        except RuntimeError:  # some timm networks return maps that the answer does not depend on
            return None
    return heat / heat.max().clamp_min(1e-12)
