"""The methods as data: hyper-parameters of their papers, schedules, losses summed as the papers say."""

from dataclasses import fields
from math import cos, pi, sqrt

import pytest
import torch

from podnet.backbones import resnet32
from podnet.errors import ConfigError
from podnet.losses import distillation, less_forget, margin_ranking, nca, pod, pod_flat
from podnet.methods import METHODS, UCIR, BiC, ICaRL, PODNet, configured
from podnet.methods.base import constant, cosine, stepwise
from podnet.network import Network, Outputs


def outputs(classes, seed, scale=3.0):
    torch.manual_seed(seed)
    maps = [torch.randn(4, 2, 5, 5), torch.randn(4, 3, 3, 3)]
    return Outputs(maps, torch.randn(4, 6), torch.rand(4, classes), torch.tensor(scale))


TARGETS = torch.tensor([0, 3, 5, 6])


def test_podnet_sums_its_three_terms_with_the_papers_weights():
    student, teacher = outputs(7, 0), outputs(6, 1)
    terms = PODNet().phases(old=6, new=1)[0].loss(student, teacher, TARGETS)
    factor = sqrt(7 / 1)
    assert set(terms) == {"nca", "pod", "pod_flat"}
    assert torch.allclose(terms["nca"], nca(student.similarities, TARGETS, scale=3.0, margin=0.6))
    assert torch.allclose(terms["pod"], factor * 3 * pod(teacher.maps, student.maps))
    assert torch.allclose(terms["pod_flat"], factor * 1 * pod_flat(teacher.embedding, student.embedding))


def test_podnet_released_uses_the_released_form_of_every_loss():
    student, teacher = outputs(7, 0), outputs(6, 1)
    terms = configured(PODNet, "cifar", {"fidelity": "released"}).phases(6, 1)[0].loss(student, teacher, TARGETS)
    factor = sqrt(7)
    assert torch.allclose(terms["nca"], nca(student.similarities, TARGETS, scale=3.0, form="released"))
    assert torch.allclose(terms["pod"], factor * 3 * pod(teacher.maps, student.maps, form="released"))
    assert torch.allclose(terms["pod_flat"], factor * pod_flat(teacher.embedding, student.embedding, form="released"))


def test_eta_learns_from_the_similarities_and_not_from_the_margin():
    student = outputs(7, 0)
    gradients = []
    for margin in (0.0, 0.6):
        scale = torch.tensor(3.0, requires_grad=True)
        loss = PODNet(margin=margin).phases(0, 7)[0].loss(student._replace(scale=scale), None, TARGETS)["nca"]
        gradients.append(torch.autograd.grad(loss, scale)[0])
    assert torch.allclose(*gradients)


@pytest.mark.parametrize(
    ("options", "old", "learns"),
    [
        ({}, 0, True),
        ({}, 4, False),
        ({"fidelity": "released"}, 4, True),
        ({"classification": "cross_entropy"}, 4, True),
    ],
)
def test_eta_rests_after_the_first_task_with_the_papers_nca(options, old, learns):
    method = PODNet(**options)
    network = Network(resnet32(1), method.classifier(64))
    if old:
        network.classifier.add_classes(old)
    network.classifier.add_classes(1)
    trained = {id(parameter) for parameter in method.phases(old, 1)[0].parameters(network)}
    assert (id(network.classifier.scale) in trained) == learns
    assert {id(p) for p in network.backbone.parameters()} <= trained
    assert [id(w) in trained for w in network.classifier.weights] == [False] * (old > 0) + [True]


def test_ucir_weighs_less_forget_by_the_root_of_old_over_new():
    student, teacher = outputs(7, 0), outputs(5, 1)
    terms = UCIR().phases(old=5, new=2)[0].loss(student, teacher, TARGETS)
    wanted = 5 * sqrt(5 / 2) * less_forget(teacher.embedding, student.embedding)
    assert torch.allclose(terms["less_forget"], wanted)
    assert torch.allclose(terms["ranking"], margin_ranking(student.similarities, TARGETS, 5, 2, 0.5))
    assert torch.allclose(terms["ce"], torch.nn.functional.cross_entropy(3 * student.similarities, TARGETS))


def test_icarl_averages_over_all_outputs_of_the_papers_network():
    student, teacher = outputs(8, 0), outputs(6, 1)
    term = ICaRL(total_classes=100).phases(old=6, new=2)[0].loss(student, teacher, TARGETS)["bce"]
    wanted = torch.cat([teacher.logits.sigmoid(), torch.nn.functional.one_hot(TARGETS, 8)[:, 6:]], dim=1)
    each = torch.nn.functional.binary_cross_entropy_with_logits(student.logits, wanted, reduction="sum")
    assert torch.allclose(term, each / 4 / 100)


@pytest.mark.parametrize(("option", "value"), [("epochs", 0), ("lr", -0.1), ("lr", float("nan")), ("proxies", 0)])
def test_values_that_cannot_work_are_refused(option, value):
    with pytest.raises(ConfigError, match=option):
        PODNet(**{option: value})


def test_bic_mixes_distillation_and_classification_by_the_share_of_old_classes():
    student, teacher = outputs(8, 0), outputs(6, 1)
    terms = BiC().phases(old=6, new=2)[0].loss(student, teacher, TARGETS)
    assert torch.allclose(terms["distillation"], 6 / 8 * distillation(student.logits, teacher.logits, 2.0))
    cross_entropy = torch.nn.functional.cross_entropy(student.logits, TARGETS)
    assert torch.allclose(terms["ce"], 2 / 8 * cross_entropy)


@pytest.mark.parametrize("method", METHODS.values())
def test_the_first_task_has_one_phase_without_a_teacher(method):
    (phase,) = method().phases(old=0, new=10)
    assert not phase.distils


def test_hyper_parameters_are_those_of_the_papers():
    podnet = PODNet()
    assert (podnet.epochs, podnet.lr, podnet.batch_size, podnet.weight_decay) == (160, 0.1, 128, 5e-4)
    assert (podnet.lambda_c, podnet.lambda_f, podnet.proxies, podnet.margin) == (3, 1, 10, 0.6)
    imagenet = configured(PODNet, "imagenet", {})
    assert (imagenet.epochs, imagenet.lambda_c, imagenet.lambda_f, imagenet.weight_decay) == (90, 8, 10, 1e-4)
    released = configured(PODNet, "imagenet", {"fidelity": "released"})
    assert (released.lr, released.batch_size, released.weight_decay) == (0.05, 64, 5e-4)
    icarl = ICaRL()
    rate = icarl.phases(0, 10)[0].rate
    assert [rate(epoch) for epoch in (0, 48, 49, 62, 63, 69)] == pytest.approx([2, 2, 0.4, 0.4, 0.08, 0.08])
    rate = UCIR().phases(0, 10)[0].rate
    assert [rate(epoch) for epoch in (79, 80, 119, 120)] == pytest.approx([0.1, 0.01, 0.01, 0.001])
    rate = BiC().phases(0, 10)[0].rate
    assert [rate(epoch) for epoch in (99, 100, 150, 200)] == pytest.approx([0.1, 0.01, 1e-3, 1e-4])


def test_schedules():
    assert constant(0.3)(99) == 0.3
    assert [cosine(0.1, 4)(e) for e in range(4)] == pytest.approx([0.05 * (1 + cos(pi * e / 4)) for e in range(4)])
    assert [cosine(0.1, 4, lag=1)(e) for e in range(3)] == pytest.approx([0.1, 0.1, 0.05 * (1 + cos(pi / 4))])
    assert [stepwise(1, 10, (0.5,), 0.1)(e) for e in (4, 5)] == pytest.approx([1, 0.1])


@pytest.mark.parametrize("method", METHODS.values())
def test_presets_name_existing_options_of_the_right_kind(method):
    defaults = {field.name: field.default for field in fields(method)}
    for values in method.presets.values():
        for name, value in values.items():
            assert type(value) is type(defaults[name]), name
