"""The campaign: many more attempts to break podnet than `make test` has time for. See docs/reliability.md.

    python tests/campaign/run.py [--state FOLDER] [--only TEXT] [PART ...]

What was tried is noted in FOLDER (default: ~/.cache/podnet-campaign); the same call goes on after an interruption.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from forked import warm_up
from notes import Notes

PARTS = {  # part -> its module and function
    "kills": ("kills", "every_change"),
    "signals": ("signals", "random_moments"),
    "inputs": ("inputs", "bad_input"),
    "disks": ("disks", "bad_disks"),
    "histories": ("histories", "random_histories"),
    "growth": ("growth", "many_tasks"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--state", type=Path, default=Path.home() / ".cache" / "podnet-campaign")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it, such as reproduce")
    known = parser.parse_args()
    warm_up()
    memory = Path("/dev/shm")
    failed = 0
    for part in known.parts or PARTS:
        module, function = PARTS[part]
        notes = Notes(known.state, part, known.only)
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
            getattr(import_module(module), function)(notes, Path(scratch))
        summary = notes.summary()
        failed += len(summary.failed)
        print(json.dumps(summary._asdict(), indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
