"""`podnet methods` and `podnet datasets`: what there is."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from podnet.cli.printing import say
from podnet.data import SOURCES
from podnet.methods import METHODS
from podnet.runs.config import describe, resolve


def methods_command(known: argparse.Namespace) -> int:
    console = Console()
    if known.name is None:
        console.print(_methods_table())
        say("Where exemplars are not needed, --memory-per-class 0 runs without a memory.")
        say("'podnet methods NAME' lists the hyper-parameters of a method.")
        return 0
    method_class = type(resolve({"method": known.name}).method)
    title = escape(method_class.summary)  # it may be a user's own
    table = Table("option", "is", "CIFAR-100", "otherwise", title=title, title_justify="left", box=None)
    for option, (kind, default) in describe(method_class).items():
        others = [f"{data}: {values[option]}" for data, values in method_class.presets.items() if option in values]
        table.add_row(f"--{option.replace('_', '-')}", kind, str(default), ", ".join(others))
    console.print(table)
    for recipe, families in method_class.recipes.items():
        for family, values in families.items():
            words = ", ".join(f"--{option.replace('_', '-')} {value}" for option, value in values.items())
            say(f"--recipe {recipe}, on {family}: {words}")
    return 0


def _methods_table() -> Table:
    table = Table("method", "year", "what it is", "exemplars", "inference", box=None)
    group = ""
    for method in METHODS.values():
        if method.idea != group:
            group = method.idea
            table.add_row(f"[bold]{group}[/bold]")
        year = str(method.year) if method.year else ""
        table.add_row(f"  {method.name}", year, method.summary, method.exemplars, " ".join(method.inferences).upper())
    return table


def datasets_command(known: argparse.Namespace) -> int:
    table = Table("dataset", "description", "classes", "--data-path", box=None)
    for name, source in SOURCES.items():
        table.add_row(name, source.summary, str(source.classes or "any"), "needed" if source.needs_path else "no")
    Console().print(table)
    return 0
