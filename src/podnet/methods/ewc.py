"""EWC: Overcoming Catastrophic Forgetting in Neural Networks (Kirkpatrick et al., PNAS 2017), the online form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.losses import cross_entropy_with_or_without_exemplars
from podnet.methods.base import Batches, Method, State
from podnet.methods.phases import Phase, cosine
from podnet.methods.replay import Replay
from podnet.nets.network import Network, Outputs


@dataclass(frozen=True, kw_only=True)
class EWC(Method):
    """A quadratic penalty on moving the parameters that mattered: L + λ/2 Σ_i F_i (θ_i - θ*_i)², equation 3.

    Online (Schwarz et al., 2018): one anchor θ*, the parameters after the newest task, and one sum F ← γ F + F_task, so
    the state does not grow. F_task is the diagonal of the empirical Fisher information: the mean over the task's images
    of the squared gradients of log p(y | x), y being the true class. New classes have no penalty.

    λ F is cut at 1 / lr: above, gradient descent would overshoot the anchor and diverge. Neither paper has CIFAR-100: λ
    is the default of FACIL (Masana et al., 2022), where F is smaller, because it squares the gradients of batches, and
    leaves the classifier out. Epochs and learning rate are those of replay. In a batch without exemplars the loss is
    among the new classes only, so without a memory a task of a single class learns nothing.

    State, for each parameter: `fisher.NAME` and `anchor.NAME`.
    """

    strength: float = 5000.0  # λ
    decay: float = 1.0  # γ: 1 keeps every task, less forgets old ones

    name = "ewc"
    summary = "Parameters that mattered are pulled back to where they were (Kirkpatrick et al., 2017)"
    idea = "regularisation"
    year = 2017
    verified = "the gradients of single images, one by one; loops written from the paper's equation"
    exemplars = "optional"
    later = frozenset({"strength", "decay"})
    presets = Replay.presets

    def phases(self, old: int, new: int, state: State) -> list[Phase]:
        pulls = {
            name.removeprefix("fisher."): (self.strength * fisher).clamp(max=1 / self.lr)
            for name, fisher in state.items()
            if name.startswith("fisher.")
        }

        def loss(student: Outputs, teacher: Outputs | None, targets: Tensor) -> dict[str, Tensor]:
            return {"ce": cross_entropy_with_or_without_exemplars(student.logits, targets, old)}

        def penalty(network: Network, student: Outputs, targets: Tensor) -> dict[str, Tensor]:
            now = dict(network.named_parameters())
            terms = [(pull * (now[name] - state[f"anchor.{name}"]).square()).sum() for name, pull in pulls.items()]
            return {"ewc": torch.stack(terms).sum() / 2}

        lr = cosine(self.lr, self.epochs)
        return [Phase("train", loss, self.epochs, lr, penalty=penalty if pulls else None)]

    def without_class(self, network: Network, label: int, state: State) -> State:
        """Without the row of the class; the rest belongs to what the classifier has left."""
        kept = {key: value for key, value in state.items() if ".classifier.weights." not in key}
        for kind in ("fisher", "anchor"):
            weights = f"{kind}.classifier.weights."
            growths = sum(key.startswith(weights) for key in state)
            rows = torch.cat([state[f"{weights}{growth}"] for growth in range(growths)])  # a file has 10 before 2
            rest = torch.cat([rows[:label], rows[label + 1 :]]).split(network.classifier.sizes)
            kept |= {f"{weights}{growth}": own for growth, own in enumerate(rest)}
        return kept

    def after_task(self, network: Network, batches: Batches, state: State) -> State:
        kept = {}
        for name, fisher in fisher_diagonal(network, batches).items():
            before = state.get(f"fisher.{name}", torch.zeros(()))  # new classes have none
            kept[f"fisher.{name}"] = self.decay * before.to(fisher) + fisher
        return kept | {f"anchor.{name}": weight.clone() for name, weight in network.named_parameters()}


def fisher_diagonal(network: Network, batches: Batches) -> dict[str, Tensor]:
    """The mean over all images of the squared gradient of log p(y | x), for each parameter."""
    weights = dict(network.named_parameters())
    sums = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    images = 0
    for inputs, targets in batches:
        for one, target in zip(inputs.split(1), targets.split(1), strict=True):  # squares need each image alone
            surprise = F.cross_entropy(network(one).logits, target)  # -log p(y | x)
            gradients = torch.autograd.grad(surprise, list(weights.values()))
            for total, gradient in zip(sums.values(), gradients, strict=True):
                total += gradient.square()
        images += len(targets)
    return {name: total / images for name, total in sums.items()}
