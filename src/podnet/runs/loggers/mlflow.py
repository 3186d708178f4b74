"""MLflow: files in the run folder, or the server of MLFLOW_TRACKING_URI."""

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from podnet.errors import importing
from podnet.runs.folder import Run
from podnet.runs.loggers.rows import Row, identity

EXPERIMENT = "podnet"
TAG = "podnet.run"  # by which a run that is resumed finds what it logged before
MOST_METRICS, MOST_PARAMETERS, LONGEST = 1000, 100, 500  # that MLflow takes at once; characters of a parameter
NOT_ALLOWED = re.compile(r"[^\w\-./ ]")  # in the name of a metric
# MLflow refuses files unless asked for them. Nothing is to leave the machine by default.
SETTINGS = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}


class MlflowLogger:
    """Losses and learning rate by epoch of a phase, measures by classes seen; options are parameters."""

    def __init__(self, run: Run) -> None:
        with importing("mlflow", "the logger mlflow needs its package"), _environment(SETTINGS):
            import mlflow
            from mlflow import entities
        self.run = run
        self._mlflow: Any = mlflow
        self._entities: Any = entities
        self._client: Any = None
        self._id = ""  # of the run, by MLflow

    def write(self, rows: Sequence[Row]) -> None:
        if self._client is None:
            self._begin()
        now = int(1000 * time.time())
        metrics = [
            self._entities.Metric(NOT_ALLOWED.sub("_", name), value, now, row.step)
            for row in rows
            for name, value in row.scalars.items()
        ]
        for start in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[start : start + MOST_METRICS])

    def _begin(self) -> None:
        server = os.environ.get("MLFLOW_TRACKING_URI")
        own = self.run.folder / "mlflow"
        shutil.rmtree(own, ignore_errors=True)
        if not server:
            (own / ".trash").mkdir(parents=True)  # a process that opened these files before expects both folders
        with _environment(SETTINGS):
            client = self._mlflow.MlflowClient(tracking_uri=server or own.resolve().as_uri())
        found = client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT)
        tag = identity(self.run)
        for earlier in client.search_runs([experiment], f"tags.`{TAG}` = '{tag}'"):
            client.delete_run(earlier.info.run_id)
        made = client.create_run(experiment, run_name=self.run.folder.resolve().name, tags={TAG: tag})
        self._client, self._id = client, made.info.run_id
        options = [self._entities.Param(name, str(value)[:LONGEST]) for name, value in self.run.config().items()]
        for start in range(0, len(options), MOST_PARAMETERS):
            client.log_batch(self._id, params=options[start : start + MOST_PARAMETERS])

    def close(self, failed: bool) -> None:
        if self._client is not None:
            self._client.set_terminated(self._id, "KILLED" if failed else "FINISHED")


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for as long as this lasts; those that are set stay as they are."""
    missing = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]
