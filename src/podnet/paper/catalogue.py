"""Every table and figure of the paper as data: rows are methods with their options, columns are protocols."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from podnet.metrics import INFERENCES
from podnet.paper.numbers import PAPER, Numbers


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
    inferences_across: bool = False  # NME and CNN side by side in a row, as in the ablations
    against: str = ""  # the option that varies along the columns, the figure's x axis; else classes seen
    axis: str = ""  # that option as a label
    remark: str = ""  # below the table
    balance: bool = False  # report accuracy on the oldest and newest classes, not average incremental accuracy

    @property
    def paper(self) -> Numbers:
        """The paper's numbers; a figure shows those of its dataset's table."""
        return PAPER.get(self.name, PAPER[self.dataset])


METHODS = (
    Row("iCaRL", {"method": "icarl"}, ("nme",)),
    Row("BiC", {"method": "bic"}, ("cnn",)),
    Row("UCIR", {"method": "ucir"}),
    Row("PODNet", {"method": "podnet"}),
)
PODNET_CNN = Row("PODNet", {"method": "podnet"}, ("cnn",))
CNN_ONLY = (*METHODS[:3], PODNET_CNN)  # for PODNet on ImageNet
ONE_CLASS = (Column("50 steps", steps=50),)


def steps(*counts: int, **protocol: Any) -> tuple[Column, ...]:
    return tuple(Column(f"{count} steps", steps=count, **protocol) for count in counts)


def podnet(label: str, **options: Any) -> Row:
    return Row(label, {"method": "podnet", **options})


# Table 3a. The cosine classifier is one proxy per class under cross-entropy; LSC alone has ten under NCA.
COSINE = {"proxies": 1, "classification": "cross_entropy"}
COMPONENTS = (
    podnet("Cosine", **COSINE, lambda_f=0.0, lambda_c=0.0),
    podnet("Cosine + POD-flat", **COSINE, lambda_c=0.0),
    podnet("Cosine + POD-spatial", **COSINE, lambda_f=0.0),
    podnet("Cosine + POD-flat + POD-spatial", **COSINE),
    podnet("LSC-CE + POD-flat + POD-spatial", classification="cross_entropy"),
    podnet("LSC", lambda_f=0.0, lambda_c=0.0),
    podnet("LSC + POD-flat", lambda_c=0.0),
    podnet("LSC + POD-spatial", lambda_f=0.0),
    podnet("LSC + POD-flat + POD-spatial"),
)

# Table 3b: losses and weights from the options files that the authors released. The paper's text gives none; for it,
# all use POD's weight.
DISTILLATIONS: dict[str, dict[str, Any]] = {
    "None": {"lambda_c": 0.0},
    "POD-pixels": {"distillation": "perceptual_features", "lambda_c": 2.0, "adaptive_c": False},
    "POD-channels": {"distillation": "channels", "lambda_c": 2.0},
    "POD-gap": {"distillation": "gap", "lambda_c": 5.0},
    "POD-width": {"distillation": "width", "lambda_c": 3.0},
    "POD-height": {"distillation": "height", "lambda_c": 3.0},
    "POD-spatial": {"distillation": "spatial", "lambda_c": 3.0},
    "GradCam": {"distillation": "gradcam", "lambda_c": 0.01},
    "Perceptual Style": {"distillation": "perceptual_style", "lambda_c": 0.1, "adaptive_c": False},
}
RELEASED_LAMBDA_F = 5.0  # in every row with POD-flat; PODNet itself has 1


def _distillation(label: str, flat: bool = True) -> Row:
    released = DISTILLATIONS[label]
    in_text = {"lambda_c": 0.0} if label == "None" else {"distillation": released["distillation"]}
    in_text |= {"distillation": "pixels"} if label == "POD-pixels" else {}
    in_text |= {} if flat else {"lambda_f": 0.0}
    row = podnet(label, **released, lambda_f=RELEASED_LAMBDA_F if flat else 0.0)
    return replace(row, in_text={"method": "podnet", **in_text})


ablation = partial(Benchmark, columns=ONE_CLASS, inferences_across=True)

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("cifar100", "Table 1: CIFAR-100", METHODS, steps(50, 25, 10, 5)),
        Benchmark("imagenet100", "Table 2: ImageNet100", CNN_ONLY, steps(50, 25, 10, 5), dataset="imagenet100"),
        Benchmark(
            "imagenet1000",
            "Table 2: ImageNet1000",
            CNN_ONLY,
            steps(10, 5),
            dataset="imagenet1000",
            remark="The paper's numbers for iCaRL and UCIR come from Hou et al. (2019).",
        ),
        ablation("ablation-components", "Table 3a: parts of PODNet switched off", COMPONENTS),
        ablation(
            "ablation-distillation",
            "Table 3b: distillation losses, with POD-flat",
            tuple(_distillation(label) for label in DISTILLATIONS),
        ),
        ablation(
            "ablation-distillation-without-flat",
            "Supplementary: distillation losses, without POD-flat",
            tuple(_distillation(label, flat=False) for label in DISTILLATIONS),
        ),
        Benchmark(
            "memory",
            "Table 4: exemplars per class",
            METHODS,
            tuple(Column(f"{m}", steps=50, memory_per_class=m) for m in (5, 10, 20, 50, 100, 200)),
            against="memory_per_class",
            axis="exemplars per class",
        ),
        Benchmark("memory-total", "Table 5a: 2000 exemplars in all", METHODS, steps(50, 10, memory_total=2000)),
        Benchmark(
            "initial-task",
            "Table 5b: size of the initial task, then one class a step",
            METHODS,
            tuple(Column(f"{base}", base=base) for base in (10, 20, 30, 40, 50)),
            against="base",
            axis="classes of the initial task",
        ),
        Benchmark(
            "proxies",
            "Supplementary: proxies a class",
            (PODNET_CNN,),
            tuple(Column(f"{k}", steps=50, options={"proxies": k}) for k in (1, 2, 4, 6, 8, 10)),
            against="proxies",
            axis="proxies per class",
        ),
        Benchmark("curves", "Figure: CIFAR-100, 1 and 2 classes a step", METHODS, steps(50, 25)),
        Benchmark(
            "balance",
            "Section 4.3: rigidity and plasticity",
            (
                podnet("no distillation", lambda_c=0.0, lambda_f=0.0),
                podnet("POD-flat", lambda_c=0.0),
                _distillation("POD-pixels"),
                podnet("POD-spatial"),
            ),
            ONE_CLASS,
            balance=True,
        ),
    )
}
