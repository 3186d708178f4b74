"""The cost of many classes: a step of the classifier, and the work per class between two trainings.

python examples/many_classes.py [--classes 100 1000 10000] [--rounds 5]

Each case runs in its own process, on one thread. Time is CPU time, which other programs disturb less than the clock.
Memory is the peak of the steps beyond what was used before the first of them (weights and embedding), including the
gradients of the weights; as in `podnet run`, freed memory is kept for reuse.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")

PROXIES, BATCH, IMAGES, EXEMPLARS = 10, 128, 20, 5  # images and exemplars are of each class


@dataclass
class Case:
    """A measurement; `path` is "plain" (all proxies at once) or "ours"."""

    work: str
    classes: int
    dim: int
    path: str = "ours"


def step(case):
    """Forward and backward of the classifier, when only the newest hundredth of the classes trains, or all do."""
    import torch
    import torch.nn.functional as F

    from podnet.nets import classifiers

    if case.path == "plain":
        classifiers.MOST_AT_ONCE = sys.maxsize
    torch.manual_seed(0)
    new = max(1, case.classes // 100)
    classifier = classifiers.LocalSimilarityClassifier(case.dim, PROXIES)
    for size in (case.classes - new, new):
        classifier.add_classes(size)
    classifier.weights[0].requires_grad_(case.work == "all train")
    embedding = torch.randn(BATCH, case.dim, requires_grad=True)
    targets = torch.randint(0, case.classes, (BATCH,))

    def work():
        classifier.zero_grad()
        embedding.grad = None
        F.cross_entropy(classifier(embedding), targets).backward()

    few = classifiers.LocalSimilarityClassifier(case.dim, PROXIES)
    few.add_classes(2)
    limit, classifiers.MOST_AT_ONCE = classifiers.MOST_AT_ONCE, 0
    few(embedding).sum().backward()  # loads what torch loads when it is first used
    classifiers.MOST_AT_ONCE = limit
    embedding.grad = None
    return work


def between_steps(case):
    """One of the things that are done for each class once a task."""
    import torch

    from podnet.data.arrays import from_arrays
    from podnet.memory.exemplars import first_of_each_class
    from podnet.memory.herding import herd_classes
    from podnet.memory.means import class_means
    from podnet.scenario.tasks import class_incremental

    torch.manual_seed(0)
    targets = torch.arange(case.classes).repeat(IMAGES)[torch.randperm(case.classes * IMAGES)]
    if case.work == "first_of_each_class":
        return partial(first_of_each_class, targets, EXEMPLARS)
    if case.work == "tasks":
        pair = (torch.zeros(len(targets), 2, 2, dtype=torch.uint8).numpy(), targets.numpy())
        dataset = from_arrays(pair, pair)
        return lambda: class_incremental(dataset, range(case.classes), case.classes // 2, case.classes // 2)[1]
    features = torch.randn(len(targets), case.dim)
    if case.work == "class_means":
        return partial(class_means, features, targets)
    return partial(herd_classes, features, targets, range(case.classes), EXEMPLARS)


def measure(case, rounds):
    """The seconds of each round and the memory in MB, of this very process."""
    import torch

    from podnet.processes import keep_freed_memory

    torch.set_num_threads(1)
    work = (step if case.work.endswith("train") else between_steps)(case)
    ctypes.CDLL(None).malloc_trim(0)  # what making the case has freed must not count as there before
    keep_freed_memory()
    before, taken = _memory("VmRSS"), []
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak counts from here
    for _ in range(rounds + 1):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return taken[1:], _memory("VmHWM") - before


def _memory(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(field))


def alone(case, rounds):
    """The same in a process of its own, as words."""
    given = [sys.executable, __file__, "--case", case.work, str(case.classes), str(case.dim), case.path]
    done = subprocess.run([*given, "--rounds", str(rounds)], stdout=subprocess.PIPE, text=True, check=True)
    *taken, memory = map(float, done.stdout.split())
    return f"{_time(statistics.median(taken))} ({_time(min(taken))} to {_time(max(taken))})", f"{memory:.0f} MB"


def _time(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    known = parser.parse_args()
    if known.case:
        work, classes, dim, path = known.case
        taken, memory = measure(Case(work, int(classes), int(dim), path), known.rounds)
        print(*taken, memory)
        return
    print(f"\nA step, batch {BATCH}, {PROXIES} proxies per class: median (lowest to highest) of {known.rounds}\n")
    print("| classes | numbers | trains | all at once | memory | ours | memory |")
    print("|---|---|---|---|---|---|---|")
    for classes in known.classes:
        for dim in (64, 512):
            for which in ("newest train", "all train"):
                cells = [
                    cell for path in ("plain", "ours") for cell in alone(Case(which, classes, dim, path), known.rounds)
                ]
                print(f"| {classes:,} | {dim} | {which.split()[0]} | {' | '.join(cells)} |", flush=True)
    print(f"\nBetween the steps, {IMAGES} images a class, of 64 numbers, {EXEMPLARS} exemplars\n")
    print("| classes | class means | first of each class | a task | herding |")
    print("|---|---|---|---|---|")
    for classes in known.classes:
        works = ("class_means", "first_of_each_class", "tasks", "herding")
        print(
            f"| {classes:,} | {' | '.join(alone(Case(work, classes, 64), known.rounds)[0] for work in works)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
