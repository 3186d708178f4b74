"""The page of a run: one HTML file with everything in it, which opens without a network."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from podnet.files import write_atomically
from podnet.report.tables import COLUMNS, number, shown_inferences, summary
from podnet.runs import Run

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
.wide { overflow-x: auto; margin-bottom: 1.5rem; }
img { max-width: 100%; background: white; border-radius: 6px; }
pre { overflow-x: auto; padding: .8rem; background: #8881; border-radius: 6px; }
"""


def write_page(run: Run, title: str) -> Path:
    """Write report.html into the run's folder: summary, curve, a row a task, confusion matrices, configuration."""
    results = run.results()
    path = run.folder / "report.html"
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(summary(results))}</p>",
        _picture(run.folder / "curve.png", "accuracy on all classes seen, after each task"),
        "<h2>After each task</h2>",
        _results(results),
        "<h2>Accuracy on the classes of each task</h2><p>A row is a moment, a column the classes of one task.</p>",
        *(_matrix(results, inference) for inference in shown_inferences(results)),
        "<h2>Final confusion matrix</h2>",
        _picture(run.folder / "confusion.png", "confusion matrix after the last task"),
        f"<h2>Configuration</h2><pre>{escape(run.config_file.read_text())}</pre>",
        f"<h2>Environment</h2><pre>{escape((run.folder / 'environment.json').read_text())}</pre>",
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    head += '<meta name="viewport" content="width=device-width">'
    write_atomically(
        path, f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'
    )
    return path


def _results(results: Sequence[dict[str, Any]]) -> str:
    shown = shown_inferences(results)
    measured = [(inference, measure) for inference in shown for measure in COLUMNS]
    header = ["task", "classes", "memory", *(f"{i.upper()} {COLUMNS[measure]}" for i, measure in measured), "seconds"]
    rows = []
    for r in results:
        values = [number(r[measure][inference]) for inference, measure in measured]
        rows.append([r["task"], r["seen"], r["memory"], *values, f"{sum(r['seconds'].values()):.0f}"])
    return _table(header, rows)


def _matrix(results: Sequence[dict[str, Any]], inference: str) -> str:
    header = [inference.upper(), *(f"task {r['task']}" for r in results)]
    rows = [[f"after {r['task']}", *map(number, r["accuracy_per_task"][inference])] for r in results]
    return _table(header, rows)


def _table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    def row(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return f'<div class="wide"><table>{row(header, "th")}{"".join(row(cells, "td") for cells in rows)}</table></div>'


def _picture(path: Path, description: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<p><img src="data:image/png;base64,{data}" alt="{escape(description)}"></p>'
