"""Randomness as a function of what it is for, never of what ran before: then a resumed run repeats it exactly."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, *purpose: object) -> int:
    """A 63-bit seed for one purpose, for instance derive(seed, task, "train", epoch)."""
    digest = hashlib.blake2b(repr((seed, *purpose)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *purpose))


@contextmanager
def seeded(seed: int, *purpose: object) -> Iterator[None]:
    """Initialisation draws from torch's global generator: set it for one purpose, then put it back."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield
