"""One run, closely: what its predictions say of each class, and how to run it again."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from podnet.errors import PodnetError
from podnet.metrics import confusion_matrix
from podnet.report.results import INFERENCES
from podnet.runs.folder import Run


def overview(run: Run) -> dict[str, Any]:
    """What a run was told and where it ran, and what to type for the same again, beside it, or to go on with it."""
    again = ["podnet", "run", "--config", str(run.config_file), "--output", f"{run.folder}-again"]
    return {
        "folder": str(run.folder),
        "config": run.config_file.read_text(errors="replace"),
        "environments": run.environments(),
        "command": shlex.join(again),
        "resume": shlex.join(["podnet", "run", "--resume", str(run.folder)]),
    }


def classes(run: Run) -> dict[str, Any]:
    """Of each class its accuracy when it was new and now, and the newest confusion matrix, rows being true classes."""
    names: list[str] = []
    learned: list[int] = []
    then: dict[str, list[float]] = {}
    now: dict[str, np.ndarray] = {}
    for line in run.results():
        names += line["new_classes"]
        learned += [int(line["task"])] * len(line["new_classes"])
        now = _confusions(run, int(line["task"]), int(line["seen"]))
        for inference, counts in now.items():
            then.setdefault(inference, []).extend(_recalls(counts)[len(then.get(inference, [])) :])
    measured = {
        i: {"then": then[i], "now": _recalls(counts), "confusion": counts.tolist()} for i, counts in now.items()
    }
    return {"names": names, "learned": learned, "inferences": measured}


def _confusions(run: Run, task: int, seen: int) -> dict[str, np.ndarray]:
    """For each inference the counts, true class by predicted class."""
    path = run.predictions / f"task-{task:04d}.safetensors"
    try:
        predicted = load_file(path)
    except (OSError, SafetensorError) as error:
        raise PodnetError(f"the predictions of task {task} cannot be read ({error}).") from error
    targets = predicted["targets"]
    return {i: confusion_matrix(predicted[i], targets, seen) for i in INFERENCES if i in predicted}


def _recalls(counts: np.ndarray) -> list[float]:
    """Accuracy of each class in percent."""
    shares = 100 * counts.diagonal() / np.maximum(counts.sum(1), 1)
    return [round(float(share), 3) for share in shares]
