"""metrics.csv: one number a line, for spreadsheets and pandas."""

import csv
import io
from collections.abc import Sequence

from podnet.io.files import append, write_atomically
from podnet.runs.folder import Run
from podnet.runs.loggers.rows import Row

COLUMNS = ("task", "classes", "phase", "epoch", "name", "value")


class TableLogger:
    """Epochs have a phase and an epoch, results of a task the number of classes seen; the other cells are empty.

    Lines are only added, so a program can read the file while the run goes on.
    """

    def __init__(self, run: Run) -> None:
        self.path = run.table_file
        self._begun = False

    def write(self, rows: Sequence[Row]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._begun:
            writer.writerow(COLUMNS)
        for row in rows:
            place = ("", row.phase, row.line["epoch"]) if row.kind == "epoch" else (row.step, "", "")
            writer.writerows((row.line["task"], *place, name, value) for name, value in row.scalars.items())
        if self._begun:
            append(self.path, text.getvalue().encode())
        else:
            write_atomically(self.path, text.getvalue())
        self._begun = True

    def close(self, failed: bool) -> None:
        """Nothing is open between two calls."""
