"""Backbones of timm. Its own tiny networks are made for real; the hub is never reached."""

import re
import socket
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from coloured import photos_of
from podnet import PODNetClassifier
from podnet.cli import main
from podnet.errors import ConfigError, DamagedFileError, PodnetError
from podnet.io.tensors import load_tensors, save_tensors
from podnet.methods import METHODS, PODNet
from podnet.methods.networks import network_from, new_network
from podnet.model.loading import load_model
from podnet.model.look import look
from podnet.nets.building import expected_images
from podnet.nets.timm import TimmBackbone, _timm, pretrained

QUICK = ["--epochs", "1", "--finetune-epochs", "1", "--exemplars", "4", "--workers", "0"]


@pytest.fixture(autouse=True, scope="module")
def timm():
    """The package, imported as we import it."""
    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    return _timm()


def test_it_is_imported_in_a_new_process_whatever_torchvision_is_there(tmp_path):
    """Beside another build of torch, torchvision has no operators and cannot be imported by itself."""
    photos = str(photos_of(tmp_path / "photos", "red", "green"))
    learn = ["learn", str(tmp_path / "m.podnet"), photos, "--backbone", "timm:test_resnet", "--weights", "none"]
    command = [sys.executable, "-m", "podnet", *learn, "--image-size", "32", *QUICK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.podnet").exists()


@pytest.mark.parametrize("found", [True, False])
def test_only_operators_that_are_missing_are_declared(found):
    """In a process of its own: declarations last."""
    code = (
        "import torch, podnet.nets.timm as ours\n"
        "before = torch.library.Library('torchvision', 'FRAGMENT')\n"
        f"{'before' if found else '#'}.define('nms(Tensor own) -> Tensor')\n"
        "ours._declare_torchvisions_operators()\n"
        "ours._declare_torchvisions_operators()\n"
        "schema = torch.ops.torchvision.nms.default._schema\n"
        "print([argument.name for argument in schema.arguments], torch.ops.torchvision.qnms.default.name())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = ["own"] if found else ["dets", "scores", "iou_threshold"]
    assert done.stdout.strip() == f"{names} torchvision::qnms"


@pytest.fixture
def images():
    return torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(0))


def outputs_of(model, names, images):
    """What the modules of these names give, seen by hooks."""
    seen = {}
    for name in names:
        model.get_submodule(name).register_forward_hook(lambda _m, _i, output, name=name: seen.update({name: output}))
    model(images)
    return [seen[name] for name in names]


def test_the_maps_of_a_convolutional_network_are_the_ends_of_its_stages(images):
    backbone = TimmBackbone("timm:test_resnet", 3).eval()
    maps, embedding = backbone(images)
    stages = outputs_of(backbone.model, ["layer1", "layer2", "layer3", "layer4"], images)
    for found, expected in zip(maps, stages, strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(embedding, stages[-1].mean((2, 3)))
    assert embedding.shape == (2, backbone.dim)


def test_the_maps_of_a_transformer_are_its_tokens_laid_out(images):
    backbone = TimmBackbone("timm:test_vit", 3).eval()
    maps, embedding = backbone(images)
    blocks = outputs_of(backbone.model, [f"blocks.{i}" for i in (1, 2, 4, 5)], images)
    for found, tokens in zip(maps, blocks, strict=True):
        assert found.shape == (2, 64, 10, 10)
        for row, column in ((0, 0), (3, 7), (9, 9)):  # the first token is the class's
            torch.testing.assert_close(found[:, :, row, column], tokens[:, 1 + 10 * row + column])
    torch.testing.assert_close(embedding, backbone.model(images))


@pytest.mark.parametrize(
    "name", ["test_convnext", "test_efficientnet", "test_byobnet", "levit_128s", "swin_tiny_patch4_window7_224"]
)
def test_other_architectures_give_maps_and_an_embedding(name):
    backbone = TimmBackbone(f"timm:{name}", 3)
    size = expected_images(f"timm:{name}").size
    maps, embedding = backbone(torch.zeros(2, 3, size, size))
    assert len(maps) == min(4, len(backbone.model.feature_info))
    assert all(m.ndim == 4 for m in maps)
    assert maps[0].shape[2] > maps[-1].shape[2]
    assert embedding.shape == (2, backbone.dim)


def test_where_a_head_follows_the_maps_a_method_gets_its_features_or_a_sentence(images):
    """The last map of EfficientNet has fewer channels than what its head makes of it."""
    for name in ("wa", "icarl"):
        method = METHODS[name](backbone="timm:test_efficientnet")
        network = new_network(method, 3).eval()
        network.classifier.add_classes(3)
        assert network(images).similarities.shape == (2, 3)
    for method in (METHODS["afc"](backbone="timm:test_vit"), PODNet(backbone="timm:test_vit", distillation="gradcam")):
        with pytest.raises(ConfigError, match="choose a ResNet"):
            new_network(method, 3)
    new_network(METHODS["afc"](backbone="timm:test_resnet"), 3)


def test_an_older_network_gives_its_maps_and_their_average(images, timm, tmp_path):
    safetensors.torch.save_file(timm.create_model("test_nfnet").state_dict(), tmp_path / "w.safetensors")
    backbone = pretrained("timm:test_nfnet", 3, str(tmp_path / "w.safetensors"), seed=1).eval()
    whole = timm.create_model("test_nfnet", checkpoint_path=str(tmp_path / "w.safetensors")).eval()
    maps, embedding = backbone(images)
    assert [m.shape[2] for m in maps] == [40, 20, 10, 5]
    torch.testing.assert_close(embedding, maps[-1].mean((2, 3)))
    torch.testing.assert_close(whole.final_act(maps[-1].clone()), whole.forward_features(images))
    assert embedding.shape == (2, backbone.dim)


def test_nothing_is_dropped_at_random():
    """Else a resumed run would not be the run."""
    backbone = TimmBackbone("timm:swin_tiny_patch4_window7_224", 3).train()
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    images = torch.zeros(2, 3, 224, 224)
    torch.testing.assert_close(backbone(images)[1], backbone(images)[1], rtol=0, atol=0)


def test_a_network_with_unsaved_buffers_comes_back():
    """Swin's attention masks are not among its weights: built from weights alone it would have none."""
    method = PODNet(backbone="timm:swin_tiny_patch4_window7_224")
    network = new_network(method, 3).eval()
    network.classifier.add_classes(2)
    again = network_from(network.state_dict(), method, 3, [2]).eval()
    images = torch.randn(1, 3, 224, 224)
    torch.testing.assert_close(again(images).similarities, network(images).similarities)


def test_weights_come_from_a_file(timm, tmp_path):
    """Written by timm with its classifier of 1000 classes, as files of the hub are."""
    torch.manual_seed(5)
    source = timm.create_model("test_resnet", num_classes=1000)
    safetensors.torch.save_file(source.state_dict(), tmp_path / "w.safetensors")
    backbone = pretrained("timm:test_resnet", 3, str(tmp_path / "w.safetensors"), seed=1)
    wanted = source.state_dict()
    for name, value in backbone.model.state_dict().items():
        torch.testing.assert_close(value, wanted[name], rtol=0, atol=0)
    grey = pretrained("timm:test_resnet", 1, str(tmp_path / "w.safetensors"), seed=1)  # timm sums the colours' weights
    first = next(name for name in wanted if name.startswith("conv1"))
    torch.testing.assert_close(grey.model.state_dict()[first], wanted[first].sum(1, keepdim=True))


def test_an_unreachable_hub_is_asked_once(timm, tmp_path, monkeypatch):
    """Its client would try again for more than a minute. What it gave before is used without asking."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    attempts = []
    with socket.socket() as closed:  # a port that nobody listens on
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(timm.models._hub, "hf_hub_download", lambda *_, **given: attempts.append(given))
        with pytest.raises(PodnetError, match=r"cannot be reached .* set weights to a file, or to none"):
            pretrained("timm:test_resnet", 3, "hub", seed=1)
        kept = tmp_path / "models--timm--test_resnet.r160_in1k"
        for folder in ("refs", "snapshots/abc"):
            (kept / folder).mkdir(parents=True)
        (kept / "refs" / "main").write_text("abc")
        source = timm.create_model("test_resnet").state_dict()
        safetensors.torch.save_file(source, kept / "snapshots" / "abc" / "model.safetensors")
        found = pretrained("timm:test_resnet", 3, "hub", seed=1).model.state_dict()
    assert all(torch.equal(value, source[name]) for name, value in found.items())
    assert not attempts


def test_weights_that_do_not_fit_are_refused(timm, tmp_path):
    whole = timm.create_model("test_resnet").state_dict()
    file = tmp_path / "w.safetensors"
    safetensors.torch.save_file({k: v for k, v in whole.items() if not k.startswith("layer3")}, file)
    with pytest.raises(PodnetError, match=r"no weights for \d+ layers of timm:test_resnet, such as model.layer3"):
        pretrained("timm:test_resnet", 3, str(file), seed=1)
    with pytest.raises(PodnetError, match=r"w.safetensors has no weights for"):
        pretrained("timm:test_vit", 3, str(file), seed=1)
    safetensors.torch.save_file({k: v.repeat(2) if v.ndim == 1 else v for k, v in whole.items()}, file)
    with pytest.raises(PodnetError, match=r"cannot load .*size mismatch"):
        pretrained("timm:test_resnet", 3, str(file), seed=1)
    file.write_bytes(b"nothing")
    with pytest.raises(PodnetError, match="cannot load"):
        pretrained("timm:test_resnet", 3, str(file), seed=1)
    for name in ("w.pth", "none.safetensors"):
        with pytest.raises(ConfigError, match=r"give a .safetensors, .pth or .pt file that exists"):
            pretrained("timm:test_resnet", 3, str(tmp_path / name), seed=1)


@pytest.mark.parametrize(("name", "size"), [("test_resnet", 64), ("test_vit", 160)])
def test_a_model_learns_and_goes_on_and_is_exported(timm, tmp_path, name, size, capsys):
    safetensors.torch.save_file(timm.create_model(name).state_dict(), tmp_path / "own.safetensors")
    model, first = str(tmp_path / "m.podnet"), str(photos_of(tmp_path / "first", "red", "green"))
    options = ["--backbone", f"timm:{name}", "--weights", str(tmp_path / "own.safetensors"), *QUICK]
    assert main(["learn", model, first, *options, "--image-size", str(size)]) == 0
    assert main(["learn", model, str(photos_of(tmp_path / "second", "blue")), *QUICK]) == 0
    if name == "test_vit":  # the slowest part, and a transformer is the harder graph
        assert main(["export", model, "--format", "onnx"]) == 0
        assert "checked on" in capsys.readouterr().out
    known = load_model(tmp_path / "m.podnet")
    assert known.names == ["green", "red", "blue"]
    assert known.settings.weights == "own.safetensors"  # and no folder of this machine
    assert known.learner.transform.mean == expected_images(f"timm:{name}").mean
    assert str(tmp_path).encode() not in (tmp_path / "m.podnet").read_bytes()
    seen = look(known, (tmp_path / "first" / "red" / "0.png").read_bytes())
    assert len(seen.ranked["cnn"]) == 3
    assert (seen.heat is None) == (name == "test_vit")  # which hands out copies of its maps


def test_what_is_chosen_for_a_pretrained_network(tmp_path, capsys):
    photos = str(photos_of(tmp_path / "photos", "red", "green"))
    options = ["--backbone", "timm:test_vit", "--train", "always", "--dry-run"]
    assert main(["learn", str(tmp_path / "m"), photos, *options]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "image size 160 (native size of timm:test_vit)" in shown
    assert "weights hub (pretrained" in shown
    assert "lr 0.0005 (to preserve the pretrained features)" in shown
    assert "epochs 30 (about 500 updates" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--backbone", "timm:tset_vit"], "timm has no network 'tset_vit'. Did you mean 'test_vit'?"),
        (["--backbone", "timm:hf-hub:someone/model"], "timm has no network 'hf-hub:someone/model'"),
        (["--backbone", "timm:test_vit", "--image-size", "64"], "image_size is 64; timm:test_vit needs 160"),
        (["--backbone", "timm:test_vit", "--weights", "w.bin"], "give a .safetensors, .pth or .pt file that exists"),
        (["--backbone", "resnet32", "--weights", "hub"], "for resnet32 give 'none' or a file"),
        (["--backbone", "timm:convit_tiny", "--weights", "none"], "does not return feature maps"),
        (["--backbone", "resnet99"], "lite2 or timm:NAME. Did you mean 'resnet32'?"),
    ],
)
def test_what_cannot_work_is_told(tmp_path, capsys, options, message):
    photos = str(photos_of(tmp_path / "photos", "red", "green"))
    assert main(["learn", str(tmp_path / "m.podnet"), photos, *options, *QUICK]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "m.podnet").exists()


def test_without_timm_its_absence_is_told_and_the_file_not_blamed(tmp_path, capsys, monkeypatch):
    photos = str(photos_of(tmp_path / "photos", "red", "green"))
    learn = ["learn", str(tmp_path / "m.podnet"), photos, "--backbone", "timm:test_resnet", "--weights", "none", *QUICK]
    assert main([*learn, "--image-size", "32"]) == 0
    monkeypatch.setitem(sys.modules, "timm", None)
    assert main(["info", str(tmp_path / "m.podnet")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "pip install 'podnet[timm]'" in said
    assert "damaged" not in said


def test_a_forged_file_cannot_make_us_build_a_giant(tmp_path, monkeypatch):
    photos = str(photos_of(tmp_path / "photos", "red", "green"))
    path = tmp_path / "m.podnet"
    learn = ["learn", str(path), photos, "--backbone", "timm:test_resnet", "--weights", "none", *QUICK]
    assert main([*learn, "--image-size", "32"]) == 0
    tensors, meta = load_tensors(path)
    meta["settings"]["backbone"] = "timm:eva02_enormous_patch14_clip_224"  # 4.4 thousand million weights
    save_tensors(path, tensors, meta)
    with pytest.raises(DamagedFileError, match="its weights are not those of timm:eva02_enormous"):
        load_model(path)


def test_the_estimator_takes_them_too(timm, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    labels = list("abab" * 2)
    safetensors.torch.save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "w.safetensors")
    made = PODNetClassifier(
        backbone="timm:test_resnet", weights=str(tmp_path / "w.safetensors"), train="never", device="cpu"
    )
    made.fit(images, labels)
    made.save(tmp_path / "c.podnet")
    again = PODNetClassifier.load(tmp_path / "c.podnet", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(images), made.predict_proba(images))
    with pytest.raises(ConfigError, match=re.escape("for lite0 give 'none'")):
        PODNetClassifier(weights="hub").fit(images, labels)
    assert made.model_.learner.transform.mean == expected_images("timm:test_resnet").mean
