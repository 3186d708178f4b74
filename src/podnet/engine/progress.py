"""How far a phase of training is, from its records."""

from __future__ import annotations

from podnet.engine.training import Epoch, Iteration


def steps(record: Iteration | Epoch) -> tuple[int, int]:
    """Steps done and steps in all of the phase: iterations, or epochs after an epoch."""
    if isinstance(record, Epoch):
        return record.epoch + 1, record.epochs
    return record.epoch * record.iterations + record.iteration, record.epochs * record.iterations
