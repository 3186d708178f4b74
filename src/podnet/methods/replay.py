"""The bounds for every method: fine-tuning and plain replay (lower), joint training (upper)."""

from __future__ import annotations

from dataclasses import dataclass

from podnet.methods.base import DIGITS, Features, Method, State
from podnet.methods.phases import Phase, cosine, cross_entropy
from podnet.nets.building import new_backbone, start_from
from podnet.nets.network import Network


@dataclass(frozen=True, kw_only=True)
class Replay(Method):
    """Cross-entropy on the new images and the exemplars; no other measure against forgetting."""

    name = "replay"
    summary = "Plain rehearsal of the exemplars, no distillation"
    idea = "bounds"
    verified = "torch's cross-entropy; nothing else is in it"
    presets = {"imagenet": {"epochs": 90, "weight_decay": 1e-4, "backbone": "resnet18"}, "digits": DIGITS}

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        return [Phase("train", cross_entropy, self.epochs, cosine(self.lr, self.epochs), soft_targets=True)]


@dataclass(frozen=True, kw_only=True)
class FineTuning(Replay):
    """Cross-entropy on the new images only: no memory, no measure against forgetting."""

    name = "finetuning"
    summary = "Training on the new classes only, without memory"
    inferences = ("cnn",)
    no_inference = "no NME: fine-tuning keeps no exemplars."
    exemplars = "none"


@dataclass(frozen=True, kw_only=True)
class Joint(Replay):
    """A new network for each task, trained on all images of all classes seen: the upper bound."""

    name = "joint"
    summary = "Retrained at each task on all data of all classes seen: the upper bound"
    inferences = ("cnn",)
    no_inference = "no NME: joint training keeps no exemplars."
    exemplars = "none"
    sees_all_data = True

    def grow(self, network: Network, new: int, features: Features, seed: int) -> None:
        """Begin anew: the backbone as at first, random weights for the classes seen so far and the new ones."""
        seen = network.classifier.classes + new
        if not self.freeze:
            network.backbone = new_backbone(self.backbone, network.backbone.channels, self.backbone_fidelity)
            start_from(network.backbone, self.backbone, self.weights, seed)
        network.classifier = self.classifier(network.backbone.dim)
        network.classifier.add_classes(seen)
