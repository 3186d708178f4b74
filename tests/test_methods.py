"""The methods as data: hyper-parameters of their papers, schedules, losses summed as the papers say."""

from dataclasses import dataclass, fields
from math import cos, pi, sqrt

import pytest
import torch

import reference
from podnet.errors import ConfigError
from podnet.losses import distillation, gradcam, less_forget, margin_ranking, nca, pod, pod_flat
from podnet.methods import METHODS, UCIR, BiC, ICaRL, PODNet, configured
from podnet.methods.base import phases_of
from podnet.methods.networks import new_network
from podnet.methods.phases import constant, cosine, stepwise
from podnet.nets.backbones import resnet32
from podnet.nets.network import Network, Outputs
from podnet.runs.config import resolve


def outputs(classes, seed, scale=3.0):
    torch.manual_seed(seed)
    maps = [torch.randn(4, 2, 5, 5), torch.randn(4, 3, 3, 3)]
    return Outputs(maps, torch.randn(4, 6), torch.rand(4, classes), torch.tensor(scale))


TARGETS = torch.tensor([0, 3, 5, 6])


def test_podnet_sums_its_three_terms_with_the_papers_weights():
    student, teacher = outputs(7, 0), outputs(6, 1)
    terms = PODNet(fidelity="paper").phases(old=6, new=1, state={})[0].loss(student, teacher, TARGETS)
    factor = sqrt(7 / 1)
    assert set(terms) == {"nca", "pod", "pod_flat"}
    assert torch.allclose(terms["nca"], nca(student.similarities, TARGETS, scale=3.0, margin=0.6, fidelity="paper"))
    assert torch.allclose(terms["pod"], factor * 3 * pod(teacher.maps, student.maps, fidelity="paper"))
    assert torch.allclose(terms["pod_flat"], factor * pod_flat(teacher.embedding, student.embedding, fidelity="paper"))


def test_podnet_uses_the_released_form_of_every_loss_by_default():
    student, teacher = outputs(7, 0), outputs(6, 1)
    terms = configured(PODNet, "cifar", {}).phases(6, 1, {})[0].loss(student, teacher, TARGETS)
    factor = sqrt(7)
    assert torch.allclose(terms["nca"], nca(student.similarities, TARGETS, scale=3.0, fidelity="released"))
    assert torch.allclose(terms["pod"], factor * 3 * pod(teacher.maps, student.maps, fidelity="released"))
    assert torch.allclose(
        terms["pod_flat"], factor * pod_flat(teacher.embedding, student.embedding, fidelity="released")
    )


def test_the_fidelity_switches_hyper_parameters_as_a_group():
    options = [configured(PODNet, "cifar", {"fidelity": fidelity}) for fidelity in ("released", "paper")]
    assert options[0] == configured(PODNet, "cifar", {})
    assert [(o.intensity, o.finetune_batchnorm) for o in options] == [("scale", "fixed"), ("shift", "fixed")]
    assert configured(PODNet, "imagenet", {"fidelity": "paper"}).intensity == "none"


def test_a_method_with_slots_has_its_presets_too():
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Slots(PODNet):
        pass

    assert configured(Slots, "cifar", {"fidelity": "paper"}).intensity == "shift"

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Own(Slots):
        strength: str = "weak"
        switch = "strength"
        presets = {"cifar weak": {"lr": 0.5}}

    assert configured(Own, "cifar", {}).lr == 0.5


def test_the_weight_of_the_maps_grows_with_the_classes_unless_told_otherwise():
    student, teacher = outputs(7, 0), outputs(6, 1)
    terms = [PODNet(adaptive_c=grows).phases(6, 1, {})[0].loss(student, teacher, TARGETS) for grows in (True, False)]
    assert torch.allclose(terms[0]["pod"], sqrt(7) * terms[1]["pod"])
    assert torch.equal(terms[0]["pod_flat"], terms[1]["pod_flat"])


@pytest.mark.parametrize("fidelity", ["released", "paper"])
@pytest.mark.parametrize("pooling", ["spatial", "width", "height", "channels", "gap", "pixels"])
def test_the_distillation_of_the_maps_is_the_one_that_is_named(pooling, fidelity):
    student, teacher = outputs(7, 0), outputs(6, 1)
    found = PODNet(distillation=pooling, fidelity=fidelity).distance(teacher, student)
    maps = [[each.detach().double().numpy() for each in one.maps] for one in (teacher, student)]
    assert found.item() == pytest.approx(reference.pod(*maps, pooling, fidelity), rel=1e-4)


@pytest.mark.parametrize("kind", ["perceptual_features", "perceptual_style"])
def test_a_perceptual_distillation_is_the_one_that_is_named(kind):
    student, teacher = outputs(7, 0), outputs(6, 1)
    maps = [[each.detach().double().numpy() for each in one.maps] for one in (teacher, student)]
    expected = getattr(reference, kind)(*maps)
    assert PODNet(distillation=kind).distance(teacher, student).item() == pytest.approx(expected, rel=1e-4)


def test_a_class_of_ucir_is_imprinted_as_a_unit_vector_times_the_mean_length():
    torch.manual_seed(0)
    method = UCIR()
    network = new_network(method, 1)
    features, targets = torch.randn(12, 64), torch.full((12,), 3)
    method.grow(network, 3, lambda: (features, targets), seed=0)
    method.grow(network, 1, lambda: (features, targets), seed=0)
    old, new = network.classifier.weights
    mean = torch.nn.functional.normalize(features).mean(0)
    assert torch.allclose(new.flatten(), mean / mean.norm() * old.flatten(1).norm(dim=1).mean(), atol=1e-6)


def test_one_proxy_a_class_is_imprinted_as_a_unit_vector_times_the_mean_length():
    torch.manual_seed(0)
    method = PODNet(proxies=1)
    network = Network(resnet32(1), method.classifier(64))
    features, targets = torch.randn(12, 64), torch.full((12,), 3)
    for seen in (3, 4):
        method.grow(network, 3 if seen == 3 else 1, lambda: (features, targets), seed=0)
    old, new = network.classifier.weights
    mean = torch.nn.functional.normalize(features).mean(0)
    assert torch.allclose(new[0, 0], mean / mean.norm() * old.norm(dim=2).mean())


def test_step_epochs_and_their_learning_rate_are_those_of_later_tasks_for_any_method():
    for method in METHODS.values():
        changed, usual = method(epochs=7, step_epochs=3, lr=0.4, step_lr=0.1), method(epochs=7, lr=0.4)
        found = [
            [(phase.epochs, phase.lr(0)) for old in (0, 4) for phase in phases_of(each, old, 1, {}, first=not old)[:1]]
            for each in (changed, usual)
        ]
        if usual.freeze or method.name == "ridge":  # never trained
            assert found == [[], []]
            continue
        [(epochs, lr), *later], [first, *same] = found
        assert (epochs, lr) == first
        assert same == ([] if method.fixed else [first])
        assert later == ([] if method.fixed else [(3, pytest.approx(lr / 4))]), method.name


def test_runs_that_differ_in_their_steps_share_the_first_task():
    options = {"dataset": "digits", "base": 5}
    shared = resolve(options).first_task()
    assert resolve(options | {"step_epochs": 3, "step_lr": 0.01}).first_task() == shared
    assert resolve(options | {"lr": 0.01}).first_task() != shared


def test_icarl_as_the_authors_of_podnet_ran_it():
    student, teacher = outputs(8, 0), outputs(6, 1)
    own, theirs = configured(ICaRL, "cifar", {}), configured(ICaRL, "cifar", {"variant": "podnet"})
    assert (own.weight_decay, theirs.weight_decay) == (2e-5, 5e-5)
    terms = [m.of_run(100).phases(6, 2, {})[0].loss(student, teacher, TARGETS)["bce"] for m in (own, theirs)]
    assert torch.allclose(terms[0] * 100 / 8, terms[1])  # a mean over the classes seen
    images = torch.randn(4, 3, 16, 16)
    network = new_network(theirs, 3).eval()
    network.classifier.add_classes(2)
    found = network(images)
    weights = torch.cat(list(network.classifier.weights))
    rectified = found.maps[-1].relu().mean((2, 3))
    assert torch.allclose(found.logits, rectified @ weights[:, :-1].T + weights[:, -1], atol=1e-6)
    assert torch.allclose(found.embedding, found.maps[-1].mean((2, 3)), atol=1e-6)


def test_gradcam_is_the_released_one_or_that_of_its_paper():
    torch.manual_seed(0)
    student, teacher = (outputs(classes, seed) for classes, seed in ((7, 0), (6, 1)))
    pairs = []
    for each in (student, teacher):
        last = each.maps[-1].clone().requires_grad_()
        weights = torch.randn(3, each.similarities.shape[1])
        pairs.append(each._replace(maps=[last], similarities=last.mean((2, 3)) @ weights))
    student, teacher = pairs

    def distance(**options):
        return PODNet(**options).distance(teacher, student).item()

    def expected(top, fidelity):
        scores = [each.similarities.gather(1, top) for each in (teacher, student)]
        return gradcam(teacher.maps[-1], scores[0], student.maps[-1], scores[1], fidelity).item()

    theirs = expected(student.similarities[:, :6].argmax(1, keepdim=True), "released")
    dhars = expected(teacher.similarities.argmax(1, keepdim=True), "paper")
    assert distance(distillation="gradcam") == theirs != dhars
    assert distance(distillation="gradcam", fidelity="paper") == dhars
    assert distance(distillation="attention") == dhars


def test_the_correction_of_bic_pays_for_the_square_of_its_offset():
    method = BiC()
    network = new_network(method, 1)
    for new in (4, 2):
        network.classifier.add_classes(new)
    with torch.no_grad():
        network.classifier.corrections[-1].copy_(torch.tensor([0.5, 3.0]))
    penalty = method.phases(4, 2, {})[1].penalty(network, None, None)["beta"]
    assert penalty.item() == pytest.approx(0.1 * 9 / 2)
    (gradient,) = torch.autograd.grad(penalty, network.classifier.corrections[-1])
    assert gradient.tolist() == pytest.approx([0, 0.1 * 3])


def test_eta_learns_from_the_similarities_and_not_from_the_margin():
    student = outputs(7, 0)
    gradients = []
    for margin in (0.0, 0.6):
        scale = torch.tensor(3.0, requires_grad=True)
        loss = (
            PODNet(margin=margin, fidelity="paper")
            .phases(0, 7, {})[0]
            .loss(student._replace(scale=scale), None, TARGETS)["nca"]
        )
        gradients.append(torch.autograd.grad(loss, scale)[0])
    assert torch.allclose(*gradients)


@pytest.mark.parametrize(
    ("options", "old", "learns"),
    [
        ({"fidelity": "paper"}, 0, True),
        ({"fidelity": "paper"}, 4, False),
        ({"fidelity": "released"}, 4, True),
        ({"fidelity": "paper", "classification": "cross_entropy"}, 4, True),
    ],
)
def test_eta_rests_after_the_first_task_with_the_papers_nca(options, old, learns):
    method = PODNet(**options)
    network = Network(resnet32(1), method.classifier(64))
    if old:
        network.classifier.add_classes(old)
    network.classifier.add_classes(1)
    trained = {id(parameter) for parameter in method.phases(old, 1, {})[0].parameters(network)}
    assert (id(network.classifier.scale) in trained) == learns
    assert {id(p) for p in network.backbone.parameters()} <= trained
    assert [id(w) in trained for w in network.classifier.weights] == [False] * (old > 0) + [True]


def test_ucir_weighs_less_forget_by_the_root_of_old_over_new():
    student, teacher = outputs(7, 0), outputs(5, 1)
    terms = UCIR().phases(old=5, new=2, state={})[0].loss(student, teacher, TARGETS)
    wanted = 5 * sqrt(5 / 2) * less_forget(teacher.embedding, student.embedding)
    assert torch.allclose(terms["less_forget"], wanted)
    assert torch.allclose(terms["ranking"], margin_ranking(student.similarities, TARGETS, 5, 2, 0.5))
    assert torch.allclose(terms["ce"], torch.nn.functional.cross_entropy(3 * student.similarities, TARGETS))


def test_icarl_averages_over_all_outputs_of_the_papers_network():
    student, teacher = outputs(8, 0), outputs(6, 1)
    term = ICaRL(total_classes=100).phases(old=6, new=2, state={})[0].loss(student, teacher, TARGETS)["bce"]
    wanted = torch.cat([teacher.logits.sigmoid(), torch.nn.functional.one_hot(TARGETS, 8)[:, 6:]], dim=1)
    each = torch.nn.functional.binary_cross_entropy_with_logits(student.logits, wanted, reduction="sum")
    assert torch.allclose(term, each / 4 / 100)


@pytest.mark.parametrize(("option", "value"), [("epochs", 0), ("lr", -0.1), ("lr", float("nan")), ("proxies", 0)])
def test_values_that_cannot_work_are_refused(option, value):
    with pytest.raises(ConfigError, match=option):
        PODNet(**{option: value})


def test_bic_mixes_distillation_and_classification_by_the_share_of_old_classes():
    student, teacher = outputs(8, 0), outputs(6, 1)
    terms = BiC().phases(old=6, new=2, state={})[0].loss(student, teacher, TARGETS)
    assert torch.allclose(terms["distillation"], 6 / 8 * distillation(student.logits, teacher.logits, 2.0))
    cross_entropy = torch.nn.functional.cross_entropy(student.logits, TARGETS)
    assert torch.allclose(terms["ce"], 2 / 8 * cross_entropy)


@pytest.mark.parametrize("method", METHODS.values())
def test_the_first_task_has_at_most_one_phase_and_no_teacher(method):
    assert [phase.distils for phase in method().phases(old=0, new=10, state={})] in ([False], [])


def test_hyper_parameters_are_those_of_the_papers():
    podnet = PODNet()
    assert (podnet.epochs, podnet.lr, podnet.batch_size, podnet.weight_decay) == (160, 0.1, 128, 5e-4)
    assert (podnet.lambda_c, podnet.lambda_f, podnet.proxies, podnet.margin) == (3, 1, 10, 0.6)
    imagenet = configured(PODNet, "imagenet", {"fidelity": "paper"})
    assert (imagenet.epochs, imagenet.lambda_c, imagenet.lambda_f, imagenet.weight_decay) == (90, 8, 10, 1e-4)
    released = configured(PODNet, "imagenet", {})
    assert (released.lr, released.batch_size, released.weight_decay) == (0.05, 64, 5e-4)
    icarl = ICaRL()
    lr = icarl.phases(0, 10, {})[0].lr
    assert [lr(epoch) for epoch in (0, 48, 49, 62, 63, 69)] == pytest.approx([2, 2, 0.4, 0.4, 0.08, 0.08])
    lr = UCIR().phases(0, 10, {})[0].lr
    assert [lr(epoch) for epoch in (79, 80, 119, 120)] == pytest.approx([0.1, 0.01, 0.01, 0.001])
    lr = BiC().phases(0, 10, {})[0].lr
    assert [lr(epoch) for epoch in (99, 100, 150, 200)] == pytest.approx([0.1, 0.01, 1e-3, 1e-4])


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
