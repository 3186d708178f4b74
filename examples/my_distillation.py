"""PODNet with a distillation loss of your own between the maps of the teacher and of the student.

podnet run --method examples/my_distillation.py:AttentionPODNet
"""

from dataclasses import dataclass

import torch.nn.functional as F

from podnet.methods import PODNet


@dataclass(frozen=True, kw_only=True)
class AttentionPODNet(PODNet):
    """POD is replaced by the distance of attention maps (after Zagoruyko and Komodakis, 2017); the rest is PODNet's."""

    name = "attention-podnet"
    summary = "PODNet, distilling where the network looks"

    def distance(self, teacher, student):
        """Maps are (batch, channels, height, width), one for each stage of the backbone."""
        terms = []
        for old, new in zip(teacher.maps, student.maps, strict=True):
            looked = [F.normalize(maps.pow(2).sum(1).flatten(1)) for maps in (old, new)]
            terms.append((looked[0] - looked[1]).norm(dim=1).mean())
        return sum(terms) / len(terms)
