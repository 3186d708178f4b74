"""`podnet forget` and `podnet undo`: take something back."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from podnet.cli.printing import say
from podnet.errors import printable
from podnet.model.changing import undo
from podnet.model.forget import forget
from podnet.model.loading import load_model


def forget_command(known: argparse.Namespace) -> int:
    path = Path(known.model).expanduser()
    console = Console()
    for name, photos in forget(path, known.classes).items():
        say(console, f"forgot {printable(name)}: its name and all that was kept of its {photos} photos are gone")
    if load_model(path).settings.keep == "sums":
        say(console, "what remains: the sums over all photos still contain how these differed from each other.")
        say(console, "A model made with --keep features or photos forgets exactly.")
    else:
        say(console, "checked: nothing of those photos is left in the file. Other copies of it still have them.")
    return 0


def undo_command(known: argparse.Namespace) -> int:
    path = Path(known.model).expanduser()
    undo(path)
    say(Console(), f"{printable(path)} is as it was before its last lesson: {len(load_model(path).classes)} classes")
    return 0
