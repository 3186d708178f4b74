"""The state of a learner as tensors and JSON-able values, and back; and when to save it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from podnet.data.images import from_tensors, to_tensors
from podnet.engine.progress import Progress
from podnet.engine.training import Epoch
from podnet.methods.networks import network_from
from podnet.nets.network import Network

if TYPE_CHECKING:
    from podnet.engine.learner import Learner


Record = TypeVar("Record")


def checkpointed(
    records: Iterable[Record], save: Callable[[], None], seconds: float, due: Callable[[Epoch], bool] | None = None
) -> Iterator[Record]:
    """The same records. After an epoch the state is saved if the last time is that long ago, or if it is `due`."""
    saved = time.monotonic()
    for record in records:
        if isinstance(record, Epoch) and ((due is not None and due(record)) or time.monotonic() - saved >= seconds):
            save()
            saved = time.monotonic()
        yield record


def state(learner: Learner) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {f"network.{name}": value for name, value in learner.network.state_dict().items()}
    meta: dict[str, Any] = {
        "sizes": learner.network.classifier.sizes,
        "class_names": learner.class_names,
        "seconds": learner.seconds,
        "progress": None,
        "previous_sizes": None,
    }
    memory = learner.memory
    if memory.images is not None and memory.targets is not None:
        tensors |= {f"memory.{name}": value for name, value in to_tensors(memory.images).items()}
        tensors["memory.targets"] = memory.targets
    tensors |= {f"method.{name}": value for name, value in learner.kept.items()}
    if learner.means is not None:
        tensors["means"] = learner.means
    if learner.previous is not None:
        tensors |= {f"previous.{name}": value for name, value in learner.previous.state_dict().items()}
        meta["previous_sizes"] = learner.previous.classifier.sizes
    if learner.progress is not None:
        meta["progress"] = {key: getattr(learner.progress, key) for key in ("task", "phase", "epoch", "scaler")}
        if learner.progress.chosen is not None:
            tensors["progress.chosen"] = learner.progress.chosen
        for i, named in enumerate(learner.progress.moments or []):
            tensors |= {f"progress.optimizer.{i}.{name}": value for name, value in named.items()}
    return tensors, meta


def restore(learner: Learner, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    learner.network = _network(learner, below("network.", tensors), meta["sizes"])
    learner.started = True
    learner.previous = None
    if meta["previous_sizes"] is not None:
        learner.previous = _network(learner, below("previous.", tensors), meta["previous_sizes"])
    learner.class_names = list(meta["class_names"])
    learner.seconds = dict(meta["seconds"])
    memory = below("memory.", tensors)
    images = from_tensors(memory, learner.shelf)
    learner.memory = replace(learner.memory, images=images, targets=memory.get("targets"))
    learner.kept = below("method.", tensors)
    learner.means = tensors["means"].to(learner.device) if "means" in tensors else None
    learner.progress = None
    if meta["progress"] is not None:
        learner.progress = Progress(
            chosen=tensors.get("progress.chosen"), moments=_moments(tensors) or None, **meta["progress"]
        )


def _moments(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """What the optimiser remembers of each parameter. Earlier versions wrote SGD's momentum by another name."""
    found = below("progress.optimizer.", tensors)
    found |= {f"{i}.momentum_buffer": value for i, value in below("progress.momentum.", tensors).items()}
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in found.items():
        number, _, kind = name.partition(".")
        moments.setdefault(int(number), {})[kind] = value
    return [moments[i] for i in range(len(moments))]


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _network(learner: Learner, tensors: Mapping[str, Tensor], sizes: Sequence[int]) -> Network:
    return learner.placed(network_from(tensors, learner.method, learner.network.backbone.channels, sizes))
