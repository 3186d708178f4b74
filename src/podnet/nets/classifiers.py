"""Classifiers that grow: each call of `add_classes` appends the weights of new classes and keeps the old ones.

All map (B, D) -> similarities (B, classes); logits are `scale` times that. Weights are kept as one parameter per call,
so the new classes' proxies are simply the last one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from podnet.grouping import positions_by_class

MOST_AT_ONCE = 10_000  # proxies; more are computed in chunks: 3 to 12 times less memory, up to 1.7 times the time
CHUNK = 5_000  # proxies: fewer take longer, more take more memory (examples/many_classes.py)


def uniform(*shape: int, inputs: int) -> Tensor:
    """Random weights as in torch's linear layer."""
    bound, weights = 1 / math.sqrt(inputs), torch.empty(shape)
    return weights if weights.is_meta else weights.uniform_(-bound, bound)  # for meta torch would import its compiler


class GrowingClassifier(nn.Module):
    """What the classifiers share: the list of weights, one (classes, ...) parameter for each growth, and the scale."""

    scale: Tensor

    def __init__(self, dim: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.dim = dim
        self.shape = shape  # of one class's weights
        self.weights = nn.ParameterList()
        self.register_buffer("scale", torch.ones(()))

    @property
    def sizes(self) -> list[int]:
        """The number of classes added by each growth."""
        return [len(weight) for weight in self.weights]

    @property
    def classes(self) -> int:
        return sum(self.sizes)

    def add_classes(self, n: int, weights: Tensor | None = None) -> None:
        """Append n classes, with the given weights or random ones."""
        weights = self._random_weights(n) if weights is None else weights
        expected = (n, *self.shape)
        if weights.shape != expected:
            raise ValueError(f"weights have shape {tuple(weights.shape)}; {n} classes need {expected}.")
        self.weights.append(nn.Parameter(weights.detach().clone().to(self.scale.device)))

    def remove_class(self, label: int) -> None:
        """Remove the weights of one class; those above it move down by one."""
        group = 0
        while label >= len(self.weights[group]):
            label -= len(self.weights[group])
            group += 1
        rest = torch.cat([self.weights[group][:label], self.weights[group][label + 1 :]]).detach()
        if len(rest):
            self.weights[group] = nn.Parameter(rest)
        else:
            self._remove_growth(group)

    def _remove_growth(self, group: int) -> None:
        self.weights = nn.ParameterList([weight for i, weight in enumerate(self.weights) if i != group])

    def _random_weights(self, n: int) -> Tensor:
        return uniform(n, *self.shape, inputs=self.dim)


class LocalSimilarityClassifier(GrowingClassifier):
    """LSC, equation 8: several proxies per class, averaged with weights that favour the most similar one.

    ŷ_c = Σ_k s_ck ⟨θ_ck, h⟩ with s_ck = softmax_k ⟨θ_ck, h⟩ and ⟨,⟩ the cosine. `similarity="distance"` is the released
    code's: minus the squared distance of the unit vectors, 2 cos - 2. The scale η is learned by default. `sharpness`
    multiplies similarities before the softmax, as the released code does for its NME numbers.
    """

    def __init__(
        self,
        dim: int,
        proxies: int = 10,
        scale: float = 1.0,
        learn_scale: bool = True,
        similarity: str = "cosine",
        sharpness: float = 1.0,
    ) -> None:
        super().__init__(dim, (proxies, dim))
        if similarity not in ("cosine", "distance"):
            raise ValueError(f"similarity is {similarity!r}; it must be cosine or distance.")
        self.proxies = proxies
        self.similarity = similarity
        self.sharpness = sharpness
        if learn_scale:
            del self.scale
            self.scale = nn.Parameter(torch.tensor(scale))
        else:
            self.scale.fill_(scale)

    def _random_weights(self, n: int) -> Tensor:
        return torch.randn(n, *self.shape) / math.sqrt(self.dim)  # Kaiming normal, linear gain

    def mean_norm(self) -> float:
        """Mean length of the proxies; imprinted ones are scaled to it."""
        return float(torch.cat([weight.detach().norm(dim=2) for weight in self.weights]).mean())

    def forward(self, embedding: Tensor) -> Tensor:
        classes = self.classes
        if not classes:
            return embedding[:, :0]
        unit = F.normalize(embedding)
        if classes * self.proxies <= MOST_AT_ONCE:
            return self._similarities(unit, *self.weights)
        return torch.cat([self._forgetful_similarities(unit, chunk) for chunk in self._chunks()], dim=1)

    def _similarities(self, unit: Tensor, *weights: Tensor) -> Tensor:
        proxies = F.normalize(torch.cat(weights).flatten(0, 1))  # (classes * K, D)
        cosines = unit @ proxies.t()
        if self.similarity == "distance":
            cosines = 2 * cosines - 2
        if self.sharpness != 1:
            cosines = self.sharpness * cosines
        if self.proxies == 1:
            return cosines
        cosines = cosines.view(-1, cosines.shape[1] // self.proxies, self.proxies)
        return (cosines.softmax(2) * cosines).sum(2)

    def _forgetful_similarities(self, unit: Tensor, weights: list[Tensor]) -> Tensor:
        """The same result, but backward computes the cosines again instead of keeping them."""
        if torch.is_grad_enabled() and (unit.requires_grad or weights[0].requires_grad):
            again = checkpoint(self._similarities, unit, *weights, use_reentrant=False, preserve_rng_state=False)
            assert isinstance(again, Tensor)
            return again
        return self._similarities(unit, *weights)

    def _chunks(self) -> Iterator[list[Tensor]]:
        """The weights in order, about CHUNK proxies at a time: large growths are split, small ones combined.

        A chunk never mixes trained and fixed weights, so fixed ones get no gradient.
        """
        most = max(1, CHUNK // self.proxies)  # classes
        chunk: list[Tensor] = []
        size = 0
        for weight in self.weights:
            for part in weight.split(most):  # not slices: the gradient of each would be as large as the whole weight
                if chunk and (size + len(part) > most or part.requires_grad != chunk[0].requires_grad):
                    yield chunk
                    chunk, size = [], 0
                chunk.append(part)
                size += len(part)
        yield chunk


class CosineClassifier(LocalSimilarityClassifier):
    """UCIR's classifier: the cosine to a single proxy per class, with a learned scale."""

    def __init__(self, dim: int, scale: float = 1.0, learn_scale: bool = True) -> None:
        super().__init__(dim, proxies=1, scale=scale, learn_scale=learn_scale)

    def _random_weights(self, n: int) -> Tensor:
        return GrowingClassifier._random_weights(self, n)


class LinearClassifier(GrowingClassifier):
    """The ordinary fully connected layer; each weight row carries its bias as its last entry."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, (dim + 1,))

    def forward(self, embedding: Tensor) -> Tensor:
        if not self.classes:
            return embedding[:, :0]
        weights = torch.cat(list(self.weights))
        return F.linear(embedding, weights[:, :-1], weights[:, -1])


class SolvedClassifier(LinearClassifier):
    """A linear layer on normalised features whose weights are computed in closed form, not trained."""

    def _random_weights(self, n: int) -> Tensor:
        return torch.zeros(n, *self.shape)

    @torch.no_grad()
    def assign(self, weights: Tensor, bias: Tensor) -> None:
        """Set the weights (D, classes) and the biases of all classes."""
        rows = torch.cat([weights.t(), bias[:, None]], dim=1)
        for own, new in zip(self.weights, rows.split(self.sizes), strict=True):
            own.copy_(new)

    def forward(self, embedding: Tensor) -> Tensor:
        return super().forward(F.normalize(embedding))


class BiasCorrectedClassifier(LinearClassifier):
    """BiC's classifier: a linear layer. The outputs of each growth's classes become α o + β, also at test time."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.corrections = nn.ParameterList()  # each (2,): α, β

    def add_classes(self, n: int, weights: Tensor | None = None) -> None:
        super().add_classes(n, weights)
        self.corrections.append(nn.Parameter(torch.tensor([1.0, 0.0], device=self.scale.device)))

    def _remove_growth(self, group: int) -> None:
        super()._remove_growth(group)
        self.corrections = nn.ParameterList([each for i, each in enumerate(self.corrections) if i != group])

    @torch.no_grad()
    def forget_corrections(self) -> None:
        """Reset to α = 1, β = 0 for all classes so far."""
        for correction in self.corrections:
            correction.copy_(torch.tensor([1.0, 0.0]))

    def forward(self, embedding: Tensor) -> Tensor:
        if not self.classes:
            return embedding[:, :0]
        parts = super().forward(embedding).split(self.sizes, dim=1)
        return torch.cat([a_b[0] * part + a_b[1] for part, a_b in zip(parts, self.corrections, strict=True)], dim=1)


def imprint(features: Tensor, targets: Tensor, proxies: int, seed: int) -> Tensor:
    """Proxies (classes, proxies, D) of new classes: the k-means centres of their normalised features.

    `features` (N, D) are of the new classes only; classes are in ascending order of their targets. A class with fewer
    distinct images than proxies repeats its centres.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    features = F.normalize(features)
    imprinted = []
    for positions in positions_by_class(targets).values():
        own = features[positions]
        k = min(proxies, len(own))
        if k == 1:
            centres = own.mean(0, keepdim=True)
        else:
            # One thread: parallel sums in k-means have no fixed order, and a resumed run must reproduce them.
            with threadpool_limits(limits=1), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # duplicates: fewer clusters than requested
                kmeans = KMeans(k, n_init=10, random_state=seed % 2**32).fit(own.cpu().numpy())
            centres = torch.from_numpy(kmeans.cluster_centers_).to(features)
        imprinted.append(centres[torch.arange(proxies) % k])
    return torch.stack(imprinted)
