"""Histories: several processes learn, forget, undo, predict, look and export at once on one model.

Each answer must be that of some serial order that agrees with the times at which the commands began and ended. The
specification is `_apply`; the orders are searched as in Wing and Gong's check of linearisability. A command that says
that another process is changing the model has no effect, and there must have been such a process.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import begin, forked, podnet
from kills import CLOSED
from notes import Notes

from coloured import photos_of
from podnet.model.changing import can_undo
from podnet.model.loading import load_model

SEED = 23
HISTORIES = 1000
PROCESSES, EACH = 3, 3
NEW = {"green": ("green", 0), "lime": ("green", 40), "grey": ("grey", 0), "ash": ("grey", 40)}
START = ("blue", "red")
State = tuple[tuple[str, ...], tuple[str, ...] | None]  # the classes, and those that undo brings back


@dataclass(frozen=True)
class Answer:
    """A command and what it said: "done", "refused", "busy", or the classes that it saw."""

    words: tuple[str, ...]
    began: float
    ended: float
    said: str | tuple[str, ...]


def random_histories(notes: Notes, scratch: Path) -> None:
    for name, (hue, first) in NEW.items():
        photos_of(scratch / "hues", hue, count=3, first=first)
        (scratch / "new" / name).mkdir(parents=True)
        (scratch / "hues" / hue).rename(scratch / "new" / name / name)
    photos_of(scratch / "start", *START, count=3)
    assert forked(podnet("learn", scratch / "start.podnet", scratch / "start", *CLOSED), Path("/dev/null")) == 0
    for number in range(HISTORIES):
        notes.attempt(f"history/{number}", _history, scratch, number)


def _history(scratch: Path, number: int) -> str | None:
    draws = random.Random(f"{SEED} {number}")
    folder = scratch / "history"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(scratch / "start.podnet", folder / "m.podnet")
    plans = [[_command(draws, number) for _ in range(EACH)] for _ in range(PROCESSES)]
    children = [
        begin(lambda i=i, plan=plan: _perform(plan, scratch, folder, i), folder / f"output{i}")
        for i, plan in enumerate(plans)
    ]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        return f"exit codes {codes}: {' '.join((folder / f'output{i}').read_text()[-300:] for i in range(PROCESSES))}"
    answers = [
        Answer(tuple(line[0]), line[1], line[2], line[3] if isinstance(line[3], str) else tuple(line[3]))
        for i in range(PROCESSES)
        for line in map(json.loads, (folder / f"answers{i}").read_text().splitlines())
    ]
    left = [path.name for path in folder.iterdir() if path.name.startswith(".") and "before" not in path.name]
    if left:
        return f"left behind: {left}"
    return _judged(answers, tuple(load_model(folder / "m.podnet").names), can_undo(folder / "m.podnet"))


def _command(draws: random.Random, number: int) -> tuple[str, ...]:
    kinds = ["learn"] * 4 + ["forget"] * 2 + ["undo"] * 2 + ["predict"] * 3 + ["info"] + ["export"] * (number % 20 == 0)
    kind = draws.choice(kinds)
    return (kind, draws.choice(list(NEW))) if kind in ("learn", "forget") else (kind,)


def _perform(plan: list[tuple[str, ...]], scratch: Path, folder: Path, number: int) -> int:
    """The commands of one process, one after the other; their answers go to a file."""
    model = folder / "m.podnet"
    commands = {
        "learn": lambda name: podnet("learn", model, scratch / "new" / name, *CLOSED),
        "forget": lambda name: podnet("forget", model, name),
        "undo": lambda: podnet("undo", model),
        "info": lambda: podnet("info", model),
        "export": lambda: podnet("export", model, "--output", folder / f"exported{number}.pt2", "--format", "torch"),
        "predict": lambda: podnet(
            "predict", model, scratch / "start" / "red" / "0.png", "--top", "9", "--format", "jsonl", "--workers", "0"
        ),
    }
    with open(folder / f"answers{number}", "w") as answers:
        for kind, *names in plan:
            out, err = io.StringIO(), io.StringIO()
            began = time.monotonic()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = commands[kind](*names)()
            ended = time.monotonic()
            said = _said(kind, code, out.getvalue(), err.getvalue())
            answers.write(json.dumps([[kind, *names], began, ended, said]) + "\n")
    return 0


def _said(kind: str, code: int, out: str, err: str) -> Any:
    if "another process" in err:
        return "busy"
    if kind == "predict" and code == 0:
        return sorted(each["class"] for each in json.loads(out)["predictions"])
    if kind == "info" and code == 0:
        return sorted(name for name in (*START, *NEW) if f" {name} " in out.replace("\n", " "))
    if code in (0, 2):
        return "done" if code == 0 else "refused"
    raise AssertionError(f"exit code {code}: {err}")


# ---- some serial order --------------------------------------------------------------------------------------------


def _apply(state: State, words: tuple[str, ...]) -> tuple[State, str | tuple[str, ...]]:
    """What the command makes of the state, and what it says."""
    (names, before), (kind, *own) = state, words
    if kind == "learn":
        return (state, "refused") if own[0] in names else (((*names, own[0]), names), "done")
    if kind == "forget":
        return ((tuple(n for n in names if n != own[0]), None), "done") if own[0] in names else (state, "refused")
    if kind == "undo":
        return (state, "refused") if before is None else ((before, None), "done")
    return state, "done" if kind == "export" else tuple(sorted(names))


def _judged(answers: list[Answer], names: tuple[str, ...], undoable: bool) -> str | None:
    changing = [each for each in answers if each.words[0] in ("learn", "forget", "undo")]
    for each in [each for each in answers if each.said == "busy"]:
        others = [o for o in changing if o is not each and o.began < each.ended and each.began < o.ended]
        if not others:
            return f"{' '.join(each.words)} was told that another process is changing the model, and there was none"
    effective = [each for each in answers if each.said != "busy"]
    if _has_order(effective, (START, None), names, undoable):
        return None
    return "no serial order explains: " + json.dumps([[*e.words, e.began, e.ended, e.said] for e in answers])


def _has_order(left: list[Answer], state: State, names: tuple[str, ...], undoable: bool) -> bool:
    if not left:
        return state[0] == names and (state[1] is not None) == undoable
    first_end = min(each.ended for each in left)
    for each in left:
        if each.began <= first_end:  # nothing that is left had ended before it began
            after, said = _apply(state, each.words)
            if said == each.said and _has_order([o for o in left if o is not each], after, names, undoable):
                return True
    return False
