"""`podnet run`: an experiment, from options to its report; or several that differ by seed or class order."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from podnet.cli.display import show
from podnet.cli.given import Chosen, base_of, given_options, resumed
from podnet.cli.printing import say
from podnet.cli.repeated import is_repeated, repeat
from podnet.engine.device import choose_device
from podnet.engine.launch import launch
from podnet.engine.team import Team, joined
from podnet.errors import ConfigError
from podnet.processes import is_member, keep_freed_memory
from podnet.report.page import write_page
from podnet.report.plots import draw_run
from podnet.report.results import why_missing
from podnet.report.tables import results_table, size_summary, summary
from podnet.runs.config import resolve
from podnet.runs.experiment import Experiment
from podnet.runs.folder import Run, folder_name
from podnet.runs.loggers import logged, logger_names, loggers
from podnet.runs.loop import Existing, Record, run


def run_command(known: argparse.Namespace, words: list[str], parser: argparse.ArgumentParser) -> int:
    """`words` are the arguments that the parser did not recognise: hyper-parameters of the method."""
    wanted = given_options(known, words, parser)
    logger_names(known.logger)  # a mistake there should cost no run
    if known.resume is not None and known.overwrite:
        raise ConfigError("--resume continues a run, --overwrite replaces it; give only one of them.")
    if is_repeated(known):
        return repeat(known, wanted, lambda chosen, command: _carry_out(chosen, known, command))
    chosen = _chosen_run(known, wanted)
    experiment = chosen.experiment
    if experiment.num_nodes > 1 and known.address is None and not is_member():
        raise ConfigError("--num-nodes needs --address HOST:PORT: one of the machines, the same on all of them.")
    if known.print_config:
        team = Team(size=experiment.devices * experiment.num_nodes, local_size=experiment.devices)
        experiment.prepared(team, begins=chosen.existing != "resume")
        print(yaml.safe_dump(experiment.options(), sort_keys=False), end="")
        return 0
    _carry_out(chosen, known, known.arguments)
    return 0


def _carry_out(chosen: Chosen, known: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Perform a run and show it; with several processes, each is started with these arguments."""
    record, experiment, existing = chosen
    by = loggers(logger_names(known.logger), record)
    if experiment.devices * experiment.num_nodes > 1 and not is_member():
        launch(arguments, record.folder, experiment.devices, experiment.num_nodes, known.address)
        return
    keep_freed_memory()
    with joined(choose_device(experiment.device)) as team:
        base = base_of(known.from_base, experiment)
        records = run(experiment, record, existing, base, team, known.allow_changed_method)
        if team.is_main:
            if existing == "resume" and not record.exists():
                print(f"nothing to resume in {record.folder}: starting a new run.")
            _show(logged(records, record, by), record, experiment)
        else:
            deque(records, maxlen=0)


def _show(records: Iterator[Record], record: Run, experiment: Experiment) -> None:
    """Show a run to its end, then write its table and page."""
    title = f"{experiment.method.name} on {experiment.dataset}"
    say(f"{title}, into {record.folder}")
    show(records)
    results = record.results()
    Console().print(results_table(results, title))
    reason = why_missing(results) or experiment.method.no_inference
    draw_run(record, title)
    report = f"report: {write_page(record, title)} (curve: {record.folder / 'curve.png'}, .svg)"
    for text in filter(None, (reason, summary(results), size_summary(results), report)):
        say(text)


def _chosen_run(known: argparse.Namespace, wanted: dict[str, Any]) -> Chosen:
    """The run folder, the experiment, and what to do with an existing run.

    `--resume FOLDER` needs a run there. `--resume` alone continues the run in --output, or begins it.
    """
    folder = known.resume or known.output or Path("runs") / folder_name(resolve(wanted).options())
    record = Run(folder)
    if known.resume or (known.resume is not None and record.exists()):
        return Chosen(record, resumed(record, wanted), "resume")
    existing: Existing = "resume" if known.resume is not None else "replace" if known.overwrite else "refuse"
    return Chosen(record, resolve(wanted), existing)
