"""Ridge regression from features to classes, in closed form, with its exact leave-one-out error.

Every class has the same weight, however many photos it has: p_i = 1 / (C n_c). With m = Σ p_i x_i, z_i = x_i - m and
y_i the indicator of the class,

    W = (Σ p_i z_i z_iᵀ + λ I)⁻¹ Σ p_i z_i y_iᵀ,        f(x) = 1/C + (x - m)ᵀ W.

Leaving photo i out and solving again gives f₋ᵢ(x_i) = y_i - (y_i - f(x_i)) / (1 - h_i), with
h_i = p_i (1 + z_iᵀ (...)⁻¹ z_i): no photo has to be held out to measure with, or to choose λ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

STRENGTHS = tuple(10 ** (exponent / 2) for exponent in range(-12, 1))  # candidates for λ, times the features' spread
MOST_COMPARED = 1000  # photos whose leave-one-out errors choose λ; each is exact, so fewer only make the choice noisier
AT_ONCE = 4_000_000  # scores held at a time


@dataclass(frozen=True)
class Linear:
    """f(x) = x W + b."""

    weights: Tensor  # (D, classes)
    bias: Tensor  # (classes,)

    def __call__(self, features: Tensor) -> Tensor:
        return features @ self.weights + self.bias


@dataclass(frozen=True)
class Sums:
    """What the photos of a model add up to: enough to solve for the classifier, with no photo's features kept."""

    gram: Tensor  # Σ x xᵀ, (D, D)
    totals: Tensor  # Σ x of each class, (classes, D)
    counts: Tensor  # photos of each class, (classes,)

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> Sums:
        features = features.double()
        totals = torch.zeros(classes, features.shape[1], dtype=torch.float64).index_add_(0, labels, features)
        return cls(features.t() @ features, totals, torch.bincount(labels, minlength=classes))

    @classmethod
    def none(cls, dim: int, device: torch.device) -> Sums:
        """The sums of no photos, of no classes."""
        zeros = torch.zeros(dim, dim, dtype=torch.float64, device=device)
        return cls(zeros, zeros[:0], torch.zeros(0, dtype=torch.int64, device=device))

    @classmethod
    def kept_in(cls, state: Mapping[str, Tensor], dim: int, device: torch.device) -> Sums:
        """Those of `as_state`, or of no photos if there is no state."""
        if not state:
            return cls.none(dim, device)
        gram, totals, counts = (state[name].to(device) for name in ("gram", "totals", "counts"))
        return cls(unpacked(gram, dim), totals, counts)

    def as_state(self, strength: float) -> dict[str, Tensor]:
        """What a method keeps from task to task; the Gram matrix is symmetric, so half of it is enough."""
        about = {"totals": self.totals, "counts": self.counts, "strength": torch.tensor(strength, dtype=torch.float64)}
        return {"gram": packed(self.gram)} | about

    def plus(self, other: Sums) -> Sums:
        """The sums of both; the other may have more classes."""
        own = self._grown(len(other.counts))
        return Sums(own.gram + other.gram, own.totals + other.totals, own.counts + other.counts)

    def with_parts(self, parts: Iterable[tuple[Tensor, Tensor]], classes: int) -> Sums:
        """The sums with features (N, D) and labels added, part by part; these sums are used up.

        The Gram matrix is changed in place, and the features of all photos are never held at once: both may be large.
        """
        grown = self._grown(classes)
        for features, labels in parts:
            grown.gram.addmm_(features.t(), features)
            grown.totals.index_add_(0, labels, features)
            grown.counts.add_(torch.bincount(labels, minlength=classes))
        return grown

    def _grown(self, classes: int) -> Sums:
        """The same sums, with room for more classes."""
        more = classes - len(self.counts)
        totals = torch.cat([self.totals, self.totals.new_zeros(more, self.totals.shape[1])])
        return Sums(self.gram, totals, torch.cat([self.counts, self.counts.new_zeros(more)]))

    def means(self) -> Tensor:
        return self.totals.double() / self.counts[:, None]


def solve(sums: Sums, strength: float) -> Tensor:
    """Plain ridge regression to the indicators of the classes, (Σ x xᵀ + λ I)⁻¹ Σ x yᵀ, (D, classes).

    The Gram matrix is overwritten by its factor: it may be large.
    """
    lower = sums.gram.t()  # column by column, as LAPACK works; otherwise it would copy it
    lower.diagonal().add_(strength)
    failed = torch.empty((), dtype=torch.int32, device=lower.device)
    torch.linalg.cholesky_ex(lower, out=(lower, failed))
    if failed:
        raise ValueError(f"the matrix is not positive in float64; {strength:g} is too small for it.")
    half = torch.linalg.solve_triangular(lower, sums.totals.t(), upper=False)
    weights: Tensor = torch.linalg.solve_triangular(lower.t(), half, upper=True)
    return weights


def best_on_held_out(features: Tensor, labels: Tensor, strengths: Sequence[float], share: float) -> float:
    """The λ of plain ridge regression on the first features with the least squared error on the last `share` of them.

    Of λ that are equally good, to 1 %, the largest: of few photos many are, and the smallest may be lost in rounding.
    One decomposition serves all λ: features B = Q Vᵀ with QᵀQ = diag(s) have W = V (s + λ)⁻¹ QᵀY.
    """
    count = int((1 - share) * len(features))
    _, indices = labels.unique(return_inverse=True)
    wanted = F.one_hot(indices, int(indices.max()) + 1).double()
    roots, directions, spectrum = _decomposed(features[:count])
    projected, own = roots.t() @ wanted[:count], features[count:] @ directions

    def error(strength: float) -> float:
        scores = own @ (projected / (spectrum + strength)[:, None])
        return float((scores - wanted[count:]).square().mean())

    errors = {strength: error(strength) for strength in strengths}
    return max(strength for strength, own in errors.items() if own <= 1.01 * min(errors.values()))


def packed(matrix: Tensor) -> Tensor:
    """The upper triangle of a symmetric matrix, row by row."""
    return torch.cat([row[i:] for i, row in enumerate(matrix)])


def unpacked(triangle: Tensor, side: int) -> Tensor:
    """The symmetric matrix of this upper triangle."""
    matrix = triangle.new_empty(side, side)
    for i, part in enumerate(triangle.split(list(range(side, 0, -1)))):
        matrix[i, i:] = part
        matrix[i:, i] = part
    return matrix


class Fitted:
    """Ridge regression on features (N, D) with labels (N,) below `classes`; λ by the leave-one-out squared error.

    With `sums` the features are only some of the photos that these sums are of. Then all classes are taken to scatter
    like all photos together: the same classifier where classes have equally many photos, close to it elsewhere.
    """

    def __init__(
        self, features: Tensor, labels: Tensor, classes: int, strength: float | None = None, sums: Sums | None = None
    ) -> None:
        features = features.double()
        counts = torch.bincount(labels, minlength=classes) if sums is None else sums.counts
        if not counts.all():
            raise ValueError("each class needs at least one photo.")
        self.labels, self.classes, self._counts = labels, classes, counts
        self._shares = 1 / (classes * counts[labels].double())  # p
        root = self._shares.sqrt()[:, None]
        if sums is None:
            self._centre = self._shares @ features
            self._roots, self._directions, self._spectrum = _decomposed(root * (features - self._centre))
            self._projected = self._roots.t() @ (root * (F.one_hot(labels, classes).double() - 1 / classes))
        else:
            means = sums.means()
            self._centre = means.mean(0)
            self._spectrum, self._directions = _nonzero(*_eigen(_spread(sums, means, self._centre)))
            self._roots = root * (features - self._centre) @ self._directions
            self._projected = self._directions.t() @ (means - self._centre).t() / classes
        self.strength = strength if strength is not None else self._best_strength()
        self._factor = self._inverse(self.strength)

    @property
    def linear(self) -> Linear:
        weights = self._directions @ (self._factor[:, None] * self._projected)
        return Linear(weights, 1 / self.classes - self._centre @ weights)

    def left_out(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(rows, scores): for some rows at a time, each photo's scores by the classifier of all the others."""
        for rows in torch.arange(len(self.labels)).split(max(1, AT_ONCE // self.classes)):
            yield rows, self._left_out(rows, self._factor)

    def _left_out(self, rows: Tensor, factor: Tensor) -> Tensor:
        own, shares = self._roots[rows], self._shares[rows]
        scores = 1 / self.classes + own @ (factor[:, None] * self._projected) / shares.sqrt()[:, None]
        kept = 1 - shares - own.square() @ factor  # 1 - h
        targets = F.one_hot(self.labels[rows], self.classes).double()
        return targets - (targets - scores) / kept.clamp_min(1e-9)[:, None]

    def _inverse(self, strength: float) -> Tensor:
        """1 / (s + λ) in each direction; λ is relative to the spread, and above 0 even if all features are equal."""
        return 1 / (self._spectrum + strength * self._spectrum.sum() + 1e-12)

    def _best_strength(self) -> float:
        able = (self._counts[self.labels] > 1).nonzero().flatten()  # left out, the only photo of a class is never right
        able = able if len(able) else torch.arange(len(self.labels))
        chosen = able[:: max(1, len(able) // MOST_COMPARED)]
        wanted = F.one_hot(self.labels[chosen], self.classes).double()

        def error(strength: float) -> float:
            missed = self._left_out(chosen, self._inverse(strength)) - wanted
            return float(self._shares[chosen] @ missed.square().sum(1))

        return min(STRENGTHS, key=error)


def _spread(sums: Sums, means: Tensor, centre: Tensor) -> Tensor:
    """The scatter (D, D) around the centre, all classes alike: within classes, of all photos, and between them."""
    within = sums.gram.double() - means.t() @ (means * sums.counts[:, None])
    return within / sums.counts.sum() + (means - centre).t() @ (means - centre) / len(means)


def _decomposed(weighed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q (N, K), V (D, K) and s (K,) with B = Q Vᵀ, QᵀQ = diag(s), from the smaller of B Bᵀ and Bᵀ B."""
    if len(weighed) <= weighed.shape[1]:
        spectrum, vectors = _nonzero(*_eigen(weighed @ weighed.t()))
        lengths = spectrum.sqrt()
        return vectors * lengths, weighed.t() @ (vectors / lengths), spectrum
    spectrum, vectors = _nonzero(*_eigen(weighed.t() @ weighed))
    return weighed @ vectors, vectors, spectrum


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a symmetric matrix."""
    try:
        found = torch.linalg.eigh(matrix)
        return found.eigenvalues, found.eigenvectors
    except RuntimeError:  # a few matrices of low rank; singular values are eigenvalues but for their signs
        vectors, spectrum, others = torch.linalg.svd(matrix)
        return spectrum * (vectors * others.t()).sum(0).sign(), vectors


def _nonzero(spectrum: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    kept = spectrum > 1e-13 * spectrum.max().clamp_min(1e-300)
    return spectrum[kept], vectors[:, kept]
