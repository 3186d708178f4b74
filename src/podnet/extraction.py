"""One pass of a network over images, without gradients and without augmentation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.images import Images, feed, to_device
from podnet.errors import DataError
from podnet.network import Network

BATCH = 256


class Extracted(NamedTuple):
    """What the network made of the images that could be read."""

    indices: Tensor
    features: Tensor  # (N, D), the embeddings
    logits: Tensor  # (N, classes)


@torch.no_grad()
def extract(
    network: Network, images: Images, transform: Transform, device: torch.device, mirror: bool = False
) -> Extracted:
    """Embeddings and logits of the images, or of their mirror images."""
    network.eval()
    indices, features, logits = [], [], []
    for part, pixels in feed(images, torch.arange(len(images)).split(BATCH)):
        batch = to_device(pixels, device)
        outputs = network(transform.normalise(batch.flip(3) if mirror else batch))
        indices.append(part)
        features.append(outputs.embedding)
        logits.append(outputs.logits)
    if not indices:
        raise DataError(f"none of {len(images)} photos could be read; mend them, or leave their class out.")
    return Extracted(torch.cat(indices), torch.cat(features), torch.cat(logits))
