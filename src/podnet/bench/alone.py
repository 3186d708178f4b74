"""Run work in separate processes, to measure its memory and to keep measurements apart."""

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
    """The result of `work(given)`, and the peak memory of its process in MB."""
    with processes(1, keeps) as pool:
        return pool.submit(_measured, work, given, threads or torch.get_num_threads()).result()


def processes(count: int, keeps: bool) -> ProcessPoolExecutor:
    """New processes; with `keeps` they keep freed memory, as `podnet run` does."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, context, initializer=keep_freed_memory if keeps else None)


def _measured(work: Callable[[Given], Made], given: Given, threads: int) -> tuple[Made, float]:
    torch.set_num_threads(threads)
    made = work(given)
    own, children = (resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return made, max(own, children) / 1024
