"""The one switch between the paper's text and the authors' released code; docs/fidelity.md lists what it changes."""

from typing import Literal, get_args

Fidelity = Literal["paper", "released"]
FIDELITIES: tuple[str, ...] = get_args(Fidelity)
