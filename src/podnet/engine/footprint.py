"""What a learner takes: parameters, multiply-adds of one image, and the bytes it keeps from task to task."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from podnet.data.images import Images, shape_of, stored_bytes
from podnet.engine.learner import Learner
from podnet.nets.network import Network


def footprint(learner: Learner, images: Images) -> dict[str, Any]:
    """The entries of a results line, for images like these."""
    channels, *sides = shape_of(images)
    height, width = (learner.transform.size or side for side in sides)
    return {
        "parameters": sum(parameter.numel() for parameter in learner.network.parameters()),
        "multiply_adds": multiply_adds(learner.network, (channels, height, width)),
        "bytes": kept_bytes(learner),
    }


def kept_bytes(learner: Learner) -> dict[str, int]:
    """Bytes that the learner keeps between two tasks, by part."""
    images, means = learner.memory.images, learner.means
    return {
        "network": _bytes(learner.network.state_dict().values()),
        "exemplars": 0 if images is None else stored_bytes(images),
        "method_state": _bytes(learner.kept.values()),
        "class_means": 0 if means is None else means.nbytes,
    }


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def multiply_adds(network: Network, shape: tuple[int, int, int]) -> int | None:
    """Of one forward pass of one image: those of convolutions and matrix products, which take nearly all the time.

    None if the network calls a function whose multiply-adds are not known here.
    """
    parameter = next(network.parameters())
    image = torch.zeros(1, *shape, device=parameter.device)
    network.eval()
    count = _Count()
    with torch.no_grad(), count:
        network(image)
    return count.total


PRODUCTS = {"matmul", "__matmul__", "mm", "bmm", "mv", "dot"}
SHIFTED_PRODUCTS = {"addmm", "baddbmm"}
CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "convolve"}  # the last are ours
OPAQUE = {"einsum", "tensordot", "conv_transpose2d", "multi_head_attention_forward", "_native_multi_head_attention"}


class _Count(TorchFunctionMode):
    """Counts while it is active. torch's own counter would do the same, but imports the compiler for seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.total: int | None = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name in OPAQUE:
            self.total = None
        elif self.total is not None:
            self.total += _multiply_adds(name, args, out)
        return out


def _multiply_adds(name: str, args: Any, out: Any) -> int:
    if name in CONVOLUTIONS:
        weight = args[1]  # (outputs, inputs / groups, *kernel)
        return int(out.numel() * weight[0].numel())
    if name == "linear" or name in PRODUCTS:
        return int(out.numel() * args[0].shape[-1])
    if name in SHIFTED_PRODUCTS:
        return int(out.numel() * args[1].shape[-1])
    if name == "scaled_dot_product_attention":
        queries, keys = args[:2]  # (..., length, D)
        return int(keys.shape[-2] * (queries.numel() + out.numel()))
    return 0
