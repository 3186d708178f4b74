"""SS-IL: Separated Softmax for Incremental Learning (Ahn et al., ICCV 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.methods.base import DIGITS, Batches, Method, State
from podnet.methods.phases import Phase, stepwise
from podnet.nets.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class SSIL(Method):
    """L_SS + L_TKD: old and new classes never meet in one softmax, and each old task is distilled by its own.

    The paper draws 128 new images and 32 exemplars for each batch. Here a batch has both as often as there are images
    of them. A task needs at least two classes: the softmax of a single one is always 1, so nothing raises its output.
    The paper has no CIFAR-100: these are its hyper-parameters for ImageNet. The learning rate of task t begins at
    lr / (t + 1), as in the authors' code, which also has a quarter of the epochs after the first task (--step-epochs
    25); here all tasks have as many.

    State: `sizes`, the number of classes of each task so far.
    """

    epochs: int = 100
    milestones: tuple[float, ...] = (0.4, 0.8)  # a tenth of the learning rate after these shares of the epochs
    weight_decay: float = 1e-4
    temperature: float = 2.0

    name = "ssil"
    summary = "Separated softmax and task-wise distillation (Ahn et al., 2021)"
    idea = "distillation"
    year = 2021
    verified = "loops written from the paper's equations; the authors' hyper-parameters"
    positive = Method.positive | {"temperature"}
    later = frozenset({"temperature"})
    presets = {"imagenet": {"backbone": "resnet18"}, "digits": DIGITS}

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        sizes = state["sizes"].tolist() if state else []

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            terms = {"ss": separated_softmax(student.logits, targets, old)}
            if teacher is not None:
                terms["tkd"] = taskwise_distillation(student.logits, teacher.logits, sizes, self.temperature)
            return terms

        lr = stepwise(self.lr / (len(sizes) + 1), self.epochs, self.milestones, 0.1)
        return [Phase("train", loss, self.epochs, lr, distils=old > 0)]

    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        return {"sizes": torch.tensor(network.classifier.sizes)}

    def without_class(self, network: Network, label: int, state: State) -> State:
        return {"sizes": torch.tensor(network.classifier.sizes)}


def separated_softmax(logits: Tensor, targets: Tensor, old: int) -> Tensor:
    """Cross-entropy of exemplars among the `old` first classes, and of new images among the others."""
    new_classes = torch.arange(logits.shape[1], device=logits.device) >= old
    foreign = new_classes != (targets >= old)[:, None]  # (B, classes)
    return F.cross_entropy(logits.masked_fill(foreign, -torch.inf), targets)


def taskwise_distillation(logits: Tensor, old_logits: Tensor, sizes: Sequence[int], temperature: float) -> Tensor:
    """T² Σ_s KL(p_s of the teacher, p_s of the student), p_s = softmax(o_s / T) among the classes of old task s."""
    total = logits.new_zeros(())
    known = logits[:, : old_logits.shape[1]]
    for own, old in zip(known.split(list(sizes), dim=1), old_logits.split(list(sizes), dim=1), strict=True):
        wanted, given = ((part / temperature).log_softmax(1) for part in (old, own))
        total = total + temperature**2 * F.kl_div(given, wanted, reduction="batchmean", log_target=True)
    return total
