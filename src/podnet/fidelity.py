"""The switch between the paper's text and the authors' released code; docs/fidelity.md lists what it changes."""

from typing import Literal

Fidelity = Literal["paper", "released"]
