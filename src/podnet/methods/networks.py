"""Networks of a method: new ones, and saved ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from podnet.errors import ConfigError
from podnet.methods.base import Features, Method
from podnet.nets.building import new_backbone
from podnet.nets.classifiers import GrowingClassifier
from podnet.nets.network import Network


def new_network(method: Method, channels: int) -> Network:
    """A network without classes."""
    backbone = new_backbone(method.backbone, channels, method.backbone_fidelity)
    if method.differentiates_maps and not backbone.averages_last_map:
        raise ConfigError(
            f"{method.name} needs gradients with respect to the maps, and the embedding of {method.backbone} is not "
            "the average of its last map; choose a ResNet or an EfficientNet-Lite."
        )
    network = method.network(backbone)
    classifier: object = network.classifier  # the method may be user-defined
    if not isinstance(classifier, GrowingClassifier):
        given = type(classifier).__name__
        raise ConfigError(
            f"the classifier of {method.name} is a {given}; return a GrowingClassifier, such as LinearClassifier."
        )
    return network


def grow(method: Method, network: Network, new: int, features: Features, seed: int) -> None:
    """Let the method add classes, and check what it did: it may be user-defined."""
    wanted = network.classifier.classes + new
    method.grow(network, new, features, seed)
    if network.classifier.classes != wanted:
        raise ConfigError(
            f"after grow of {method.name} the classifier has {network.classifier.classes} classes instead of {wanted}; "
            "call network.classifier.add_classes(new)."
        )
    require_rebuilt(method, network)


def require_rebuilt(method: Method, network: Network) -> None:
    """Whether a checkpoint of a user-defined method can be read again: `rebuild` must add what `grow` adds."""
    if not method.source:
        return
    with torch.device("meta"):
        again = _empty(method, network.backbone.channels, network.classifier.sizes)
    found, made = ({name: value.shape for name, value in each.state_dict().items()} for each in (network, again))
    if found != made:
        name = min(name for name in found | made if found.get(name) != made.get(name))
        raise ConfigError(
            f"the network of {method.name} has changed in {name}, which rebuild does not make again: checkpoints could "
            "not be read; add layers in grow only, and the same in rebuild(network, new)."
        )


def network_from(tensors: Mapping[str, Tensor], method: Method, channels: int, sizes: Sequence[int]) -> Network:
    """The network with these tensors, whose classes were added in groups of these sizes."""
    with torch.device("meta"):  # allocate nothing before the tensors are known to fit
        network = _empty(method, channels, sizes)
    for name, expected in network.state_dict().items():
        if name in tensors and tensors[name].dtype != expected.dtype:
            raise ValueError(f"{name} is {tensors[name].dtype}, not {expected.dtype}.")
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    if any(buffer.is_meta for buffer in network.buffers()):  # buffers that some timm networks create and never save
        network = _empty(method, channels, sizes)
        network.load_state_dict(tensors)
    return network


def _empty(method: Method, channels: int, sizes: Sequence[int]) -> Network:
    network = new_network(method, channels)
    for size in sizes:
        method.rebuild(network, size)
    return network
