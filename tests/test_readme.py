"""What the README and the docs show runs as it is written there."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from podnet.cli import main
from podnet.io.tensors import load_tensors
from podnet.losses import pod
from podnet.runs.folder import Run

ROOT = Path(__file__).parent.parent


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), flags=re.DOTALL)


def test_the_estimator_example_of_the_readme_runs():
    example, _ = python_blocks("README.md")
    digits = load_digits()
    images, labels = (digits.images * 15).astype(np.uint8), digits.target
    first, second = labels < 2, labels == 2
    names = {"images": images[first][:40], "labels": labels[first][:40]}
    names |= {"new_images": images[second][:20], "new_labels": labels[second][:20]}
    exec(example.replace("random_state=0", "random_state=0, device='cpu'"), names)
    assert names["classifier"].classes_.tolist() == [0, 1, 2]


def test_the_photos_of_the_walk_through_are_made_where_one_says(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "sample_photos.py")]
    helped = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "FOLDER" in helped.stdout
    assert not list(tmp_path.iterdir())
    done = subprocess.run([*command, "here"], cwd=tmp_path, capture_output=True, text=True, check=True)
    made = "photos/ (flower, temple), more-photos/ (portrait), new-photo.jpg and strange-photo.jpg"
    assert done.stdout == f"made {made} in here\n"
    files = {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*.jpg")}
    folders = ("photos/flower", "photos/temple", "more-photos/portrait")
    assert files == {"new-photo.jpg", "strange-photo.jpg", *(f"{each}/{i}.jpg" for each in folders for i in range(12))}


@pytest.mark.filterwarnings("ignore")  # torch's, about its export
def test_the_walk_through_with_photos_prints_what_the_readme_shows(tmp_path, monkeypatch, capsys):
    """On pieces of real photos that come with other packages; figures may differ by rounding."""
    pytest.importorskip("onnxscript")
    runpy.run_path(str(ROOT / "examples" / "sample_photos.py"))["main"](tmp_path)
    monkeypatch.chdir(tmp_path)
    (session,) = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    printed = ""
    for line in session.splitlines():
        if line.startswith("$ python examples/sample_photos.py"):
            continue  # done above
        if line.startswith("$ podnet "):
            assert main(shlex.split(line.removeprefix("$ podnet "), comments=True)) == 0, line
            printed = capsys.readouterr().out
            continue
        words, figures = re.sub(r"\d+\.?\d*", "#", line), re.findall(r"\d+\.?\d*", line)
        (same,) = [each for each in printed.splitlines() if re.sub(r"\d+\.?\d*", "#", each) == words]
        assert [float(figure) for figure in re.findall(r"\d+\.?\d*", same)] == pytest.approx(
            [float(figure) for figure in figures], abs=3
        )
    assert (tmp_path / "shop.onnx").exists()


def test_the_distillation_in_an_ordinary_loop_keeps_what_the_network_saw():
    """With the lines of the page its maps stay closer to what they were than with the classification alone."""
    example = python_blocks("docs/extend.md")[-1]
    probe = torch.randn(16, 3, 6, 6, generator=torch.Generator().manual_seed(1))

    def moved(lines):
        torch.manual_seed(0)
        network = Small()
        with torch.no_grad():
            before = network(probe)[0]
        loader = [(torch.randn(8, 3, 6, 6), torch.randint(4, (8,))) for _ in range(60)]
        optimizer = torch.optim.SGD(network.parameters(), lr=0.02)
        exec(lines, {"network": network, "loader": loader, "optimizer": optimizer, "classes": 9, "new_classes": 1})
        with torch.no_grad():
            return float(pod(before, network(probe)[0]))

    without = example.replace("weight * kept", "0 * kept")
    assert without != example
    assert 0 < moved(example) < 0.5 * moved(without)


class Small(torch.nn.Module):
    """A network that gives what the page asks for."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3)
        self.last = torch.nn.Linear(5, 4)

    def forward(self, images):
        maps = self.conv(images)
        embedding = maps.mean((2, 3))
        return [maps], embedding, self.last(embedding)


def test_the_learner_example_of_the_readme_runs(capsys):
    _, example = python_blocks("README.md")
    quick = example.replace("epochs=20", "epochs=1, finetune_epochs=1").replace("range(10), base=5", "range(4), base=3")
    assert quick != example
    exec(compile(quick, "README.md", "exec"), {})
    assert "tensor(" in capsys.readouterr().out


METHODS_SHOWN = [
    (0, "examples/my_method.py", "from dataclasses"),
    (1, "examples/my_distillation.py", "from dataclasses"),
    (2, "src/podnet/methods/afc.py", "from collections"),
    (5, "examples/my_ridge.py", "from dataclasses"),
]


@pytest.mark.parametrize(("block", "file", "start"), METHODS_SHOWN)
def test_the_page_on_methods_of_ones_own_shows_the_files_as_they_are(block, file, start):
    text = (ROOT / file).read_text()
    assert text[text.index(start) :] == python_blocks("docs/extend.md")[block]


@pytest.mark.parametrize("block", [3, 4])
def test_the_page_on_methods_of_ones_own_shows_lines_of_ewc(block):
    assert python_blocks("docs/extend.md")[block] in (ROOT / "src/podnet/methods/ewc.py").read_text()


def test_afc_of_the_page_is_a_method_in_a_file_of_ones_own(tmp_path):
    """Copied from the page, without the lines above it, it runs and keeps its state."""
    (tmp_path / "mine.py").write_text(python_blocks("docs/extend.md")[2])
    options = (
        "--base 2 --classes 3 --images-per-class 24 --memory-per-class 4 --epochs 1 --finetune-epochs 1 --threads 1"
    )
    output = tmp_path / "run"
    assert main(["run", "--method", f"{tmp_path}/mine.py:AFC", *options.split(), "--output", str(output)]) == 0
    assert "method.importance.3" in load_tensors(Run(output).checkpoint_files()[0])[0]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))])
def test_links_between_the_pages_exist(page):
    for target in re.findall(r"\]\(([^)#:]+?)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"
