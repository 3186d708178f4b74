"""`podnet info` and `podnet card`: what a model knows."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.text import Text

from podnet.cli.model_options import output_of
from podnet.cli.printing import INFERENCE_NAMES, megabytes, percent, plain_table, say
from podnet.errors import printable
from podnet.io.files import expanded, in_its_place, write_atomically
from podnet.metrics import INFERENCES
from podnet.model.card import card
from podnet.model.changing import can_undo, checkpoint_file, interrupted
from podnet.model.loading import load_model
from podnet.model.measure import accuracy_words, then_and_now


def info_command(known: argparse.Namespace) -> int:
    path = in_its_place(known.model)
    model = load_model(path)
    table = plain_table("class", "learned", "photos", "kept", "accuracy then", "now")
    for record, kept in zip(model.classes, model.kept_counts(), strict=True):
        then, now = then_and_now(model.history, record.name)
        table.add_row(Text(record.name), record.learned, str(record.photos), str(kept), percent(then), percent(now))
    Console().print(table)
    history = plain_table("call", "date", "new classes", "photos", *INFERENCE_NAMES.values(), "seconds")
    for number, entry in enumerate(model.history, start=1):
        accuracy = [percent(entry["accuracy"].get(inference)) for inference in INFERENCES]
        new = f"{len(entry['new'])}" + (f" and {len(entry['refreshed'])} refreshed" if entry["refreshed"] else "")
        history.add_row(str(number), entry["date"], new, str(entry["photos"]), *accuracy, f"{entry['seconds']:.0f}")
    Console().print(history)
    say("settings: " + ", ".join(f"{name} {value}" for name, value in vars(model.settings).items()))
    say(f"kept: {model.kept_words()}; {megabytes(path)}")
    say(accuracy_words(model.history[-1], model.settings.trained, model.settings.keep))
    if not model.can_learn:
        say("Saved without data from its photos: the model can predict but not learn more.")
    if interrupted(path):
        say(f"A learn command was interrupted. Repeat it to continue, or delete {printable(checkpoint_file(path))}.")
    if can_undo(path):
        say("The last lesson can be undone with podnet undo.")
    return 0


def card_command(known: argparse.Namespace) -> int:
    path = expanded(known.model)
    model = load_model(path)
    output = output_of(known, path.with_suffix(".md"))
    write_atomically(output, card(model, path.stem))
    say(f"model card: {printable(output)}")
    return 0
