"""Networks that grow: a branch for each task. Earlier branches never change; the classifier sees all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podnet.nets.backbones import Backbone
from podnet.nets.classifiers import GrowingClassifier, uniform


class Branches(Backbone):
    """Backbones side by side; only the newest one learns. The embedding is theirs one after the other.

    The maps are those of the newest branch. The others run without gradients, and their BatchNorm is always in
    evaluation mode.
    """

    def __init__(self, first: Backbone) -> None:
        super().__init__()
        self.channels = first.channels
        self.dim = first.dim
        self.branches = nn.ModuleList([first])

    @property
    def newest(self) -> Backbone:
        branch = self.branches[-1]
        assert isinstance(branch, Backbone)
        return branch

    def add(self) -> None:
        """Add a branch with the weights and statistics of the newest one."""
        self.branches.append(copy.deepcopy(self.newest))
        self.dim += self.newest.dim
        self.train(self.training)

    def train(self, mode: bool = True) -> Branches:
        super().train(mode)
        for branch in self.branches[:-1]:
            branch.eval()
        return self

    def forward(
        self, images: Tensor, newest: Callable[[Tensor], tuple[list[Tensor], Tensor]] | None = None
    ) -> tuple[list[Tensor], Tensor]:
        with torch.no_grad():
            earlier = [branch.forward(images)[1] for branch in self.branches[:-1]]
        maps, embedding = (newest or self.newest.forward)(images)
        return maps, torch.cat([*earlier, embedding], dim=1)

    def __call__(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """The same, with the newest branch compiled if `compile` was called; as for any module, `forward` is not."""
        return self.forward(images, self.newest)

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile the newest branch. Earlier ones stay as they are: a network of all would be compiled each task."""
        self.newest.compile(*args, **options)


class BranchesClassifier(GrowingClassifier):
    """A linear layer without bias on the embeddings of all branches, each of `dim` features.

    The weights of all classes widen with each branch. Beside it stands the auxiliary classifier of the newest branch
    alone, for training: its first output means all earlier classes, the others the newest ones.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim, (dim,))
        self.branch_dim = dim
        self.auxiliary: nn.Parameter | None
        self.register_parameter("auxiliary", None)  # (1 + newest classes, dim of a branch)

    def add_branch(self) -> None:
        """Weights of the classes so far for the features of one more branch: random, beside the old ones."""
        self.dim += self.branch_dim
        self.shape = (self.dim,)
        for i, weight in enumerate(self.weights):
            columns = uniform(len(weight), self.branch_dim, inputs=self.dim).to(weight)
            self.weights[i] = nn.Parameter(torch.cat([weight.detach(), columns], dim=1))

    def add_classes(self, n: int, weights: Tensor | None = None) -> None:
        super().add_classes(n, weights)
        if len(self.weights) > 1:
            weights = uniform(n + 1, self.branch_dim, inputs=self.branch_dim)
            self.auxiliary = nn.Parameter(weights.to(self.scale.device))

    def remove_class(self, label: int) -> None:
        newest = label - (self.classes - self.sizes[-1])  # its place among the newest classes
        if newest >= 0 and self.auxiliary is not None:
            rest = torch.arange(len(self.auxiliary)) != newest + 1
            self.auxiliary = nn.Parameter(self.auxiliary.detach()[rest.to(self.scale.device)])
        super().remove_class(label)

    def _remove_growth(self, group: int) -> None:
        self.weights[group] = nn.Parameter(self.weights[group].detach()[:0])  # its branch stays

    @torch.no_grad()
    def forget(self) -> None:
        """Random weights for all classes."""
        for weight in self.weights:
            weight.copy_(self._random_weights(len(weight)))

    def forward(self, embedding: Tensor) -> Tensor:
        return F.linear(embedding, torch.cat(list(self.weights))) if self.classes else embedding[:, :0]

    def of_newest_branch(self, embedding: Tensor) -> Tensor:
        """The auxiliary classifier's logits (B, 1 + newest classes) for embeddings of all branches."""
        assert self.auxiliary is not None
        return F.linear(embedding[:, -self.branch_dim :], self.auxiliary)
