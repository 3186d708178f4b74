"""`podnet forget` and `podnet undo`: take something back."""

from __future__ import annotations

import argparse

from podnet.cli.printing import say
from podnet.errors import counted, printable
from podnet.io.files import expanded, in_its_place
from podnet.model.changing import undo
from podnet.model.forget import forget
from podnet.model.loading import load_model


def forget_command(known: argparse.Namespace) -> int:
    path = expanded(known.model)
    for name, photos in forget(path, known.classes).items():
        say(f"forgot {printable(name)}: removed its name and all data kept from its {counted(photos, 'photo')}")
    settings = load_model(path).settings
    if settings.trained:
        say("not removed: what the network learned from these photos.")
    if settings.keep == "sums":
        say("not removed: the sums over all photos still contain the variation among these photos.")
        say("A model made with --keep features or --keep photos forgets completely.")
    else:
        say("checked: the file contains no data from those photos. Other copies of the file still do.")
    return 0


def undo_command(known: argparse.Namespace) -> int:
    path = in_its_place(known.model)
    undo(path)
    say(f"{printable(path)}: undid the last lesson; {counted(len(load_model(path).classes), 'class')}")
    return 0
