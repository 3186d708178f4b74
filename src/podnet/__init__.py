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
    "average_incremental_accuracy": "podnet.metrics",
    "BiC": "podnet.methods",
    "class_incremental": "podnet.scenario.tasks",
    "ExemplarMemory": "podnet.memory.exemplars",
    "Experiment": "podnet.runs.experiment",
    "forgetting": "podnet.metrics",
    "herd": "podnet.memory.herding",
    "ICaRL": "podnet.methods",
    "Joint": "podnet.methods",
    "Learner": "podnet.engine.learner",
    "load": "podnet.data",
    "LocalSimilarityClassifier": "podnet.nets.classifiers",
    "Method": "podnet.methods",
    "nca": "podnet.losses",
    "Phase": "podnet.methods",
    "pod": "podnet.losses",
    "pod_flat": "podnet.losses",
    "PODNet": "podnet.methods",
    "PODNetClassifier": "podnet.model.estimator",
    "Replay": "podnet.methods",
    "run": "podnet.runs.loop",
    "Task": "podnet.scenario.tasks",
    "UCIR": "podnet.methods",
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
