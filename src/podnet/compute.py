"""How the numbers of a learner are computed: on which device, at which precision, by how many processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from podnet.network import Network, channels_last, compile_backbone
from podnet.team import ALONE, Team, synchronise
from podnet.winograd import replace_convolutions

Precision = Literal["32", "tf32", "bf16-mixed", "16-mixed"]
MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}  # of convolutions, all else being float32


@dataclass(frozen=True)
class Compute:
    """What decides how fast numbers come, and, but for rounding, none of them."""

    device: str = "cpu"
    compile: bool = False
    precision: Precision = "32"
    team: Team = ALONE
    sync_batchnorm: bool = True  # statistics of whole batches; False: each process has those of its share

    def place(self, network: Network, batch_size: int) -> Network:
        """The network on the device, in the layout and the form that are fastest there."""
        network.mixed = MIXED.get(self.precision)
        if self.sync_batchnorm and self.team.size > 1:
            synchronise(network, torch.device(self.device))
        network = channels_last(network.to(self.device))
        if torch.device(self.device).type == "cpu":
            replace_convolutions(network)
        if self.compile:
            compile_backbone(network, len(self.team.rows(batch_size)))
        return network

    def scaler(self) -> torch.amp.GradScaler:
        """Of losses, so that small gradients survive float16; elsewhere it does nothing."""
        return torch.amp.GradScaler(torch.device(self.device).type, enabled=self.precision == "16-mixed")


PLAIN = Compute()
