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
from podnet.runs import Run


def overview(run: Run) -> dict[str, Any]:
    """What a run was told and where it ran."""
    return {
        "folder": str(run.folder),
        "config": run.config_file.read_text(),
        "environments": run.environments(),
        "command": rerun_command(run),
    }


def rerun_command(run: Run) -> str:
    """What to type for the same run once more, beside it."""
    return shlex.join(["podnet", "run", "--config", str(run.config_file), "--output", f"{run.folder}-again"])


def classes(run: Run) -> dict[str, Any]:
    """Of each class its accuracy when it was new and now, and the newest confusion matrix, rows being true classes."""
    results = run.results()
    names = [name for line in results for name in line["new_classes"]]
    learned = [int(line["task"]) for line in results for _ in line["new_classes"]]
    tables = [_confusions(run, int(line["task"]), int(line["seen"])) for line in results]
    found: dict[str, Any] = {"names": names, "learned": learned, "inferences": {}}
    for inference in INFERENCES:
        if not tables or inference not in tables[-1]:
            continue
        own = [_recalls(table[inference]) for table in tables]
        found["inferences"][inference] = {
            "then": [own[task][label] for label, task in enumerate(learned)],
            "now": own[-1],
            "confusion": tables[-1][inference].tolist(),
        }
    return found


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
