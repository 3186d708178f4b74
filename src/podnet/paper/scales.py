"""The sizes at which a benchmark is run: the paper's, one for a laptop, or one that only shows that all works."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from podnet.errors import counted
from podnet.paper.catalogue import Benchmark, Column


@dataclass(frozen=True)
class Setting:
    """How a scale treats a dataset: it maps the paper's base sizes, steps and memories to its own."""

    dataset: str
    classes: int
    bases: Mapping[int, int]  # the paper's classes of the first task -> ours; the largest is the default
    increments: Mapping[int, int]  # the paper's number of steps -> our classes per step
    memory_total: int = 2000
    memories: Callable[[int], int] = int  # the paper's exemplars per class -> ours
    options: Mapping[str, Any] = field(default_factory=dict)
    method_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # hyper-parameters, by method
    orders: tuple[str, ...] = ("paper:0",)  # the i-th has seed i + 1; random ones follow
    default_orders: int = 1  # number of class orders by default
    images: int = 500  # training images per class, for time estimates


HUNDRED = {50: 1, 25: 2, 10: 5, 5: 10}  # classes per step, for 100 classes with half of them in the first task
CIFAR_ORDERS = ("paper:0", "paper:1", "paper:2")

SHORT_BIAS = {"bic": {"bias_epochs": 100}}
# How it was chosen: docs/results.md. Long sequences, few exemplars and many updates make forgetting visible; small
# images and batches make up for their cost.
SMALL_CIFAR = Setting(
    "cifar100",
    classes=40,
    bases={10: 4, 20: 8, 30: 12, 40: 16, 50: 20},
    increments=HUNDRED,
    memory_total=200,
    memories=lambda exemplars: max(2, -(-exemplars // 4)),  # a quarter, but at least two: BiC may hold one out
    options={"epochs": 20, "step_epochs": 14, "batch_size": 32, "image_size": 16, "images_per_class": 200},
    method_options=SHORT_BIAS,
    orders=CIFAR_ORDERS,
    default_orders=2,
    images=200,
)
SMALL_IMAGENET = Setting(
    "imagenet",
    classes=20,
    bases={50: 10},
    increments=HUNDRED,
    options={"epochs": 10, "image_size": 64, "images_per_class": 100, "batch_size": 32},
    method_options=SHORT_BIAS | {"podnet": {"finetune_epochs": 10}, "ucir": {"finetune_epochs": 10}},
    orders=("natural",),
    images=100,
)
SMOKE = Setting(
    "digits",
    classes=8,
    bases={10: 4, 20: 4, 30: 5, 40: 5, 50: 6, 500: 6},
    increments={50: 1, 25: 2, 10: 2, 5: 2},
    memory_total=120,
    memories=lambda exemplars: min(exemplars, 20),
    options={"epochs": 1, "images_per_class": 24},
    method_options={"podnet": {"finetune_epochs": 1}, "bic": {"bias_epochs": 2}},
    orders=("random",),
    images=24,
)

SETTINGS: dict[str, dict[str, Setting]] = {
    "full": {
        "cifar100": Setting(
            "cifar100", 100, {n: n for n in (10, 20, 30, 40, 50)}, HUNDRED, orders=CIFAR_ORDERS, default_orders=3
        ),
        "imagenet100": Setting("imagenet100", 100, {50: 50}, HUNDRED, images=1300),
        "imagenet1000": Setting("imagenet1000", 1000, {500: 500}, {10: 50, 5: 100}, images=1300),
    },
    "small": {
        "cifar100": SMALL_CIFAR,
        "imagenet100": SMALL_IMAGENET,
        "imagenet1000": replace(SMALL_IMAGENET, bases={500: 10}, increments={10: 1, 5: 2}),
    },
    "smoke": dict.fromkeys(("cifar100", "imagenet100", "imagenet1000"), SMOKE),
}


def in_words(benchmark: Benchmark, scale: str) -> str:
    """How the scale changes the paper's protocol, as a note below every table."""
    setting = SETTINGS[scale][benchmark.dataset]
    if scale == "full":
        return "Scale full: the paper's protocol and hyper-parameters."
    labels: dict[str, list[str]] = {}  # of the columns, grouped by the result of the scale
    for column in benchmark.columns:
        labels.setdefault(_protocol(setting, column), []).append(column.label)
    protocols = [words if len(labels) == 1 else f"{', '.join(names)}: {words}" for words, names in labels.items()]
    epochs, images = setting.options["epochs"], setting.options.get("images_per_class")
    later = setting.options.get("step_epochs", epochs)
    data = f"{setting.classes} classes of {setting.dataset}" + (f", {images} images each" if images else "")
    data += f" at {size} pixels" if (size := setting.options.get("image_size")) else ""
    return (
        f"Scale {scale}: {data}, {counted(epochs, 'epoch')} per task"
        f"{f' ({later} after the first)' * (later != epochs)}. {'; '.join(protocols)}. "
        "The paper's numbers are for full scale; do not compare them with these."
    )


def _protocol(setting: Setting, column: Column) -> str:
    base = setting.bases[column.base or max(setting.bases)]
    increment = 1 if column.steps is None else setting.increments[column.steps]
    words = f"{base} classes, then {(setting.classes - base) // increment} x {increment}"
    if column.memory_total:
        return f"{words}, {setting.memory_total} exemplars in total"
    kept = setting.memories(column.memory_per_class or 20)
    return f"{words}, {counted(kept, 'exemplar')} per class"
