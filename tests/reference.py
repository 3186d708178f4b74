"""The equations once more, element by element in plain Python floats: slow, and written from the papers' text.

Arrays come in as numpy (float64) for their indexing only; every sum, norm and exponential below is a loop.
"""

from __future__ import annotations

import math

import numpy as np
import torch


def total(values):
    result = 0.0
    for value in values:
        result += float(value)
    return result


def mean(values):
    values = list(values)
    return total(values) / len(values)


def dot(a, b):
    return total(float(x) * float(y) for x, y in zip(a, b, strict=True))


def unit(vector):
    length = math.sqrt(dot(vector, vector))
    return [float(x) / length for x in vector]


def squared_distance(a, b):
    return total((x - y) ** 2 for x, y in zip(a, b, strict=True))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def softmax(values):
    exponentials = [math.exp(value) for value in values]
    return [value / total(exponentials) for value in exponentials]


# ---- distillation -------------------------------------------------------------------------------------------------


def _width(image):  # the sum runs over w: one number for each channel and row
    channels, rows, columns = image.shape
    return [total(image[c, h, w] ** 2 for w in range(columns)) for c in range(channels) for h in range(rows)]


def _height(image):
    channels, rows, columns = image.shape
    return [total(image[c, h, w] ** 2 for h in range(rows)) for c in range(channels) for w in range(columns)]


def _channels(image):
    channels, rows, columns = image.shape
    return [total(image[c, h, w] ** 2 for c in range(channels)) for h in range(rows) for w in range(columns)]


def _gap(image):
    channels, rows, columns = image.shape
    return [total(image[c, h, w] ** 2 for h in range(rows) for w in range(columns)) for c in range(channels)]


def _pixels(image):
    channels, rows, columns = image.shape
    return [image[c, h, w] ** 2 for c in range(channels) for h in range(rows) for w in range(columns)]


POOLINGS = {"pixels": _pixels, "channels": _channels, "gap": _gap, "width": _width, "height": _height}


def _pod_image(old, new, pooling, fidelity):
    if fidelity == "paper":
        if pooling == "spatial":
            return _pod_image(old, new, "width", fidelity) + _pod_image(old, new, "height", fidelity)
        pool = POOLINGS[pooling]
        return squared_distance(unit(pool(old)), unit(pool(new)))
    if pooling == "spatial":
        old_vector, new_vector = _width(old) + _height(old), _width(new) + _height(new)
    else:
        old_vector, new_vector = POOLINGS[pooling](old), POOLINGS[pooling](new)
    return math.sqrt(squared_distance(unit(old_vector), unit(new_vector)))


def pod(old_maps, new_maps, pooling, fidelity):
    """Equations 1 to 5, and the mean over the stages of equation 7; released: FIDELITY.md, row 3."""
    stages = []
    for old, new in zip(old_maps, new_maps, strict=True):
        stages.append(mean(_pod_image(old[b], new[b], pooling, fidelity) for b in range(len(old))))
    return mean(stages)


def pod_flat(old, new, fidelity):
    if fidelity == "paper":
        return mean(squared_distance(unit(a), unit(b)) for a, b in zip(old, new, strict=True))
    return mean(1 - cosine(a, b) for a, b in zip(old, new, strict=True))


def attention(image, gradient):
    """Grad-CAM: channels weighed by their mean gradient, summed and rectified; one number a pixel."""
    channels, rows, columns = image.shape
    weights = [mean(gradient[c, h, w] for h in range(rows) for w in range(columns)) for c in range(channels)]
    return [
        max(0.0, total(weights[c] * image[c, h, w] for c in range(channels)))
        for h in range(rows)
        for w in range(columns)
    ]


def gradcam_by_channel(old, old_gradient, new, new_gradient):
    """As released: one number a channel and pixel, each channel weighed by its mean gradient."""

    def attention_by_channel(image, gradient):
        channels, rows, columns = image.shape
        places = [(h, w) for h in range(rows) for w in range(columns)]
        weights = [mean(gradient[c, h, w] for h, w in places) for c in range(channels)]
        return [max(0.0, weights[c] * image[c, h, w]) for c in range(channels) for h, w in places]

    losses = []
    for b in range(len(old)):
        a, n = (unit(attention_by_channel(x[b], g[b])) for x, g in ((old, old_gradient), (new, new_gradient)))
        losses.append(total(abs(x - y) for x, y in zip(a, n, strict=True)))
    return mean(losses)


def perceptual_features(old_maps, new_maps):
    """Squared distance of unit vectors, divided by their length in numbers; mean over images and maps."""
    stages = []
    for old, new in zip(old_maps, new_maps, strict=True):
        images = [
            squared_distance(unit(list(a.flatten())), unit(list(b.flatten()))) / a.size
            for a, b in zip(old, new, strict=True)
        ]
        stages.append(mean(images))
    return mean(stages)


def gradcam(old, old_gradient, new, new_gradient):
    losses = []
    for b in range(len(old)):
        a, n = unit(attention(old[b], old_gradient[b])), unit(attention(new[b], new_gradient[b]))
        losses.append(total(abs(x - y) for x, y in zip(a, n, strict=True)))
    return mean(losses)


def gram(image):
    """Johnson et al., equation 3: G[c, d] = Σ_hw φ[c] φ[d] / (C H W)."""
    channels, rows, columns = image.shape
    pixels = [(h, w) for h in range(rows) for w in range(columns)]
    return [
        [total(image[c, h, w] * image[d, h, w] for h, w in pixels) / (channels * len(pixels)) for d in range(channels)]
        for c in range(channels)
    ]


def perceptual_style(old_maps, new_maps):
    stages = []
    for old, new in zip(old_maps, new_maps, strict=True):
        per_image = []
        for b in range(len(old)):
            rows = zip(gram(old[b]), gram(new[b]), strict=True)
            per_image.append(total(squared_distance(a, n) for a, n in rows))
        stages.append(mean(per_image))
    return mean(stages)


def icarl(logits, targets, old_logits=None):
    """Binary cross-entropy of each output: new classes towards 0 or 1, old classes towards the teacher's sigmoid."""
    terms = []
    for b in range(len(logits)):
        for c in range(len(logits[b])):
            wanted = 1.0 if c == targets[b] else 0.0
            if old_logits is not None and c < len(old_logits[b]):
                wanted = 1 / (1 + math.exp(-old_logits[b, c]))
            given = 1 / (1 + math.exp(-logits[b, c]))
            terms.append(-wanted * math.log(given) - (1 - wanted) * math.log(1 - given))
    return mean(terms)


def distillation(logits, old_logits, temperature):
    """BiC, equation 2: cross-entropy between the softened outputs of the classes that the teacher knows."""
    losses = []
    for b in range(len(logits)):
        known = range(len(old_logits[b]))
        wanted = softmax([old_logits[b, c] / temperature for c in known])
        given = softmax([logits[b, c] / temperature for c in known])
        losses.append(-total(wanted[c] * math.log(given[c]) for c in known))
    return mean(losses)


# ---- classification -----------------------------------------------------------------------------------------------


def nca(similarities, targets, scale, margin, hinge, fidelity):
    """Equation 9 as it stands; released: FIDELITY.md, row 1."""
    scale = float(scale)
    losses = []
    for row, target in zip(similarities, targets, strict=True):
        others = [float(s) for i, s in enumerate(row) if i != target]
        if fidelity == "released":
            shifted = [scale * (float(s) - margin) for s in row]
            top = max(shifted)
            denominator = math.exp(0.0) + total(math.exp(s - top) for i, s in enumerate(shifted) if i != target)
            losses.append(-math.log(math.exp(shifted[target] - top) / denominator))
        else:
            denominator = total(math.exp(scale * s) for s in others)
            loss = -math.log(math.exp(scale * (float(row[target]) - margin)) / denominator)
            losses.append(max(0.0, loss) if hinge else loss)
    return mean(losses)


def cross_entropy(similarities, targets, scale):
    rows = zip(similarities, targets, strict=True)
    return mean(-math.log(softmax([float(scale) * float(s) for s in row])[target]) for row, target in rows)


def margin_ranking(similarities, targets, old, negatives, margin):
    """UCIR, equation 8: every exemplar against the new classes that it resembles most."""
    terms = []
    for row, target in zip(similarities, targets, strict=True):
        if target < old:
            hardest = sorted((float(s) for s in row[old:]), reverse=True)[:negatives]
            terms += [max(0.0, margin - float(row[target]) + s) for s in hardest]
    return mean(terms)


def local_similarity(embedding, proxies, similarity, factor=1.0):
    """Equation 8. embedding (B, D), proxies (classes, K, D) -> (B, classes). Distances are of vectors `factor` long."""
    result = []
    for h in embedding:
        row = []
        for own in proxies:
            cosines = [cosine(theta, h) for theta in own]
            if similarity == "distance":
                long = [[factor * x for x in unit(vector)] for vector in (h, *own)]
                cosines = [-squared_distance(theta, long[0]) for theta in long[1:]]
            row.append(total(s * c for s, c in zip(softmax(cosines), cosines, strict=True)))
        result.append(row)
    return result


def linear(embedding, weights):
    """weights (classes, D + 1), the bias last."""
    return [[dot(row[:-1], h) + float(row[-1]) for row in weights] for h in embedding]


# ---- the terms of other methods -------------------------------------------------------------------------------------


def cross_entropy_among(logits, targets, classes_of):
    """Softmax cross-entropy of each image among the classes that `classes_of` gives for its target."""
    losses = []
    for row, target in zip(logits, targets, strict=True):
        among = list(classes_of(target))
        losses.append(-math.log(softmax([float(row[c]) for c in among])[among.index(target)]))
    return mean(losses)


def taskwise_distillation(logits, old_logits, sizes, temperature):
    """SS-IL: the divergence of the teacher's softmax from the student's, of each old task by itself, summed."""
    losses = []
    for row, old_row in zip(logits, old_logits, strict=True):
        first, terms = 0, []
        for size in sizes:
            own = range(first, first + size)
            wanted, given = (softmax([float(side[c]) / temperature for c in own]) for side in (old_row, row))
            terms.append(total(w * math.log(w / g) for w, g in zip(wanted, given, strict=True)))
            first += size
        losses.append(temperature**2 * total(terms))
    return mean(losses)


def discrepancy(old_maps, new_maps, importance):
    """AFC: the distance of each channel, as a unit vector of its squared values, times the channel's importance."""
    stages = []
    for old, new, weights in zip(old_maps, new_maps, importance, strict=True):
        terms = []
        for b in range(len(old)):
            for c in range(old.shape[1]):
                a, n = (unit([float(x) ** 2 for x in maps[b, c].flatten()]) for maps in (old, new))
                terms.append(float(weights[c]) * math.sqrt(squared_distance(a, n)))
        stages.append(mean(terms))
    return mean(stages)


def correlation(embedding, targets):
    """CwD: the squared Frobenius norm of each class's correlation matrix, over its size; mean over the classes."""
    rows = [unit(row) for row in embedding]
    norms = []
    for label in sorted({int(t) for t in targets}):
        own = [row for row, t in zip(rows, targets, strict=True) if t == label]
        if len(own) < 2:
            continue
        columns = [[x - mean(column) for x in column] for column in zip(*own, strict=True)]
        squares = [(dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))) ** 2 for a in columns for b in columns]
        norms.append(total(squares) / len(columns) ** 2)
    return mean(norms)


# ---- exemplars ----------------------------------------------------------------------------------------------------


def herd(features, n):
    """iCaRL, algorithm 4: at each step try every image that is left."""
    features = [[float(x) for x in row] for row in features]
    dimensions = range(len(features[0]))
    goal = [mean(row[d] for row in features) for d in dimensions]
    chosen = []
    for _ in range(n):
        best, best_distance = None, math.inf
        for candidate in range(len(features)):
            if candidate in chosen:
                continue
            trial = [*chosen, candidate]
            centre = [mean(features[i][d] for i in trial) for d in dimensions]
            distance = squared_distance(goal, centre)
            if distance < best_distance:
                best, best_distance = candidate, distance
        chosen.append(best)
    return chosen


def class_means(features, targets, mirrored=None):
    means = []
    for label in sorted({int(t) for t in targets}):
        own = [unit(f) for f, t in zip(features, targets, strict=True) if t == label]
        if mirrored is not None:
            own += [unit(f) for f, t in zip(mirrored, targets, strict=True) if t == label]
        means.append(unit([mean(column) for column in zip(*own, strict=True)]))
    return means


def nme_scores(features, means):
    return [[-squared_distance(unit(f), m) for m in means] for f in features]


# ---- comparing ----------------------------------------------------------------------------------------------------


def numeric_gradient(function, inputs, position, step=1e-6):
    """Central differences of function(*inputs) in every element of inputs[position]."""
    gradient = np.zeros_like(inputs[position])
    for index in np.ndindex(gradient.shape):
        sides = []
        for sign in (1, -1):
            moved = [np.array(x, copy=True) for x in inputs]
            moved[position][index] += sign * step
            sides.append(function(*moved))
        gradient[index] = (sides[0] - sides[1]) / (2 * step)
    return gradient


def assert_matches(function, reference, *inputs, constants=()):
    """function(*constants, *inputs) on tensors has the reference's value, and its gradient in every one of `inputs`."""
    fixed = [torch.tensor(x, dtype=torch.float64) for x in constants]
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in inputs]

    def scalar(*moved):
        return reference(*constants, *moved)

    wanted = scalar(*inputs)
    value = function(*fixed, *leaves)
    assert value.shape == ()
    assert abs(value.item() - wanted) < 1e-9 * max(1, abs(wanted))
    value.backward()
    for position, leaf in enumerate(leaves):
        expected = numeric_gradient(scalar, inputs, position)
        np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-6, atol=1e-7)
    single = function(*(x.float() for x in fixed), *(x.detach().float().requires_grad_() for x in leaves))
    assert single.dtype == torch.float32
    assert abs(single.item() - wanted) < 1e-5 * max(1, abs(wanted))
