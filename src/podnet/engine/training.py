"""The only epoch loop. It knows no method: a phase gives the images, the parameters and the loss."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from podnet.engine.batches import Batch, TrainingSet
from podnet.engine.team import ALONE, Team
from podnet.errors import ConfigError, PodnetError
from podnet.methods.base import Method
from podnet.methods.phases import Phase
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
    lr: float
    losses: dict[str, float]
    seconds: float


def steps(record: Iteration | Epoch) -> tuple[int, int]:
    """Progress within a phase: steps done and total, in iterations, or in epochs after an epoch."""
    if isinstance(record, Epoch):
        return record.epoch + 1, record.epochs
    return record.epoch * record.iterations + record.iteration, record.epochs * record.iterations


Moments = list[dict[str, Tensor]]  # what an optimiser remembers, for each parameter


def make_optimizer(network: Network, phase: Phase, method: Method) -> torch.optim.Optimizer:
    """The optimiser of the phase's parameters; all others no longer require gradients."""
    network.requires_grad_(False)
    parameters = [parameter.requires_grad_() for parameter in phase.parameters(network)]
    if not parameters:
        raise ConfigError(f"phase {phase.name} of {method.name} trains no parameter; leave it out of the phases.")
    if not {id(parameter) for parameter in parameters} <= {id(parameter) for parameter in network.parameters()}:
        raise ConfigError(
            f"phase {phase.name} of {method.name} trains a parameter that the network does not have; "
            "choose from those of the network that parameters(network) gets."
        )
    decay = method.weight_decay if phase.weight_decay is None else phase.weight_decay
    if (phase.optimizer or method.optimizer) == "adamw":
        return torch.optim.AdamW(parameters, lr=phase.lr_of(0), weight_decay=decay, fused=True)
    sgd = torch.optim.SGD(parameters, lr=phase.lr_of(0), momentum=method.momentum, weight_decay=decay, fused=True)
    # Set before the first update: if float16 overflow skips that one, the buffers would stay undefined.
    set_moments(sgd, [{"momentum_buffer": torch.zeros(())} for _ in parameters])
    return sgd


def moments(optimizer: torch.optim.Optimizer) -> Moments:
    return [dict(optimizer.state[parameter]) for parameter in optimizer.param_groups[0]["params"]]


def set_moments(optimizer: torch.optim.Optimizer, kept: Moments) -> None:
    for parameter, named in zip(optimizer.param_groups[0]["params"], kept, strict=True):
        for name, value in named.items():
            # In the parameter's memory layout, which the fused update assumes; except for the number of updates.
            optimizer.state[parameter][name] = (
                value.to(parameter.device, copy=True) if name == "step" else torch.empty_like(parameter).copy_(value)
            )


def _scalars(terms: Any, phase: Phase, what: str = "loss") -> dict[str, Tensor]:
    """The terms of a loss or a penalty, checked: the method may be user-defined."""
    if not isinstance(terms, dict) or not terms:
        given = "no term" if terms == {} else type(terms).__name__
        raise ConfigError(f'the {what} of phase {phase.name} returned {given}, not named terms such as {{"ce": ...}}.')
    for name, term in terms.items():
        if not isinstance(term, Tensor) or term.dim():
            given = f"a tensor of shape {tuple(term.shape)}" if isinstance(term, Tensor) else repr(term)
            raise ConfigError(
                f"the term {name} of phase {phase.name} is {given}; it must be a scalar tensor, a mean over the batch."
            )
    return dict(terms)


@dataclass(eq=False)
class Stepper:
    """Takes the optimiser steps of a phase. In a team, each process steps with the gradients of the whole batch."""

    network: Network
    phase: Phase
    optimizer: torch.optim.Optimizer
    teacher: Network | None = None  # runs only if the phase distils
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler(enabled=False))
    team: Team = ALONE

    def __post_init__(self) -> None:
        self._wrapped = self.team.wrapped(self.network)

    def begin_epoch(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.network.train(self.phase.update_statistics)

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """One update; returns the terms of the loss."""
        terms = self._terms(batch)
        self.optimizer.zero_grad()
        loss = torch.stack(list(terms.values())).sum() * batch.weight
        if not loss.requires_grad:
            raise ConfigError(
                f"the loss of phase {self.phase.name} does not depend on the parameters that it trains; "
                "compute it from the student's outputs, without detach or no_grad."
            )
        self.scaler.scale(loss).backward()
        if self.phase.clip is not None:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_value_(self.optimizer.param_groups[0]["params"], self.phase.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return {name: term.detach() for name, term in terms.items()}

    def _terms(self, batch: Batch) -> dict[str, Tensor]:
        phase = self.phase
        student = self._wrapped(batch.inputs, phase.attention)
        old = None
        if self.teacher is not None and phase.distils:
            with torch.no_grad():
                old = self.teacher(batch.inputs, phase.attention)
        terms = _scalars(phase.loss(student, old, batch.targets), phase)
        if phase.penalty is None:
            return terms
        penalties = _scalars(phase.penalty(self.network, student, batch.targets), phase, "penalty")
        if taken := terms.keys() & penalties.keys():
            raise ConfigError(
                f"the loss and the penalty of phase {phase.name} both return {min(taken)}; rename one of them."
            )
        return terms | penalties


def fit(stepper: Stepper, data: TrainingSet, seed: tuple[object, ...], start: int = 0) -> Iterator[Iteration | Epoch]:
    """Train through a phase, from epoch `start`. Random draws depend on (seed, phase, epoch) only."""
    phase, team = stepper.phase, stepper.team
    for epoch in range(start, phase.epochs):
        began = time.perf_counter()
        lr = phase.lr_of(epoch)
        stepper.begin_epoch(lr)
        sums: dict[str, Tensor] = {}  # of the terms of the loss, over the images
        images = torch.zeros((), device=data.targets.device)
        count, batches = data.epoch(generator(0, *seed, phase.name, epoch), phase, team)
        for i, batch in enumerate(batches):
            for name, term in stepper.step(batch).items():
                sums[name] = sums.get(name, 0) + term * batch.counts
            images += batch.counts
            yield Iteration(phase.name, epoch, phase.epochs, i + 1, count)
        team.average_statistics(stepper.network)
        *totals, seen = team.summed(torch.stack([*sums.values(), images])).tolist()
        losses = {name: total / max(seen, 1) for name, total in zip(sums, totals, strict=True)}
        if not all(map(math.isfinite, losses.values())):
            raise PodnetError(
                f"training diverged: the losses of phase {phase.name}, epoch {epoch + 1}, are {losses}. "
                f"Lower the learning rate (now {lr:g}) or the distillation weights."
            )
        yield Epoch(phase.name, epoch, phase.epochs, lr, losses, time.perf_counter() - began)
