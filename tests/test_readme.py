"""What the README and the docs show runs as it is written there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), flags=re.DOTALL)


def test_the_learner_example_of_the_readme_runs(capsys):
    (example,) = python_blocks("README.md")
    quick = example.replace("epochs=20", "epochs=1, finetune_epochs=1").replace("range(10), base=5", "range(4), base=3")
    assert quick != example
    exec(compile(quick, "README.md", "exec"), {})
    assert "tensor(" in capsys.readouterr().out


def test_the_method_of_the_architecture_page_learns():
    from podnet import Learner, class_incremental
    from podnet.data import load

    (example,) = python_blocks("docs/architecture.md")
    names = {}
    exec(compile(example, "architecture.md", "exec"), names)
    digits = load("digits", None)
    learner = Learner(names["LwFWithMemory"](epochs=1), 1, digits.transform)
    for task in class_incremental(digits, range(4), base=3, increment=1):
        records = [record for record in learner.learn(task) if hasattr(record, "losses")]
    assert set(records[-1].losses) == {"ce", "distillation"}


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))])
def test_links_between_the_pages_exist(page):
    for target in re.findall(r"\]\(([^)#:]+?)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"
