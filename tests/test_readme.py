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


@pytest.mark.parametrize(("block", "file"), [(0, "my_method.py"), (1, "my_distillation.py")])
def test_the_page_on_methods_of_ones_own_shows_the_examples_as_they_are(block, file):
    text = (ROOT / "examples" / file).read_text()
    assert text[text.index("from dataclasses") :] == python_blocks("docs/extend.md")[block]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))])
def test_links_between_the_pages_exist(page):
    for target in re.findall(r"\]\(([^)#:]+?)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"
