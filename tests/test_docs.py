"""The site of docs/ builds offline, its links resolve, and the notebooks and the walks are true to the code."""

import contextlib
import importlib
import inspect
import io
import json
import os
import re
import runpy
import subprocess
import sys
from functools import reduce
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from PIL import Image

import podnet
from podnet.cli import main
from podnet.model.loading import load_model

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


class Page(HTMLParser):
    """The anchors of an HTML page, where it leads, and what a browser loads to show it."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if values.get("src"):
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="the site needs pip install 'podnet[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(command, cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_links_and_anchors_of_the_site_resolve(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert {path.stem for path in pages} >= {path.stem for path in DOCS.glob("*.md")}
    for path, page in pages.items():
        for link in page.links + page.loaded:
            url = urlsplit(link)
            if url.scheme or url.netloc or path.name == "404.html":  # the latter's links are absolute
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            assert target.exists(), f"{path.name} links to {link}"
            if url.fragment and target.suffix == ".html":
                assert unquote(url.fragment) in pages[target].anchors, f"{path.name} links to {link}"


def test_the_site_loads_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        for source in Page(path).loaded:
            assert not urlsplit(source).netloc, f"{path.name} loads {source}"


def test_the_reference_has_every_public_name(site):
    anchors = Page(site / "reference.html").anchors
    names = {f"podnet.{name}" for name in podnet.__all__ if not name.startswith("__")}
    for module in ("losses", "metrics"):
        functions = inspect.getmembers(importlib.import_module(f"podnet.{module}"), inspect.isfunction)
        own = [name for name, function in functions if function.__module__ == f"podnet.{module}"]
        names |= {f"podnet.{module}.{name}" for name in own if not name.startswith("_")}
    assert len(names) > 25
    assert not names - anchors


@pytest.mark.parametrize("notebook", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_and_print_what_they_show(notebook, tmp_path, monkeypatch):
    """The lines of the outputs that are kept, but for figures; after a change, run the notebook and save it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    names = {}
    for number, cell in enumerate(cells, start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"{notebook.name}, code cell {number}", "exec"), names)
        kept = "".join(line for output in cell["outputs"] for line in output.get("text", []))
        assert without_figures(printed.getvalue()) == without_figures(kept), f"code cell {number}"
    names["plt"].close("all")
    if notebook.stem == "forgetting":
        first_five = {name: rows[-1][1] for name, rows in names["measured"].items()}
        assert first_five["fine-tuning"] < 30 < 60 < first_five["PODNet"]
    else:
        assert sum(names["right"]) > 25  # of 30, five classes
        assert "lime" not in load_model(names["model_file"]).names


def without_figures(text):
    """The words of each line; numbers and paths differ from machine to machine."""
    return [re.findall(r"[A-Za-z]{2,}", re.sub(r"\S*/\S*", "", line)) for line in text.splitlines()]


def steps(heading):
    """The functions that a walk of the page names, in its order."""
    walk = (DOCS / "architecture.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([\w.]+)`", walk, flags=re.MULTILINE)


def function(name):
    """`engine.learner.Learner.learn` -> that function, without its decorators."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(".".join(["podnet", *parts[:length]]))
            return inspect.unwrap(reduce(getattr, parts[length:], module))
    raise AssertionError(f"there is no {name}")


def first_calls(names, *commands):
    """The names in the order in which the commands first call them."""
    wanted = {function(name).__code__: name for name in names}
    seen = {}

    def note(frame, event, _):
        if event == "call" and frame.f_code in wanted:
            seen.setdefault(wanted[frame.f_code])

    sys.setprofile(note)
    try:
        codes = [main(command) for command in commands]
    finally:
        sys.setprofile(None)
    assert codes == [0] * len(commands)
    return list(seen)


def test_an_image_walks_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    images, labels = draws.integers(0, 256, (32, 8, 8, 3), dtype=np.uint8), np.repeat(np.arange(4), 8)
    np.savez("mine.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    walk = steps("An image, from file to metric")
    assert 8 <= len(walk) <= 15
    assert len(set(walk)) == len(walk)
    options = "--epochs 1 --finetune-epochs 1 --memory-per-class 2 --device cpu --threads 1"
    command = f"run --dataset npz --data-path mine.npz --base 2 --increment 2 {options}"
    assert first_calls(walk, command.split()) == walk


def test_a_photo_walks_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = draws.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    walk = steps("A photo, from folder to answer")
    assert 8 <= len(walk) <= 15
    assert len(set(walk)) == len(walk)
    learn = "learn m.podnet photos --image-size 16 --epochs 1 --batch-size 8 --workers 0 --device cpu"
    assert first_calls(walk, learn.split(), ["predict", "m.podnet", "photos/cat/0.png", "--device", "cpu"]) == walk


def test_the_tables_are_what_the_records_and_the_methods_say():
    script = runpy.run_path(str(ROOT / "scripts" / "results.py"))
    assert script["main"](check=True) == 0, "run python scripts/results.py"
    text = "".join(page.read_text() for page in script["PAGES"])
    assert all(f"<!-- {name} -->" in text for name in script["TABLES"])
