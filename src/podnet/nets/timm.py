"""Backbones by their names in timm, whose pretrained features make a few photos of a class enough.

The maps that POD compares are the ends of a network's last stages. A transformer has blocks of one size instead: the
ends of its four quarters are taken, their tokens laid out as a map.
"""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import torch
from torch import Tensor, nn

from podnet.errors import ConfigError, MissingPackageError, PodnetError, nearest, printable
from podnet.nets.backbones import Backbone

PREFIX = "timm:"
MAPS = 4
HUB_SECONDS = 10  # in which the hub must answer


@dataclass(frozen=True)
class Expected:
    """The images that an architecture was made for."""

    size: int
    fixed: bool  # whether it takes no other size
    mean: tuple[float, ...]
    std: tuple[float, ...]


class TimmBackbone(Backbone):
    """A network of timm without its classifier; `weights` is a file to start from, or True for those of the hub."""

    def __init__(self, name: str, channels: int, weights: Path | bool = False) -> None:
        super().__init__()
        options: dict[str, Any] = {"in_chans": channels, "pretrained": bool(weights)}
        if isinstance(weights, Path):
            options["pretrained_cfg_overlay"] = {"file": str(weights)}
        self.channels = channels
        self.headless = not _has_intermediates(name)
        try:
            self.model = _timm().create_model(
                architecture(name), **options, **({"features_only": True} if self.headless else {"num_classes": 0})
            )
        except RuntimeError as error:
            if "features_only" not in str(error):
                raise
            raise ConfigError(f"{name} cannot be asked for its maps; choose another network of timm.") from error
        if self.headless:
            self.indices = _ends(self.model.feature_info.reduction())
            self.dim = self.model.feature_info.channels()[-1]
        else:
            self.indices = _ends([stage["reduction"] for stage in self.model.feature_info])
            self.dim = self.model.head_hidden_size
        for module in self.model.modules():  # what is dropped at random would not be the same in a resumed run
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


def _has_intermediates(name: str) -> bool:
    """Whether a network gives its maps and goes on; of older ones timm gives the maps alone."""
    with torch.device("meta"):
        return hasattr(_timm().create_model(architecture(name), num_classes=0), "forward_intermediates")


def architecture(name: str) -> str:
    """The name without its prefix. It must be one of timm's own: never an address to fetch something from."""
    own = name.removeprefix(PREFIX)
    timm = _timm()
    if not timm.is_model(own):
        raise ConfigError(f"timm has no network '{printable(own)}'.{nearest(own, timm.list_models())}")
    return own


def expected_images(name: str) -> Expected:
    """What `name` was made for."""
    config = _timm().get_pretrained_cfg(architecture(name))
    return Expected(config.input_size[-1], config.fixed_input_size, tuple(config.mean), tuple(config.std))


def pretrained(name: str, channels: int, weights: str, seed: int) -> TimmBackbone:
    """The network with the weights of a file, or of the "hub"; it is an error if any layer found none."""
    file = None if weights == "hub" else Path(weights).expanduser()
    source = f"the weights of {name} from the hub" if file is None else printable(weights)
    if file is not None and (file.suffix != ".safetensors" or not file.is_file()):
        raise ConfigError(f"weights is '{source}'; give a .safetensors file that exists, 'hub' or 'none'.")
    file = file or _from_hub_before(name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random = TimmBackbone(name, channels)
        torch.default_generator.manual_seed(seed)
        try:
            loaded = TimmBackbone(name, channels, file or True)
        except Exception as error:  # whatever the network, the hub's client and the reader of the file raise
            reason = " ".join(str(error).split())[:300].rstrip(".")
            raise PodnetError(f"cannot load {source}: {reason}.") from error
    pairs = zip(random.named_parameters(), loaded.parameters(), strict=True)
    # The same draws in both: what is random and equal was not loaded. (What starts as a constant may well stay one.)
    missing = [key for (key, a), b in pairs if a.min() < a.max() and torch.equal(a, b)]
    if missing:
        raise PodnetError(f"{source} has no weights for {len(missing)} layers of {name}, such as {missing[0]}.")
    return loaded


def _from_hub_before(name: str) -> Path | None:
    """The file of weights that the hub gave before; else the hub must answer: its own client retries for a minute."""
    config = _timm().get_pretrained_cfg(architecture(name))
    if config is None or not config.hf_hub_id:
        return None
    from huggingface_hub import constants, try_to_load_from_cache

    kept = try_to_load_from_cache(config.hf_hub_id, config.hf_hub_filename or "model.safetensors")
    if isinstance(kept, str) and kept.endswith(".safetensors"):
        return Path(kept)
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=HUB_SECONDS).close()
    except HTTPError:
        pass  # an answer
    except OSError as error:
        raise PodnetError(
            f"cannot load the weights of {name}: {constants.ENDPOINT} cannot be reached ({error}). "
            "Offline, give a .safetensors file (--weights FILE), or start from random weights (--weights none)."
        ) from error
    return None


def _ends(reductions: Sequence[int]) -> list[int]:
    """Which intermediate results are the maps: the last stages, or the ends of the quarters of blocks of one size."""
    count = len(reductions)
    if count < MAPS or reductions[0] != reductions[-1]:
        return list(range(count))[-MAPS:]
    return [math.ceil((quarter + 1) * count / MAPS) - 1 for quarter in range(MAPS)]


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise MissingPackageError("networks of timm need it: pip install 'podnet[timm]'.") from error
    except RuntimeError as error:  # torchvision, which timm imports, built for another torch
        raise MissingPackageError(f"timm cannot be imported ({error}); install torch's own torchvision.") from error
    return timm
