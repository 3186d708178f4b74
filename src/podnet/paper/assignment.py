"""One run as sent to a worker process or a cluster, and its result."""

import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from podnet.errors import ConfigError, PodnetError
from podnet.paper.plan import Planned, record_of
from podnet.processes import keep_freed_memory
from podnet.report.tables import summary
from podnet.runs import loop
from podnet.runs.config import resolve
from podnet.runs.folder import Run

Taken = Literal["started", "submitted"]  # what an engine does with an assignment


@dataclass(frozen=True)
class Assignment:
    """Everything needed to perform a run from any working directory: all paths are absolute."""

    options: Mapping[str, Any]
    folder: Path
    first_task: Path | None  # the finished run to start from
    command: tuple[str, ...]  # what the user typed, for the run's records
    cores: int


def assign(run: Planned, share: bool) -> Assignment:
    """The assignment of a run, which starts from a shared first task if `share`."""
    first = run.first_task
    begins_from = first.record.folder.absolute() if share and run.tasks > 1 and first.finished() else None
    options = _with_absolute_paths(run.experiment.options())
    cores = max(1, run.experiment.threads) + (run.experiment.workers or 0)
    return Assignment(options, run.record.folder.absolute(), begins_from, tuple(sys.argv), cores)


def _with_absolute_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that do not depend on the working directory; a user-defined method's path is already absolute."""
    changed = dict(options)
    for option in ("data_path", "subset"):  # subset is a name or a file
        value = options[option]
        if value is not None and (option == "data_path" or os.path.isfile(os.path.expanduser(value))):
            changed[option] = os.path.abspath(os.path.expanduser(value))
    return changed


def perform(assignment: Assignment) -> str | PodnetError:
    """Run it, or the rest of it; returns its summary, or the error that ended it.

    An error is returned, not raised: if raised, a cluster would wrap it in a long traceback.
    """
    keep_freed_memory()
    sys.argv = list(assignment.command)
    record = Run(assignment.folder)
    first_task = Run(assignment.first_task) if assignment.first_task else None
    try:
        experiment = resolve(assignment.options)
        if experiment.method.source and record_of(record.folder.parent, experiment).folder != record.folder:
            raise ConfigError(f"{experiment.method.source} was changed after this command began; give it again.")
        for _ in loop.run(experiment, record, "resume", first_task):
            pass
        return summary(record.results())
    except PodnetError as error:
        return error
    except Exception as error:
        traceback.print_exc()
        return PodnetError(f"{type(error).__name__}: {error}")
