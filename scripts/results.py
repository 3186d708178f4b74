"""The tables and the figure of docs/results.md and docs/recipes.md, from the records in docs/results; docs/methods.md.

python scripts/results.py            # writes them between the markers <!-- NAME --> and <!-- end -->
python scripts/results.py --check    # fails if a page says something else
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml
from matplotlib import rc_context
from PIL import Image

from podnet.methods import METHODS
from podnet.metrics import INFERENCES, average_incremental_accuracy, backward_transfer, forgetting
from podnet.paper.catalogue import BENCHMARKS, DISTILLATIONS, Benchmark
from podnet.paper.numbers import PAPER
from podnet.paper.plan import narrowed, plan, with_row
from podnet.report.plots import LOOK, Line, Panel, colour_of, figure_of

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "results.md", DOCS / "methods.md", DOCS / "recipes.md")
RECORDS = DOCS / "results"
LABELS = {
    "podnet": "PODNet",
    "podnet-moving": "PODNet, exactly as released",
    "ucir": "UCIR",
    "icarl": "iCaRL",
    "bic": "BiC",
    "replay": "replay",
    "finetuning": "fine-tuning",
    "joint": "joint training (upper bound)",
    "lwf": "LwF",
    "wa": "WA",
    "ssil": "SS-IL",
    "afc": "AFC",
    "cwd": "PODNet + CwD",
    "ewc": "EWC",
    "der": "DER",
    "ncm": "nearest class mean",
    "acil": "ACIL",
    "ranpac": "RanPAC",
    "podnet-plus": "**PODNet+**",
}
NOISE = 0.5  # points: a smaller mean difference is not told from chance with two orders
Lines = list[dict]
Cell = tuple[str, str, str]  # benchmark, row, column


def read(folder: Path) -> Lines:
    file = folder / "results.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def averages(lines: Lines) -> dict[str, float]:
    """Average incremental accuracy of each inference that the run has."""
    found = {name: [line["accuracy"].get(name) for line in lines] for name in INFERENCES}
    return {name: average_incremental_accuracy(own) for name, own in found.items() if None not in own}


def cells(values: Sequence[float | None]) -> str:
    return " | ".join("—" if value is None else f"{value:.2f}" for value in values)


def twenty() -> Iterator[str]:
    """All methods on 20 classes, one run each."""
    yield "| order | method | average, CNN | NME | last task, CNN | NME | forgetting, CNN | NME |"
    yield "|---|---|---|---|---|---|---|---|"
    for order in (0, 2):
        for name, label in LABELS.items():
            lines = read(RECORDS / "20-classes" / f"{name}-p{order}")
            if lines:
                mean, last = averages(lines), lines[-1]
                own = [
                    source.get(inference)
                    for source in (mean, last["accuracy"], last["forgetting"])
                    for inference in INFERENCES
                ]
                yield f"| `paper:{order}` | {label} | {cells(own)} |"


STEPS = {10: "5 steps", 5: "10 steps", 2: "25 steps", 1: "50 steps"}  # classes a step -> column of the paper
FULL = {"podnet": "podnet-30", "podnet-plus": "podnet-plus", "acil": "acil", "ncm": "ncm"}  # -> names of the runs
SHORTER = {("podnet", 2): "podnet-15-2", ("podnet", 1): "podnet-12-1"}  # with fewer epochs a step than `fast`
PUBLISHED = {
    **{
        ("podnet", inference): (
            "the paper, mean of three orders",
            [PAPER["cifar100"][f"PODNet ({inference.upper()})", steps].mean for steps in STEPS.values()],
        )
        for inference in INFERENCES
    },
    ("acil", "cnn"): ("its paper", (66.3, 66.1, 66.0, 66.0)),
}
NOT_OURS = {"AFC, its paper": (66.5, 65.0, 63.9, 62.2)}


def full_runs(method: str) -> dict[int, Lines]:
    """The finished runs of a method at the paper's scale, by classes a step."""
    runs = {step: begun(method, step) for step in STEPS}
    return {step: lines for step, lines in runs.items() if len(lines) == 1 + 50 // step}


def folder_of(method: str, step: int) -> Path:
    """The records of a run at the paper's scale."""
    return RECORDS / "full" / SHORTER.get((method, step), f"{FULL[method]}-{step}")


def begun(method: str, step: int) -> Lines:
    """The tasks of a run at the paper's scale, as far as it got."""
    return read(folder_of(method, step))


def unfinished(method: str, step: int) -> str:
    """What stands in the cell of a run that has no average yet."""
    steps = len(begun(method, step)) - 1
    return f"{steps} of {50 // step} steps run" if steps > 0 else "not run"


def full() -> Iterator[str]:
    """All 100 classes of CIFAR-100 from a base network of 50 classes. With a † shorter steps."""
    yield f"| | {' | '.join(STEPS.values())} | after all 100 classes | s a step of 10 | kept, MB |"
    yield "|---" * (4 + len(STEPS)) + "|"
    for method in FULL:
        runs = full_runs(method)
        for inference in averages(next(iter(runs.values()))) if runs else ():
            own = [
                (f"{averages(runs[step])[inference]:.2f}" if step in runs else unfinished(method, step))
                + " †" * ((method, step) in SHORTER)
                for step in STEPS
            ]
            last = [runs[step][-1] for step in STEPS if step in runs]
            seconds = [own_seconds(line) for line in runs[10][1:]]  # every row has this column
            size = sum(last[0]["bytes"].values())
            ends = " / ".join(dict.fromkeys(f"{line['accuracy'][inference]:.2f}" for line in last))
            label = f"{LABELS[method]} ({inference.upper()})"
            yield f"| {label} | {' | '.join(own)} | {ends} | {statistics.median(seconds):.0f} | {size / 1e6:.1f} |"
            if (method, inference) in PUBLISHED:
                words, values = PUBLISHED[method, inference]
                yield f"| — {words} | {' | '.join(f'{value:.1f}' for value in values)} | | | |"
    for words, values in NOT_OURS.items():
        yield f"| {words} | {' | '.join(f'{value:.1f}' for value in values)} | | | |"


FIRST_STEPS = {  # of 50, with 12 epochs each -> the run
    "PODNet at the paper's rate, 0.1": "podnet-12-1",
    "PODNet with `--memory-total 2000`": "podnet-12-1-total",
    "PODNet with `--step-lr 0.02`": "podnet-12-1-lr0.02",
    "nearest class mean, the network as it was": "ncm-1",
    "PODNet+, the network as it was": "podnet-plus-1",
}


def first_steps() -> Iterator[str]:
    """The first of 50 steps with another learning rate or memory, as far as those runs got."""
    runs = {words: read(RECORDS / "full" / name) for words, name in FIRST_STEPS.items()}
    shown = max(len(lines) for words, lines in runs.items() if "--" in words)
    yield f"| | | {' | '.join(str(50 + step) for step in range(shown))} |"
    yield "|---" * (2 + shown) + "|"
    for words, lines in runs.items():
        for inference in averages(lines):
            own = [f"{line['accuracy'][inference]:.1f}" for line in lines[:shown]]
            yield f"| {words} | {inference.upper()} | {' | '.join(own + ['—'] * (shown - len(own)))} |"


def own_seconds(line: dict) -> float:
    """Of a task, without its test."""
    return sum(value for stage, value in line["seconds"].items() if stage != "evaluate")


WITH, WITHOUT = 2.03, 1.67  # how much faster ours trains than the authors' code, with distillation and without
FORWARD = 3  # an image passes through a network so much faster than it trains it


def cost() -> Iterator[str]:
    """Hours of PODNet's row, and an estimate of what the authors' code would take beside the same other work."""
    base, *_ = read(RECORDS / "full" / "podnet-base")
    runs = full_runs("podnet")
    slow = 25_000 * 160 / base["seconds"]["train"]  # images a second without distillation
    fast = {step: pace(step, lines) for step, lines in runs.items()}  # and with it, when that column was run
    plain = {step: slow * fast[step] / fast[10] for step in runs}
    ours = {"base task": own_seconds(base)} | {
        STEPS[step]: sum(map(own_seconds, lines[1:])) for step, lines in sorted(runs.items(), reverse=True)
    }
    theirs = {"base task": 25_000 * 160 * WITHOUT / slow + looked_at(50, slow)} | {
        STEPS[step]: sum(160 * (500 * step + 20 * old) * WITH / fast[step] for old in range(50, 100, step))
        + sum(
            20 * 20 * seen * WITHOUT / plain[step] + looked_at(seen, plain[step])
            for seen in range(50 + step, 101, step)
        )
        for step in sorted(runs, reverse=True)
    }
    yield f"| hours | {' | '.join(ours)} | together |"
    yield "|---" * (2 + len(ours)) + "|"
    for words, hours in (("podnet, 12 to 30 epochs a step", ours), ("the authors' code, estimated", theirs)):
        yield f"| {words} | {' | '.join(f'{each / 3600:.1f}' for each in (*hours.values(), sum(hours.values())))} |"


def pace(step: int, lines: Lines) -> float:
    """Images a second in the steps of a column."""
    epochs = yaml.safe_load((folder_of("podnet", step) / "config.yaml").read_text())["step_epochs"]
    images = (epochs * (500 * step + 20 * before["seen"]) for before in lines[:-1])
    return statistics.median(a / b["seconds"]["train"] for a, b in zip(images, lines[1:], strict=True))


def looked_at(seen: int, rate: float) -> float:
    """Seconds of the authors' two passes over all training images of the classes seen, after a task."""
    return 2 * 500 * seen * WITHOUT / (FORWARD * rate)


FIGURE = DOCS / "images" / "paper-protocol.png"


def panels() -> list[Panel]:
    """Accuracy on all classes seen, after each task, at the paper's scale; what is not run is not drawn."""
    found = []
    for step, words in STEPS.items():
        lines = [
            Line(
                f"{LABELS[method].strip('*')} ({inference.upper()}) {averages(own)[inference]:.1f}",
                tuple(float(line["seen"]) for line in own),
                (tuple(line["accuracy"][inference] for line in own),),
                colour_of(method),
                dashed=method == "podnet" and inference == "cnn",
            )
            for method in FULL
            if (own := full_runs(method).get(step))
            for inference in averages(own)
        ]
        found.append(Panel(f"{words} of {step}", "classes seen", "accuracy on them, %", tuple(lines)))
    return found


def figure(check: bool) -> bool:
    """Whether the figure was drawn from these numbers; if it need not be checked, it is drawn."""
    drawn = panels()
    digest = hashlib.sha256(repr(drawn).encode()).hexdigest()
    if check:
        with Image.open(FIGURE) as image:
            return image.info.get("Numbers") == digest
    with rc_context(LOOK):
        figure_of(drawn).savefig(FIGURE, dpi=150, metadata={"Numbers": digest})
    return True


def curves() -> Iterator[str]:
    """Accuracy after each task on 20 classes."""
    seen = [line["seen"] for line in read(RECORDS / "20-classes" / "podnet-p0")]
    yield f"| order | method | inference | {' | '.join(map(str, seen))} |"
    yield "|---" * (3 + len(seen)) + "|"
    for order in (0, 2):
        for name, label in LABELS.items():
            lines = read(RECORDS / "20-classes" / f"{name}-p{order}")
            for inference in averages(lines) if lines else ():
                own = " | ".join(f"{line['accuracy'][inference]:.1f}" for line in lines)
                yield f"| `paper:{order}` | {label} | {inference.upper()} | {own} |"


def methods() -> Iterator[str]:
    """Every method, what it keeps, and what its implementation was compared with."""
    yield "| method | year | idea | exemplars | predicts by | what it is | verified against |"
    yield "|---|---|---|---|---|---|---|"
    for method in METHODS.values():
        inferences = " and ".join(name.upper() for name in method.inferences)
        year = method.year or ""
        yield (
            f"| `{method.name}` | {year} | {method.idea} | {method.exemplars} | {inferences} | {method.summary} "
            f"| {method.verified} |"
        )


def spread(values: Sequence[float]) -> str:
    if not values:
        return "not run"
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else " (one order)"
    return f"{statistics.mean(values):.2f}{deviation}"


def small(name: str, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> Iterator[str]:
    """A table of the paper at scale small: mean and sample standard deviation over the class orders."""
    benchmark: Benchmark = narrowed(BENCHMARKS[name], rows, columns)
    planned = plan(benchmark, "small", RECORDS)
    labels = [column.label for column in benchmark.columns]
    heads = [
        f"{label}, {inference.upper()}" if len(labels) > 1 else inference.upper()
        for label in labels
        for inference in INFERENCES
    ]
    yield f"| | {' | '.join(heads)} | forgetting, CNN | NME |" if len(labels) == 1 else f"| | {' | '.join(heads)} |"
    yield "|---" * (1 + len(heads) + (2 if len(labels) == 1 else 0)) + "|"
    for row in benchmark.rows:
        own = []
        for column in benchmark.columns:
            mine = [run for run in planned if run.row is row and run.column is column]
            lines = [found for run in mine if (found := read(RECORDS / "small" / run.record.folder.name))]
            means = [averages(each) for each in lines]
            own += [
                spread([mean[i] for mean in means if i in mean]) if not means or i in means[0] else "—"
                for i in INFERENCES
            ]
            if len(labels) == 1:
                lost = [[each[-1]["forgetting"].get(i) for each in lines] for i in INFERENCES]
                own += [spread(values) if values and None not in values else "—" for values in lost]
        yield f"| {row.label} | {' | '.join(own)} |"


CHANGES = {"ranpac": {"backbone": "resnet32", "weights": "none", "freeze": False, "lr": 0.1}}  # trained like the others


def runs_of(method: str, column: str) -> list[Lines]:
    """The finished runs of a method under a column of the paper's first table, at scale small."""
    table = BENCHMARKS["cifar100"]
    known = {row.options["method"]: row.label for row in table.rows}
    table = table if method in known else with_row(table, method)
    planned = plan(narrowed(table, [known.get(method, method)], [column]), "small", RECORDS, changes=CHANGES)
    return [lines for run in planned if (lines := read(RECORDS / "small" / run.record.folder.name))]


def both_inferences(runs: Sequence[Lines]) -> str:
    """The mean of the average incremental accuracies over the runs, "CNN / NME"."""
    found = [averages(lines) for lines in runs]
    shown = [f"{statistics.mean(mean[i] for mean in found):.1f}" if i in found[0] else "—" for i in INFERENCES]
    return " / ".join(shown) + (" *" if len(runs) == 1 else "")


def lost(runs: Sequence[Lines]) -> str:
    """Forgetting and backward transfer of the first inference, means over the runs."""
    inference = next(iter(averages(runs[0])))
    matrices = [[line["accuracy_per_task"][inference] for line in lines] for lines in runs]
    means = [statistics.mean(map(measure, matrices)) for measure in (forgetting, backward_transfer)]
    return " / ".join(f"{mean:.1f}" for mean in means)


def kept(line: dict) -> str:
    """What is kept after a task, in kilobytes: the network, exemplars, and the rest."""
    if "bytes" not in line:  # earlier versions did not record them
        return f"— + {line['memory'] * 16 * 16 * 3 / 1000:.0f} + —"
    parts = line["bytes"]
    others = sum(size for part, size in parts.items() if part not in ("network", "exemplars"))
    return " + ".join(f"{size / 1000:.0f}" for size in (parts["network"], parts["exemplars"], others))


def every_method() -> Iterator[str]:
    """All methods at scale small. With a * only one class order was run."""
    heads = ["1 class a step", "forgetting / transfer", "5 classes a step", "forgetting / transfer", "kept, kB"]
    yield f"| method | {' | '.join(heads)} | s a step |"
    yield "|---" * (2 + len(heads)) + "|"
    for method in METHODS:
        many, few = (runs_of(method, column) for column in ("50", "10"))
        if not many and not few:
            continue
        own = [text for runs in (many, few) for text in ((both_inferences(runs), lost(runs)) if runs else ("", ""))]
        steps = [sum(line["seconds"].values()) for lines in many or few for line in lines[1:]]
        own += [kept((many or few)[0][-1]), f"{statistics.median(steps):.1f}"]
        yield f"| {LABELS.get(method, method)} | {' | '.join(own)} |"


PARTS = {  # name of the runs -> what it is, number of features
    "emb": ("ridge regression on the embedding of PODNet's first network", 64),
    "maps1": ("on its last map, pooled to 2 x 2 cells", 256),
    "noflip": ("on its last two maps", 512),
    "plus": ("averaged with the mirror image", 512),
    "lift": ("lifted by a random layer: PODNet+", 2000),
    "small": ("not lifted, all four maps, each averaged to one cell", 176),
}


def parts_of_plus() -> Iterator[str]:
    """PODNet+ part by part, from the same first networks."""
    yield "| | features | kept, kB | 1 class a step | 5 classes a step | after all 40 classes |"
    yield "|---|---|---|---|---|---|"
    for name, (words, features) in PARTS.items():
        runs = {step: [read(RECORDS / "plus" / f"{name}-s{seed}-{step}") for seed in (1, 2)] for step in (1, 5)}
        found = {step: [lines for lines in own if lines] for step, own in runs.items()}
        if not found[1] or not found[5]:
            continue
        means = [spread([averages(lines)["cnn"] for lines in found[step]]) for step in (1, 5)]
        last = spread([lines[-1]["accuracy"]["cnn"] for lines in found[1]])
        size = features * (features + 1) / 2 * 8 + 40 * features * 8  # Gram matrix, totals of classes
        yield f"| {words} | {features} | {size / 1000:.0f} | {' | '.join(means)} | {last} |"


def step_epochs() -> Iterator[str]:
    """Trials of the number of epochs of a step, on held-out images."""
    yield "| epochs of a step | average, CNN | NME | last task, CNN | NME |"
    yield "|---|---|---|---|---|"
    for epochs in (4, 7, 14, 28, 56):
        lines = read(RECORDS / "recipes" / f"5-e{epochs}")
        values = [*averages(lines).values(), *lines[-1]["accuracy"].values()]
        yield f"| {epochs} | {' | '.join(f'{value:.1f}' for value in values)} |"


STEP_RATES = {  # -> the runs in steps of one class and of five
    "0.1": ("1-e14-lr0.1", "5-e14"),
    "0.05": ("1-e14-lr0.05", "5-e14-lr0.05"),
    "0.02": ("1-e14-lr0.02", "5-e14-lr0.02"),
    "0.01": ("1-e14-lr0.01",),
    "0.005": ("1-e14-lr0.005",),
    "0.1, another order": ("1-e14-lr0.1-p0",),
    "0.02, another order": ("1-e14-lr0.02-p0",),
}


def step_rates() -> Iterator[str]:
    """Trials of the learning rate of a step of 14 epochs, on held-out images, by its number of classes."""
    yield "| rate | 1 class: average, CNN | NME | last task, CNN | NME | 5 classes: CNN | NME | last, CNN | NME |"
    yield "|---" * 9 + "|"
    for rate, names in STEP_RATES.items():
        runs = [read(RECORDS / "recipes" / name) for name in names]
        values = [f"{x:.1f}" for lines in runs for x in (*averages(lines).values(), *lines[-1]["accuracy"].values())]
        yield f"| {rate} | {' | '.join(values + ['—'] * (8 - len(values)))} |"


def strengths() -> Iterator[str]:
    """Trials of ACIL's ridge, on held-out images."""
    yield "| γ | average | last task |"
    yield "|---|---|---|"
    for gamma in ("0.001", "0.01", "0.1", "1", "10", "100", "1000"):
        if lines := read(RECORDS / "gamma" / gamma):
            yield f"| {gamma} | {averages(lines)['cnn']:.1f} | {lines[-1]['accuracy']['cnn']:.1f} |"


def measured(name: str, row: str, column: str) -> dict[str, dict[str, float]]:
    """The averages of a row under a column at scale small, by class order, of those that were run."""
    planned = plan(narrowed(BENCHMARKS[name], [row], [column]), "small", RECORDS)
    return {
        run.order: averages(lines) for run in planned if (lines := read(RECORDS / "small" / run.record.folder.name))
    }


def leads(ours: Cell, theirs: Cell) -> dict[str, dict[str, float]]:
    """By inference and class order that both have, how far a cell is above another."""
    own, other = measured(*ours), measured(*theirs)
    both = {order: (own[order], other[order]) for order in own if order in other}
    return {i: {order: a[i] - b[i] for order, (a, b) in both.items() if i in a and i in b} for i in INFERENCES}


def lead(ours: Cell, theirs: Cell) -> dict[str, list[float]]:
    """How far a cell is above another, in each class order that both have."""
    return {i: list(found.values()) for i, found in leads(ours, theirs).items()}


def growth(first: tuple[Cell, Cell], second: tuple[Cell, Cell]) -> dict[str, list[float]]:
    """How much larger the first lead is than the second, in each class order that both have."""
    one, other = leads(*first), leads(*second)
    return {i: [one[i][order] - other[i][order] for order in one[i] if order in other[i]] for i in INFERENCES}


def verdict(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "not run in both orders"
    if min(values) > 0:
        return "reproduced" if statistics.mean(values) >= NOISE else "within noise"
    return "not reproduced" if max(values) < 0 and statistics.mean(values) <= -NOISE else "within noise"


def claims() -> Iterator[str]:
    """The claims of the paper, judged by the differences in each class order."""
    yield "| claim of the paper | CNN | NME | differences in each order, CNN | NME |"
    yield "|---|---|---|---|---|"
    for words, found in CLAIMS.items():
        differences = found()
        verdicts = [verdict(differences[i]) if differences[i] else "—" for i in INFERENCES]
        shown = [", ".join(f"{value:+.1f}" for value in differences[i]) or "—" for i in INFERENCES]
        yield f"| {words} | {' | '.join(verdicts)} | {' | '.join(shown)} |"


def component(row: str) -> Cell:
    return "ablation-components", row, "50 steps"


def distillation(row: str) -> Cell:
    return "ablation-distillation", row, "50 steps"


BOTH = "LSC + POD-flat + POD-spatial"
CLAIMS: dict[str, Callable[[], dict[str, list[float]]]] = {
    "POD-flat above no distillation": lambda: lead(component("LSC + POD-flat"), component("LSC")),
    "POD-spatial above POD-flat": lambda: lead(component("LSC + POD-spatial"), component("LSC + POD-flat")),
    "both above POD-flat alone": lambda: lead(component(BOTH), component("LSC + POD-flat")),
    "both above POD-spatial alone (by 0.3 in the paper)": lambda: lead(component(BOTH), component("LSC + POD-spatial")),
    "LSC above the cosine classifier": lambda: lead(component(BOTH), component("Cosine + POD-flat + POD-spatial")),
    "NCA above cross-entropy": lambda: lead(component(BOTH), component("LSC-CE + POD-flat + POD-spatial")),
    **{
        f"PODNet above {rival}": lambda rival=rival: lead(
            ("cifar100", "PODNet", "50 steps"), ("cifar100", rival, "50 steps")
        )
        for rival in ("UCIR", "iCaRL", "BiC")
    },
    "its lead over UCIR is larger with more steps (20 against 4)": lambda: growth(
        (("cifar100", "PODNet", "50 steps"), ("cifar100", "UCIR", "50 steps")),
        (("cifar100", "PODNet", "10 steps"), ("cifar100", "UCIR", "10 steps")),
    ),
    "its lead over UCIR is larger with less memory (3 against 13)": lambda: growth(
        (("memory", "PODNet", "10"), ("memory", "UCIR", "10")), (("memory", "PODNet", "50"), ("memory", "UCIR", "50"))
    ),
    **{
        f"POD-spatial above {other}": lambda other=other: lead(distillation("POD-spatial"), distillation(other))
        for other in DISTILLATIONS
        if other not in ("None", "POD-spatial")
    },
}

TABLES = {
    "methods": methods,
    "claims": claims,
    "full": full,
    "first-steps": first_steps,
    "cost": cost,
    "twenty": twenty,
    "curves": curves,
    "every-method": every_method,
    "step-epochs": step_epochs,
    "step-rates": step_rates,
    "strengths": strengths,
    "parts-of-plus": parts_of_plus,
    "small-methods": lambda: small("cifar100", columns=["50", "10"]),
    "small-components": lambda: small("ablation-components"),
    "small-memory": lambda: small("memory", ["PODNet", "UCIR"], ["10", "20", "50"]),
    "small-distillation": lambda: small("ablation-distillation"),
    "small-distillation-without-flat": lambda: small("ablation-distillation-without-flat"),
}


def table(found: re.Match[str]) -> str:
    lines = "\n".join(TABLES[found[1]]())
    return f"<!-- {found[1]} -->\n\n{lines}\n\n<!-- end -->"


def main(check: bool) -> int:
    wrong = 0 if figure(check) else 1
    for page in PAGES:
        text = page.read_text()
        made = re.sub(r"<!-- ([a-z-]+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)
        wrong += made != text
        if not check:
            page.write_text(made)
    return wrong if check else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
