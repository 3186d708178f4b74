"""`podnet search`: good hyper-parameters of a method, measured on held-out training images only."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from podnet.cli.display import show
from podnet.cli.given import given_options, resumed
from podnet.cli.printing import going_on, plain_table, say, say_failed
from podnet.cli.run_options import EXPERIMENT_OPTIONS
from podnet.errors import ConfigError
from podnet.io.files import locked
from podnet.processes import keep_freed_memory
from podnet.report.results import MISSING, number
from podnet.runs.config import resolve
from podnet.runs.experiment import Experiment
from podnet.runs.folder import Run, folder_name
from podnet.runs.loop import Notice, run
from podnet.runs.search import Axis, Trial, propose, read_axis, require_optuna, trial_folder, trials_in

HELD_OUT = "0.1"  # default share of the training images to test on


def search_command(known: argparse.Namespace, words: list[str], parser: argparse.ArgumentParser) -> int:
    """`words` are the arguments that the parser did not recognise: hyper-parameters of the method."""
    require_optuna()
    wanted = {"validation": HELD_OUT} | given_options(known, words, parser)
    usual = resolve(wanted)
    axes = _axes(known, wanted, usual)
    folder = Path(known.output or Path("runs") / f"search-{folder_name(usual.options())}")
    _check(known, wanted, axes, usual, folder)
    keep_freed_memory()
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", f"another process is searching in {folder}; wait for it or choose another --output."):
        failed = _search(known, wanted, axes, folder)
        trials = list(trials_in(folder, axes).values())
    Console().print(_table(trials, axes, known.inference))
    if best := _best(trials, known.inference):
        score = number(best.score(known.inference))
        say(f"best: trial {best.number}, {known.inference.upper()} {score} on held-out training images")
        say(f"with the test images: {_command(known, words, best)}")
    return say_failed(failed)


def _axes(known: argparse.Namespace, wanted: Mapping[str, Any], usual: Experiment) -> list[Axis]:
    if not known.over:
        raise ConfigError("nothing to search; give --over OPTION=VALUES, such as --over lr=0.01..0.2.")
    axes = [read_axis(text, type(usual.method)) for text in known.over]
    for axis in axes:
        if axis.option in wanted or [other.option for other in axes].count(axis.option) > 1:
            raise ConfigError(f"{axis.option} is given twice; give --over {axis.option}=... alone.")
        for value in axis.values:
            resolve(dict(wanted) | {axis.option: value})
    return axes


def _check(
    known: argparse.Namespace, wanted: dict[str, Any], axes: Sequence[Axis], usual: Experiment, folder: Path
) -> None:
    """Fail before any training if the search cannot work, or if the folder holds something else."""
    if known.trials < 1:
        raise ConfigError(f"trials is {known.trials}; it must be at least 1.")
    if not usual.validation:
        raise ConfigError("search needs held-out training images; give --validation a share above 0, such as 0.1.")
    if usual.devices * usual.num_nodes > 1:
        raise ConfigError("search runs in one process; leave --devices and --num-nodes out.")
    if known.inference not in usual.method.inferences:
        raise ConfigError(f"{usual.method.name} has no {known.inference.upper()}; choose another --inference.")
    if known.inference == "nme" and usual.method.exemplars == "optional" and not usual.memory().quota(1):
        raise ConfigError(f"{usual.method.name} has no NME without exemplars; choose another --inference.")
    if Run(folder).exists():
        raise ConfigError(f"{folder} holds a run; choose another --output.")
    usual.prepared()
    file = usual.method.source.rpartition(":")[0]
    for trial in trials_in(folder, axes).values():
        recorded, now = trial.record.config(), resolve(wanted | trial.values).options()
        resumed(trial.record, {option: value for option, value in now.items() if option in recorded})
        if file and not trial.record.keeps_method(Path(file)):
            raise ConfigError(f"{file} was changed since the search in {folder} began; choose another --output.")


def _search(known: argparse.Namespace, wanted: dict[str, Any], axes: Sequence[Axis], folder: Path) -> list[str]:
    """Carry out the trials that are not done; returns the messages of those that failed."""
    failed: list[str] = []
    usual = resolve(wanted)
    for count in range(1, known.trials + 1):
        there = trials_in(folder, axes)
        before = [trial for number, trial in there.items() if number < count]
        trial = there.get(count)
        if trial is None:
            values = propose(axes, count, before, known.inference, usual.seed, usual.options())
            if values is None:
                say(f"all combinations are tried: there are {count - 1}.")
                break
            trial = Trial(count, trial_folder(folder, count), values)
        told = ", ".join(f"{option} {_text(value)}" for option, value in trial.values.items())
        say(f"trial {count} of {known.trials}: {told}{' is done.' * trial.record.is_finished()}")
        if not trial.record.is_finished():
            with going_on(failed, f"trial {count} ({told})"):
                show(run(resolve(wanted | trial.values), trial.record, "resume"), lines=Notice)
                say(f"  {known.inference.upper()} {number(trial.score(known.inference))}")
    return failed


def _best(trials: Sequence[Trial], inference: str) -> Trial | None:
    """The first of the finished trials with the highest score."""
    done = [trial for trial in trials if trial.record.is_finished()]
    return max(done, key=lambda trial: trial.score(inference) or 0.0, default=None)


def _table(trials: Sequence[Trial], axes: Sequence[Axis], inference: str) -> Table:
    """One row per trial; the best is bold."""
    table = plain_table("trial", *(axis.option for axis in axes), "average", "last", "forgetting")
    table.title, table.title_justify = f"{inference.upper()}, on held-out training images", "left"
    best, names = _best(trials, inference), ("average_incremental_accuracy", "accuracy", "forgetting")
    for trial in trials:
        last = trial.record.results()[-1] if trial.record.is_finished() else {}
        measures = [number(last[name][inference]) if last else MISSING for name in names]
        cells = [str(trial.number), *map(_text, trial.values.values()), *measures]
        table.add_row(*(Text(cell, "bold" if trial is best else "") for cell in cells))
    return table


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _command(known: argparse.Namespace, words: Sequence[str], best: Trial) -> str:
    """The command that runs the best values as given, but with the test images."""
    parts = ["podnet", "run", *(["--config", known.config, "--validation", "0"] if known.config else [])]
    for option in EXPERIMENT_OPTIONS:
        if option != "validation" and (value := getattr(known, option)) is not None:
            parts += [f"--{option.replace('_', '-')}", *([] if option == "compile" else [value])]
    parts += words
    for option, value in best.values.items():
        parts += [f"--{option.replace('_', '-')}", "none" if value is None else str(value)]
    return shlex.join([*parts, "--output", f"{best.record.folder.parent}-best"])
