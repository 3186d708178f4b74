"""Compare an exported graph with the model it was made of, on the same pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from podnet.data.decode import shorter_side
from podnet.data.images import Images, feed
from podnet.data.photos import Photos
from podnet.errors import PodnetError
from podnet.model.measure import UNMEASURED, highest
from podnet.model.model import Model
from podnet.model.predict import chances

Run = Callable[[Tensor], tuple[Tensor, ...]]  # the exported graph, from pixels to its outputs

CONFIDENCE = 1e-4  # largest allowed difference of a confidence between graph and model,
SCORE = 1e-5  # or what such a difference of a score can do to it: a lot, if the scores are divided by little
FAMILIAR = 1e-2  # the same for `familiar`, in standard deviations
MOST_CHECKED = 200  # photos
MADE = 30  # pictures made for a model that keeps no photos
GRIDS = (2, 4, 8, 16, 32)  # random colours along their sides, with smooth transitions between them


@dataclass(frozen=True)
class Checked:
    """How a graph was checked: on how many photos, kept by the model or made, and the largest difference found."""

    count: int
    made: bool
    difference: float  # of a confidence


@torch.no_grad()
def check(model: Model, run: Run, threshold: float, whole: bool) -> Checked:
    """Fail if the graph differs from the model; photos less familiar than the threshold are unknown.

    `whole`: its input is of whole photos, (N, H, W, 3).
    """
    size = model.settings.image_size
    side = shorter_side(size) if whole else size  # no scaling, which would round a little differently
    first = round((side - size) / 2)
    photos = _kept_photos(model, side)
    images = pictures(side) if photos is None else photos
    largest = 0.0
    for _, pixels in feed(images, torch.arange(len(images)).split(32)):
        square = pixels[:, :, first : first + size, first : first + size]
        found = run((pixels.permute(0, 2, 3, 1) if whole else pixels).contiguous())
        largest = max(largest, _difference(model, square, found, threshold))
    return Checked(len(images), photos is None, largest)


def _difference(model: Model, square: Tensor, found: tuple[Tensor, ...], threshold: float) -> float:
    """The largest difference of a confidence between the graph's outputs and the model's, if it is allowed."""
    *tables, familiar, unknown = found
    scores = model.learner.predict(square)
    apart = float((model.familiarity(highest(scores)) - familiar).abs().max())
    temperatures = UNMEASURED | model.temperatures
    largest, equal = 0.0, apart <= FAMILIAR and torch.equal(unknown, familiar < threshold)
    for (name, wanted), table in zip(chances(model, scores, familiar).items(), tables, strict=True):
        difference = float((wanted.cpu() - table).abs().max())
        equal = equal and difference <= max(CONFIDENCE, SCORE / (2 * temperatures[name]))
        largest = max(largest, difference)
    if not equal:
        raise PodnetError(
            f"the exported graph differs from the model by {largest:.1e} in confidence and {apart:.1e} standard "
            "deviations of familiarity; nothing was written."
        )
    return largest


def _kept_photos(model: Model, side: int) -> Photos | None:
    """The photos in the model file as squares of `side` pixels, those never trained on first."""
    kept = [images for images in (model.held_out, model.learner.memory.images) if isinstance(images, Photos)]
    if not kept:
        return None
    photos = kept[0] if len(kept) == 1 else kept[0].followed_by(kept[1])
    return replace(photos[torch.arange(min(MOST_CHECKED, len(photos)))], size=side)


def pictures(side: int) -> Images:
    """Smooth patterns of colours, coarse and fine, the same in every call: uint8 (MADE, 3, side, side)."""
    draws = np.random.default_rng(1)
    made = []
    for i in range(MADE):
        grid = GRIDS[i % len(GRIDS)]
        colours = Image.fromarray(draws.integers(0, 256, (grid, grid, 3), np.uint8))
        made.append(np.asarray(colours.resize((side, side), Image.Resampling.BICUBIC)))
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2)
