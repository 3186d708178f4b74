"""One pass of a network over images, without gradients and without augmentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.images import Images, feed, to_device
from podnet.engine.team import ALONE, Team
from podnet.errors import DataError
from podnet.nets.network import Network, Outputs

BATCH = 256


class Scores(NamedTuple):
    """Scores of both inferences, (N, classes); the highest is the prediction. None if the inference does not exist."""

    cnn: Tensor
    nme: Tensor | None
    indices: Tensor  # of the scored images: all, except for skipped unreadable photos


class Ranked(NamedTuple):
    """The best labels by both inferences, (N, count), the best first. None if the inference does not exist."""

    cnn: Tensor
    nme: Tensor | None
    indices: Tensor


@torch.no_grad()
def extract(
    network: Network,
    images: Images,
    transform: Transform,
    device: torch.device,
    wanted: Callable[[Outputs], tuple[Tensor, ...]],
    mirror: bool = False,
    team: Team = ALONE,
) -> tuple[Tensor, ...]:
    """The indices of the readable images, then the `wanted` outputs for them, or for their mirror images.

    Whole batches are assigned to the processes in turn, so the results equal those of a single process.
    """
    network.eval()
    rows: list[tuple[Tensor, ...]] = []
    own = torch.arange(len(images)).split(BATCH)[team.rank :: team.size]
    for part, pixels in feed(images, own):
        if len(part):
            batch = to_device(pixels, device)
            rows.append((part, *wanted(network(transform.normalise(batch.flip(3) if mirror else batch)))))
    columns = [torch.cat(column) for column in zip(*rows, strict=True)]
    width = max(team.collected(len(columns)))  # this process, or all of them, may have read nothing
    if not width:
        raise DataError(f"none of {len(images)} photos could be read; mend them, or leave their class out.")
    if not columns:
        columns = [torch.empty(0, dtype=torch.int64), *[torch.empty(0, device=device)] * (width - 1)]
    indices, *values = map(team.gathered, columns)
    order = indices.argsort()
    return indices[order], *(value[order.to(value.device)] for value in values)
