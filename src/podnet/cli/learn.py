"""`podnet learn`, `info`, `export` and `forget`: the commands for your own model."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from podnet.cli.display import bar, epoch_line
from podnet.cli.model_options import workers
from podnet.cli.printing import percent, plain_table, say, say_all
from podnet.data.collection import Collection
from podnet.engine.device import choose_device
from podnet.engine.training import Epoch, Iteration, steps
from podnet.errors import PodnetError, printable
from podnet.metrics import INFERENCES
from podnet.model.forget import forget
from podnet.model.lessons import Learned, Lesson, NotResumed, Record, Resumed, interrupted, prepare, teach
from podnet.model.measure import SURE_OF_LOSS, partly_forgotten, then_and_now
from podnet.model.model import checkpoint_file, load_model
from podnet.model.settings import Settings, Training
from podnet.processes import keep_freed_memory

OPTIONS = [f.name for kind in (Settings, Training) for f in fields(kind)]


def learn_command(known: argparse.Namespace) -> int:
    console = Console()
    path, device = Path(known.model).expanduser(), choose_device(known.device)
    given = {name: getattr(known, name) for name in OPTIONS if getattr(known, name) is not None}
    lesson = prepare(path, Path(known.photos), given, known.include_known, device)
    _preview(console, path, lesson)
    if known.dry_run:
        return 0
    if not path.parent.is_dir():
        raise PodnetError(f"there is no folder {printable(path.parent)} to write {path.name} into; make it first.")
    keep_freed_memory()
    count = workers(known, len(lesson.todo.training))
    records = teach(path, lesson, device, count, exemplars=not known.no_exemplars)
    _report(console, _follow(records, console))
    if known.no_exemplars:
        say(console, "saved without exemplars: it can predict, but it cannot go on learning.")
    say(console, f"model: {printable(path)} ({_size(path)})")
    return 0


def info_command(known: argparse.Namespace) -> int:
    console = Console()
    path = Path(known.model).expanduser()
    model = load_model(path)
    kept = [0] * len(model.classes)
    for label in () if model.learner.memory.targets is None else model.learner.memory.targets.tolist():
        kept[label] += 1
    table = plain_table("class", "learned", "photos", "kept", "accuracy then", "now")
    for record, count in zip(model.classes, kept, strict=True):
        then, now = then_and_now(model.history, record.name)
        table.add_row(Text(record.name), record.learned, str(record.photos), str(count), percent(then), percent(now))
    console.print(table)
    history = plain_table("call", "date", "new classes", "photos", "accuracy CNN", "NME", "seconds")
    for number, entry in enumerate(model.history, start=1):
        accuracy = [percent(entry["accuracy"].get(inference)) for inference in INFERENCES]
        new = f"{len(entry['new'])}" + (f" and {len(entry['refreshed'])} refreshed" if entry["refreshed"] else "")
        history.add_row(str(number), entry["date"], new, str(entry["photos"]), *accuracy, f"{entry['seconds']:.0f}")
    console.print(history)
    settings = ", ".join(f"{name} {value}" for name, value in vars(model.settings).items())
    say(console, f"settings: {settings}")
    say(console, f"{sum(kept)} exemplars, {len(model.held_out_targets)} photos held out; {_size(path)}")
    if not model.can_learn:
        say(console, "It was saved without exemplars: it can predict, but it cannot go on learning.")
    if interrupted(path):
        left = printable(checkpoint_file(path))
        say(console, f"A call of learn was interrupted. Repeat its command to continue, or delete {left}.")
    return 0


def export_command(known: argparse.Namespace) -> int:
    console = Console()
    path = Path(known.model).expanduser()
    model = load_model(path)
    if known.format == "podnet":
        output = Path(known.output or path.with_name(f"{path.stem}-small{path.suffix}"))
        if output.exists() and output.samefile(path):
            raise PodnetError("the model without its photos would replace the model; choose another --output.")
        model.save(output, exemplars=False)
        say(console, f"without photos, it can predict but not go on learning: {printable(output)} ({_size(output)})")
        return 0
    from podnet.model.export import ENDINGS, export

    output = Path(known.output or path.with_suffix(ENDINGS[known.format]))
    count, difference = export(model, output, known.format)
    say(console, f"checked on {count} photos, both inferences: the confidences differ by at most {difference:.1e}")
    say(console, f"exported: {printable(output)} ({_size(output)})")
    return 0


def forget_command(known: argparse.Namespace) -> int:
    path = Path(known.model).expanduser()
    forgotten = forget(path, known.classes)
    console = Console()
    for name, photos in forgotten.items():
        say(console, f"forgot {printable(name)}: its proxies, its name and its {photos} photos are gone from the file")
    say(console, "checked: none of those photos is left in it. Other copies of the file still have them.")
    return 0


def _preview(console: Console, path: Path, lesson: Lesson) -> None:
    model, collection, todo, choice = lesson.model, lesson.collection, lesson.todo, lesson.choice
    what = f"{len(todo.new)} new classes" + (f", {len(todo.refreshed)} refreshed" if todo.refreshed else "")
    state = f"knows {len(model.classes)} classes" if model else "new model"
    say(console, f"{printable(path)}: {state}; learning {what}")
    table = plain_table("class", "", "photos", "to train on", "held out", "pixels")
    trained, held_out = Collection(todo.training).counts, Collection(todo.held_out).counts
    for label, count in collection.counts.items():
        kind = "new" if label in todo.new else "refreshed" if label in todo.refreshed else "known, not used"
        sizes = sorted(photo.size for photo in collection.of([label]).photos)
        width, height = sizes[len(sizes) // 2]
        numbers = (str(count), str(trained.get(label, 0)), str(held_out.get(label, 0)))
        table.add_row(Text(label), kind, *numbers, f"{width}x{height}")
    console.print(table)
    if todo.ignored:
        say(console, "photos of known classes are not used; --include-known refreshes the classes with them")
    if collection.skipped:
        say(console, f"skipped: {len(collection.skipped)}")
        say_all(console, [f"{name}: {why}" for name, why in collection.skipped])
    chosen = vars(choice.settings) | vars(choice.training)
    words = [f"{name.replace('_', ' ')} {chosen[name]} ({why})" for name, why in choice.reasons.items()]
    say(console, f"chosen: {'; '.join(words)}" if words else "all settings as given")


def _follow(records: Iterable[Record], console: Console) -> Learned:
    """Show the progress until the end."""
    learned = None
    with Progress(*bar(), console=console, transient=True, disable=not console.is_terminal) as progress:
        phase = progress.add_task("learning", total=None)
        for record in records:
            if isinstance(record, Iteration):
                done, total = steps(record)
                progress.update(phase, description=record.phase, completed=done, total=total)
            elif isinstance(record, Epoch) and not console.is_terminal and (line := epoch_line(record)):
                say(console, line)
            elif isinstance(record, Resumed):
                say(console, f"going on where it was interrupted: phase {record.phase + 1}, epoch {record.epoch + 1}")
            elif isinstance(record, NotResumed):
                say(console, "an earlier call was interrupted, but with other photos or settings: this starts anew.")
                say(console, "To continue the earlier one, stop now and repeat its command.")
            elif isinstance(record, Learned):
                learned = record
    assert learned is not None
    return learned


def _report(console: Console, learned: Learned) -> None:
    entry, before = learned.entry, learned.before
    if not entry["accuracy"]:
        say(console, "no photo was held out, so there is nothing to measure with: 5 photos a class are needed.")
        return
    table = plain_table("held-out accuracy", "CNN", "NME")
    rows = {"all classes": "accuracy", "old classes": "old_accuracy", "new classes": "new_accuracy"}
    for words, key in rows.items():
        values = [percent(entry[key].get(inference)) for inference in INFERENCES]
        if values != ["—", "—"]:
            table.add_row(words, *values)
    if before:
        values = [percent(before["accuracy"].get(inference)) for inference in INFERENCES]
        table.add_row("the old classes before", *values)
    console.print(table)
    lost = [f"{name}: {then:.1f} to {now:.1f}" for name, then, now in partly_forgotten(entry, before)]
    if lost:
        say(console, "partly forgotten since the last time:")
        say_all(console, lost)
    elif before:
        say(console, f"no class lost more than {SURE_OF_LOSS:.0f} points of accuracy since the last time")


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
