"""`podnet reproduce`: the paper's tables and figures, from a name to a page."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from podnet.cli.display import bar
from podnet.cli.engine_options import device, require_fitting, sbatch_options
from podnet.cli.printing import print_grids, say, say_failed
from podnet.data import SOURCES, Dataset
from podnet.engine.device import choose_device
from podnet.errors import ConfigError, counted, nearest
from podnet.methods import find_method
from podnet.paper.catalogue import BENCHMARKS, Benchmark
from podnet.paper.engines import Engine, make_engine
from podnet.paper.estimate import seconds, seconds_left
from podnet.paper.plan import Planned, narrowed, plan, row_changes, with_row
from podnet.paper.runner import carry_out
from podnet.paper.scales import SETTINGS
from podnet.paper.tables import grids, panels
from podnet.processes import cores, decoding_workers
from podnet.report.compare import Captioned, write_report
from podnet.report.grid import Grid
from podnet.report.plots import figure_of

MOST_JOBS = 8  # default limit: each takes about a gigabyte
LOOK = 5.0  # seconds between checks of all runs, which may be hundreds
WRITE = 60.0  # least seconds between two pages while the runs go on


def reproduce_command(known: argparse.Namespace) -> int:
    if known.list:
        return _list()
    require_fitting(known)
    local = known.engine == "local"
    if local and known.jobs is None:
        known.jobs = _default_jobs(known.device)
    folder = Path(known.output)
    engine = make_engine(
        known.engine, known.jobs, folder, known.gpus_per_run or 0, known.address or "auto", sbatch_options(known.slurm)
    )
    benchmarks = _chosen(known.name, _words(known.only), _words(known.columns), known.add)
    changes = row_changes(benchmarks, known.set)
    plans = {benchmark.name: _plan(benchmark, known, folder, changes) for benchmark in benchmarks}
    runs = list({run.record.folder: run for planned in plans.values() for run in planned}.values())
    if known.dry_run:
        return _dry_run(runs, known)
    _check(runs, known.resume, device_too=local)
    if known.data_path and not any(run.options.get("data_path") for run in runs):
        say(f"note: --data-path is not used at scale {known.scale}, whose data is included.")
    if known.resume and (done := sum(run.finished() for run in runs)):
        say(f"{done} of {len(runs)} runs are already finished.")
    form = "paper" if known.fidelity == "paper" else ""
    name = "-".join(filter(None, (known.name, known.scale, form, known.recipe)))
    report = partial(_report, benchmarks, plans, known.scale, folder / name)
    failed = _follow(runs, engine, known.resume, report)
    contents, page = report()
    print_grids(grid for grid in contents if isinstance(grid, Grid))
    say(f"report: {page}")
    return say_failed(failed)


def _default_jobs(device: str) -> int:
    """Runs with one core each have a higher total speed than one run with all cores (docs/performance.md)."""
    return min(MOST_JOBS, cores()) if choose_device(device) == "cpu" else 1


def _list() -> int:
    table = Table(Column("name", no_wrap=True), "description", Column("runs per\norder", justify="right"), box=None)
    for benchmark in BENCHMARKS.values():
        table.add_row(benchmark.name, benchmark.title, str(len(benchmark.rows) * len(benchmark.columns)))
    table.add_row("all", "all of them; identical runs are run once", "")
    Console().print(table)
    return 0


def _chosen(name: str | None, rows: Sequence[str], columns: Sequence[str], added: Sequence[str]) -> list[Benchmark]:
    """The named benchmark with the requested rows and columns; for all benchmarks, those that have them.

    Added methods have a row besides, also if only some of the paper's rows are requested.
    """
    for method in added:
        find_method(method)
    if name != "all" and name not in BENCHMARKS:
        given = "no table or figure given" if name is None else f"unknown table or figure {name!r}"
        hint = "" if name is None else nearest(name, BENCHMARKS)
        raise ConfigError(f"{given}; 'podnet reproduce --list' lists the names.{hint}")
    found = []
    where_it_fits = suppress(ConfigError) if name == "all" else nullcontext()
    for benchmark in BENCHMARKS.values() if name == "all" else [BENCHMARKS[name]]:
        for method in added:
            with where_it_fits:
                benchmark = with_row(benchmark, method)
        with where_it_fits:
            further = [row.label for row in benchmark.rows if row.added]
            found.append(narrowed(benchmark, [*rows, *further] if rows else (), columns))
    if not found:
        raise ConfigError(
            "no table has all of the given rows and columns; give the name of a table to see its rows and columns."
        )
    return found


def _plan(
    benchmark: Benchmark, known: argparse.Namespace, folder: Path, changes: Mapping[str, Mapping[str, Any]]
) -> list[Planned]:
    """The runs of a benchmark with the given options; invalid options fail here."""
    setting = SETTINGS[known.scale][benchmark.dataset]
    source = SOURCES[setting.dataset]
    share = max(1, cores() // known.jobs) if known.engine == "local" else 1
    common: dict[str, Any] = {"threads": known.threads or share, "device": device(known)}
    common |= {"recipe": known.recipe} if known.recipe else {}
    photos = {
        "subset": known.subset,
        "unreadable": known.unreadable,
        "workers": decoding_workers(share) if known.workers is None else known.workers,
    }
    common |= {option: value for option, value in photos.items() if option in source.options}
    if source.needs_path:
        path = known.imagenet_path if source.family == "imagenet" and known.imagenet_path else known.data_path
        if path is None and not known.dry_run:
            raise ConfigError(f"{benchmark.name} at scale {known.scale} needs --data-path: {source.summary}.")
        common["data_path"] = path
    planned = plan(benchmark, known.scale, folder, known.orders, common, known.fidelity, changes)
    for run in planned:
        _ = run.experiment  # invalid options fail before any run starts
    return planned


def _check(runs: Sequence[Planned], resume: bool, device_too: bool) -> None:
    """Fail before training if the data, class orders, memory or the device of this machine do not work."""
    datasets: dict[tuple[str, str | None], Dataset] = {}
    for run in runs:
        if not (resume and run.finished()):
            experiment = run.experiment
            key = (experiment.dataset, experiment.subset)
            if key not in datasets:
                if device_too:
                    choose_device(experiment.device)
                datasets[key] = experiment.load_dataset()
            experiment.tasks(datasets[key])


def _words(given: str | None) -> list[str]:
    return [word.strip() for word in given.split(",") if word.strip()] if given else []


def _dry_run(runs: Sequence[Planned], known: argparse.Namespace) -> int:
    """List the runs, how they differ, and their estimated time; shared first tasks come first."""
    begun = [run for run in runs if known.resume and run.has_first_task and not run.record.exists()]
    firsts = {run.first_task.record.folder: run.first_task for run in begun}
    shared = set.intersection(*(set(run.options.items()) for run in runs))
    hidden = {"order", "seed", "device", "threads", "data_path", *dict(shared)}
    table = Table("run", "settings", "tasks", "done", "estimate", box=None)
    total = 0.0
    for run in [*firsts.values(), *runs]:
        first = int(run.has_first_task and not run.record.exists())  # which has its own line
        left = seconds(run, max(first, run.tasks_done()) if known.resume else 0)
        total += left
        words = ", ".join(f"{key} {value}" for key, value in run.own_options().items() if key not in hidden)
        table.add_row(run.label, words, str(run.tasks), str(run.tasks_done()), _duration(left))
    Console().print(table)
    everywhere = [f"{key} {value}" for key, value in runs[0].options.items() if (key, value) in shared and value]
    say(f"in all runs: {', '.join(everywhere)}")
    jobs = f"with --jobs {known.jobs}" if known.jobs else "one after the other"
    took = f"about {_duration(total / min(known.jobs or 1, len(runs)))} {jobs}"
    starts = f" and {counted(len(firsts), 'shared first task')}" if firsts else ""
    say(f"{counted(len(runs), 'run')}{starts}, {took} on this machine at its current load.")
    return 0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _follow(runs: Sequence[Planned], engine: Engine, resume: bool, report: Callable[[], object]) -> list[str]:
    """Carry out the runs, with one line each and a bar over all tasks; returns the messages of failed ones.

    The page is written from time to time, so that the table can be seen to fill.
    """
    failed = []
    looked, due = 0.0, time.monotonic() + WRITE
    with bar(transient=False) as progress:
        tasks = progress.add_task("tasks of all runs", total=sum(run.tasks for run in runs))
        for outcome in carry_out(runs, engine, resume):
            if not progress.disable and (outcome is not None or time.monotonic() - looked > LOOK):
                progress.update(tasks, completed=sum(run.tasks_done() for run in runs))
                looked = time.monotonic()
            if outcome is None:
                continue
            say(f"{outcome.status:>9}  {outcome.planned.label}  {outcome.message}".rstrip())
            if outcome.status == "done":
                say(_time_left(runs, engine.slots, resume))
                if (began := time.monotonic()) > due:
                    report()
                    took = time.monotonic() - began
                    due = began + max(WRITE, 10 * took)  # a page of many tables must not hold up the runs
            if outcome.status == "failed":
                failed.append(f"{outcome.planned.label}: {outcome.message}")
    return failed


def _time_left(runs: Sequence[Planned], slots: int, share: bool) -> str:
    """How many runs are done, and when the rest will be, at the pace so far."""
    done, left = sum(run.finished() for run in runs), seconds_left(runs, share)
    words = f"           {done} of {len(runs)} runs done"
    if not left:
        return words
    left /= min(slots, len(runs) - done)
    end = datetime.now() + timedelta(seconds=left)
    return f"{words}, about {_duration(left)} left, until {end:%a %H:%M}"


def _report(
    benchmarks: Sequence[Benchmark], plans: Mapping[str, Sequence[Planned]], scale: str, folder: Path
) -> tuple[list[Grid | Captioned], Path]:
    """Write tables, figures and the page that contains them, as far as the runs are."""
    contents: list[Grid | Captioned] = []
    for benchmark in benchmarks:
        planned = plans[benchmark.name]
        contents += grids(benchmark, scale, planned)
        contents.append(Captioned(f"{benchmark.title}, figure", figure_of(panels(benchmark, scale, planned))))
    runs = {run.record.folder: run for benchmark in benchmarks for run in plans[benchmark.name] if run.finished()}
    title = benchmarks[0].title if len(benchmarks) == 1 else "Every table and figure of the paper"
    intro = f"PODNet (Douillard et al., ECCV 2020) at scale {scale}."
    return contents, write_report(folder, title, intro, contents, [(run.label, run.record) for run in runs.values()])
