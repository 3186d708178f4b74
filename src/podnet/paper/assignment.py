"""One run as it travels to whoever performs it, a process beside us or a machine far away, and what comes back."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podnet.errors import PodnetError
from podnet.paper.plan import Planned
from podnet.processes import keep_freed_memory
from podnet.report.tables import summary
from podnet.runs import loop
from podnet.runs.config import resolve
from podnet.runs.folder import Run


@dataclass(frozen=True)
class Assignment:
    """All that has to be known to perform a run, from any working directory: every path is absolute."""

    options: Mapping[str, Any]
    folder: Path
    first_task: Path | None  # the finished run that it begins from
    command: tuple[str, ...]  # what the user typed, for the run's record
    cores: int


def assign(run: Planned, share: bool) -> Assignment:
    """The assignment of a run that begins from the first task it shares with others, or has its own."""
    first = run.first_task
    begins_from = first.record.folder.absolute() if share and run.tasks > 1 and first.finished() else None
    options = _with_absolute_paths(run.experiment.options())
    cores = max(1, run.experiment.threads) + (run.experiment.workers or 0)
    return Assignment(options, run.record.folder.absolute(), begins_from, tuple(sys.argv), cores)


def _with_absolute_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that no longer depend on the working directory; a method's own file is absolute as it is."""
    changed = dict(options)
    for option in ("data_path", "subset"):  # the second is a name or a file
        value = options[option]
        if value is not None and (option == "data_path" or os.path.isfile(os.path.expanduser(value))):
            changed[option] = os.path.abspath(os.path.expanduser(value))
    return changed


def perform(assignment: Assignment) -> str | PodnetError:
    """Run it, or the rest of it; its summary, or what ended it.

    An error is returned, not raised: raised, it would come back from a cluster as a page of somebody else's words.
    """
    keep_freed_memory()
    sys.argv = list(assignment.command)
    record = Run(assignment.folder)
    first_task = Run(assignment.first_task) if assignment.first_task else None
    try:
        for _ in loop.run(resolve(assignment.options), record, "resume", first_task):
            pass
        return summary(record.results())
    except PodnetError as error:
        return error
    except Exception as error:
        traceback.print_exc()
        return PodnetError(f"{type(error).__name__}: {error}")
