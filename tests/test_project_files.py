"""The files a public project has beside its code: they parse, and what they name exists."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    [paper] = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Douillard", "Cord", "Ollion", "Robert", "Valle"]


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "docs/convolutions.md"])
def test_files_that_are_linked_and_commands_of_make_exist(name):
    text = (ROOT / name).read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / name).parent / link).exists(), link
    for line in re.findall(r"\bmake ((?:PYTHON=\S+ )?[a-z -]+?)(?:`|  )", text):
        assert set(line.split()) - {"PYTHON=python3.12"} <= TARGETS, line


def test_what_github_runs_exists():
    [workflow] = [yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").iterdir()]
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert {command.removeprefix("make ") for command in commands} == {"lint", "test", "wheel"} <= TARGETS
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"][0] == lowest


def test_issue_forms_ask_for_something():
    for name in ("bug", "result"):
        form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
        assert form["name"]
        assert form["description"]
        assert all(field["attributes"]["label"] for field in form["body"])


def test_every_tool_of_the_hooks_is_installed_for_development():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for repo in hooks for hook in repo["hooks"]}
    installed = {re.split(r"[>=\[]", each)[0] for each in PROJECT["optional-dependencies"]["dev"]}
    assert tools <= installed
