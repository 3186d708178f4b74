"""What podnet is installed with: pyproject.toml, constraints.txt, requirements/ and docs/licences.md agree."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = ("core", "torch", "torch-cpu", "extras")
TOOLS = ("docs", "dev")


def locked(name):
    """The requirements in a file of requirements/, and the hashes of each."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ")
    entries = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            requirement, *hashes = re.split(r"\s+--hash=", line.strip())
            entries[Requirement(requirement)] = hashes
    return entries


def versions(*names):
    """Name -> version, of the packages in these files."""
    return {
        canonicalize_name(each.name): Version(str(each.specifier).removeprefix("=="))
        for name in names
        for each in locked(name)
    }


def direct():
    """What podnet and its extras ask for; not the tools for working on it."""
    extras = PROJECT["optional-dependencies"]
    lines = [line for name, lines in extras.items() if name not in TOOLS for line in lines]
    return [Requirement(line) for line in (*PROJECT["dependencies"], *lines)]


@pytest.mark.parametrize("name", FILES)
def test_every_version_is_pinned_and_has_hashes_and_no_address(name):
    for requirement, hashes in locked(name).items():
        assert re.fullmatch(r"==[\w.+]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert not re.search(r"://|^-|--(?!hash=|require-hashes)", text, re.M)


def test_constraints_and_locked_versions_agree():
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()[1:]]
    pinned = {canonicalize_name(each.name): Version(str(each.specifier).removeprefix("==")) for each in pins}
    found = versions("core", "torch", "extras")
    assert pinned.items() <= found.items()
    more = {each.name for name in ("core", "extras") for each in locked(name) if each.name not in pinned}
    assert more <= {"httpx2-jsfetch"}  # for a system that is not tested
    assert Version(versions("torch-cpu")["torch"].public) == found["torch"]


def test_each_package_is_locked_once():
    names = [each.name for name in ("core", "torch", "extras") for each in locked(name)]
    assert len(names) == len(set(names))
    assert {each.name for each in locked("torch-cpu")} == {"torch"}


def test_what_is_locked_is_what_pyproject_allows_and_the_next_major_version_is_not():
    found = versions("core", "torch", "extras")
    for requirement in direct():
        version = found[canonicalize_name(requirement.name)]
        assert version in requirement.specifier, requirement
        assert Version(f"{version.major + 1}") not in requirement.specifier, requirement
        assert {each.operator for each in requirement.specifier} == {">=", "<"}, requirement
    assert all(
        canonicalize_name(Requirement(line).name) in versions("core", "torch") for line in PROJECT["dependencies"]
    )


def test_the_lowest_versions_are_those_that_pyproject_allows():
    command = [sys.executable, str(ROOT / "scripts" / "lowest.py")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    lowest = {each.name: Version(str(each.specifier).removeprefix("==")) for each in map(Requirement, told)}
    for requirement in direct():
        assert lowest[requirement.name] in requirement.specifier
        assert f">={lowest[requirement.name]}" in str(requirement.specifier)
    assert "pytest" in lowest
    listed = re.search(r"LOWEST_TESTS := \$\(patsubst %,tests/test_%.py,([^)]*)\)", (ROOT / "Makefile").read_text())
    for name in listed[1].replace("\\", "").split():
        assert (ROOT / "tests" / f"test_{name}.py").exists(), name


def test_the_licence_of_everything_that_is_always_needed_is_listed():
    rows = (ROOT / "docs" / "licences.md").read_text().partition("## Always needed")[2].partition("## Needed by")[0]
    found = re.findall(r"^\| ([\w-]+) \| ([\w.]+) \| (\S.*) \|$", rows, re.M)
    assert {name: Version(version) for name, version, _ in found if name != "package"} == {
        **versions("core"),
        "torch": versions("torch")["torch"],
    }


def test_the_page_ships_nothing_but_our_own_text_files():
    """docs/licences.md says so: no fonts, no minified code of others."""
    for path in (ROOT / "src" / "podnet" / "studio" / "static").iterdir():
        assert path.suffix in (".js", ".css", ".html", ".svg"), path
        assert max(map(len, path.read_text().splitlines())) < 500, f"{path} looks minified"
