"""The exemplars: the few images kept of old classes, each class in the order of herding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from podnet.data.images import Images, join
from podnet.errors import ConfigError
from podnet.grouping import positions_by_class


@dataclass(frozen=True)
class ExemplarMemory:
    """Either `per_class` images of each class (the paper's M_per) or `total` shared by all classes (M_total)."""

    per_class: int | None = 20
    total: int | None = None
    images: Images | None = None
    targets: Tensor | None = None  # (M,), ascending

    def __post_init__(self) -> None:
        if (self.per_class is None) == (self.total is None):
            raise ConfigError("give either memory_per_class or memory_total, not both or neither.")
        if (self.per_class or self.total or 0) < 0:
            raise ConfigError(f"the memory size is {self.per_class or self.total} images; it must be 0 or more.")

    def __len__(self) -> int:
        return 0 if self.targets is None else len(self.targets)

    def quota(self, seen: int) -> int:
        """How many images each of `seen` classes may keep."""
        return self.per_class if self.per_class is not None else (self.total or 0) // seen

    def require_room(self, seen: int) -> None:
        """Refuse a memory that has no image for each class; one of 0 images is meant."""
        if self.total and self.total < seen:
            raise ConfigError(f"a memory of {self.total} images is too small for {seen} classes; give at least {seen}.")

    def with_classes(self, images: Images, targets: Tensor, seen: int) -> ExemplarMemory:
        """The memory after a task: cut to the quota for `seen` classes, with the given classes added or replaced."""
        if self.images is None or self.targets is None:
            return replace(self, images=images, targets=targets)
        kept = first_of_each_class(self.targets, self.quota(seen))
        kept = kept[~torch.isin(self.targets[kept], targets)]
        joined, labels = join(self.images[kept], images), torch.cat([self.targets[kept], targets])
        order = labels.argsort(stable=True)
        return replace(self, images=joined[order], targets=labels[order])

    def without_class(self, label: int) -> ExemplarMemory:
        """The memory without a class; labels above it move down by one."""
        if self.images is None or self.targets is None:
            return self
        kept = (self.targets != label).nonzero().flatten()
        targets = self.targets[kept]
        return replace(self, images=self.images[kept], targets=targets - (targets > label).long())


def first_of_each_class(targets: Tensor, count: int) -> Tensor:
    """Indices of the first `count` images of each class, class by class."""
    return torch.cat([own[:count] for own in positions_by_class(targets).values()])
