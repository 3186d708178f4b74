"""Print the lowest versions that pyproject.toml allows, for pip install -r. See `make test-lowest`.

What the tests themselves use comes in the versions of constraints.txt.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("docs", "dev")
OF_TESTS = ("httpx", "hypothesis", "pytest", "pytest-xdist")


def lowest():
    """The requirements of podnet and of its extras, each at its lowest version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if name not in TOOLS]
    for line in (*project["dependencies"], *(line for lines in extras for line in lines)):
        name, low = re.match(r"([\w-]+)>=([\w.]+),<", line).groups()
        yield f"{name}=={low}"


def main():
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    print(*lowest(), *(line for line in pinned if line.partition("==")[0] in OF_TESTS), sep="\n")


if __name__ == "__main__":
    main()
