"""The only epoch loop. It knows no method: a phase names the images, the parameters and the loss; the loop steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from podnet.data.augment import Share, Transform, batches
from podnet.data.images import Images, feed, to_device
from podnet.engine.team import ALONE, Team
from podnet.errors import ConfigError, PodnetError
from podnet.methods.base import Phase
from podnet.nets.network import Network
from podnet.randomness import generator


@dataclass(frozen=True)
class Iteration:
    """One optimiser update is done."""

    phase: str
    epoch: int
    epochs: int
    iteration: int
    iterations: int


@dataclass(frozen=True)
class Epoch:
    """One epoch is done; `losses` are the means of the terms over its images."""

    phase: str
    epoch: int
    epochs: int
    rate: float
    losses: dict[str, float]
    seconds: float


def make_optimizer(network: Network, phase: Phase, momentum: float, weight_decay: float) -> torch.optim.SGD:
    """SGD over the parameters of the phase; all others stop asking for gradients."""
    network.requires_grad_(False)
    parameters = [parameter.requires_grad_() for parameter in phase.parameters(network)]
    decay = weight_decay if phase.weight_decay is None else phase.weight_decay
    optimizer = torch.optim.SGD(parameters, lr=phase.rate(0), momentum=momentum, weight_decay=decay, fused=True)
    # Before the first update: one that is skipped, its float16 gradients too large, would leave them undefined.
    set_momenta(optimizer, [torch.zeros(()) for _ in parameters])
    return optimizer


def momenta(optimizer: torch.optim.SGD) -> list[Tensor]:
    """The state of the optimiser, a tensor for each parameter."""
    return [optimizer.state[parameter]["momentum_buffer"] for parameter in optimizer.param_groups[0]["params"]]


def set_momenta(optimizer: torch.optim.SGD, kept: list[Tensor]) -> None:
    """Give the optimiser the state it had."""
    for parameter, momentum in zip(optimizer.param_groups[0]["params"], kept, strict=True):
        # In the parameter's memory layout, which the fused update takes for granted.
        optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)


def _scalars(terms: Any, phase: Phase) -> dict[str, Tensor]:
    """The terms of a loss, which may be a user's own, if they are what they should be."""
    if not isinstance(terms, dict) or not terms:
        raise ConfigError(
            f'the loss of phase {phase.name} gave {type(terms).__name__}; it must give named terms, {{"ce": ...}}.'
        )
    for name, term in terms.items():
        if not isinstance(term, Tensor) or term.dim():
            given = f"a tensor of shape {tuple(term.shape)}" if isinstance(term, Tensor) else repr(term)
            raise ConfigError(
                f"the term {name} of phase {phase.name} is {given}; a term is a scalar tensor, the mean over the batch."
            )
    return dict(terms)


def _joined(terms: dict[str, Tensor], penalties: dict[str, Tensor], phase: Phase) -> dict[str, Tensor]:
    if taken := terms.keys() & penalties.keys():
        raise ConfigError(f"the loss and the penalty of phase {phase.name} both give {min(taken)}; rename one.")
    return terms | penalties


def fit(
    network: Network,
    phase: Phase,
    optimizer: torch.optim.SGD,
    images: Images,
    targets: Tensor,
    transform: Transform,
    batch_size: int,
    seed: tuple[object, ...],
    teacher: Network | None = None,
    start: int = 0,
    scaler: torch.amp.GradScaler | None = None,
    team: Team = ALONE,
) -> Iterator[Iteration | Epoch]:
    """Train the network through a phase, from epoch `start` on. Draws depend on (seed, phase, epoch) alone.

    Each process of a team trains on its share of every batch; the gradients are those of the whole batch, the loss
    being a mean over its images.
    """
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    scaler = scaler or torch.amp.GradScaler(enabled=False)
    wrapped = team.wrapped(network)
    for epoch in range(start, phase.epochs):
        began = time.perf_counter()
        draws = generator(0, *seed, phase.name, epoch)
        rate = phase.rate(epoch)
        for group in optimizer.param_groups:
            group["lr"] = rate
        network.train(phase.update_statistics)
        totals: dict[str, Tensor] = {}
        parts = batches(len(targets), batch_size, draws)
        counted = torch.zeros((), device=targets.device)
        fed = feed(images, parts, draws if phase.augment else None, team.rows)
        for i, (part, (chosen, pixels)) in enumerate(zip(parts, fed, strict=True)):
            share = Share(torch.isin(part, chosen).nonzero().flatten(), len(part))
            counts = team.images(len(chosen), len(part))
            if not len(chosen):  # unreadable, all of them; others wait for this process, whose black image counts for 0
                share, chosen = Share(torch.tensor([0]), len(part)), part[:1]
                pixels = pixels.new_zeros(1, *pixels.shape[1:])
            batch = to_device(pixels, targets.device)
            inputs = transform.augment(batch, draws, share) if phase.augment else transform.normalise(batch)
            student = wrapped(inputs, phase.attention)
            with torch.no_grad():
                old = teacher(inputs, phase.attention) if teacher is not None and phase.distils else None
            terms = _scalars(phase.loss(student, old, targets[chosen]), phase)
            if phase.penalty is not None:
                terms = _joined(terms, _scalars(phase.penalty(network), phase), phase)
            optimizer.zero_grad()
            loss = torch.stack(list(terms.values())).sum() * (counts * team.size / len(part))
            scaler.scale(loss).backward()
            if phase.clip is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_value_(trained, phase.clip)
            scaler.step(optimizer)
            scaler.update()
            for name, term in terms.items():
                totals[name] = totals.get(name, 0) + term.detach() * counts
            counted += counts
            yield Iteration(phase.name, epoch, phase.epochs, i + 1, len(parts))
        team.average_statistics(network)
        *sums, images_seen = team.summed(torch.stack([*totals.values(), counted])).tolist()
        losses = {name: total / max(images_seen, 1) for name, total in zip(totals, sums, strict=True)}
        if not all(map(math.isfinite, losses.values())):
            raise PodnetError(
                f"training diverged: the losses of phase {phase.name}, epoch {epoch + 1}, are {losses}. "
                f"Lower the learning rate (now {rate:g}) or the weights of the distillation."
            )
        yield Epoch(phase.name, epoch, phase.epochs, rate, losses, time.perf_counter() - began)
