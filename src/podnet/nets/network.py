"""The network: backbone and classifier in one forward, and its frozen copy, the teacher."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from podnet.nets.backbones import Backbone, ConvNorm
from podnet.nets.classifiers import GrowingClassifier
from podnet.nets.exchange import exchange_batchnorm
from podnet.nets.normalisation import BlockwiseBatchNorm2d

View = Callable[[list[Tensor], Tensor], Tensor]  # of a backbone's maps and its embedding


class Outputs(NamedTuple):
    """The results of one forward pass."""

    maps: list[Tensor]  # the end of each stage, (B, C, H, W)
    embedding: Tensor  # (B, D)
    similarities: Tensor  # (B, classes)
    scale: Tensor  # η, a scalar

    @property
    def logits(self) -> Tensor:
        return self.scale * self.similarities


class Network(nn.Module):
    """A backbone and a growing classifier. With `rectifies` only the classifier gets features after ReLU.

    A `view` makes another embedding of the backbone's maps and embedding.
    """

    def __init__(
        self, backbone: Backbone, classifier: GrowingClassifier, rectifies: bool = False, view: View | None = None
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = classifier
        self.rectifies = rectifies
        self.view = view
        self.mixed: torch.dtype | None = None  # for convolutions, if not float32; everything else is float32
        self.compiled_batch: int | None = None  # the batch size that the backbone is compiled for

    def forward(self, images: Tensor, attention: bool = False) -> Outputs:
        """With `attention` the scores depend on the last map even in a frozen network, as Grad-CAM requires."""
        with torch.autocast(images.device.type, self.mixed, enabled=self.mixed is not None):
            maps, embedding = self._run(images)
        if self.mixed is not None:
            maps, embedding = [each.float() for each in maps], embedding.float()
        if attention and not maps[-1].requires_grad:
            maps[-1] = maps[-1].detach().requires_grad_()
        with torch.set_grad_enabled(attention or torch.is_grad_enabled()):
            if attention:
                embedding = maps[-1].mean((2, 3))
            if self.view is not None:
                embedding = self.view(maps, embedding)
            classified = embedding
            if self.rectifies:
                classified = maps[-1].relu().mean((2, 3)) if self.backbone.averages_last_map else embedding.relu()
            return Outputs(maps, embedding, self.classifier(classified), self.classifier.scale)

    def _run(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        trains = torch.is_grad_enabled() and any(each.requires_grad for each in self.backbone.parameters())
        if trains and len(images) == self.compiled_batch:
            outputs: tuple[list[Tensor], Tensor] = self.backbone(images)
            return outputs
        return self.backbone.forward(images)  # not compiled


def channels_last(network: Network) -> Network:
    """The same network with weights in channels-last layout, the fastest for convolutions."""
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def compile_backbone(network: Network, batch_size: int) -> None:
    """Compile what dominates training time: full batches through the backbone, forward and backward.

    Once is enough for all tasks, because the growing classifier is left out. Smaller batches, fine-tuning and
    evaluation would each take another minute to compile.
    """
    exchange_batchnorm(network.backbone, BlockwiseBatchNorm2d)
    network.compiled_batch = batch_size
    network.backbone.compile(dynamic=False)


def in_full_precision(network: Network) -> Network:
    """The same network with the same weights, in float32 and not compiled, so that each of its maps has a gradient."""
    view = copy.copy(network)  # the modules are the same objects
    view.mixed, view.compiled_batch = None, None
    return view


def frozen_copy(network: Network) -> Network:
    """The teacher: a copy in evaluation mode, without gradients, with BatchNorm folded into the convolutions."""
    teacher = copy.deepcopy(network).eval()
    for module in teacher.modules():
        if isinstance(module, ConvNorm):
            module.fold()
    return teacher.requires_grad_(False)
