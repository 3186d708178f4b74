"""The backbone of an experiment: its initial weights, and the size and statistics of the images that it sees."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from podnet.data import Source, Transform
from podnet.errors import ConfigError
from podnet.methods.base import Method
from podnet.nets.building import default_weights, expected_images, require_known, source_digest

SMALL = 128  # pixels that small images are scaled to: a fourth of the time of 224, a few points less


def with_weights(method: Method, given: Mapping[str, Any]) -> Method:
    """The method with its initial weights: the given ones, else those of lite's package, else random ones."""
    require_known(method.backbone)
    if "weights" not in given:
        usual = default_weights(method.backbone)
        method = replace(method, weights="none" if usual == "hub" else usual)  # nothing is downloaded unasked
    require_known(method.backbone, method.weights)
    if method.freeze and method.weights == "none":
        raise ConfigError(
            f"freeze keeps {method.backbone} as it is, with random weights; "
            "say where its weights come from (--weights), or leave --freeze out."
        )
    return method


def sizes(method: Method, source: Source, given: Mapping[str, Any]) -> dict[str, int]:
    """The side of the images that the backbone sees, by the option that sets it, if the backbone cares."""
    if source.photos and given.get("input_size") is not None:
        raise ConfigError("input_size is for small images; photos are cut to --image-size; leave --input-size out.")
    expected = expected_images(method.backbone)
    if expected is None or not (expected.fixed or method.weights != "none"):
        return {}
    option = "image_size" if source.photos else "input_size"
    usual = expected.size if source.photos or expected.fixed else min(SMALL, expected.size)
    size = given.get(option) or usual
    if expected.fixed and size != expected.size:
        raise ConfigError(f"{option} is {size}, but {method.backbone} sees {expected.size} pixels; leave it out.")
    return {option: size}


def as_expected(transform: Transform, method: Method, input_size: int | None) -> Transform:
    """The transform with the size, and with the statistics that the backbone's weights were trained with."""
    scaled = replace(transform, size=input_size)
    expected = expected_images(method.backbone) if method.weights != "none" else None
    if expected is None or len(expected.mean) != len(transform.mean):  # a coloured network on grey images
        return scaled
    return replace(scaled, mean=expected.mean, std=expected.std)


def origin_of_weights(method: Method) -> dict[str, Any]:
    """What the environment of a run says about the weights it began with; nothing if they were random."""
    if method.weights == "none":
        return {}
    return {"weights": {"from": method.weights, "sha256": source_digest(method.backbone, method.weights)}}
