"""From a benchmark at a scale to its runs, each a flat mapping of options with its own folder."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Self

from podnet.data.imagenet import SUBSETS
from podnet.errors import ConfigError, PodnetError, nearest
from podnet.io.files import expanded
from podnet.methods import Method, find_method
from podnet.methods.base import phases_of
from podnet.metrics import INFERENCES
from podnet.paper.catalogue import Benchmark, Column, Row
from podnet.paper.scales import SETTINGS, Setting
from podnet.runs.config import resolve
from podnet.runs.earlier import NEWER
from podnet.runs.experiment import Experiment
from podnet.runs.folder import CHANGEABLE, Run, folder_name, method_name
from podnet.scenario.orders import spell_out


@dataclass(frozen=True)
class Planned:
    """One run of a benchmark: a row under a column's protocol, in one class order."""

    row: Row
    column: Column
    order: str
    options: Mapping[str, Any]
    runs: Path  # the folder that holds the run folders
    images: int  # approximate number of training images per class
    axis: str = ""  # what the number in the column's label means
    changes: Mapping[str, Any] = field(default_factory=dict)  # options that the user changed in this row

    @cached_property
    def experiment(self) -> Experiment:
        return resolve(self.options)

    @cached_property
    def record(self) -> Run:
        return record_of(self.runs, self.experiment)

    @cached_property
    def first_task(self) -> Self:
        """The run of the first task only; runs that differ only later share it and start from it."""
        column = Column("first task")
        return replace(self, column=column, axis="", options=self.experiment.first_task().options())

    @cached_property
    def has_first_task(self) -> bool:
        """Whether there is a first task to share: of some methods it has no training, and so nothing to start from."""
        return self.tasks > 1 and bool(phases_of(self.experiment.method, 0, self.sizes[0], {}, first=True))

    def own_options(self) -> dict[str, Any]:
        """The options that differ from the method's defaults on this dataset, but for those set to nothing."""
        context = ("method", "dataset", "classes", "fidelity")
        defaults = resolve({key: self.options[key] for key in context if key in self.options}).options()
        options = self.experiment.options().items()
        return {key: value for key, value in options if value is not None and value != defaults[key]}

    @property
    def protocol(self) -> str:
        return f"{self.column.label} {self.axis}".rstrip()

    @property
    def label(self) -> str:
        return f"{self.row.label}, {self.protocol}, order {self.order}, seed {self.options['seed']}"

    @property
    def tasks(self) -> int:
        return len(self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of new classes of each task."""
        return self.experiment.task_sizes(self.options["classes"])

    def finished(self) -> bool:
        """Whether the run is complete; a run of the first task also needs the checkpoint that others start from.

        A process that still writes may have the last checkpoint to write.
        """
        usable = self.tasks > 1 or self.record.trained_first_task() is not None
        complete = usable and self.record.config_file.exists() and self.tasks_done() == self.tasks
        return complete and not self.record.is_being_written()

    def tasks_done(self) -> int:
        """0 if the record is damaged: on resume the run itself reports that, and the others continue."""
        try:
            return len(self.record.results())
        except PodnetError:
            return 0


def record_of(runs: Path, experiment: Experiment) -> Run:
    """A folder named after everything that determines the results: equal runs share one, across benchmarks."""
    given = experiment.options().items()
    options = {key: value for key, value in given if key not in CHANGEABLE and (key, value) not in NEWER.items()}
    if options["subset"] not in (None, *SUBSETS):
        file = str(expanded(options["subset"]))
        options["subset"] = spell_out(file)  # the content of a file, not its location
    if source := experiment.method.source.rpartition(":")[0]:
        options["method"] = f"{Path(source).read_text()}:{method_name(options)}"  # an edited method is another one
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:10]
    return Run(runs / f"{folder_name(options)}-{digest}")


def narrowed(benchmark: Benchmark, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> Benchmark:
    """The benchmark with only some of its rows and columns, by their labels."""
    return replace(
        benchmark,
        rows=_chosen(benchmark.name, "row", benchmark.rows, rows),
        columns=_chosen(benchmark.name, "column", benchmark.columns, columns),
    )


def _chosen(name: str, kind: str, known: tuple[Any, ...], wanted: Sequence[str]) -> tuple[Any, ...]:
    """Those with a wanted label, or a wanted number at its start; all if nothing is given."""
    by_label = {item.label.lower().split()[0]: item for item in known} | {item.label.lower(): item for item in known}
    for label in wanted:
        if label.lower() not in by_label:
            labels = [item.label for item in known]
            hint = nearest(label, labels)
            raise ConfigError(f"{name} has no {kind} {label!r}; it has {', '.join(labels)}.{hint}")
    picked = [by_label[label.lower()] for label in wanted]
    return tuple(item for item in known if item in picked) if wanted else known


def with_row(benchmark: Benchmark, name: str) -> Benchmark:
    """The benchmark with one more row: a method by its name or by FILE.py:CLASS."""
    method, label = find_method(name), method_name({"method": name})
    if label.lower() in [row.label.lower() for row in benchmark.rows]:
        raise ConfigError(f"{benchmark.name} has a row {label} already; leave --add {name} out.")
    known = {each.name for each in fields(method)}
    for option in (option for column in benchmark.columns for option in column.options):
        if option not in known:
            raise ConfigError(f"{benchmark.name} varies {option}, which {label} does not have; leave --add {name} out.")
    inferences = tuple(inference for inference in INFERENCES[::-1] if inference in method.inferences)
    row = Row(label, {"method": method.source or name}, inferences, added=True, upper_bound=method.sees_all_data)
    return replace(benchmark, rows=(*benchmark.rows, row))


def class_orders(setting: Setting, wanted: str | None) -> list[tuple[str, int]]:
    """(order, seed) of each class order: `wanted` is their number, or a list such as "paper:0,paper:2"."""
    known = list(setting.orders)
    if wanted is None:
        names = known[: setting.default_orders]
    elif wanted.isdecimal():
        names = [*known, *["random"] * int(wanted)][: int(wanted)]
    else:
        names = [name.strip() for name in wanted.split(",")]
    if not names:
        raise ConfigError(f"orders is {wanted!r}; give a number of orders, at least 1, or their names.")
    fixed = {name: seed for seed, name in enumerate(known, start=1) if name != "random"}
    return [(name, fixed.get(name, i + 1)) for i, name in enumerate(names)]


def plan(
    benchmark: Benchmark,
    scale: str,
    folder: Path,
    orders: str | None = None,
    common: Mapping[str, Any] | None = None,
    fidelity: str = "released",
    changes: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Planned]:
    """All runs of the benchmark; `common` options (data path, device, threads) apply to each, `changes` to rows."""
    setting = SETTINGS[scale][benchmark.dataset]
    methods = {row.label: find_method(row.options["method"]) for row in benchmark.rows}
    planned = []
    for column, row, (order, seed) in product(benchmark.columns, benchmark.rows, class_orders(setting, orders)):
        own = row.in_text if fidelity == "paper" and row.in_text is not None else row.options
        given, method = (changes or {}).get(row.label, {}), methods[row.label]
        changed = {option: value for option, value in given.items() if option not in column.options}
        options = _options(setting, own, column, method) | {"order": order, "seed": seed} | dict(common or {})
        if "fidelity" in {each.name for each in fields(method)}:
            options["fidelity"] = fidelity
        options |= changed
        runs, axis = folder / "runs", benchmark.axis
        planned.append(Planned(row, column, order, options, runs, setting.images, axis, changed))
    return planned


def _options(setting: Setting, own: Mapping[str, Any], column: Column, method: type[Method]) -> dict[str, Any]:
    protocol: dict[str, Any] = {
        "dataset": setting.dataset,
        "classes": setting.classes,
        "base": setting.bases[column.base or max(setting.bases)],
        "increment": 1 if column.steps is None else setting.increments[column.steps],
    }
    if column.memory_total:
        protocol["memory_total"] = setting.memory_total
    else:
        protocol["memory_per_class"] = setting.memories(column.memory_per_class or 20)
    # A method that is derived from one of the paper's is scaled like it.
    names = [getattr(base, "name", "") for base in method.__mro__]
    scaled = next((setting.method_options[name] for name in names if name in setting.method_options), {})
    return protocol | dict(setting.options) | dict(scaled) | dict(own) | dict(column.options)


def row_changes(benchmarks: Sequence[Benchmark], given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Options by row label, from texts such as "GradCam:lambda_c=3,distillation=attention"."""
    rows = {row.label.lower(): row for benchmark in benchmarks for row in benchmark.rows}
    labels = [row.label for row in rows.values()]
    changes: dict[str, dict[str, str]] = {}
    for text in given:
        name, _, settings = text.partition(":")
        pairs = [part.partition("=") for part in re.split(r",(?=[^,]*=)", settings)]  # a value may contain commas
        if not all(option.strip() and value.strip() for option, _, value in pairs):
            raise ConfigError(f"--set is {text!r}; write ROW:OPTION=VALUE, such as GradCam:lambda_c=0.03.")
        if name.strip().lower() not in rows:
            raise ConfigError(f"unknown row {name!r}; choose from {', '.join(labels)}.{nearest(name, labels)}")
        row = rows[name.strip().lower()]
        method = find_method(row.options["method"])
        known = {each.name for each in fields(method)} - {method.switch}
        for option, _, value in pairs:
            option = option.strip().replace("-", "_")
            if option not in known:
                hint = nearest(option, known)
                raise ConfigError(f"--set cannot change {option!r} of {row.label}.{hint}")
            if all(option in column.options for benchmark in benchmarks for column in benchmark.columns):
                raise ConfigError(f"--set cannot change {option!r} of {row.label}: the columns vary it.")
            value = value.strip()
            if option == "weights" and expanded(value).is_file():  # workers have other working directories
                value = str(expanded(value).absolute())
            changes.setdefault(row.label, {})[option] = value
    return changes
