"""How every command gets its parser, and options from tables."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

Table = tuple[tuple[str, str | None, str], ...]  # option, what stands for its value in the help, help
Flags = Mapping[str, Mapping[str, Any]]  # option -> what else argparse is told about it
SWITCH = {"action": "store_true"}


def add_command(commands: Any, name: str, words: str, **more: Any) -> argparse.ArgumentParser:
    """The parser of a command. Its help begins with what it does: `words`, unless a longer description is given."""
    options = {"description": f"{words[0].upper()}{words[1:]}.", "allow_abbrev": False} | more
    if "epilog" in more:
        options["formatter_class"] = argparse.RawDescriptionHelpFormatter  # keeps the lines of the examples
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, **options)
    return parser


def add_options(parser: argparse.ArgumentParser, table: Table, flags: Flags) -> None:
    for option, metavar, words in table:
        more = flags.get(option, {})
        shown: dict[str, Any] = {"metavar": metavar} if metavar and "choices" not in more else {}
        parser.add_argument(option, help=words, **shown, **more)
