"""Work in a process of its own, so that its memory can be told."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

import torch

Given = TypeVar("Given")
Made = TypeVar("Made")


def alone(work: Callable[[Given], Made], given: Given, threads: int | None = None) -> tuple[Made, float]:
    """What the work makes of what is given to it, and the most memory its process had, in MB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, work, given, threads or torch.get_num_threads()).result()


def _measured(work: Callable[[Given], Made], given: Given, threads: int) -> tuple[Made, float]:
    torch.set_num_threads(threads)
    made = work(given)
    return made, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
