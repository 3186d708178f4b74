"""LwF: Learning without Forgetting (Li and Hoiem, ECCV 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from podnet.losses import cross_entropy_with_or_without_exemplars, distillation
from podnet.methods.base import Method, State
from podnet.methods.phases import Phase, cosine
from podnet.methods.replay import Replay
from podnet.nets.network import Outputs


@dataclass(frozen=True, kw_only=True)
class LwF(Method):
    """The outputs of the old network on the new images are kept: λ_o L_old + L_new, equations 1 to 3.

    L_old is the cross-entropy of the softened outputs, softmax(o / T), of all old classes together, as in FACIL (Masana
    et al., 2022); in the paper each old task has a softmax of its own. Without a memory L_new is among the new classes
    only, as in the paper, so a task of a single class learns nothing. In a batch with exemplars, which the paper does
    not have, L_new is among all classes. The paper's warm-up of the new outputs is left out. The paper has no
    CIFAR-100: epochs and learning rate are those of replay.
    """

    lambda_o: float = 1.0  # weight of L_old
    temperature: float = 2.0

    name = "lwf"
    summary = "The old network's softened outputs on the new images (Li and Hoiem, 2016)"
    idea = "distillation"
    year = 2016
    verified = "loops written from the paper's equations; its λ and temperature"
    exemplars = "optional"
    positive = Method.positive | {"temperature"}
    later = frozenset({"lambda_o", "temperature"})
    presets = Replay.presets

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            terms = {"new": cross_entropy_with_or_without_exemplars(student.logits, targets, old)}
            if teacher is not None:
                terms["old"] = self.lambda_o * distillation(student.logits, teacher.logits, self.temperature)
            return terms

        return [Phase("train", loss, self.epochs, cosine(self.lr, self.epochs), distils=old > 0)]
