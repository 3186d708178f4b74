"""Fast paths against plain ones, and `podnet bench`."""

import copy
import json

import pytest
import torch
from torch._dynamo.utils import counters

from podnet.bench import plain
from podnet.bench.measure import figure, in_turns, ratio
from podnet.bench.scene import TRANSFORM, Untrained, before_a_step, noise, stages
from podnet.cli import main
from podnet.methods import PODNet
from podnet.nets import backbones, kernels
from podnet.nets.backbones import BACKBONES, ConvNorm, EverySecondPixel, ResNet, _stage
from podnet.nets.network import Network, channels_last, compile_backbone, frozen_copy
from podnet.nets.normalisation import normalise


def moved(old, seed=1):
    """A student that has moved away from the old network and knows one class more."""
    student = copy.deepcopy(old)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    student.classifier.add_classes(1)
    return student


def loss_and_gradients(student, teacher, method, inputs):
    """Of PODNet's main phase, for every parameter that it trains."""
    phase = method.phases(10, 1, {})[0]
    targets = torch.arange(len(inputs)) % 11
    with torch.no_grad():
        old = teacher(inputs)
    terms = phase.loss(student.train()(inputs), old, targets)
    loss = torch.stack(list(terms.values())).sum()
    return loss.detach(), torch.autograd.grad(loss, list(phase.parameters(student)))


@pytest.fixture(params=["torch", "podnet"])
def convolutions(request):
    """In float64 they are torch's, unless ours are compiled for it."""
    if request.param == "podnet":
        request.getfixturevalue("float64")
    return request.param


def test_our_iteration_is_the_plain_one(convolutions):
    """In float64, where equal mathematics gives equal numbers: folded, in place, channels-last against none of it."""
    method = PODNet()
    old = before_a_step(10, method)[0].network.double()
    old.train()(torch.randn(64, 3, 32, 32).double())  # BatchNorm sees something
    student = moved(old)
    inputs = torch.randn(16, 3, 32, 32).double()
    asked = [each.suits(inputs) for each in student.modules() if isinstance(each, kernels.Convolution)]
    assert convolutions == "torch" or asked == [True] * 28
    ours = loss_and_gradients(channels_last(student), channels_last(frozen_copy(old)), method, inputs)
    theirs = loss_and_gradients(plain.plain_copy(student), plain.plain_copy(old).eval(), plain.PlainPODNet(), inputs)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-9, atol=0)
    assert float(ours[0]) > 1
    for slope, other in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(slope, other, rtol=1e-6, atol=1e-9)


def small_network():
    """The parts of ResNet-32, two blocks: quick to compile."""
    stem = torch.nn.Sequential(ConvNorm(3, 8, 3), torch.nn.ReLU(inplace=True))
    stages = [_stage(8, 16, 2, [True, False], lambda *_: EverySecondPixel())]
    network = Network(ResNet(3, stem, stages, dim=16), PODNet(proxies=2).classifier(16))
    network.classifier.add_classes(10)
    return channels_last(network)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch uses what it advises against
def test_a_compiled_network_gives_the_same_and_is_compiled_once_for_all_tasks(convolutions):
    method = PODNet(proxies=2)
    torch.manual_seed(0)
    old = small_network().double()
    torch._dynamo.reset()
    counters.clear()
    graphs = []
    for task in range(3):
        student, teacher = moved(old, task), frozen_copy(old)
        if task:
            student.classifier.add_classes(task)  # the classifier grows
        compiled = copy.deepcopy(student)
        if convolutions == "podnet":
            kernels.replace_convolutions(compiled)
            assert isinstance(compiled.backbone.stages[0][1].second.conv, kernels.Convolution)
        compile_backbone(compiled, 32)
        for count in (32, 32, 17):  # the last batch is smaller
            inputs = torch.randn(count, 3, 16, 16).double().contiguous(memory_format=torch.channels_last)
            loss, slopes = loss_and_gradients(compiled, teacher, method, inputs)
            plain_loss, plain_slopes = loss_and_gradients(student, teacher, method, inputs)
            torch.testing.assert_close(loss, plain_loss, rtol=1e-9, atol=0)
            for slope, other in zip(slopes, plain_slopes, strict=True):
                torch.testing.assert_close(slope, other, rtol=1e-6, atol=1e-9)
        for own, other in zip(compiled.buffers(), student.buffers(), strict=True):  # the statistics of BatchNorm
            torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-12)
        with torch.no_grad():
            compiled.eval()(inputs.new_zeros(32, 3, 16, 16))  # an evaluation
        compiled.requires_grad_(False)(inputs.new_zeros(32, 3, 16, 16))  # a fine-tuning of the classifier alone
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs == [1, 1, 1]


@pytest.mark.parametrize("shape", [(8, 5, 16, 16), (3, 2, 7, 5), (1, 4, 11, 1)])  # blocks of 256, 1 and 1 pixels
def test_batch_norm_summed_in_blocks_is_batch_norm(shape):
    torch.manual_seed(0)
    x = (3 * torch.randn(shape).double() + 5).requires_grad_()
    weight, bias = (torch.randn(shape[1]).double().requires_grad_() for _ in range(2))
    seen = torch.zeros(shape[1]).double(), torch.zeros(shape[1]).double()
    wanted = torch.nn.functional.batch_norm(x, *seen, weight, bias, training=True, momentum=1.0)
    out, mean, variance = normalise(x, weight, bias, 1e-5)
    count = x.numel() // shape[1]
    for own, other in [(out, wanted), (mean, seen[0]), (variance * count / (count - 1), seen[1])]:
        torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-12)
    slope = torch.randn_like(out)
    slopes, wanted_slopes = (torch.autograd.grad(each, (x, weight, bias), slope) for each in (out, wanted))
    for own, other in zip(slopes, wanted_slopes, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["resnet32", "resnet18"])
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_the_teacher_adds_and_rectifies_while_it_convolves(name, fidelity, monkeypatch):
    """Against the same network, which adds and rectifies one after the other where gradients may be wanted."""
    torch.manual_seed(0)
    backbone = BACKBONES[name](fidelity=fidelity)
    network = Network(backbone, PODNet(proxies=2).classifier(backbone.dim))
    network.classifier.add_classes(3)
    images = torch.randn(4, 3, 40, 40)
    for _ in range(3):
        network.train()(images)  # BatchNorm sees something
    for norm in backbone.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    teacher = channels_last(frozen_copy(network))
    fused = backbones._convolve_in_one_pass
    calls = []
    monkeypatch.setattr(backbones, "_convolve_in_one_pass", lambda *given: calls.append(1) or fused(*given))
    with torch.no_grad():
        ours = teacher(images)
    assert len(calls) == sum(isinstance(module, ConvNorm) for module in teacher.modules())
    wanted = teacher(images)  # with gradients enabled the operations are done one by one
    assert len(calls) == sum(isinstance(module, ConvNorm) for module in teacher.modules())
    for own, other in zip([*ours.maps, ours.embedding], [*wanted.maps, wanted.embedding], strict=True):
        assert other.abs().mean() > 0.1
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


def test_the_features_that_the_plain_pass_extracts_are_ours():
    learner, task = before_a_step(3, PODNet())
    learner.network.train()(TRANSFORM.normalise(noise(64)))
    theirs = plain.features(plain.plain_copy(learner.network), TRANSFORM.normalise(task.train_images).split(128))
    torch.testing.assert_close(learner.features(task.train_images), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("batchnorm", "passes"), [("fixed", 1), ("moving", 2)])
def test_new_images_are_read_again_only_if_their_features_may_have_changed(batchnorm, passes, monkeypatch):
    method = PODNet(epochs=1, finetune_epochs=1, finetune_batchnorm=batchnorm)
    learner, task = before_a_step(3, method, images=40, per_class=5)
    read = []
    extract = learner._extract
    monkeypatch.setattr(learner, "_extract", lambda images, *how: read.append(images) or extract(images, *how))
    stages(learner, task)
    assert sum(len(images) == 40 for images in read) == 1 + passes  # one to imprint, before training
    chosen = learner.memory.images[-5:]
    learner.herded = None
    assert torch.equal(chosen, task.train_images[learner._herd(task.train_images, task.train_targets, task.taught, 5)])


def test_mixed_precision_points_the_same_way():
    method, old = PODNet(proxies=2), small_network()
    student, teacher = moved(old), frozen_copy(old)
    mixed = [copy.deepcopy(network) for network in (student, teacher)]
    for network in mixed:
        network.mixed = torch.bfloat16
    inputs = torch.randn(64, 3, 16, 16)
    loss, slopes = loss_and_gradients(student, teacher, method, inputs)
    rounded_loss, rounded = loss_and_gradients(*mixed, method, inputs)
    assert rounded_loss.dtype == torch.float32
    torch.testing.assert_close(rounded_loss, loss, rtol=0.02, atol=0)
    assert rounded_loss != loss
    flat, other = (torch.cat([slope.flatten() for slope in side]) for side in (slopes, rounded))
    assert torch.cosine_similarity(flat, other, dim=0) > 0.99


def test_what_follows_training_touches_new_images_and_exemplars_only():
    learner, task = before_a_step(4, Untrained(), images=30, per_class=5)
    touched = []
    learner.network.register_forward_hook(lambda _, inputs, __: touched.append(len(inputs[0])))
    taken = stages(learner, task)
    assert set(taken) == {"grow", "after_task", "herd", "means"}
    assert sum(touched) == 30 + 30 + 2 * 5 * 5  # imprinted, herded; exemplars and mirror images of five classes


def test_figures_by_hand():
    assert ratio([2.0, 6.0, 3.0], [1.0, 2.0, 3.0], "").value == 2.0
    assert ratio([2.0, 6.0, 3.0], [1.0, 2.0, 3.0], "").spread == (1.0, 3.0)
    assert figure([3.0, 1.0, 2.0], "s", "").value == 2.0


def test_works_take_turns_and_the_first_round_does_not_count():
    order = []
    taken = in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    assert [len(values) for values in taken.values()] == [2, 2]


def test_bench_prints_and_writes_figures(tmp_path, capsys):
    file = tmp_path / "bench.json"
    assert main(["bench", "augmentation", "--quick", "--output", str(file), "--threads", "1"]) == 0
    found = json.loads(file.read_text())
    assert set(found) == {"augmentation_vs_pillow", "augmentation_peak_memory"}
    for entry in found.values():
        assert entry["spread"][0] <= entry["value"] <= entry["spread"][1]
        assert entry["unit"]
    assert "crop, mirror" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["iterations"], "Did you mean 'iteration'"), (["--output", "/nowhere/b.json"], "/nowhere")],
)
def test_a_mistake_gets_one_sentence(arguments, words, capsys):
    assert main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err
