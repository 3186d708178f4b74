"""Every table and figure of the paper as data: rows are methods with their options, columns are protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from podnet.metrics import INFERENCES
from podnet.paper.numbers import PAPER, Number, Numbers, plain, reported, with_std


@dataclass(frozen=True)
class Row:
    """A method with the options of this row, and the inferences that the paper reports for it."""

    label: str
    options: Mapping[str, Any]
    inferences: tuple[str, ...] = INFERENCES[::-1]
    in_text: Mapping[str, Any] | None = None  # options to use instead with PODNet as in the paper's text
    added: bool = False  # by the user: the paper has no such row
    upper_bound: bool = False  # trained on the images of all tasks


@dataclass(frozen=True)
class Column:
    """A protocol, in the paper's own numbers; a scale translates them."""

    label: str
    steps: int | None = None  # None: one class per step
    base: int | None = None  # None: half of the classes
    memory_per_class: int | None = None  # None: 20, or what memory_total leaves
    memory_total: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # hyper-parameters that vary along the columns


@dataclass(frozen=True)
class Benchmark:
    """One table or figure. Every row is run under every column's protocol, once for each class order."""

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    dataset: str = "cifar100"
    paper: Numbers = field(default_factory=dict)
    inferences_across: bool = False  # NME and CNN side by side in a row, as in the ablations
    against: str = ""  # the option that varies along the columns, the figure's x axis; else classes seen
    axis: str = ""  # that option as a label
    remark: str = ""  # below the table
    balance: bool = False  # report accuracy on the oldest and newest classes, not average incremental accuracy


METHODS = (
    Row("iCaRL", {"method": "icarl"}, ("nme",)),
    Row("BiC", {"method": "bic"}, ("cnn",)),
    Row("UCIR", {"method": "ucir"}),
    Row("PODNet", {"method": "podnet"}),
)
CNN_ONLY = (*METHODS[:3], Row("PODNet", {"method": "podnet"}, ("cnn",)))  # for PODNet on ImageNet
ONE_CLASS = Column("50 steps", steps=50)


def steps(*counts: int, **protocol: Any) -> tuple[Column, ...]:
    return tuple(Column(f"{count} steps", steps=count, **protocol) for count in counts)


def podnet(label: str, **options: Any) -> Row:
    return Row(label, {"method": "podnet", **options})


# Table 3a. The cosine classifier is one proxy per class under cross-entropy; LSC alone has ten under NCA.
COSINE = {"proxies": 1, "classification": "cross_entropy"}
CLASSIFIERS: dict[str, dict[str, Any]] = {"cosine": COSINE, "lsc-ce": {"classification": "cross_entropy"}, "lsc": {}}
CLASSIFIER_NAMES = {"cosine": "Cosine", "lsc-ce": "LSC-CE", "lsc": "LSC"}


def _component(row: Mapping[str, Any]) -> Row:
    label = CLASSIFIER_NAMES[row["classifier"]]
    label += " + POD-flat" * row["pod_flat"] + " + POD-spatial" * row["pod_spatial"]
    off = {} if row["pod_flat"] else {"lambda_f": 0.0}
    off |= {} if row["pod_spatial"] else {"lambda_c": 0.0}
    return podnet(label, **CLASSIFIERS[row["classifier"]], **off)


COMPONENTS = tuple(_component(row) for row in PAPER["ablation_components"]["rows"])

DISTILLATIONS = {
    "none": "None",
    "gradcam": "GradCam",
    "perceptual_style": "Perceptual Style",
    **{pooling: f"POD-{pooling}" for pooling in ("pixels", "channels", "gap", "width", "height", "spatial")},
}


# Table 3b: losses and weights from the options files that the authors released. The paper's text gives none; for it,
# all use POD's weight.
RELEASED_DISTILLATIONS: dict[str, dict[str, Any]] = {
    "none": {"lambda_c": 0.0},
    "pixels": {"distillation": "perceptual_features", "lambda_c": 2.0, "adaptive_c": False},
    "channels": {"distillation": "channels", "lambda_c": 2.0},
    "gap": {"distillation": "gap", "lambda_c": 5.0},
    "width": {"distillation": "width", "lambda_c": 3.0},
    "height": {"distillation": "height", "lambda_c": 3.0},
    "spatial": {"distillation": "spatial", "lambda_c": 3.0},
    "gradcam": {"distillation": "gradcam", "lambda_c": 0.01},
    "perceptual_style": {"distillation": "perceptual_style", "lambda_c": 0.1, "adaptive_c": False},
}
RELEASED_LAMBDA_F = 5.0  # in every row with POD-flat; PODNet itself has 1


def _distillation(name: str, flat: bool = True) -> Row:
    released = {**RELEASED_DISTILLATIONS[name], "lambda_f": RELEASED_LAMBDA_F if flat else 0.0}
    in_text: dict[str, Any] = {"lambda_c": 0.0} if name == "none" else {"distillation": name}
    in_text |= {} if flat else {"lambda_f": 0.0}
    return replace(podnet(DISTILLATIONS[name], **released), in_text={"method": "podnet", **in_text})


def _distillations(table: str, flat: bool) -> tuple[tuple[Row, ...], Numbers]:
    """Table 3b, or its version without POD-flat."""
    values = PAPER["ablation_distillation"][table]
    rows = tuple(_distillation(name, flat) for name in values)
    return rows, plain((DISTILLATIONS[name], pair) for name, pair in values.items())


WITH_FLAT, WITH_FLAT_NUMBERS = _distillations("with_pod_flat", flat=True)
WITHOUT_FLAT, WITHOUT_FLAT_NUMBERS = _distillations("without_pod_flat", flat=False)

MEMORIES = PAPER["memory_per_class"]["columns"]
BASES = PAPER["initial_task_size"]["columns"]
PROXIES = (1, 2, 4, 6, 8, 10)

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "cifar100",
            "Table 1: CIFAR-100",
            METHODS,
            steps(50, 25, 10, 5),
            paper={**with_std("cifar100"), **reported("cifar100")},
        ),
        Benchmark(
            "imagenet100",
            "Table 2: ImageNet100",
            CNN_ONLY,
            steps(50, 25, 10, 5),
            dataset="imagenet100",
            paper={**with_std("imagenet100"), **reported("imagenet100")},
        ),
        Benchmark(
            "imagenet1000",
            "Table 2: ImageNet1000",
            CNN_ONLY,
            steps(10, 5),
            dataset="imagenet1000",
            paper=with_std("imagenet1000"),
            remark="The paper's numbers for iCaRL and UCIR come from Hou et al. (2019).",
        ),
        Benchmark(
            "ablation-components",
            "Table 3a: parts of PODNet switched off",
            COMPONENTS,
            (ONE_CLASS,),
            paper=plain(
                (row.label, numbers["acc"])
                for row, numbers in zip(COMPONENTS, PAPER["ablation_components"]["rows"], strict=True)
            ),
            inferences_across=True,
        ),
        Benchmark(
            "ablation-distillation",
            "Table 3b: distillation losses, with POD-flat",
            WITH_FLAT,
            (ONE_CLASS,),
            paper=WITH_FLAT_NUMBERS,
            inferences_across=True,
        ),
        Benchmark(
            "ablation-distillation-without-flat",
            "Supplementary: distillation losses, without POD-flat",
            WITHOUT_FLAT,
            (ONE_CLASS,),
            paper=WITHOUT_FLAT_NUMBERS,
            inferences_across=True,
        ),
        Benchmark(
            "memory",
            "Table 4: exemplars per class",
            METHODS,
            tuple(Column(f"{m}", steps=50, memory_per_class=m) for m in MEMORIES),
            paper=plain(PAPER["memory_per_class"]["rows"].items(), map(str, MEMORIES)),
            against="memory_per_class",
            axis="exemplars per class",
        ),
        Benchmark(
            "memory-total",
            "Table 5a: 2000 exemplars in all",
            METHODS,
            steps(50, 10, memory_total=2000),
            paper=plain(PAPER["memory_total_2000"]["rows"].items(), ("50 steps", "10 steps")),
        ),
        Benchmark(
            "initial-task",
            "Table 5b: size of the initial task, then one class a step",
            METHODS,
            tuple(Column(f"{base}", base=base) for base in BASES),
            paper=plain(PAPER["initial_task_size"]["rows"].items(), map(str, BASES)),
            against="base",
            axis="classes of the initial task",
        ),
        Benchmark(
            "proxies",
            "Supplementary: proxies a class",
            (Row("PODNet", {"method": "podnet"}, ("cnn",)),),
            tuple(Column(f"{k}", steps=50, options={"proxies": k}) for k in PROXIES),
            paper={("PODNet", f"{k}"): Number(PAPER["proxies_per_class"][str(k)]) for k in PROXIES},
            against="proxies",
            axis="proxies per class",
        ),
        Benchmark(
            "curves",
            "Figure: CIFAR-100, 1 and 2 classes a step",
            METHODS,
            steps(50, 25),
            paper={key: number for key, number in with_std("cifar100").items() if key[1] in ("50 steps", "25 steps")},
        ),
        Benchmark(
            "balance",
            "Section 4.3: rigidity and plasticity",
            (
                podnet("no distillation", lambda_c=0.0, lambda_f=0.0),
                podnet("POD-flat", lambda_c=0.0),
                _distillation("pixels"),
                podnet("POD-spatial"),
            ),
            (ONE_CLASS,),
            balance=True,
        ),
    )
}
