"""Our convolutions against torch's: in float64, where equal mathematics gives equal numbers, and in float32."""

import copy
import json
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from podnet.cli import main
from podnet.engine.device import Compute
from podnet.errors import ConfigError
from podnet.methods import PODNet
from podnet.nets import kernels
from podnet.nets.backbones import resnet18, resnet32
from podnet.nets.kernels import Convolution, convolve, replace_convolutions
from podnet.nets.network import Network, channels_last, frozen_copy

pytestmark = pytest.mark.usefixtures("double_winograd")  # or skipped, where there are none
# Of one tile, of less than a block, of rows longer than a block, of blocks that end within an image and are not full.
SHAPES = [(1, 16, 2, 2), (3, 32, 6, 10), (1, 64, 4, 60), (5, 64, 8, 8), (7, 16, 12, 14), (2, 32, 32, 32)]


def scene(shape, dtype=torch.float64):
    """Maps, weights and a slope of the outputs."""
    torch.manual_seed(0)
    channels = shape[1]
    x, slope = (torch.randn(shape, dtype=dtype).contiguous(memory_format=torch.channels_last) for _ in range(2))
    weight = torch.randn(channels, channels, 3, 3, dtype=dtype).contiguous(memory_format=torch.channels_last)
    return x.requires_grad_(), weight.requires_grad_(), slope


def layer(weight):
    conv = nn.Conv2d(*weight.shape[:2], 3, padding=1, bias=False, dtype=weight.dtype)
    conv.weight = nn.Parameter(weight.detach())
    network = nn.Sequential(conv)
    replace_convolutions(network)
    assert type(network[0]) is Convolution
    return network[0]


def close(ours, theirs, to=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=to * float(theirs.detach().abs().max()))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_outputs_and_gradients_are_those_of_torch(shape, threads):
    x, weight, slope = scene(shape)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        conv = layer(weight)
        ours = conv(x)
        slopes = torch.autograd.grad(ours, (x, conv.weight), slope)
    finally:
        torch.set_num_threads(before)
    theirs = F.conv2d(x, weight, padding=1)
    close(ours, theirs)
    for own, other in zip(slopes, torch.autograd.grad(theirs, (x, weight), slope), strict=True):
        close(own, other)
        assert own.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("relu", [False, True])
def test_it_adds_and_rectifies_on_the_way_to_memory(relu):
    x, weight, plus = (each.detach() for each in scene((5, 32, 8, 8)))
    bias = torch.randn(32, dtype=torch.float64)
    wanted = F.conv2d(x, weight, bias, padding=1) + plus
    wanted = wanted.relu() if relu else wanted
    kept = plus.clone()
    close(convolve(x, weight, bias, plus, relu), wanted)
    assert torch.equal(plus, kept)
    close(convolve(x, weight, bias, plus.contiguous(), relu, spare=True), wanted)  # in another layout, so in a copy
    assert torch.equal(plus, kept)
    assert convolve(x, weight, bias, plus, relu, spare=True).data_ptr() == plus.data_ptr()
    close(plus, wanted)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="this CPU has no AVX-512")
@pytest.mark.parametrize("shape", SHAPES)
def test_both_kinds_of_cpu_give_the_same_bits(shape, monkeypatch):
    x, weight, slope = (each.detach() for each in scene(shape, torch.float32))
    results = []
    for kind in ("AVX2", "AVX512"):
        compiled = kernels.compiled_for(kind)
        monkeypatch.setattr(kernels, "library", lambda compiled=compiled: compiled)
        results.append((convolve(x, weight), convolve(x, weight, backwards=True), kernels.weight_gradient(x, slope)))
    for narrow, wide in zip(*results, strict=True):
        assert torch.equal(narrow, wide)


def test_what_is_not_a_number_is_not_hidden():
    x, weight, _ = (each.detach() for each in scene((1, 16, 8, 8), torch.float32))
    x[0, 3, 4, 4] = float("nan")
    assert convolve(x, weight, relu=True).isnan().any()


@pytest.mark.usefixtures("float64")
def test_maps_that_lie_in_memory_channel_by_channel_give_the_same():
    x, weight, plus = (each.detach() for each in scene((3, 16, 8, 6)))
    ours = convolve(x.contiguous(), weight.contiguous(), plus=plus.contiguous())
    assert torch.equal(ours, convolve(x, weight, plus=plus))


def errors_in_float32(shape):
    """The errors of our float32 results and of torch's, against float64: outputs, gradients of inputs, of weights."""
    x, weight, gradient = scene(shape, torch.float32)
    exact = [each.detach().double().requires_grad_() for each in (x, weight)]

    def everything(forward, x, weight, gradient):
        out = forward(x)
        return [out.detach(), *torch.autograd.grad(out, (x, weight), gradient)]

    conv = layer(weight)
    ours = everything(conv, x, conv.weight, gradient)
    theirs = everything(lambda x: F.conv2d(x, weight, padding=1), x, weight, gradient)
    true = everything(lambda x: F.conv2d(x, exact[1], padding=1), *exact, gradient.double())
    return [((own - each), (other - each), each) for own, other, each in zip(ours, theirs, true, strict=True)]


RESNET32 = [(128, 16, 32, 32), (128, 32, 16, 16), (128, 64, 8, 8)]


@pytest.mark.parametrize("shape", RESNET32)
def test_outputs_and_gradients_of_inputs_round_less_than_those_of_torch(shape):
    for own, other, _ in errors_in_float32(shape)[:2]:
        assert own.norm() < other.norm()
        assert own.abs().max() < other.abs().max()


@pytest.mark.parametrize("shape", RESNET32)
def test_gradients_of_weights_are_exact_to_a_hundred_thousandth_of_the_largest(shape):
    """With AVX-512 torch rounds less here: it adds up shorter sums."""
    own, _, true = errors_in_float32(shape)[2]
    assert own.abs().max() < 1e-5 * true.abs().max()


@pytest.mark.usefixtures("float64")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch uses what it advises against
def test_torch_finds_nothing_wrong_with_the_operations():
    x, weight, slope = scene((2, 16, 4, 4))
    torch.library.opcheck(torch.ops.podnet.convolve, (x.detach(), weight.detach(), False))
    torch.library.opcheck(torch.ops.podnet.weight_gradient, (x.detach(), slope))


def test_convolutions_of_other_kinds_stay_as_they_are():
    kinds = {
        "ours": nn.Conv2d(16, 16, 3, padding=1),
        "stride": nn.Conv2d(16, 16, 3, stride=2, padding=1),
        "kernel": nn.Conv2d(16, 16, 1),
        "unpadded": nn.Conv2d(16, 16, 3),
        "wider": nn.Conv2d(16, 32, 3, padding=1),
        "width": nn.Conv2d(24, 24, 3, padding=1),
        "groups": nn.Conv2d(16, 16, 3, padding=1, groups=2),
        "dilated": nn.Conv2d(16, 16, 3, padding=2, dilation=2),
        "mirrored": nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"),
    }
    network = nn.ModuleDict(kinds)
    before = {name: tensor.data_ptr() for name, tensor in network.state_dict().items()}
    replace_convolutions(network)
    assert [name for name, conv in network.items() if type(conv) is Convolution] == ["ours"]
    assert {name: tensor.data_ptr() for name, tensor in network.state_dict().items()} == before


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((32, 16, 7, 16), torch.float32),
        ((32, 16, 16, 7), torch.float32),
        ((8, 16, 16, 14), torch.float32),  # too few pixels for it to pay
        ((32, 16, 8, 8), torch.float64),
    ],
)
def test_maps_that_do_not_suit_are_convolved_by_torch(shape, dtype):
    x, weight, _ = scene(shape, dtype)
    conv = layer(weight)
    assert not conv.suits(x)
    assert torch.equal(conv(x), F.conv2d(x, weight, padding=1))


def test_under_autocast_convolutions_are_those_of_torch():
    x, weight, _ = scene((32, 16, 8, 8), torch.float32)
    conv = layer(weight)
    assert conv.suits(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert not conv.suits(x)
        assert conv(x).dtype == torch.bfloat16


@pytest.mark.parametrize(("make", "count"), [(resnet32, 28), (resnet18, 4)])  # stage 1 of ResNet-18
def test_a_network_on_a_cpu_has_them_and_so_has_its_teacher(make, count):
    """Against the same network without them; the teacher adds and rectifies within them."""
    torch.manual_seed(0)
    backbone = make()
    network = Network(backbone, PODNet(proxies=2).classifier(backbone.dim))
    network.classifier.add_classes(3)
    images = torch.randn(32, 3, 32, 32)
    network.train()(images)  # BatchNorm sees something
    for norm in backbone.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
    plain = channels_last(copy.deepcopy(network)).eval()
    ours = Compute().place(network, 128).eval()
    assert sum(type(each) is Convolution for each in ours.modules()) == count
    with torch.no_grad():
        wanted = plain(images)
        for each in (ours, frozen_copy(ours), Compute().place(frozen_copy(plain), 128)):
            outputs = each(images)
            for own, other in zip([*outputs.maps, outputs.logits], [*wanted.maps, wanted.logits], strict=True):
                close(own, other, 1e-5)


MAPS, WEIGHT = torch.zeros(2, 16, 4, 4), torch.zeros(16, 16, 3, 3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"x": torch.zeros(16, 4, 4)}, "x has shape (16, 4, 4); give maps (B, C, H, W)"),
        ({"x": torch.zeros(2, 24, 4, 4)}, "C one of 16, 32, 64"),
        ({"x": torch.zeros(2, 16, 4, 5)}, "H and W even"),
        ({"x": torch.zeros(2, 16, 0, 4)}, "H and W even"),
        ({"x": MAPS.double()}, "x is torch.float64 of shape (2, 16, 4, 4) on cpu; it must be torch.float32"),
        ({"x": MAPS.to("meta")}, "on meta"),
        ({"weight": torch.zeros(16, 32, 3, 3)}, "it must be torch.float32 of shape (16, 16, 3, 3)"),
        ({"weight": WEIGHT.half()}, "weight is torch.float16"),
        ({"bias": torch.zeros(15)}, "bias is torch.float32 of shape (15,)"),
        ({"plus": MAPS[:1]}, "plus is torch.float32 of shape (1, 16, 4, 4)"),
    ],
)
def test_arguments_that_would_be_read_beyond_their_end_are_refused(given, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        convolve(**({"x": MAPS, "weight": WEIGHT} | given))


def test_a_gradient_of_another_shape_than_the_maps_is_refused():
    with pytest.raises(ValueError, match=re.escape("gradient is torch.float32 of shape (1, 16, 4, 4)")):
        kernels.weight_gradient(MAPS, MAPS[:1])


def test_the_compiled_functions_refuse_what_they_are_not_compiled_for():
    """Also when nobody checked before, and without reading any memory."""
    for images, height, width, channels, threads in [
        (1, 4, 4, 24, 1),
        (1, 3, 4, 16, 1),
        (1, 4, 0, 16, 1),
        (-1, 4, 4, 16, 1),
        (1, 4, 4, 16, 0),
    ]:
        shape = (images, height, width, channels)
        functions = kernels.library()
        assert functions.podnet_convolve(*shape, None, None, 0, None, None, 0, threads, None) == 2
        assert functions.podnet_weight_gradient(*shape, None, None, threads, None) == 2


def test_a_lack_of_memory_is_an_error_and_not_the_end_of_the_process():
    """Rows so long that a thread needs some 200 MB to work in, of which it may have 60."""
    program = """
import resource, torch
from podnet.nets import kernels
maps, weight = torch.zeros(1, 16, 2, 200_000), torch.zeros(16, 16, 3, 3)
maps = kernels.pixel_by_pixel(maps)
failed = []
for threads in (1, 2):
    torch.set_num_threads(threads)
    kernels.convolve(maps[..., :64], weight)  # starts the threads
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + 60 * 2**20, -1))
    for call in (lambda: kernels.convolve(maps, weight), lambda: kernels.weight_gradient(maps, maps)):
        try:
            call()
        except MemoryError as error:
            failed.append(str(error))
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    assert kernels.convolve(maps, weight).shape == maps.shape  # it can go on
assert len(failed) == 4, failed
assert "shape (1, 16, 2, 200000); use smaller batches" in failed[0], failed
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_environment_can_turn_them_off(monkeypatch):
    for value, available in (("torch", False), ("podnet", True), ("", True)):
        monkeypatch.setenv("PODNET_CONVOLUTIONS", value)
        assert (kernels.library.__wrapped__() is not None) is available
    monkeypatch.setenv("PODNET_CONVOLUTIONS", "mkl")
    with pytest.raises(ConfigError, match="PODNET_CONVOLUTIONS is 'mkl'; it must be 'podnet' or 'torch'"):
        kernels.library.__wrapped__()


def test_where_there_are_none_convolutions_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(kernels, "library", lambda: None)
    network = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1))
    replace_convolutions(network)
    assert type(network[0]) is nn.Conv2d


def test_a_prediction_does_not_wait_for_the_compiler_of_torch():
    """Two seconds and 140 MB, which an operation registered in torch's easiest way would take."""
    program = """
import sys, torch
from podnet.nets import kernels
network = torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3, padding=1, bias=False))
kernels.replace_convolutions(network)
maps = torch.zeros(4, 16, 32, 32)
assert network[0].suits(maps)
network(maps)
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_short_run_comes_to_the_same_accuracies_as_with_the_convolutions_of_torch(tmp_path, monkeypatch):
    options = ["--classes", "4", "--base", "3", "--epochs", "2", "--finetune-epochs", "1", "--threads", "1"]
    accuracies, losses = {}, {}
    for whose in ("podnet", "torch"):
        if whose == "torch":
            monkeypatch.setenv("PODNET_CONVOLUTIONS", "torch")
            monkeypatch.setattr(kernels, "library", kernels.library.__wrapped__)  # not what it found before
        folder = tmp_path / whose
        assert main(["run", *options, "--output", str(folder)]) == 0
        assert json.loads((folder / "environment.json").read_text())[-1]["cpu_convolutions"] == whose
        results, epochs = ((folder / name).read_text().splitlines() for name in ("results.jsonl", "epochs.jsonl"))
        accuracies[whose] = [json.loads(line)["accuracy"] for line in results]
        losses[whose] = [json.loads(line)["losses"] for line in epochs]
    assert accuracies["podnet"] == accuracies["torch"]
    assert losses["podnet"] != losses["torch"]  # they were different convolutions
    assert losses["podnet"][0]["nca"] == pytest.approx(losses["torch"][0]["nca"], rel=1e-5)
