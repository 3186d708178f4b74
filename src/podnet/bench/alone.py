"""Run work in a separate process, to measure its memory."""

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
    """The result of `work(given)`, and the peak memory of its process in MB.

    With `keeps` the process keeps freed memory, as `podnet run` does.
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
