"""Teach an image classifier new classes over time without forgetting the old ones."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podnet.data import load
    from podnet.engine.learner import Learner
    from podnet.losses import nca, pod, pod_flat
    from podnet.memory.exemplars import ExemplarMemory
    from podnet.memory.herding import herd
    from podnet.methods import UCIR, BiC, ICaRL, Joint, Method, Phase, PODNet, Replay
    from podnet.metrics import average_incremental_accuracy, forgetting
    from podnet.model.estimator import PODNetClassifier
    from podnet.nets.classifiers import LocalSimilarityClassifier
    from podnet.runs.experiment import Experiment
    from podnet.runs.loop import run
    from podnet.scenario.tasks import Task, class_incremental

__version__ = "0.1.0"

# Imported when first used: `import podnet` and `podnet --help` answer without importing torch.
_HOMES = {
    name: f"podnet.{module}"
    for module, names in {
        "data": ("load",),
        "engine.learner": ("Learner",),
        "losses": ("nca", "pod", "pod_flat"),
        "memory.exemplars": ("ExemplarMemory",),
        "memory.herding": ("herd",),
        "methods": ("UCIR", "BiC", "ICaRL", "Joint", "Method", "Phase", "PODNet", "Replay"),
        "metrics": ("average_incremental_accuracy", "forgetting"),
        "model.estimator": ("PODNetClassifier",),
        "nets.classifiers": ("LocalSimilarityClassifier",),
        "runs.experiment": ("Experiment",),
        "runs.loop": ("run",),
        "scenario.tasks": ("Task", "class_incremental"),
    }.items()
    for name in names
}

__all__ = [
    "UCIR",
    "BiC",
    "ExemplarMemory",
    "Experiment",
    "ICaRL",
    "Joint",
    "Learner",
    "LocalSimilarityClassifier",
    "Method",
    "PODNet",
    "PODNetClassifier",
    "Phase",
    "Replay",
    "Task",
    "__version__",
    "average_incremental_accuracy",
    "class_incremental",
    "forgetting",
    "herd",
    "load",
    "nca",
    "pod",
    "pod_flat",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'podnet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
