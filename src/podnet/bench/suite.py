"""All measurements, each group in a separate process."""

from collections.abc import Callable, Iterator, Sequence

from podnet.bench.convolutions import convolutions
from podnet.bench.devices import devices
from podnet.bench.growth import growth
from podnet.bench.images import augmentation, decoding
from podnet.bench.lessons import lesson, many_classes
from podnet.bench.measure import Figure, alone, figure
from podnet.bench.steps import after_task, step
from podnet.bench.training import iteration, runs_at_once
from podnet.bench.use import prediction, start

Group = Callable[[bool], dict[str, Figure]]
GROUPS: dict[str, Group] = {
    group.__name__: group
    for group in (
        *(iteration, convolutions, augmentation, decoding, after_task, step, prediction, lesson),
        *(many_classes, start, runs_at_once, devices, growth),
    )
}
LONG = ("many_classes", "runs_at_once", "devices", "growth")  # skipped with --quick


def measured(groups: Sequence[str], quick: bool, threads: int) -> Iterator[tuple[str, dict[str, Figure]]]:
    """Each group's figures, and the peak memory of its process."""
    for name in groups:
        figures, memory = alone(GROUPS[name], quick, threads)
        peak = figure([memory], "MB", "peak memory of the measuring process")
        yield name, figures | {f"{name}_peak_memory": peak}
