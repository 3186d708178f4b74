"""The losses of PODNet, of the compared methods and of the ablations: plain functions from tensors to a scalar.

The losses average over the batch. `old` comes from the frozen teacher, `new` from the student.
`fidelity` chooses between the paper's text and the authors' released code where the two differ (docs/fidelity.md).
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from podnet.fidelity import Fidelity

Pooling = Literal["pixels", "channels", "gap", "width", "height", "spatial"]

# The axes of a (B, H, W, C) map that each pooling sums over; "spatial" combines two poolings.
_POOLED_AXES: dict[str, tuple[tuple[int, ...], ...]] = {
    "pixels": ((),),
    "channels": ((3,),),
    "gap": ((1, 2),),
    "width": ((2,),),
    "height": ((1,),),
    "spatial": ((2,), (1,)),
}


def _pooled(maps: Tensor, pooling: Pooling) -> list[Tensor]:
    """The squared activations summed over the axes of each pooling, one flat vector per image."""
    if pooling not in _POOLED_AXES:
        raise ValueError(f"pooling is {pooling!r}; it must be one of {', '.join(_POOLED_AXES)}.")
    energy = maps.movedim(1, -1).square()  # channels last, as in memory: sums are several times as fast
    return [(energy.sum(axes) if axes else energy).flatten(1) for axes in _POOLED_AXES[pooling]]


def pod(
    old_maps: Sequence[Tensor],
    new_maps: Sequence[Tensor],
    pooling: Pooling = "spatial",
    fidelity: Fidelity = "released",
) -> Tensor:
    """Pooled Outputs Distillation: distance of pooled, L2-normalised maps (B, C, H, W), averaged over the maps.

    Equations 1 to 5 of the paper; activations are squared before pooling (its supplementary material). The released
    form normalises the width and the height pooling together and takes their distance; the paper's text normalises
    each and sums the squared distances.
    """
    if len(old_maps) != len(new_maps) or not new_maps:
        raise ValueError(f"pod got {len(old_maps)} old and {len(new_maps)} new maps; give one pair per stage.")
    total = new_maps[0].new_zeros(())
    for old, new in zip(old_maps, new_maps, strict=True):
        pairs = list(zip(_pooled(old, pooling), _pooled(new, pooling), strict=True))
        if fidelity == "released":
            a, b = (torch.cat(side, dim=1) for side in zip(*pairs, strict=True))
            distance = (F.normalize(a) - F.normalize(b)).norm(dim=1)  # (B,)
        else:
            distance = sum((F.normalize(a) - F.normalize(b)).square().sum(1) for a, b in pairs)
        total = total + distance.mean()
    return total / len(new_maps)


def pod_flat(old_embedding: Tensor, new_embedding: Tensor, fidelity: Fidelity = "released") -> Tensor:
    """POD on the final embedding (B, D), equation 6: 1 - cos; in the paper's text twice that, the squared distance."""
    squared = (F.normalize(old_embedding) - F.normalize(new_embedding)).square().sum(1).mean()
    return squared / 2 if fidelity == "released" else squared


def nca(
    similarities: Tensor,
    targets: Tensor,
    scale: float | Tensor = 1.0,
    margin: float | Tensor = 0.6,
    hinge: bool = True,
    fidelity: Fidelity = "released",
) -> Tensor:
    """The classification loss of the LSC, equation 9: [-log exp(η(ŷ_y - δ)) / Σ_{i≠y} exp(η ŷ_i)]₊ on (B, classes).

    That is the paper's text. In the released form the margin cancels, similarities are shifted by their maximum, the
    true class leaves exp(0) in the denominator, and there is no hinge.
    """
    if similarities.shape[1] < 2:
        return similarities.sum() * 0  # a single class has no other to be separated from
    logits = scale * similarities
    own = targets[:, None]
    if fidelity == "released":
        logits = logits - logits.max(1, keepdim=True).values
        others = logits.scatter(1, own, 0.0)
        return (others.logsumexp(1) - logits.gather(1, own).squeeze(1)).mean()
    others = logits.scatter(1, own, -torch.inf).logsumexp(1)
    losses = others - (logits.gather(1, own).squeeze(1) - scale * margin)
    return (losses.clamp(min=0) if hinge else losses).mean()


def lsc_cross_entropy(similarities: Tensor, targets: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """The ablation's LSC-CE: softmax cross-entropy over the scaled class similarities."""
    return F.cross_entropy(scale * similarities, targets)


def perceptual_features(old_maps: Sequence[Tensor], new_maps: Sequence[Tensor]) -> Tensor:
    """Feature reconstruction (Johnson et al., 2016): squared distance of L2-normalised maps (B, C, H, W) by their size.

    The released options of the paper's row POD-pixels use this, not POD: almost no distillation.
    """
    total = new_maps[0].new_zeros(())
    for old, new in zip(old_maps, new_maps, strict=True):
        distance = (F.normalize(old.flatten(1)) - F.normalize(new.flatten(1))).square()
        total = total + distance.mean(1).mean()
    return total / len(new_maps)


def gradcam(
    old_map: Tensor, old_scores: Tensor, new_map: Tensor, new_scores: Tensor, fidelity: Fidelity = "released"
) -> Tensor:
    """Distillation of Grad-CAM attention (Dhar et al., 2019): L1 distance of L2-normalised attention maps.

    `scores` (B,) is the score of one class per image, the same class for both networks. It must depend on its `map`
    (B, C, H, W), because the attention weighs each channel by the score's mean gradient there. The released form keeps
    the channels separate and treats those weights as constants; Dhar et al. sum over channels and differentiate both.
    """
    released = fidelity == "released"
    pairs = ((old_map, old_scores), (new_map, new_scores))
    old, new = (attention(maps, scores, summed=not released, constant=released).flatten(1) for maps, scores in pairs)
    return (F.normalize(old.detach()) - F.normalize(new)).abs().sum(1).mean()


def attention(maps: Tensor, scores: Tensor, summed: bool = True, constant: bool = False) -> Tensor:
    """Grad-CAM: how much each place of its map (B, C, H, W) contributes to the score (B,) of an image, 0 or more.

    (B, H, W), or (B, C, H, W) if channels are not `summed`. With `constant` their weights have no gradient.
    """
    (gradient,) = torch.autograd.grad(scores.sum(), maps, create_graph=not constant, retain_graph=True)
    weighted = gradient.mean((2, 3), keepdim=True) * maps
    return (weighted.sum(1) if summed else weighted).relu()


def perceptual_style(old_maps: Sequence[Tensor], new_maps: Sequence[Tensor]) -> Tensor:
    """Perceptual style loss (Johnson et al., 2016): squared Frobenius distance of Gram matrices, mean over the maps."""
    total = new_maps[0].new_zeros(())
    for old, new in zip(old_maps, new_maps, strict=True):
        total = total + (_gram(old) - _gram(new)).square().sum((1, 2)).mean()
    return total / len(new_maps)


def _gram(maps: Tensor) -> Tensor:
    flat = maps.flatten(2)  # (B, C, H * W)
    return flat @ flat.transpose(1, 2) / (flat.shape[1] * flat.shape[2])


def less_forget(old_embedding: Tensor, new_embedding: Tensor) -> Tensor:
    """UCIR's less-forget constraint: 1 - cos of the embeddings (B, D)."""
    return (1 - F.cosine_similarity(old_embedding, new_embedding)).mean()


def margin_ranking(similarities: Tensor, targets: Tensor, old: int, negatives: int = 2, margin: float = 0.5) -> Tensor:
    """UCIR's inter-class separation: images of the `old` first classes against their hardest new classes.

    max(0, margin - s_true + s_k), averaged over the exemplars of the batch and their `negatives` highest new classes
    (all new classes if there are fewer).
    """
    exemplars = targets < old
    if not exemplars.any() or old == similarities.shape[1]:
        return similarities.sum() * 0
    chosen = similarities[exemplars]
    true = chosen.gather(1, targets[exemplars, None])
    hardest = chosen[:, old:].topk(min(negatives, chosen.shape[1] - old), dim=1).values
    return (margin - true + hardest).clamp(min=0).mean()


def icarl(logits: Tensor, targets: Tensor, old_logits: Tensor | None = None) -> Tensor:
    """iCaRL's loss: binary cross-entropy of every output; old ones have the teacher's sigmoid outputs as targets."""
    wanted = torch.zeros_like(logits).scatter(1, targets[:, None], 1.0)
    if old_logits is not None:
        wanted = torch.cat([old_logits.sigmoid(), wanted[:, old_logits.shape[1] :]], dim=1)
    return F.binary_cross_entropy_with_logits(logits, wanted)


def distillation(logits: Tensor, old_logits: Tensor, temperature: float = 2.0) -> Tensor:
    """Cross-entropy of the softened old outputs, on the outputs that the teacher has (LwF, BiC, WA)."""
    wanted = (old_logits / temperature).softmax(1)
    return F.cross_entropy(logits[:, : old_logits.shape[1]] / temperature, wanted)


def cross_entropy_with_or_without_exemplars(logits: Tensor, targets: Tensor, old: int) -> Tensor:
    """Cross-entropy among all classes, or among those after the `old` first ones if the batch has no exemplars.

    Without exemplars nothing would balance the push that each new image gives to the outputs of old classes.
    """
    if (targets < old).any():
        return F.cross_entropy(logits, targets)
    return F.cross_entropy(logits[:, old:], targets - old)


FEWEST = 20  # images needed to fit a temperature
TEMPERATURES = torch.logspace(-3, 1.5, 91).tolist()


def best_temperature(scores: Tensor, targets: Tensor) -> float | None:
    """What scores (N, classes) are divided by to become logits: the most likely targets. None from too few images.

    As if one image more had been wrong (Laplace): otherwise a few images, all of them right, would make it certain.
    """
    if len(targets) < FEWEST:
        return None
    logits, doubt = scores.cpu().double(), 1 / (len(targets) + 2)
    losses = [float(F.cross_entropy(logits / t, targets, label_smoothing=doubt)) for t in TEMPERATURES]
    return float(TEMPERATURES[losses.index(min(losses))])
