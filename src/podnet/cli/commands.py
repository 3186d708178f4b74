"""How every command gets its parser."""

from __future__ import annotations

import argparse
from typing import Any


def add_command(commands: Any, name: str, words: str, **more: Any) -> argparse.ArgumentParser:
    """The parser of a command. Its help begins with what it does: `words`, unless a longer description is given."""
    options = {"description": f"{words[0].upper()}{words[1:]}.", "allow_abbrev": False} | more
    if "epilog" in more:
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter  # keeps the lines of the examples
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, **options)
    return parser
