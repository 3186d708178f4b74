"""A classifier on features that a fixed random layer and ReLU lift to many more dimensions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.nets.classifiers import LinearClassifier


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
