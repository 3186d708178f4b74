"""AFC against loops: its discrepancy, and the importance of channels from the gradients of single images."""

from math import sqrt

import numpy as np
import pytest
import torch

import reference
from podnet.methods import PODNet, configured
from podnet.methods.afc import AFC, discrepancy
from podnet.methods.networks import new_network
from podnet.nets.network import in_full_precision
from reference import assert_matches

RNG = np.random.default_rng(0)
OLD_MAPS, NEW_MAPS = ([RNG.normal(size=shape) for shape in ((3, 2, 3, 3), (3, 4, 2, 2))] for _ in range(2))
IMPORTANCE = [RNG.uniform(size=channels) for channels in (2, 4)]
IMAGES, TARGETS = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 2, 0])


class Images:
    """Batches as `after_task` gets them."""

    def __init__(self, *targets):
        self.targets = targets

    def with_exemplars(self):
        return zip(IMAGES.split([len(own) for own in self.targets]), self.targets, strict=True)


TASK = Images(TARGETS[:3], TARGETS[3:])


def test_the_discrepancy_is_the_papers():
    def ours(a, b, v, w, x, y):
        return discrepancy([a, b], [x, y], [v, w])

    def loops(a, b, v, w, x, y):
        return reference.discrepancy([a, b], [x, y], [v, w])

    assert_matches(ours, loops, *NEW_MAPS, constants=(*OLD_MAPS, *IMPORTANCE))


def test_equal_maps_have_none_and_channels_without_importance_do_not_count():
    old, new = ([torch.tensor(maps) for maps in side] for side in (OLD_MAPS, NEW_MAPS))
    importance = [torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0, 1.0])]
    assert discrepancy(old, old, importance) == 0
    changed = [maps.clone() for maps in new]
    changed[0][:, 1] += 1
    changed[1][:, 1:3] += 1
    assert discrepancy(old, changed, importance) == discrepancy(old, new, importance)
    changed[1][:, 0] += 1
    assert discrepancy(old, changed, importance) != discrepancy(old, new, importance)


@pytest.fixture
def network():
    torch.manual_seed(0)
    network = new_network(AFC(), 1)
    network.classifier.add_classes(3)
    return network.eval()


def test_importance_is_the_squared_gradient_of_single_images(network):
    found = AFC().after_task(network, TASK, {})
    sums = [torch.zeros(channels) for channels in (16, 32, 64, 64)]
    for image, target in zip(IMAGES, TARGETS, strict=True):
        outputs = network(image[None])
        for maps in outputs.maps:
            maps.retain_grad()
        AFC().classify(outputs, target[None])["nca"].backward()
        for own, maps in zip(sums, outputs.maps, strict=True):
            for channel in range(len(own)):
                own[channel] += (maps.grad[0, channel] ** 2).sum()
    assert list(found) == [f"importance.{number}" for number in range(4)]
    for value, own in zip(found.values(), sums, strict=True):
        torch.testing.assert_close(value, own / own.mean())
        assert value.mean().item() == pytest.approx(1)


def test_importance_is_computed_in_float32(network):
    """A network of mixed precision gives its maps as copies, which have no gradient."""
    wanted = AFC().after_task(network, TASK, {})
    network.mixed = torch.bfloat16
    found = AFC().after_task(in_full_precision(network), TASK, {})
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert network.mixed is torch.bfloat16


def test_without_a_loss_all_channels_are_equal():
    """A single class has no other to be separated from."""
    alone = new_network(AFC(), 1)
    alone.classifier.add_classes(1)
    found = AFC().after_task(alone, Images(torch.zeros(5, dtype=torch.int64)), {})
    assert all(torch.equal(value, torch.ones_like(value)) for value in found.values())


def test_the_loss_is_podnets_without_pod_plus_the_discrepancy(network):
    torch.manual_seed(1)
    teacher = new_network(AFC(), 1).eval()
    teacher.classifier.add_classes(2)
    state = AFC().after_task(teacher, Images(torch.tensor([0, 1, 1, 0, 1])), {})
    student, old = network(IMAGES), teacher(IMAGES)
    train, finetune = AFC().phases(2, 1, state)
    terms = train.loss(student, old, TARGETS)
    assert set(terms) == {"nca", "discrepancy"}
    torch.testing.assert_close(terms["nca"], PODNet().classify(student, TARGETS)["nca"])
    wanted = 4 * sqrt(3) * discrepancy(old.maps, student.maps, list(state.values()))
    torch.testing.assert_close(terms["discrepancy"], wanted)
    assert train.distils
    assert set(finetune.loss(student, None, TARGETS)) == {"nca"}
    assert [phase.distils for phase in AFC().phases(0, 3, {})] == [False]


def test_pod_can_be_added_again(network):
    state = {f"importance.{number}": torch.rand(channels) for number, channels in enumerate((16, 32, 64, 64))}
    outputs = network(IMAGES)
    terms = AFC(lambda_c=3.0, lambda_f=1.0).phases(3, 1, state)[0].loss(outputs, outputs, TARGETS)
    assert set(terms) == {"nca", "pod", "pod_flat", "discrepancy"}


def test_hyper_parameters_are_the_authors():
    cifar, imagenet = (configured(AFC, family, {}) for family in ("cifar", "imagenet"))
    assert (cifar.lambda_d, cifar.lambda_c, cifar.lambda_f, cifar.finetune_lr) == (4, 0, 0, 0.05)
    assert (imagenet.lambda_d, imagenet.lr, imagenet.batch_size, imagenet.weight_decay) == (10, 0.1, 128, 1e-4)
    assert (imagenet.finetune_lr, imagenet.epochs, imagenet.backbone) == (0.02, 90, "resnet18")
