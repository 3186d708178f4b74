"""What earlier versions did where they recorded nothing. Needs no torch."""

from collections.abc import Mapping
from typing import Any

# Options that came after results were published, with what was done before: those of every run, and those of PODNet.
OF_ALL = {
    "optimizer": "sgd",
    "warmup_epochs": 0,
    "step_lr": None,
    "augmentation": [],
    "weights": "none",
    "freeze": False,
    "input_size": None,
    "sizes": None,
    "visits": 1,
}
OF_PODNET = {"train_batchnorm": "moving"}
NEWER = OF_ALL | OF_PODNET  # where they are so, folders of `podnet reproduce` keep their names
UNSET = {"classes": None, "step_epochs": None}


def unrecorded(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What a run did by options that its version did not have, if it differs from today's default."""
    before: dict[str, Any] = {"weights": "none"}
    if recorded.get("method") == "podnet" and recorded.get("fidelity") == "released":
        before["finetune_batchnorm"] = "moving"
    if recorded.get("method") == "bic":
        before["bias_penalty"] = 0.0
    return before


def completed(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run with what its version did not record, to compare it with others."""
    of_method = OF_PODNET if "lambda_f" in recorded else {}
    return {**OF_ALL, **of_method, **UNSET, **unrecorded(recorded), **recorded}
