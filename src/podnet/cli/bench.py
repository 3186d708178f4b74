"""`podnet bench`: measure the speed on this machine."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from podnet.bench.measure import Figure
from podnet.bench.suite import GROUPS, LONG, measured
from podnet.cli.printing import say
from podnet.errors import ConfigError, counted, nearest
from podnet.io.files import write_atomically


def bench_command(known: argparse.Namespace) -> int:
    groups = known.groups or [name for name in GROUPS if not (known.quick and name in LONG)]
    for name in groups:
        if name not in GROUPS:
            raise ConfigError(f"unknown measurement {name!r}; choose from {', '.join(GROUPS)}.{nearest(name, GROUPS)}")
    if known.threads < 1:
        raise ConfigError(f"threads is {known.threads}; it must be 1 or more.")
    output = Path(known.output)
    if not output.parent.is_dir():
        raise ConfigError(f"the folder of {output} does not exist; create it or choose another --output.")
    words = "each value is the median of several rounds, with the lowest and the highest"
    say(f"{counted(known.threads, 'thread')}; {words}")
    found: dict[str, Figure] = {}
    for name, figures in measured(groups, known.quick, known.threads):
        found |= figures
        Console().print(_table(name, figures))
        # After each group, so that interrupting the next one loses nothing.
        write_atomically(output, json.dumps({key: asdict(value) for key, value in found.items()}, indent=2) + "\n")
    say(f"written: {output}")
    return 0


def _table(name: str, figures: dict[str, Figure]) -> Table:
    table = Table(title=name.replace("_", " "), title_justify="left", title_style="bold", box=None, expand=True)
    table.add_column("", ratio=1)
    for column in ("value", "spread", "unit"):
        table.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    for each in figures.values():
        low, high = each.spread
        table.add_row(each.what, f"{each.value:.3g}", f"{low:.3g} to {high:.3g}", each.unit)
    return table
