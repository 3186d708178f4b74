"""`podnet run --seeds 1,2,3 --orders paper:0,paper:1`: one experiment several times, and the mean of its results."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from podnet.cli.given import Chosen, resumed
from podnet.cli.printing import going_on, say, say_failed
from podnet.errors import ConfigError, PodnetError
from podnet.processes import is_member
from podnet.report.averages import comparison_grid
from podnet.report.results import spread
from podnet.runs.config import as_it_ran, resolve
from podnet.runs.folder import CHANGEABLE, Run, folder_name, method_name

OURS = re.compile(r"order-.+|seed-\d+")  # names of the subfolders
MEANT = 3  # measures in the lines of means: average incremental accuracy, last accuracy, forgetting

Perform = Callable[[Chosen, Sequence[str]], None]  # a run, and the command that would continue it


def is_repeated(known: argparse.Namespace) -> bool:
    """Whether the call is about several runs: they are asked for, or there to be resumed."""
    folder = known.resume or (known.output if known.resume is not None else None)
    asked = known.seeds is not None or known.orders is not None
    return asked or (folder is not None and not Run(folder).exists() and bool(_members(Path(folder))))


def repeat(known: argparse.Namespace, wanted: dict[str, Any], perform: Perform) -> int:
    """Perform all runs, one after the other, and print the mean; a run that fails does not stop the others."""
    folder = _folder(known, wanted)
    runs = _chosen_runs(known, wanted, folder)
    _check(runs, known)
    if known.print_config:
        print(yaml.safe_dump_all([run.experiment.options() for run in runs], sort_keys=False), end="")
        return 0
    _begin(runs)
    failed: list[str] = []
    for number, run in enumerate(runs, start=1):
        place = f"{number} of {len(runs)}: {run.record.folder.name}"
        if _finished(run.record) and not known.logger:  # loggers also write runs that are over
            say(f"{place} is done.")
            continue
        say(place)
        with going_on(failed, run.record.folder.name):
            perform(run._replace(existing="resume"), _command(run, known))
    _say_means(folder, [run.record for run in runs if _finished(run.record)])
    return say_failed(failed)


def _folder(known: argparse.Namespace, wanted: Mapping[str, Any]) -> Path:
    """The folder of all runs; by default named like that of one run, without what differs."""
    if known.resume or known.output:
        return Path(known.resume or known.output)
    several = ({"order": "orders"} if known.orders else {}) | ({"seed": "s"} if known.seeds else {})  # "...-seeds"
    return Path("runs") / folder_name(resolve(wanted).options() | several)


def _members(folder: Path) -> list[Run]:
    """The runs of an earlier call, in the order of their names."""
    return [Run(path.parent) for path in sorted(folder.glob("*/config.yaml")) if OURS.fullmatch(path.parent.name)]


def _listed(option: str, given: str | None, alone: object) -> list[str]:
    """The values of --seeds or --orders, each once."""
    if given is None:
        return []
    if alone is not None:
        raise ConfigError(f"--{option} and --{option}s are given; give one of the two.")
    values = [word.strip() for word in given.split(",") if word.strip()]
    if option == "seed" and not all(value.isdecimal() for value in values):
        raise ConfigError(f"seeds is {given!r}; it must be whole numbers separated by commas, such as 1,2,3.")
    values = [str(int(value)) for value in values] if option == "seed" else values  # 01 is 1
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"{option}s is {given!r}; name at least one, and each once.")
    return values


def _variants(known: argparse.Namespace) -> dict[str, dict[str, str]]:
    """The name of each run and the options that it has alone."""
    seeds, orders = _listed("seed", known.seeds, known.seed), _listed("order", known.orders, known.order)
    variants = {}
    each_order, each_seed = [{"order": order} for order in orders], [{"seed": seed} for seed in seeds]
    for order, seed in product(each_order or [{}], each_seed or [{}]):
        options = order | seed
        name = "-".join(f"{option}-{Path(value).stem.replace(':', '')}" for option, value in options.items())
        if name in variants:
            raise ConfigError(f"two of the orders {known.orders} have the name {name}; rename one of the files.")
        variants[name] = options
    return variants


def _chosen_runs(known: argparse.Namespace, wanted: dict[str, Any], folder: Path) -> list[Chosen]:
    """All runs. With --resume those that are there go on, and new ones have their other options."""
    if Run(folder).exists():
        raise ConfigError(f"{folder} holds a single run; choose another --output for --seeds and --orders.")
    there = {run.folder.name: run for run in _members(folder)} if known.resume is not None else {}
    if known.seeds is None and known.orders is None:
        return [Chosen(run, resumed(run, wanted), "resume") for run in there.values()]
    variants = _variants(known)
    recorded = as_it_ran(next(iter(there.values())).config()) if there else {}
    return [
        Chosen(there[name], resumed(there[name], wanted | own), "resume")
        if name in there
        else Chosen(Run(folder / name), resolve(recorded | wanted | own), "replace" if known.overwrite else "refuse")
        for name, own in variants.items()
    ]


def _check(runs: Sequence[Chosen], known: argparse.Namespace) -> None:
    """Fail before any training if one of the runs cannot work."""
    first = runs[0].experiment
    if first.num_nodes > 1 or is_member():
        raise ConfigError("--seeds and --orders are for one machine; give each machine some of them without --address.")
    if known.from_base is not None:
        raise ConfigError("--from-base is for one run: another seed or order has another first task.")
    file = first.method.source.rpartition(":")[0]
    if known.resume is not None and file and not known.allow_changed_method:
        for there in _members(runs[0].record.folder.parent):  # the mean is of all, not only of those that go on now
            there.require_unchanged_method(Path(file))
    dataset, _, _ = first.prepared()
    for record, experiment, existing in runs:
        experiment.tasks(dataset)
        if existing == "refuse" and record.exists():
            raise ConfigError(
                f"{record.folder} already holds a run; go on with all of them (--resume), "
                "replace them (--overwrite) or choose another --output."
            )


def _begin(runs: Sequence[Chosen]) -> None:
    """Write the configuration of each new run. From then on --resume FOLDER alone knows what is left to do."""
    for record, experiment, existing in runs:
        if existing != "resume":
            with record.locked():
                record.clear()
                record.write_config(experiment.options())


def _finished(record: Run) -> bool:
    with suppress(PodnetError):  # on resume the run itself reports a damaged record, and the others go on
        return record.is_finished()
    return False


def _command(run: Chosen, known: argparse.Namespace) -> list[str]:
    """The command that continues a run."""
    loggers = [word for names in known.logger for word in ("--logger", names)]
    changed = ["--allow-changed-method"] if known.allow_changed_method else []
    for option in CHANGEABLE:
        if (value := getattr(known, option)) is not None:
            changed += [f"--{option.replace('_', '-')}", str(value)]
    return ["run", "--resume", str(run.record.folder), *loggers, *changed]


def _say_means(folder: Path, done: Sequence[Run]) -> None:
    """One line for each inference: mean ± sample standard deviation over the finished runs."""
    if not done:
        return
    grid = comparison_grid({method_name(done[0].config()): done}, "")
    deviation = "mean ± sample standard deviation, " if len(done) > 1 else ""
    say(f"{deviation}n = {len(done)}:")
    for label, cells in grid.rows:
        words = [f"{column} {spread(cell.ours)}" for column, cell in zip(grid.columns, cells, strict=True)]
        say(f"  {label}: {', '.join(words[:MEANT])}")
    say(f"tables and curves: podnet report {folder}")
