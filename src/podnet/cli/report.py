"""`podnet report` and `podnet compare`: finished runs as a page, and side by side in the terminal."""

from __future__ import annotations

import argparse

from podnet.report import commands


def report_command(known: argparse.Namespace) -> int:
    return commands.report_command(known.runs, known.output)


def compare_command(known: argparse.Namespace) -> int:
    return commands.compare_command(known.runs)
