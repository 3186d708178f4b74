"""`podnet methods` and `podnet datasets`: what there is."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from podnet.data import SOURCES
from podnet.methods import METHODS
from podnet.runs.config import describe, resolve


def methods_command(known: argparse.Namespace) -> int:
    console = Console()
    if known.name is None:
        table = Table("method", "description", "inference", box=None)
        for method in METHODS.values():
            table.add_row(method.name, method.summary, " and ".join(method.inferences).upper())
        console.print(table)
        console.print("'podnet methods NAME' lists the hyper-parameters of a method.", highlight=False)
        return 0
    method_class = type(resolve({"method": known.name}).method)
    table = Table("option", "is", "CIFAR-100", "otherwise", title=method_class.summary, title_justify="left", box=None)
    for option, (kind, default) in describe(method_class).items():
        others = [f"{data}: {values[option]}" for data, values in method_class.presets.items() if option in values]
        table.add_row(f"--{option.replace('_', '-')}", kind, str(default), ", ".join(others))
    console.print(table)
    return 0


def datasets_command(known: argparse.Namespace) -> int:
    table = Table("dataset", "description", "classes", "--data-path", box=None)
    for name, source in SOURCES.items():
        table.add_row(name, source.summary, str(source.classes or "any"), "needed" if source.needs_path else "no")
    Console().print(table)
    return 0
