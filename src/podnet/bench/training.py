"""The training iteration, and how many runs a machine should do at the same time."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from podnet.bench import plain
from podnet.bench.measure import Figure, Work, figure, in_turns, processes, ratio
from podnet.bench.scene import TRANSFORM, before_a_step, noise
from podnet.engine.batches import TrainingSet
from podnet.engine.team import ALONE, Team, synchronise
from podnet.engine.training import Stepper, fit, make_optimizer
from podnet.methods import PODNet
from podnet.methods.phases import constant
from podnet.nets.network import Network, channels_last, compile_backbone, frozen_copy
from podnet.processes import cores

OLD = 50  # classes known at the paper's first step on CIFAR-100
BATCH = 128
BATCHES = 1  # per measured epoch: in short turns, other load on the machine affects both sides equally
SIDE = 2048  # of the matrices whose product shows the speed of the machine


class Epochs:
    """One short epoch of PODNet's main phase: our loop and network, or a plain loop and network."""

    def __init__(self, old: int = OLD, batches: int = BATCHES) -> None:
        self.old = old
        self.method = PODNet()
        self.teacher = before_a_step(old, self.method)[0].network
        self.phases = [replace(p, epochs=1, lr=constant(1e-4)) for p in self.method.phases(old, 1, {})]
        self.images = noise(batches * BATCH)
        self.targets = torch.arange(len(self.images)) % (old + 1)

    def student(self) -> Network:
        student = copy.deepcopy(self.teacher)
        student.classifier.add_classes(1)
        return student

    def ours(
        self,
        distils: bool = True,
        compiled: bool = False,
        phase: int = 0,
        team: Team = ALONE,
        synchronised: bool = False,
    ) -> Work:
        student = channels_last(self.student())
        if synchronised:
            synchronise(student, torch.device("cpu"))
        teacher = channels_last(frozen_copy(self.teacher)) if distils else None
        chosen = self.phases[phase]
        optimizer = make_optimizer(student, chosen, self.method)
        if compiled:
            compile_backbone(student, BATCH)
        data = TrainingSet(self.images, self.targets, TRANSFORM, BATCH)
        return lambda: list(fit(Stepper(student, chosen, optimizer, teacher, team=team), data, (0,)))

    def plain(self, distils: bool = True) -> Work:
        student = plain.plain_copy(self.student())
        teacher = plain.plain_copy(self.teacher).eval().requires_grad_(False) if distils else None
        train, decay = plain.PlainPODNet().phases(self.old, 1, {})[0], self.method.weight_decay
        parameters = list(train.parameters(student))
        optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=self.method.momentum, weight_decay=decay)
        return lambda: plain.train(student, teacher, train.loss, optimizer, self.batches())

    def plain_pass(self) -> Work:
        """Extract the features of the images plainly."""
        network, images = plain.plain_copy(self.teacher), TRANSFORM.normalise(self.images)
        return lambda: plain.features(network, images.split(BATCH))

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        draws = torch.Generator().manual_seed(0)
        pairs = zip(self.images.split(BATCH), self.targets.split(BATCH), strict=True)
        return [(TRANSFORM.augment(images, draws), targets) for images, targets in pairs]


def iteration(quick: bool) -> dict[str, Figure]:
    """Training iterations, ours and plain ones in turns."""
    names = ["ours", "plain", "ours alone", "plain alone", "product", *(["compiled"] if not quick else [])]
    with both_sides() as sides:
        taken = in_turns({name: sides(name, OLD) for name in names}, 4 if quick else 30)
    with FlopCounterMode(display=False) as operations:
        Epochs().plain()()
    total = operations.get_total_flops()
    peak = [2 * SIDE**3 / took for took in taken["product"]]
    share = [total / took / most for took, most in zip(taken["ours"], peak, strict=True)]
    speed = [BATCHES * BATCH / took for took in taken["ours"]]
    figures = {
        "iteration_vs_plain": ratio(taken["plain"], taken["ours"], "training iteration with distillation"),
        "iteration_without_distillation_vs_plain": ratio(
            taken["plain alone"], taken["ours alone"], "training iteration without distillation (first task)"
        ),
        "iteration_share_of_peak": figure(
            share, "share", "FLOP/s of a training iteration, relative to a large matrix product"
        ),
        "iteration_images_per_second": figure(speed, "images/s", "training with distillation"),
    }
    if not quick:
        figures["iteration_compiled_vs_plain"] = ratio(
            taken["plain"], taken["compiled"], "training iteration with distillation and --compile"
        )
        figures["iteration_compiled_vs_eager"] = ratio(
            taken["ours"], taken["compiled"], "training iteration with --compile, relative to without"
        )
    return figures


def runs_at_once(quick: bool) -> dict[str, Figure]:
    """One process per core with one thread each, compared with one process with one thread per core."""
    count = cores()
    if count == 1:
        return {}
    with processes(count, keeps=True) as many, processes(1, keeps=True) as one:
        works: dict[str, Work] = {
            "many": lambda: list(many.map(_train, ["ours"] * count, [1] * count, [4] * count)),
            "one": lambda: one.submit(_train, "ours", count, 4 * count).result(),
        }
        taken = in_turns(works, 2 if quick else 6)
    what = f"{count} runs at once with 1 thread each, compared with one after the other with {count} threads"
    return {"runs_at_once_vs_in_turn": ratio(taken["one"], taken["many"], what)}


@contextmanager
def both_sides() -> Iterator[Callable[[str, int], Work]]:
    """Makes work by name and number of old classes; ours runs in a process set up like `podnet run`."""
    threads = torch.get_num_threads()
    with processes(1, keeps=True) as ours, processes(1, keeps=False) as theirs:

        def make(name: str, old: int) -> Work:
            pool = theirs if name.startswith(("plain", "product")) else ours
            return lambda: pool.submit(_train, name, threads, 1, old).result()

        yield make


def _train(name: str, threads: int, times: int, old: int = OLD) -> None:
    torch.set_num_threads(threads)
    for _ in range(times):
        _work(name, old)()


@cache
def _work(name: str, old: int) -> Work:
    """A piece of work of this process, created once."""
    if name == "product":
        matrix = torch.rand(SIDE, SIDE)
        return lambda: torch.mm(matrix, matrix)
    epochs = Epochs(old)
    makers: dict[str, Callable[[], Work]] = {
        "ours": epochs.ours,
        "ours alone": lambda: epochs.ours(distils=False),
        "compiled": lambda: epochs.ours(compiled=True),
        "finetune": lambda: epochs.ours(distils=False, phase=1),
        "plain": epochs.plain,
        "plain alone": lambda: epochs.plain(distils=False),
        "plain pass": epochs.plain_pass,
    }
    return makers[name]()
