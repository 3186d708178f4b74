"""Loggers: the numbers of a run for other programs, made from the run's own records. May import what `runs` may.

A logger writes all rows again when a run is resumed, so nothing appears twice. One that fails is left out with a
notice: it never ends a run.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from podnet.engine.training import Epoch
from podnet.errors import one_of
from podnet.runs.folder import Run
from podnet.runs.loggers.mlflow import MlflowLogger
from podnet.runs.loggers.rows import Logger, Rows
from podnet.runs.loggers.table import TableLogger
from podnet.runs.loggers.tensorboard import TensorBoardLogger
from podnet.runs.loggers.wandb import WandbLogger
from podnet.runs.loop import Notice, Record, TaskDone

# The packages are imported when a logger is made.
LOGGERS: dict[str, type[Logger]] = {
    "tensorboard": TensorBoardLogger,
    "csv": TableLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}


def logger_names(given: Sequence[str]) -> list[str]:
    """The loggers of options such as "csv,wandb", each once."""
    words = [word.strip() for text in given for word in text.split(",")]
    return list(dict.fromkeys(one_of("logger", word, LOGGERS) for word in words))


def loggers(names: Sequence[str], run: Run) -> dict[str, Logger]:
    """Loggers for a run. Fails if a package is missing; nothing is written yet."""
    return {name: LOGGERS[name](run) for name in names}


def logged(records: Iterable[Record], run: Run, by: dict[str, Logger]) -> Iterator[Record]:
    """Pass on the records of a run unchanged, after the loggers wrote them; notices tell which loggers failed."""
    working = {name: (logger, Rows(run)) for name, logger in by.items()}

    def write(close: bool = False) -> Iterator[Notice]:
        for name, (logger, rows) in list(working.items()):
            try:
                logger.write(rows.update())
                if close:
                    logger.close(failed=False)
            except Exception as error:  # of someone else's program, a disk or a network
                del working[name]
                reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
                yield Notice(
                    f"the logger {name} failed ({reason}) and logs no more; the run goes on. "
                    f"When it is done, --resume with --logger {name} writes everything."
                )

    try:
        for record in records:
            if isinstance(record, Epoch | TaskDone):
                yield from write()
            yield record
        yield from write(close=True)
        working.clear()
    finally:
        for logger, _ in working.values():  # the run was stopped
            with suppress(Exception):
                logger.close(failed=True)
