"""After a task: the images the method may look at once more, and what it keeps of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from podnet.data.images import Images, feed, join, require_every_class, to_device
from podnet.engine.extraction import BATCH, PHOTOS, Pass
from podnet.engine.training import Iteration
from podnet.errors import ConfigError
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods.base import Method, State
from podnet.nets.network import Network, Outputs


@dataclass(eq=False)
class TaskBatches:
    """The images of a task, un-augmented: in batches, the same in every process, or as features, each computed once."""

    through: Pass
    images: Images
    targets: Tensor
    class_names: list[str]
    memory: ExemplarMemory
    _features: tuple[Tensor, Tensor] | None = field(default=None, init=False)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        parts = torch.arange(len(self.targets)).split(BATCH if isinstance(self.images, Tensor) else PHOTOS)
        for part, pixels in feed(self.images, parts):
            if len(part):
                inputs = self.through.transform.normalise(to_device(pixels, self.through.device))
                yield inputs, self.targets[part].to(self.through.device)

    def features(self) -> tuple[Tensor, Tensor]:
        """The embeddings (N, D) of all readable images, and their targets."""
        for _ in self.compute_features():
            pass
        assert self._features is not None
        return self._features

    def compute_features(self) -> Iterator[Iteration]:
        """Compute the features unless they are there; yields the progress."""
        if self._features is not None:
            return
        found = []
        count = len(self.through.parts(self.images))
        for i, row in enumerate(self.through.rows(self.images, embedding)):
            found.append(row)
            yield Iteration("features", 0, 1, i + 1, count)
        indices, features = self.through.gathered(found, len(self.images))
        require_every_class(self.targets, indices, self.class_names)
        self._features = features, self.targets[indices.to(self.targets.device)]

    def with_exemplars(self) -> Self:
        """The same, followed by the exemplars of the old classes."""
        if self.memory.images is None or self.memory.targets is None:
            return self
        images, targets = join(self.images, self.memory.images), torch.cat([self.targets, self.memory.targets])
        return replace(self, images=images, targets=targets)


def embedding(outputs: Outputs) -> tuple[Tensor, ...]:
    return (outputs.embedding,)


def checked(state: Any, method: Method) -> State:
    """Copies of what `after_task` returned: it may be parts of the network. The method may be user-defined."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ConfigError(
            f"after_task of {method.name} returned {type(state).__name__}; return the state, a dict of named tensors."
        )
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"the state of {method.name} has {name} = {value!r}; it must be a tensor.")
        if value.layout != torch.strided:
            raise ConfigError(f"{name} in the state of {method.name} is a sparse tensor; keep it as to_dense().")
    return {name: value.detach().clone().contiguous() for name, value in state.items()}


def own_means(method: Method, kept: State, network: Network) -> Tensor | None:
    """The class means (classes, D) that a method makes from its state, checked; None: it makes none."""
    means = method.class_means(kept) if kept else None
    wanted = (network.classifier.classes, network.classifier.dim)
    if means is not None and means.shape != wanted:
        raise ConfigError(f"class_means of {method.name} returned the shape {tuple(means.shape)}; it must be {wanted}.")
    return means
