"""Random numbers that depend on their purpose, never on what ran before: a resumed run repeats them exactly."""

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
    """Seed torch's global generator, which initialisation draws from, for one purpose; then restore it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield
