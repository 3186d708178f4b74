"""Measure time and memory so that a busy machine disturbs both sides equally."""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch

from podnet.processes import keep_freed_memory

Work = Callable[[], object]
Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Figure:
    """One result: the median of several rounds, with the lowest and the highest."""

    value: float
    spread: tuple[float, float]
    unit: str
    what: str  # description


def figure(values: Sequence[float], unit: str, what: str) -> Figure:
    return Figure(statistics.median(values), (min(values), max(values)), unit, what)


def ratio(slower: Sequence[float], faster: Sequence[float], what: str) -> Figure:
    """The ratio of the first to the second, round by round."""
    return figure([a / b for a, b in zip(slower, faster, strict=True)], "times", what)


def seconds(work: Work, clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began


def in_turns(
    works: Mapping[str, Work], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each piece of work, in alternating rounds; the first round is a warm-up and does not count."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            took = seconds(work, clock)
            if number:
                taken[name].append(took)
    return taken


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
