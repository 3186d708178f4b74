"""One pass of a network over images, without gradients and without augmentation."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.images import Images, feed, to_device
from podnet.engine.team import ALONE, Team
from podnet.errors import DataError
from podnet.nets.network import Network, Outputs

BATCH = 256
PHOTOS = 32  # in a batch: they are large


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


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass over images; what `wanted` takes from each batch is gathered at the end.

    Whole batches are assigned to the processes in turn, so the results equal those of a single process.
    """

    network: Network
    transform: Transform
    device: torch.device
    mirror: bool = False
    team: Team = ALONE
    averages: bool = False  # each image with its mirror image

    def parts(self, images: Images) -> tuple[Tensor, ...]:
        """The indices of the batches of this process."""
        size = BATCH if isinstance(images, Tensor) else PHOTOS
        parts: tuple[Tensor, ...] = torch.arange(len(images)).split(size)
        return parts[self.team.rank :: self.team.size]

    @torch.no_grad()
    def rows(self, images: Images, wanted: Callable[[Outputs], tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
        """For each batch the indices of its readable images and the `wanted` outputs for them."""
        self.network.eval()
        for part, pixels in feed(images, self.parts(images)):
            batch = to_device(pixels, self.device)
            inputs = self.transform.normalise(batch.flip(3) if self.mirror else batch)
            yield (part, *wanted(self._outputs(inputs))) if len(part) else ()

    def _outputs(self, inputs: Tensor) -> Outputs:
        outputs: Outputs = self.network(inputs)
        if not self.averages:
            return outputs
        embedding = (outputs.embedding + self.network(inputs.flip(3)).embedding) / 2
        return outputs._replace(embedding=embedding, similarities=self.network.classifier(embedding))

    def gathered(self, rows: Iterable[tuple[Tensor, ...]], images: int) -> tuple[Tensor, ...]:
        """The indices of all readable images, and their outputs, in the order of the images."""
        columns = [torch.cat(column) for column in zip(*filter(None, rows), strict=True)]
        width = max(self.team.collected(len(columns)))  # this process, or all of them, may have read nothing
        if not width:
            raise DataError(f"none of {images} photos could be read; fix the photos or leave their class out.")
        if not columns:
            columns = [torch.empty(0, dtype=torch.int64), *[torch.empty(0, device=self.device)] * (width - 1)]
        indices, *values = map(self.team.gathered, columns)
        order = indices.argsort()
        return indices[order], *(value[order.to(value.device)] for value in values)
