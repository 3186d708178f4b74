"""`podnet learn`: teach a model of your own the classes of a folder of photos."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from podnet.cli.display import bar
from podnet.cli.model_options import workers
from podnet.cli.printing import INFERENCE_NAMES, megabytes, percent, plain_table, say, say_all, say_skipped
from podnet.data.collection import Collection
from podnet.engine.device import choose_device, with_threads
from podnet.engine.training import Iteration, steps
from podnet.errors import MissingPackageError, PodnetError, counted, in_words, printable
from podnet.io.files import in_its_place
from podnet.metrics import INFERENCES
from podnet.model.lessons import Learned, NotResumed, Record, Resumed, taught, teach
from podnet.model.measure import (
    SURE_OF_LOSS,
    TOO_FEW,
    accuracy_words,
    best_inference,
    partly_forgotten,
    worse_on_old_classes,
)
from podnet.model.model import Model
from podnet.model.planning import Lesson, planned, prepare
from podnet.model.settings import FEW_FROM_NOTHING, OPTIONS
from podnet.model.trial import Trial
from podnet.processes import keep_freed_memory


def learn_command(known: argparse.Namespace) -> int:
    path, device = in_its_place(known.model), choose_device(known.device)
    given = {name: getattr(known, name) for name in OPTIONS if getattr(known, name) is not None}
    if not path.parent.is_dir():
        raise PodnetError(f"cannot write {path.name}: there is no folder {printable(path.parent)}; create it first.")
    keep_freed_memory()
    with with_threads(known.threads):
        lesson = prepare(path, Path(known.photos), given, known.include_known, device)
        _preview(path, lesson)
        if known.dry_run:
            return 0
        count = workers(known, len(lesson.todo.training))
        _compare_with_default(lesson, device, count)
        records = teach(path, lesson, device, count, exemplars=not known.no_exemplars, undoable=True)
        _report(_follow(records), path, lesson.choice.settings.keep)
    if known.no_exemplars:
        say("saved without data from the photos: the model can predict but not learn more.")
    say(f"model: {printable(path)} ({megabytes(path)})")
    return 0


def _preview(path: Path, lesson: Lesson) -> None:
    model, collection, todo, choice = lesson.model, lesson.collection, lesson.todo, lesson.choice
    what = counted(len(todo.new), "new class")
    what += f", {len(todo.refreshed)} refreshed" if todo.refreshed else ""
    state = f"knows {counted(len(model.classes), 'class')}" if model else "new model"
    say(f"{printable(path)}: {state}; learning {what}")
    counts = {"to learn": Collection(todo.training).counts}
    if todo.held_out:
        counts["held out"] = Collection(todo.held_out).counts
    table = plain_table("class", "", "photos", *counts, "pixels")
    for label, count in collection.counts.items():
        kind = "new" if label in todo.new else "refreshed" if label in todo.refreshed else "known, not used"
        sizes = sorted(photo.size for photo in collection.of([label]).photos)
        width, height = sizes[len(sizes) // 2]
        numbers = (str(count), *(str(own.get(label, 0)) for own in counts.values()))
        table.add_row(Text(label), kind, *numbers, f"{width}x{height}")
    Console().print(table)
    used, wanted = len(todo.training) + len(todo.held_out), len(collection.of((*todo.new, *todo.refreshed)).photos)
    if used < wanted:
        say(f"skipped {counted(wanted - used, 'photo')} that the model has already learned")
    if todo.ignored:
        say("photos of known classes are not used; use --include-known to refresh the classes with them")
    nested = [sentence for label, sentence in collection.nested if label in (*todo.new, *todo.refreshed)]
    if nested:
        say(f"warning: {nested[0]}")
        say_all(nested[1:])
    say_skipped(collection.skipped)
    chosen = vars(choice.settings) | vars(choice.training)
    words = [f"{name.replace('_', ' ')} {chosen[name]} ({why})" for name, why in choice.reasons.items()]
    if words:
        say(f"chosen: {'; '.join(words)}")
    if _from_nothing(lesson):
        say(f"warning: training a network from scratch needs at least {FEW_FROM_NOTHING} photos per class.")


def _compare_with_default(lesson: Lesson, device: str, workers: int) -> None:
    """Before a network is trained from nothing: what the default reaches with these photos."""
    if lesson.model is not None or not _from_nothing(lesson):
        return
    default = planned(None, lesson.collection, {"train": "never"}, False, device)
    try:
        *_, model = taught(default, device, workers)
    except MissingPackageError:
        return
    assert isinstance(model, Model)
    accuracy = model.history[-1]["accuracy"].get("cnn")
    if accuracy is not None:
        reached = f"fixed features of {model.settings.backbone} reach {accuracy:.1f} % on these photos"
        say(f"for comparison: {reached}, each judged by a model that has not seen it")


def _from_nothing(lesson: Lesson) -> bool:
    return lesson.choice.settings.trained and not lesson.choice.settings.pretrained


def _follow(records: Iterable[Record]) -> Learned:
    """Show the progress until the end."""
    learned = None
    with bar() as progress:
        phase = progress.add_task("learning", total=None)
        for record in records:
            if isinstance(record, Iteration):
                done, total = steps(record)
                if done == 1:
                    progress.reset(phase)  # its time left is not that of the stage before
                progress.update(phase, description=record.phase, completed=done, total=total)
            elif isinstance(record, Resumed):
                say(f"continuing the interrupted lesson: phase {record.phase + 1}, epoch {record.epoch + 1}")
            elif isinstance(record, NotResumed):
                say("starting over: the interrupted lesson had other photos or settings.")
                say("To continue that one, stop now and repeat its command.")
            elif isinstance(record, Trial):
                advice = f"; --minutes {record.too_long + 1:.0f} allows it, --train never hides this message"
                say(record.words() + advice * bool(record.too_long))
            elif isinstance(record, Learned):
                learned = record
    assert learned is not None
    return learned


def _report(learned: Learned, path: Path, keep: str) -> None:
    entry, before = learned.entry, learned.before
    measured = accuracy_words(entry, bool(entry["training"]), keep)
    if not entry["accuracy"]:
        say(measured)
        return
    if worse := worse_on_old_classes(entry, before):
        say(f"WORSE on the old classes: {worse[0]:.1f} % before, {worse[1]:.1f} % now, more than chance explains.")
        say(f"To undo this lesson: podnet undo {printable(path)}")
    table = plain_table("accuracy", *INFERENCE_NAMES.values())
    rows = {
        "all classes": entry["accuracy"],
        "old classes": entry["old_accuracy"],
        "new classes": entry["new_accuracy"],
        "old classes before": before["accuracy"] if before else {},
    }
    for words, accuracy in rows.items():
        if any(value is not None for value in accuracy.values()):
            table.add_row(words, *(percent(accuracy.get(inference)) for inference in INFERENCES))
    Console().print(table)
    say(measured)
    alone = [name for name, own in entry["per_class"][best_inference(entry)].items() if own is None]
    if alone and not entry["training"]:
        say(f"not measured: {in_words(alone)}; {TOO_FEW}")
    lost = [f"{name}: {then:.1f} to {now:.1f}" for name, then, now in partly_forgotten(entry, before)]
    if lost:
        say(f"classes that lost more than {SURE_OF_LOSS:.0f} points of accuracy since the last lesson:")
        say_all(lost)
    elif before and keep != "sums":
        say(f"no class lost more than {SURE_OF_LOSS:.0f} points of accuracy since the last lesson")
