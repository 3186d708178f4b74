"""What the campaign has tried, as JSON lines: a case that is noted is not tried again after an interruption."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HELD = "held"


def commit() -> str:
    """The last commit that changed the package, with a + if files differ from it."""
    root = Path(__file__).parents[2]
    run = ["git", "-C", str(root)]
    last = subprocess.run([*run, "log", "-1", "--format=%h", "--", "src"], capture_output=True, text=True, check=True)
    changed = subprocess.run([*run, "status", "--porcelain", "--", "src"], capture_output=True, text=True, check=True)
    return last.stdout.strip() + "+" * bool(changed.stdout.strip())


class Summary(NamedTuple):
    part: str
    commit: str
    tried: dict[str, int]
    failed: list[dict[str, str]]


class Notes:
    """The cases of one part of the campaign at one commit, in FOLDER/COMMIT/PART.jsonl."""

    def __init__(self, folder: Path, part: str, only: str = "") -> None:
        self.part, self.only, self.commit = part, only, commit()
        self.path = folder / self.commit / f"{part}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().split("\n")[:-1] if self.path.exists() else []
        self.cases = {line["case"]: line for line in map(json.loads, lines)}

    def wants(self, case: str) -> bool:
        """Whether it is one of those asked for."""
        return self.only in case

    def attempt(self, case: str, action: Callable[..., str | None], *arguments: object) -> None:
        """Carry out a case that is not noted yet; its outcome is a sentence about what failed, or None."""
        if case in self.cases or not self.wants(case):
            return
        began = time.monotonic()
        outcome = action(*arguments) or HELD
        line = {"case": case, "outcome": outcome, "seconds": round(time.monotonic() - began, 2), "commit": self.commit}
        self.cases[case] = line
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        if outcome != HELD:
            print(f"FAILED {self.part} {case}: {outcome}", flush=True)

    def summary(self) -> Summary:
        """Counts by what stands before the first slash of a case."""
        tried = Counter(case.split("/")[0] for case in self.cases)
        failed = [line for line in self.cases.values() if line["outcome"] != HELD]
        return Summary(self.part, self.commit, dict(tried), failed)
