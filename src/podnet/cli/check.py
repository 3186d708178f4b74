"""`podnet check`: damage in a model file or a run folder, and what can be recovered. Reads only."""

from __future__ import annotations

import argparse

from podnet.cli.doctor import tell
from podnet.errors import printable
from podnet.io.files import in_its_place


def check_command(known: argparse.Namespace) -> int:
    path = in_its_place(known.path)
    if path.is_dir():
        from podnet.runs.check import check_run
        from podnet.runs.folder import Run

        findings = list(check_run(Run(path)))
    else:
        from podnet.model.check import check_model

        findings = list(check_model(path))
    damaged = tell(printable(path), findings)
    print("damaged" if damaged else "whole")
    return int(damaged)
