"""One run in detail: its predictions for each class, and how to run it again."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from podnet.errors import PodnetError
from podnet.metrics import INFERENCES, accuracy_per_class, confusion_matrix
from podnet.runs.folder import Run


def overview(run: Run) -> dict[str, Any]:
    """The options and environment of a run, and the commands to repeat or resume it."""
    again = ["podnet", "run", "--config", str(run.config_file), "--output", f"{run.folder}-again"]
    return {
        "folder": str(run.folder),
        "config": run.config_file.read_text(errors="replace"),
        "environments": run.environments(),
        "command": shlex.join(again),
        "resume": shlex.join(["podnet", "run", "--resume", str(run.folder)]),
    }


def classes(run: Run) -> dict[str, Any]:
    """For each class its accuracy when new (None if not recorded) and now, and the newest confusion matrix.

    The rows of the matrix are true classes.
    """
    names: list[str] = []
    learned: list[int] = []
    then: dict[str, list[float | None]] = {}
    now: dict[str, list[float]] = {}
    predicted: dict[str, np.ndarray] = {}
    results = run.results()
    for line in results:
        new = len(names)
        names += line["new_classes"]
        learned += [int(line["task"])] * len(line["new_classes"])
        if line is not results[-1] and not any(line["accuracy_per_task"].values()):
            continue  # of many tasks not all are recorded
        predicted = _predictions(run, int(line["task"]))
        for inference in [i for i in INFERENCES if i in predicted]:
            shares = accuracy_per_class(predicted[inference], predicted["targets"], int(line["seen"]))
            now[inference] = [round(share or 0.0, 3) for share in shares]
            known = then.setdefault(inference, [])
            known += [None] * (new - len(known))
            known += now[inference][new:]
    measured = {
        i: {
            "then": then[i],
            "now": now[i],
            "confusion": confusion_matrix(predicted[i], predicted["targets"], len(names)).tolist(),
        }
        for i in now
    }
    return {"names": names, "learned": learned, "inferences": measured}


def _predictions(run: Run, task: int) -> dict[str, np.ndarray]:
    """The true classes, and those that each inference predicted."""
    try:
        return dict(load_file(run.predictions_file(task)))
    except (OSError, SafetensorError) as error:
        raise PodnetError(f"cannot read the predictions of task {task} ({error}).") from error
