"""What a learner takes: multiply-adds counted by hand and by torch, bytes added up by hand."""

import io
import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from podnet import PODNet
from podnet.cli import main
from podnet.data import Photos, Transform, from_arrays
from podnet.data.images import shape_of, stored_bytes
from podnet.data.sources import Shelf
from podnet.engine.device import PLAIN
from podnet.engine.footprint import footprint, kept_bytes, multiply_adds
from podnet.engine.learner import Learner
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods.networks import new_network
from podnet.nets import kernels
from podnet.nets.classifiers import LinearClassifier
from podnet.nets.network import Network
from podnet.runs.folder import Run
from podnet.scenario.tasks import class_incremental


def network_of(backbone, classes=100):
    network = new_network(PODNet(backbone=backbone), 3)
    network.classifier.add_classes(classes)
    return network


def test_multiply_adds_of_resnet32_by_hand():
    """A 3x3 convolution does 9 x inputs x outputs multiply-adds for each pixel that it makes."""
    hand = 9 * 3 * 16 * 32 * 32
    hand += 10 * 9 * 16 * 16 * 32 * 32  # the first stage: five blocks of two convolutions
    hand += 9 * 16 * 32 * 16 * 16 + 9 * 9 * 32 * 32 * 16 * 16  # the first convolution of a stage halves the map
    hand += 9 * 32 * 64 * 8 * 8 + 9 * 9 * 64 * 64 * 8 * 8
    assert hand == 68_861_952  # what is usually printed as 69 million
    network = network_of("resnet32")
    assert multiply_adds(network, (3, 32, 32)) == hand + 100 * 10 * 64  # ten proxies of each class
    assert multiply_adds(network, (3, 16, 16)) == hand // 4 + 100 * 10 * 64


@pytest.mark.parametrize(("backbone", "side"), [("resnet32-ucir", 32), ("resnet18", 64), ("lite0", 64)])
def test_multiply_adds_are_half_the_operations_that_torch_counts(backbone, side):
    network = network_of(backbone, 3).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 3, side, side))
    assert 2 * multiply_adds(network, (3, side, side)) == counter.get_total_flops()


def test_attention_is_counted_as_torch_counts_it():
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    network = network_of("timm:vit_tiny_patch16_224", 3).eval()
    # As products of matrices: torch's counter does not know the attention that is written for CPUs.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 3, 224, 224))
    assert 2 * multiply_adds(network, (3, 224, 224)) == counter.get_total_flops()


@pytest.mark.skipif(kernels.library() is None, reason="our convolutions are for CPUs with AVX2 or AVX-512")
def test_our_own_convolutions_are_counted():
    network = network_of("resnet32")
    ours = PLAIN.place(network_of("resnet32"), 64)
    assert any(isinstance(module, kernels.Convolution) for module in ours.modules())
    assert multiply_adds(ours, (3, 64, 64)) == multiply_adds(network, (3, 64, 64))


class Odd(nn.Module):
    """A backbone that multiplies in a way that is not counted."""

    channels, dim = 3, 4

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 4))

    def forward(self, images):
        maps = torch.einsum("bchw,cd->bdhw", images, self.weight)
        return [maps], maps.mean((2, 3))


def test_what_cannot_be_counted_is_not_guessed():
    network = Network(Odd(), LinearClassifier(4))
    network.classifier.add_classes(2)
    assert multiply_adds(network, (3, 8, 8)) is None


def test_counting_changes_nothing():
    network = network_of("resnet32", 4)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    draws = torch.random.get_rng_state()
    multiply_adds(network, (3, 32, 32))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), draws)


def test_bytes_of_a_learner_by_hand():
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8), np.arange(40) % 4
    dataset = from_arrays((images, labels), (images, labels))
    tasks = class_incremental(dataset, range(4), base=2, increment=2)
    method = PODNet(epochs=1, finetune_epochs=0, batch_size=16)
    learner = Learner(method, 3, dataset.transform, ExemplarMemory(per_class=3))
    for task in tasks:
        for _ in learner.learn(task):
            pass
    learner.kept = {"gram": torch.zeros(5, 5, dtype=torch.float64), "counts": torch.zeros(4, dtype=torch.int64)}
    parameters = sum(p.numel() for p in learner.network.parameters())
    norms = [module for module in learner.network.modules() if isinstance(module, nn.BatchNorm2d)]
    buffers = sum(4 * 2 * norm.num_features + 8 for norm in norms)  # means and variances, and a 64-bit count
    assert kept_bytes(learner) == {
        "network": 4 * parameters + buffers,
        "exemplars": 4 * 3 * (3 * 8 * 8),
        "method_state": 25 * 8 + 4 * 8,
        "class_means": 4 * 64 * 4,
    }
    assert footprint(learner, dataset.test_images)["parameters"] == parameters
    assert footprint(learner, dataset.test_images)["multiply_adds"] == multiply_adds(learner.network, (3, 8, 8))
    learner.transform = replace(learner.transform, size=32)  # what the network sees is larger
    assert footprint(learner, dataset.test_images)["multiply_adds"] == multiply_adds(learner.network, (3, 32, 32))
    empty = Learner(method, 3, Transform((0.5,) * 3, (0.5,) * 3))
    assert kept_bytes(empty) | {"network": 0} == dict.fromkeys(
        ("network", "exemplars", "method_state", "class_means"), 0
    )


def test_exemplars_of_photos_count_as_their_files_in_memory_and_in_packs(tmp_path):
    sizes = []
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 5 + number, 3), dtype=np.uint8)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "png")
        (tmp_path / f"{number}.png").write_bytes(content.getvalue())
        sizes.append(len(content.getvalue()))
    photos = Photos(tuple(sorted(tmp_path.glob("*.png"))), size=8)
    assert shape_of(photos) == (3, 8, 8)
    assert stored_bytes(photos.kept()) == sum(sizes)
    packed = photos.shelved(Shelf(tmp_path / "packs", limit=10), "a.pack", 0, lambda write: write())
    assert stored_bytes(packed[torch.tensor([4, 0])]) == sizes[4] + sizes[0]
    assert stored_bytes(packed[torch.tensor([5])].followed_by(photos[torch.tensor([1])].kept())) == sizes[5] + sizes[1]
    with pytest.raises(ValueError, match="only photos in memory or in packs"):
        stored_bytes(photos)


OPTIONS = ["--classes", "4", "--images-per-class", "40", "--epochs", "1", "--finetune-epochs", "1", "--threads", "1"]
NEW = ("backward_transfer", "learning_accuracy", "parameters", "multiply_adds", "bytes")


def test_a_run_records_them_and_one_of_an_earlier_version_goes_on(tmp_path, capsys):
    run = Run(tmp_path / "run")
    assert main(["run", *OPTIONS, "--memory-per-class", "5", "--output", str(run.folder)]) == 0
    printed = capsys.readouterr().out
    whole = run.results()
    for line in whole:
        assert line["bytes"]["exemplars"] == 5 * line["seen"] * 64
        assert line["bytes"]["class_means"] == 64 * 4 * line["seen"]
        assert line["backward_transfer"].keys() == line["learning_accuracy"].keys() == {"cnn", "nme"}
    # two classes of ten proxies more
    assert whole[-1]["parameters"] - whole[0]["parameters"] == 2 * 10 * 64
    assert whole[-1]["multiply_adds"] - whole[0]["multiply_adds"] == 2 * 10 * 64
    kept = sum(whole[-1]["bytes"].values()) / 1e6
    assert f"kept: {kept:.2f} MB (network" in printed
    assert f"{whole[-1]['parameters']:,} parameters" in printed
    older = [{key: value for key, value in line.items() if key not in NEW} for line in whole]
    run.results_file.write_text("".join(json.dumps(line) + "\n" for line in older))
    run.checkpoint_files()[0].unlink()  # stopped within the last task
    assert main(["run", "--resume", str(run.folder)]) == 0
    assert run.results()[:-1] == older[:-1]
    for name in NEW:
        assert run.results()[-1][name] == whole[-1][name]
