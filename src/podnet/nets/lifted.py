"""Classifiers on features that a fixed random layer and ReLU lift to many more dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podnet.nets.classifiers import LinearClassifier, LocalSimilarityClassifier, SolvedClassifier


class LiftedClassifier(LinearClassifier):
    """relu(x Lᵀ) Wᵀ: L (size, D) is random and never changes, W (classes, size) is computed in closed form.

    Until the first solution the outputs are those of a linear layer on x, which can be trained.
    """

    lift: Tensor
    solution: Tensor
    solved: Tensor

    def __init__(self, dim: int, size: int) -> None:
        super().__init__(dim)
        lift = torch.empty(size, dim)
        if not lift.is_meta:  # for meta torch would import its compiler
            lift.normal_()
        self.register_buffer("lift", lift)
        self.register_buffer("solution", torch.zeros(0, size))  # W
        self.register_buffer("solved", torch.zeros((), dtype=torch.bool))

    def add_classes(self, n: int, weights: Tensor | None = None) -> None:
        super().add_classes(n, weights)
        self.solution = torch.cat([self.solution, self.solution.new_zeros(n, self.solution.shape[1])])

    def remove_class(self, label: int) -> None:
        super().remove_class(label)
        self.solution = torch.cat([self.solution[:label], self.solution[label + 1 :]])

    def lifted(self, features: Tensor) -> Tensor:
        """(N, D) -> (N, size), in the precision of the features."""
        return F.linear(features, self.lift.to(features)).relu_()

    def assign(self, weights: Tensor) -> None:
        """Set the weights (size, classes) of all classes."""
        self.solution = weights.t().to(self.solution).contiguous()
        self.solved.fill_(True)

    def forward(self, embedding: Tensor) -> Tensor:
        if not self.solved:
            return super().forward(embedding)
        return F.linear(self.lifted(embedding), self.solution)


class FirstSimilarThenSolved(LocalSimilarityClassifier):
    """LSC for the classes of the first growth, until a linear layer for all classes is computed in closed form.

    That one sees what `describe` makes of the backbone's maps, (B, dim), lifted to `size` dimensions by a random layer
    and ReLU; size 0: as they are. Loaded from a network of LSC alone, it is not solved yet.
    """

    solved: Tensor
    lift: Tensor

    def __init__(
        self, lsc: LocalSimilarityClassifier, dim: int, describe: Callable[[list[Tensor]], Tensor], size: int = 0
    ) -> None:
        learned = isinstance(lsc.scale, nn.Parameter)
        super().__init__(lsc.dim, lsc.proxies, 1.0, learned, lsc.similarity, lsc.sharpness)
        self.scale = lsc.scale
        self.describe = describe
        self.linear = SolvedClassifier(size or dim)
        self.register_buffer("lift", torch.zeros(size, dim))
        self.register_buffer("solved", torch.tensor(False))

    def add_classes(self, n: int, weights: Tensor | None = None) -> None:
        if self.weights:
            self.weights.append(nn.Parameter(torch.empty(n, 0, device=self.scale.device)))  # has no proxies
        else:
            super().add_classes(n, weights)
        self.linear.add_classes(n)

    def remove_class(self, label: int) -> None:
        super().remove_class(label)
        self.linear.remove_class(label)

    def _remove_growth(self, group: int) -> None:
        super()._remove_growth(group)
        if group == 0 and self.weights:  # now these are the first ones, which have proxies in a network made again
            self.weights[0] = nn.Parameter(self.weights[0].new_zeros(len(self.weights[0]), *self.shape))

    def view(self, maps: list[Tensor], embedding: Tensor) -> Tensor:
        """What the network gives to the classifier."""
        return self.describe(maps) if self.solved else embedding

    def forward(self, embedding: Tensor) -> Tensor:
        if not self.solved:
            return super().forward(embedding)
        scores: Tensor = self.linear(self.lifted(embedding)) / self.scale  # logits are multiplied by it
        return scores

    def lifted(self, embedding: Tensor) -> Tensor:
        """What the linear layer sees of embeddings (B, dim)."""
        unit = F.normalize(embedding)
        return F.linear(unit, self.lift).relu() if len(self.lift) else unit

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        if not state_dict.get(f"{prefix}solved", False):
            for name, own in self.state_dict().items():
                if name.startswith(("linear.", "lift", "solved")):
                    state_dict[prefix + name] = torch.full(own.shape, name == "linear.scale", dtype=own.dtype)
        super()._load_from_state_dict(state_dict, prefix, *rest)
