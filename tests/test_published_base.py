"""The base network in examples/cifar100-base: the first 50 classes of the paper's protocol."""

import json
import os
from pathlib import Path

import pytest

from podnet.cli.given import base_of
from podnet.io.tensors import load_tensors
from podnet.runs.config import resolve
from podnet.runs.folder import Run

ROOT = Path(__file__).parent.parent
BASE = Run(ROOT / "examples" / "cifar100-base")
REAL = Path(os.environ.get("PODNET_CIFAR100", ROOT.resolve().parent / "shared/data/cifar-100-binary.tar.gz"))
PROTOCOL = {"dataset": "cifar100", "data_path": str(REAL), "order": "paper:0", "base": 50}


@pytest.mark.parametrize("increment", [10, 5, 2, 1])
@pytest.mark.parametrize("method", ["podnet", "podnet-plus"])
def test_every_column_of_table_1_can_start_from_it(method, increment):
    wanted = PROTOCOL | {"method": method, "increment": increment, "recipe": "fast"}
    assert base_of(str(BASE.folder), resolve(wanted)).folder == BASE.folder


def test_it_holds_a_network_and_no_image():
    [checkpoint] = BASE.checkpoint_files()
    tensors, meta = load_tensors(checkpoint)
    assert {name.split(".")[0] for name in tensors} - {"progress"} == {"network"}
    assert [name for name in tensors if name.startswith("progress")] == ["progress.chosen"]
    assert meta["learner"]["progress"]["epoch"] == 160
    assert sum(file.stat().st_size for file in BASE.folder.rglob("*") if file.is_file()) < 2_500_000


@pytest.mark.skipif(not REAL.exists(), reason=f"no CIFAR-100 at {REAL}; PODNET_CIFAR100 can say where it is")
def test_it_recognises_as_much_as_the_results_say():
    """They are of another training with the same options, on another machine."""
    _, tasks, learner = resolve(PROTOCOL).prepared(begins=False)
    tensors, meta = load_tensors(BASE.checkpoint_files()[0])
    learner.restore(tensors, meta["learner"])
    right = learner.predict(tasks[0].test_images).cnn.argmax(1) == tasks[0].test_targets
    recorded = json.loads((ROOT / "docs/results/full/podnet-base/results.jsonl").read_text().splitlines()[0])
    assert 100 * right.double().mean().item() == pytest.approx(recorded["accuracy"]["cnn"], abs=0.05)
