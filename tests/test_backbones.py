"""The networks of the paper, their maps and their signs; the network with its classifier; the teacher."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from podnet.nets.backbones import BACKBONES, Block, ConvNorm, EverySecondPixel, resnet18, resnet32
from podnet.nets.classifiers import (
    BiasCorrectedClassifier,
    CosineClassifier,
    LinearClassifier,
    LocalSimilarityClassifier,
)
from podnet.nets.network import Network, frozen_copy

CLASSIFIERS = {
    "lsc": lambda dim: LocalSimilarityClassifier(dim, proxies=3, scale=2.0),
    "cosine": CosineClassifier,
    "linear": LinearClassifier,
    "bias corrected": BiasCorrectedClassifier,
}


def with_statistics(module):
    """BatchNorm as after training: means, variances, scales and shifts that are not 0 and 1."""
    for norm in module.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.running_mean.normal_(0, 0.3)
            norm.running_var.uniform_(0.5, 2)
            torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
            torch.nn.init.normal_(norm.bias, 0, 0.3)
    return module


def network(classifier="lsc", channels=1):
    torch.manual_seed(0)
    backbone = with_statistics(resnet32(channels))
    result = Network(backbone, CLASSIFIERS[classifier](backbone.dim))
    result.classifier.add_classes(3)
    result.classifier.add_classes(2)
    return result


@torch.no_grad()
def shapes(backbone, size, count=2):
    maps, embedding = backbone.eval()(torch.randn(count, backbone.channels, size, size))
    assert embedding.shape == (count, backbone.dim)
    assert all(m.shape[0] == count and m.shape[2] == m.shape[3] for m in maps)
    return [(m.shape[1], m.shape[2]) for m in maps]


# ---- shapes and sizes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", ["paper", "released"])
@pytest.mark.parametrize("size", [8, 32, 64])
def test_resnet32_halves_the_map_twice_and_has_four_maps(size, fidelity):
    wanted = [(16, size), (32, size // 2), (64, size // 4), (64, size // 4)]
    assert shapes(resnet32(fidelity=fidelity), size) == wanted


def test_resnet32_takes_images_of_odd_size_and_any_number_of_channels():
    assert shapes(resnet32(channels=1), 9) == [(16, 9), (32, 5), (64, 3), (64, 3)]


@pytest.mark.parametrize(
    ("fidelity", "size", "sides"),
    [
        ("paper", 224, [56, 28, 14, 7]),
        ("paper", 64, [16, 8, 4, 2]),
        ("paper", 32, [8, 4, 2, 1]),
        ("paper", 8, [2, 1, 1, 1]),
        ("released", 64, [32, 16, 8, 4]),  # no stride in its first convolution
    ],
)
def test_resnet18_has_four_maps_whose_sides_follow_its_stem(fidelity, size, sides):
    assert shapes(resnet18(fidelity=fidelity), size, count=1) == list(zip((64, 128, 256, 512), sides, strict=True))


def conv(inputs, outputs, kernel):
    """Weights of a convolution without bias, and the scale and shift of its BatchNorm."""
    return inputs * outputs * kernel**2 + 2 * outputs


def parameters_of(plan, shortcuts):
    count = 0
    for inputs, outputs, depth in plan:
        count += conv(inputs, outputs, 3) + (2 * depth - 1) * conv(outputs, outputs, 3)
        if shortcuts and inputs != outputs:
            count += conv(inputs, outputs, 1)
    return count


@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_resnet32_has_the_parameters_of_its_plan(fidelity):
    wanted = conv(3, 16, 3) + parameters_of([(16, 16, 5), (16, 32, 5), (32, 64, 4), (64, 64, 1)], shortcuts=False)
    assert wanted == 464_154 - 650  # the usual ResNet-32 for CIFAR-10 less its last layer
    assert sum(p.numel() for p in resnet32(fidelity=fidelity).parameters()) == wanted


@pytest.mark.parametrize(("fidelity", "kernel"), [("paper", 7), ("released", 3)])
def test_resnet18_has_the_parameters_of_its_plan(fidelity, kernel):
    plan = [(64, 64, 2), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    wanted = conv(3, 64, kernel) + parameters_of(plan, shortcuts=True)
    if fidelity == "paper":
        assert wanted == 11_689_512 - 513_000  # the usual ResNet-18 for ImageNet less its last layer
    assert sum(p.numel() for p in resnet18(fidelity=fidelity).parameters()) == wanted


def test_backbones_are_known_by_name():
    assert {name: BACKBONES[name] for name in ("resnet18", "resnet32")} == {"resnet18": resnet18, "resnet32": resnet32}
    assert set(BACKBONES) == {"resnet18", "resnet32", "resnet18-ucir", "resnet32-ucir"}


@pytest.mark.parametrize(
    ("name", "blocks", "size", "dim"), [("resnet32-ucir", (5, 5, 5), 16, 64), ("resnet18-ucir", (2, 2, 2, 2), 64, 512)]
)
def test_ucirs_networks_are_rectified_everywhere_but_at_the_end(name, blocks, size, dim):
    backbone = with_statistics(BACKBONES[name]()).eval()
    assert tuple(map(len, backbone.stages)) == blocks
    assert [block.relu for stage in backbone.stages for block in stage] == [True] * (sum(blocks) - 1) + [False]
    for stage in backbone.stages:
        for block in stage:
            widens = block.first.conv.stride == (2, 2)
            assert (type(block.shortcut).__name__ == "ConvNorm") == widens
            assert not widens or block.shortcut.conv.kernel_size == (1, 1)
    maps, embedding = backbone(torch.randn(2, 3, size, size))
    assert [bool((each < 0).any()) for each in maps] == [False] * (len(blocks) - 1) + [True]
    assert embedding.shape == (2, dim)
    assert bool((BACKBONES[name]().stages[0][0].second.norm.weight == 1).all())  # no block starts as its shortcut


# ---- signs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", ["paper", "released"])
@pytest.mark.parametrize("make", [resnet32, resnet18])
@torch.no_grad()
def test_maps_are_signed_at_the_end_of_each_stage_and_inside_it_only_in_the_released_resnet32(make, fidelity):
    torch.manual_seed(0)
    backbone = with_statistics(make(fidelity=fidelity)).eval()
    signed = {}
    for name, block in backbone.named_modules():
        if isinstance(block, Block):
            block.register_forward_hook(lambda _, __, out, name=name: signed.update({name: bool((out < 0).any())}))
    maps, _ = backbone(torch.randn(2, 3, 32, 32))
    assert all((m < 0).any() and (m > 0).any() for m in maps)
    assert len(signed) == (15 if make is resnet32 else 8)
    for s, stage in enumerate(backbone.stages):
        for b in range(len(stage)):
            last = b == len(stage) - 1
            assert signed[f"stages.{s}.{b}"] == (last or (make is resnet32 and fidelity == "released")), (s, b)


@torch.no_grad()
def test_the_stem_is_rectified_and_the_embedding_is_the_average_of_the_signed_last_map():
    torch.manual_seed(0)
    backbone = with_statistics(resnet32()).eval()
    images = torch.randn(2, 3, 8, 8)
    assert (backbone.stem(images) >= 0).all()
    maps, embedding = backbone(images)
    wanted = [[float(np.mean(m.numpy())) for m in image] for image in maps[-1]]
    np.testing.assert_allclose(embedding.numpy(), wanted, atol=1e-6)
    assert (embedding < 0).any()


# ---- blocks -------------------------------------------------------------------------------------------------------


def test_the_widening_shortcut_takes_every_second_pixel_and_adds_channels_of_zeros():
    image = torch.randn(2, 3, 5, 4)
    output = EverySecondPixel()(image)
    assert output.shape == (2, 6, 3, 2)
    for b, c, h, w in np.ndindex(*output.shape):
        assert output[b, c, h, w] == (image[b, c, 2 * h, 2 * w] if c < 3 else 0)


@torch.no_grad()
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_a_new_resnet32_starts_as_its_shortcuts(fidelity):
    torch.manual_seed(0)
    backbone = resnet32(fidelity=fidelity).eval()
    images = torch.randn(2, 3, 8, 8)
    stem = backbone.stem(images)
    maps, _ = backbone(images)
    torch.testing.assert_close(maps[0], stem)
    for m, step in zip(maps[1:], (2, 4, 4), strict=True):
        kept = stem[:, :, ::step, ::step]
        torch.testing.assert_close(m[:, :16], kept)
        assert not m[:, 16:].any()


@torch.no_grad()
def test_a_block_is_two_convolutions_beside_its_shortcut():
    torch.manual_seed(0)
    block = with_statistics(Block(2, 2, 1, torch.nn.Identity(), relu=False)).double().eval()
    image = torch.randn(1, 2, 3, 3, dtype=torch.float64)

    def conv_norm(x, unit):
        weight, norm = unit.conv.weight.numpy(), unit.norm
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
        out = np.zeros((2, 3, 3))
        for c, h, w in np.ndindex(2, 3, 3):
            total = (weight[c] * padded[:, h : h + 3, w : w + 3]).sum()
            spread = np.sqrt(norm.running_var[c].item() + 1e-5)
            out[c, h, w] = (total - norm.running_mean[c].item()) / spread * norm.weight[c].item() + norm.bias[c].item()
        return out

    x = image[0].numpy()
    wanted = conv_norm(np.maximum(0, conv_norm(x, block.first)), block.second) + x
    np.testing.assert_allclose(block(image)[0].numpy(), wanted, atol=1e-10)
    assert (wanted < 0).any()
    block.relu = True
    np.testing.assert_allclose(block(image)[0].numpy(), np.maximum(0, wanted), atol=1e-10)


def test_convolutions_start_with_the_spread_of_kaiming_fan_out_and_without_bias():
    torch.manual_seed(0)
    convolutions = [module for module in resnet32().modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) == 31  # the stem, and two in each of 15 blocks
    for module in convolutions:
        assert module.bias is None
        if module.weight.numel() > 2000:
            wanted = (2 / (module.out_channels * 9)) ** 0.5
            assert module.weight.std().item() == pytest.approx(wanted, rel=0.06)


# ---- the network --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classifier", CLASSIFIERS)
@torch.no_grad()
def test_one_forward_gives_maps_embedding_similarities_and_logits(classifier):
    net = network(classifier).eval()
    images = torch.randn(4, 1, 8, 8)
    outputs = net(images)
    maps, embedding = net.backbone(images)
    assert len(outputs.maps) == 4
    assert all(torch.equal(a, b) for a, b in zip(outputs.maps, maps, strict=True))
    assert torch.equal(outputs.embedding, embedding)
    assert torch.equal(outputs.similarities, net.classifier(embedding))
    assert outputs.similarities.shape == (4, 5)
    scale = 2.0 if classifier == "lsc" else 1.0
    np.testing.assert_allclose(outputs.logits.numpy(), scale * outputs.similarities.numpy(), rtol=1e-6)


# ---- the teacher --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [resnet32, resnet18])
@torch.no_grad()
def test_the_frozen_copy_equals_the_network_in_evaluation_mode(make):
    torch.manual_seed(0)
    backbone = with_statistics(make())
    net = Network(backbone, LocalSimilarityClassifier(backbone.dim, proxies=2, scale=3.0))
    net.classifier.add_classes(4)
    net.train()
    teacher = frozen_copy(net)
    images = torch.randn(3, 3, 16, 16)
    given, wanted = teacher(images), net.eval()(images)
    for a, b in zip([*given.maps, *given[1:]], [*wanted.maps, *wanted[1:]], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * max(1, b.abs().max().item()))


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_the_frozen_copy_has_nothing_to_train_and_no_batchnorm_left(classifier):
    teacher = frozen_copy(network(classifier))
    assert not any(p.requires_grad for p in teacher.parameters())
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in teacher.modules())
    assert not teacher(torch.randn(2, 1, 8, 8)).logits.requires_grad
    assert not teacher.training


def test_freezing_leaves_the_network_as_it_was_and_training_it_leaves_the_frozen_copy():
    net = network().train()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    teacher = frozen_copy(net)
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    assert all(isinstance(m.norm, torch.nn.BatchNorm2d) for m in net.modules() if isinstance(m, ConvNorm))
    assert net.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    images = torch.randn(4, 1, 8, 8)
    before = teacher(images).logits.clone()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 1
    net(images)  # moves the running statistics
    net.classifier.add_classes(1)
    assert torch.equal(teacher(images).logits, before)


# ---- attention ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("no_grad", [False, True])
def test_scores_of_a_frozen_copy_have_their_true_gradient_in_the_last_map(no_grad):
    teacher = frozen_copy(network()).double()
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    with torch.set_grad_enabled(not no_grad):
        outputs = teacher(images, attention=True)
    targets = torch.tensor([4, 0, 2])
    chosen = outputs.similarities[torch.arange(3), targets]
    (gradient,) = torch.autograd.grad(chosen.sum(), outputs.maps[-1])
    assert gradient.shape == (3, 64, 2, 2)
    elements = np.random.default_rng(0).choice(gradient.numel(), 20, replace=False)
    for index in zip(*np.unravel_index(elements, gradient.shape), strict=True):
        sides = []
        for step in (1e-5, -1e-5):
            moved = outputs.maps[-1].detach().clone()
            moved[index] += step
            sides.append(teacher.classifier(moved.mean((2, 3)))[index[0], targets[index[0]]].item())
        assert gradient[index].item() == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("frozen", [True, False])
def test_attention_changes_no_output(frozen):
    net = network().eval()
    net = frozen_copy(net) if frozen else net
    images = torch.randn(3, 1, 8, 8)
    plain, attentive = net(images), net(images, attention=True)
    assert all(torch.equal(a, b) for a, b in zip(plain.maps, attentive.maps, strict=True))
    torch.testing.assert_close(plain.similarities, attentive.similarities)
    torch.testing.assert_close(plain.embedding, attentive.embedding)


def test_attention_of_the_student_still_reaches_its_first_convolution():
    net = network().train()
    outputs = net(torch.randn(3, 1, 8, 8), attention=True)
    (gradient,) = torch.autograd.grad(outputs.similarities.sum(), outputs.maps[-1], create_graph=True)
    gradient.square().sum().backward()
    assert net.backbone.stem[0].conv.weight.grad.any()
    assert net.classifier.weights[0].grad.any()
