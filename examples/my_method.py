"""A method of your own: replay with the teacher's softened outputs, in a few lines.

podnet run --method examples/my_method.py:MyMethod --weight 2
"""

from dataclasses import dataclass

import torch.nn.functional as F

from podnet.losses import distillation
from podnet.methods import Method, Phase
from podnet.methods.phases import cosine


@dataclass(frozen=True, kw_only=True)
class MyMethod(Method):
    """Fields are options of the command line, with a default and a type."""

    weight: float = 1.0
    temperature: float = 2.0

    name = "my-method"
    summary = "Cross-entropy and the teacher's softened outputs (after Li and Hoiem, 2016), with a memory"
    presets = {"digits": {"epochs": 20, "batch_size": 64}}  # what differs from CIFAR-100

    def phases(self, old, new, state):
        """A task that adds `new` classes to `old` ones is one phase of training here."""

        def loss(student, teacher, targets):
            terms = {"ce": F.cross_entropy(student.logits, targets)}
            if teacher is not None:
                terms["kept"] = self.weight * distillation(student.logits, teacher.logits, self.temperature)
            return terms

        return [Phase("train", loss, self.epochs, cosine(self.lr, self.epochs), distils=old > 0)]
