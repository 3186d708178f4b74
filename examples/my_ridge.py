"""A classifier in closed form: the network is trained on the first classes, then only sums are updated.

podnet run --method examples/my_ridge.py:RidgeHead --increment 1
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from podnet.methods import Method, Phase
from podnet.methods.phases import cosine


@dataclass(frozen=True, kw_only=True)
class RidgeHead(Method):
    """W = (Σ f fᵀ + λ I)⁻¹ Σ f yᵀ over all images ever seen; both sums are kept, the images are not."""

    strength: float = 1.0  # λ

    name = "ridge-head"
    summary = "Ridge regression on the features of the network of the first task"
    exemplars = "none"  # no memory of images
    inferences = ("cnn",)
    no_inference = "no NME: it keeps no exemplars."
    presets = {"digits": {"epochs": 20, "batch_size": 64}}

    def phases(self, old, new, state):
        """The first task is trained; later ones have no phase of training."""

        def loss(student, teacher, targets):
            return {"ce": F.cross_entropy(student.logits, targets)}

        return [] if old else [Phase("train", loss, self.epochs, cosine(self.lr, self.epochs))]

    def after_task(self, network, batches, state):
        """Add the new images to the sums, then solve for the weights of all classes."""
        features, targets = batches.features()  # (N, D) on the network's device, (N,) on the CPU
        features = F.normalize(features.cpu())
        classifier = network.classifier
        gram = features.t() @ features  # (D, D)
        sums = F.one_hot(targets, classifier.classes).float().t() @ features  # (classes, D)
        if state:
            gram = gram + state["gram"]
            sums[: len(state["sums"])] += state["sums"]
        weights = torch.linalg.solve(gram + self.strength * torch.eye(len(gram)), sums.t()).t()
        rows = F.pad(weights, (0, 1))  # the bias of each class is the last number of its row: 0
        with torch.no_grad():
            for own, new_rows in zip(classifier.weights, rows.split(classifier.sizes), strict=True):
                own.copy_(new_rows)
        return {"gram": gram, "sums": sums}
