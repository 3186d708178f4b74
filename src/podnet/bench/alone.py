"""Work in a process of its own, so that its memory can be told."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

import torch

from podnet.processes import keep_freed_memory

Given = TypeVar("Given")
Made = TypeVar("Made")


def alone(
    work: Callable[[Given], Made], given: Given, threads: int | None = None, keeps: bool = False
) -> tuple[Made, float]:
    """What the work makes of what is given to it, and the most memory a process of it had, in MB.

    With `keeps` the process keeps freed memory, as one of `podnet run` does.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, work, given, threads or torch.get_num_threads(), keeps).result()


def _measured(work: Callable[[Given], Made], given: Given, threads: int, keeps: bool) -> tuple[Made, float]:
    if keeps:
        keep_freed_memory()
    torch.set_num_threads(threads)
    made = work(given)
    own, children = (resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return made, max(own, children) / 1024
