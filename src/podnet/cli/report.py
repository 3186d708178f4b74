"""`podnet report` and `podnet compare`: finished runs as a page, and side by side in the terminal."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from podnet.cli.printing import print_grids, say
from podnet.errors import PodnetError, counted
from podnet.report.averages import comparison_grid, size_grid, transfer_grid
from podnet.report.compare import Captioned, comparable, comparison_panel, described, grouped, write_report
from podnet.report.grid import Grid
from podnet.report.plots import figure_of
from podnet.report.results import progress
from podnet.report.tables import accuracy_table, differing_options, settings_table
from podnet.runs.folder import Run
from podnet.runs.lines import require_whole

LABEL_WIDTH, RUN_WIDTH = 12, 20  # terminal columns of the first column, and of a run's accuracies


def report_command(known: argparse.Namespace) -> int:
    """Write the report of these runs into a folder, and print its table."""
    output = Path(known.output)
    if output.is_file():
        raise PodnetError(f"the report needs a folder, and {known.output} is a file; choose another --output.")
    runs = _find_runs(known.runs)
    groups = grouped(runs)
    pairs = [(label, run) for label, members in groups.items() for run in members]
    grids = _grids(groups)
    curves = Captioned("Accuracy on all classes seen", figure_of([comparison_panel(groups, "")]))
    intro = "All numbers in percent; lower forgetting is better."
    path = write_report(output, f"Report of {counted(len(runs), 'run')}", intro, [*grids, curves], pairs)
    print_grids(grids)
    say(f"report: {path}")
    return 0


def compare_command(known: argparse.Namespace) -> int:
    """Put runs side by side in the terminal: settings that differ, accuracy after each task, averages."""
    console = Console()
    runs = _find_runs(known.runs)
    labels = _labels(runs)
    configs = [{"folder": str(run.folder), **comparable(run)} for run in runs]
    series = [run.results() for run in runs]
    at_once = max(1, (console.width - LABEL_WIDTH) // RUN_WIDTH)
    blocks = [slice(start, start + at_once) for start in range(0, len(runs), at_once)]
    if options := differing_options(configs):
        for block in blocks:
            console.print(settings_table(labels[block], configs[block], options), "")
    for block in blocks:
        console.print(accuracy_table(labels[block], series[block]), "")
    print_grids(_grids(grouped(runs)))
    return 0


def _grids(groups: Mapping[str, Sequence[Run]]) -> list[Grid]:
    size = size_grid(groups, "Size after the last task")
    averages, transfer = comparison_grid(groups, "Averages"), transfer_grid(groups, "Learning and transfer")
    return [averages, transfer, *([size] if size else [])]


def _find_runs(folders: Sequence[str]) -> list[Run]:
    """The runs in or below these folders; runs below that have no results are left out with a note."""
    found: dict[Path, Run] = {}
    for folder in folders:
        runs = _runs_of(Path(folder))
        started = [run for run in runs if _is_started(run, alone=len(runs) == 1)]
        if not started:
            raise PodnetError(f"nothing to show: no task is finished in {folder} yet.")
        shown = _without_first_tasks(started)
        if left_out := len(started) - len(shown):
            say(f"note: skipped {counted(left_out, 'run')} in {folder} with only a shared first task.")
        found |= {run.folder.resolve(): run for run in _by_label(shown)}
    return list(found.values())


def _without_first_tasks(runs: Sequence[Run]) -> list[Run]:
    """Leave out the shared first tasks that `podnet reproduce` makes for other runs to start from."""

    def beginning(run: Run) -> tuple[str, ...]:
        config = run.config()
        sizes = config.get("sizes")
        base = sizes[0] if isinstance(sizes, list) and sizes else config.get("base")
        return (str(base), *(str(config.get(option)) for option in ("method", "dataset", "order", "seed")))

    alone = {run.folder for run in runs if run.results()[-1].get("tasks") == 1}
    begun = {beginning(run) for run in runs if run.folder not in alone}
    return [run for run in runs if run.folder not in alone or beginning(run) not in begun]


def _by_label(runs: Sequence[Run]) -> list[Run]:
    """The runs of one folder sorted by label, 8 before 10."""

    def words(pair: tuple[str, Run]) -> list[tuple[int, str]]:
        return [(int(word), "") if word.isdecimal() else (0, word) for word in re.split(r"(\d+)", pair[0])]

    return [run for _, run in sorted(described(runs), key=words)]


def _is_started(run: Run, alone: bool) -> bool:
    """Whether a run has results to show; if it is not the only one, a note says why it has none."""
    why = "has no finished task"
    try:
        run.config()
        results = run.results()
        require_whole(results, run.results_file)
        if results:
            return True
    except PodnetError as error:
        if alone:
            raise
        why = f"cannot be read ({str(error).rstrip('.')})"
    if not alone:
        say(f"note: skipped {run.folder}, which {why}.")
    return False


def _runs_of(folder: Path) -> list[Run]:
    if Run(folder).config_file.exists():
        return [Run(folder)]
    runs = [Run(path.parent) for path in sorted(folder.rglob("config.yaml"))]
    if not folder.exists():
        raise PodnetError(f"there is no folder {folder}; give the folder of a run, or one that contains runs.")
    if not runs:
        raise PodnetError(f"{folder} contains no run: there is no config.yaml in it or in a folder below it.")
    return runs


def _labels(runs: Sequence[Run]) -> list[str]:
    """A unique label for each run, by its folder if nothing else differs, with its progress."""
    named = [label for label, _ in described(runs, repetitions_apart=True)]
    labels = []
    for label, run in zip(named, runs, strict=True):
        folder = str(run.folder) if named.count(label) > 1 else ""
        labels.append(", ".join(filter(None, [label, folder, progress(run.results())])))
    return labels
