"""Backbones from timm; with pretrained features a few photos per class are enough.

The maps that POD compares are the ends of a network's last stages. The blocks of a transformer have one size: the ends
of its four quarters are used, with the tokens arranged as a map.
"""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import torch
from torch import Tensor, nn

from podnet.errors import ConfigError, MissingPackageError, PodnetError, importing, nearest, printable
from podnet.nets.backbones import Backbone, Expected
from podnet.nets.weights import ORDERED, existing_file, match, read_weights, reason

PREFIX = "timm:"
MAPS = 4
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")  # what is declared lasts as long as this object
HUB_SECONDS = 10  # time limit for the hub to answer


class TimmBackbone(Backbone):
    """A timm network without its classifier; `weights` are tensors by name, or True for those of the hub."""

    def __init__(self, name: str, channels: int, weights: Mapping[str, Tensor] | bool = False) -> None:
        super().__init__()
        self.channels = channels
        self.side = expected_of_timm(name).size
        # Whether one call gives maps and final features; for older networks timm gives the maps only.
        self.headless = not hasattr(_on_meta(name), "forward_intermediates")
        options: dict[str, Any] = {"features_only": True} if self.headless else {"num_classes": 0}
        if isinstance(weights, Mapping):
            options["pretrained_cfg_overlay"] = {"state_dict": weights}
        try:
            self.model = _timm().create_model(
                architecture(name), in_chans=channels, pretrained=bool(weights), **options
            )
        except RuntimeError as error:
            if "features_only" not in str(error):
                raise
            raise ConfigError(f"{name} does not return feature maps; choose another timm network.") from error
        if self.headless:
            self.indices = _ends(self.model.feature_info.reduction())
            self.dim = self.model.feature_info.channels()[-1]
        else:
            self.indices = _ends([stage["reduction"] for stage in self.model.feature_info])
            self.dim = self.model.head_hidden_size
        self.averages_last_map = self.headless or type(self.model).__name__ == "ResNet"  # else a head comes between
        for module in self.model.modules():  # random drops would differ in a resumed run
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            elif hasattr(module, "drop_prob"):
                module.drop_prob = 0.0

    def forward(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        if self.headless:
            stages = self.model(images)
            return [stages[i] for i in self.indices], stages[-1].mean((2, 3))
        final, maps = self.model.forward_intermediates(images, indices=self.indices)
        return maps, self.model.forward_head(final, pre_logits=True)


def _on_meta(name: str) -> Any:
    """timm's network without its classifier and without memory for its weights."""
    with torch.device("meta"):
        return _timm().create_model(architecture(name), num_classes=0)


def architecture(name: str) -> str:
    """The name without its prefix. It must be a timm model, never an address to download from."""
    own = name.removeprefix(PREFIX)
    timm = _timm()
    if not timm.is_model(own):
        raise ConfigError(f"timm has no network '{printable(own)}'.{nearest(own, timm.list_models())}")
    return own


def expected_of_timm(name: str) -> Expected:
    try:
        config = _timm().get_pretrained_cfg(architecture(name))
    except RuntimeError as error:  # a tag that names no weights
        raise ConfigError(f"timm has no weights '{printable(name)}': {error}.") from error
    return Expected(config.input_size[-1], config.fixed_input_size, tuple(config.mean), tuple(config.std))


def pretrained(name: str, channels: int, weights: str, seed: int) -> TimmBackbone:
    """The network with the weights of a file, or of the "hub". Fails if a layer has no weights there."""
    source = f"the weights of {name} from the hub" if weights == "hub" else printable(weights)
    file = from_hub_before(name) if weights == "hub" else existing_file(weights)
    if file is None:
        _require_answer(name)
    tensors = True if file is None else _by_timms_names(name, file)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random = TimmBackbone(name, channels)
        torch.default_generator.manual_seed(seed)
        try:
            loaded = TimmBackbone(name, channels, tensors)
        except Exception as error:  # anything that the network, the hub's client or the file reader raises
            raise PodnetError(f"cannot load {source}: {reason(error)}.") from error
    pairs = zip(random.named_parameters(), loaded.parameters(), strict=True)
    # Both use the same draws, so random parameters that are equal were not loaded. (Constant ones may stay equal.)
    missing = [key for (key, a), b in pairs if a.min() < a.max() and torch.equal(a, b)]
    if missing:
        raise PodnetError(f"{source} has no weights for {len(missing)} layers of {name}, such as {missing[0]}.")
    return loaded


def _by_timms_names(name: str, file: Path) -> dict[str, Tensor]:
    """The weights in a file. Where only timm itself may know how to convert them, as they are."""
    tensors, wanted = read_weights(file), _on_meta(name).state_dict()
    try:
        return match(wanted, tensors, printable(file), file.suffix in ORDERED)
    except ConfigError:
        return tensors


def from_hub_before(name: str) -> Path | None:
    """The cached weights from the hub."""
    if (config := _on_hub(name)) is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    kept = try_to_load_from_cache(config.hf_hub_id, config.hf_hub_filename or "model.safetensors")
    return Path(kept) if isinstance(kept, str) and kept.endswith(".safetensors") else None


def _on_hub(name: str) -> Any:
    """timm's description of the weights, if they are on the hub."""
    config = _timm().get_pretrained_cfg(architecture(name))
    return config if config is not None and config.hf_hub_id else None


def _require_answer(name: str) -> None:
    """Check that the hub answers, if the weights are there: its own client retries for a minute."""
    if _on_hub(name) is None:
        return
    from huggingface_hub import constants

    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=HUB_SECONDS).close()
    except HTTPError:
        pass  # an error status is an answer
    except OSError as error:
        raise PodnetError(
            f"cannot load the weights of {name}: {constants.ENDPOINT} cannot be reached ({error}). "
            "Offline, set weights to a file, or to none for random ones."
        ) from error


def _ends(reductions: Sequence[int]) -> list[int]:
    """Indices of the intermediate results used as maps: the last stages, or the quarters' ends if sizes are equal."""
    count = len(reductions)
    if count < MAPS or reductions[0] != reductions[-1]:
        return list(range(count))[-MAPS:]
    return [math.ceil((quarter + 1) * count / MAPS) - 1 for quarter in range(MAPS)]


def _timm() -> Any:
    """The package timm. It imports torchvision, which may lack its compiled part beside this build of torch."""
    try:
        with importing("timm", "timm is not installed"):
            try:
                import timm
            except RuntimeError as error:
                if "torchvision::" not in str(error):
                    raise
                _declare_torchvisions_operators()
                import timm
    except RuntimeError as error:
        raise MissingPackageError(
            f"cannot import timm ({error}); install the torchvision that matches torch."
        ) from error
    return timm


def _declare_torchvisions_operators() -> None:
    """Declare the operators that torchvision names when it is imported, and that no network of timm calls.

    A torchvision built for another torch cannot load its compiled operators. It ignores that at first, and then fails
    to describe the results of these two. Declared, they can be described; called, they would say that they are missing.
    """
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
