"""Orders of classes, and what each task sees: every image carries its class and a number of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch

import podnet
from podnet.data.arrays import from_arrays
from podnet.data.digits import load_digits
from podnet.errors import ConfigError, DataError
from podnet.scenario.orders import class_order, spell_out
from podnet.scenario.tasks import class_incremental

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox")
ORDER = [4, 0, 5, 2, 1, 3]
TRAIN, TEST = 10, 3  # images a class


def images(count, first):
    """`count` images of each class, shuffled; pixel 0 is the class, pixel 1 a number that no other image has."""
    labels = np.random.default_rng(first).permutation(np.repeat(np.arange(len(NAMES)), count))
    pixels = np.zeros((len(labels), 2, 2), np.uint8)
    pixels[:, 0, 0], pixels[:, 0, 1] = labels, first + np.arange(len(labels))
    return pixels, labels


@pytest.fixture(scope="module")
def dataset():
    return from_arrays(images(TRAIN, 0), images(TEST, 100), NAMES, name="zoo")


@pytest.fixture(scope="module")
def cifar_like():
    """A hundred classes of one image each, named as CIFAR-100: all that an order needs."""
    labels = np.arange(100)
    pair = (np.zeros((100, 1, 1), np.uint8), labels)
    return from_arrays(pair, pair, name="cifar100")


def test_mean_and_deviation_are_those_of_the_pixels():
    pixels = np.random.default_rng(0).integers(0, 200, (7, 5, 4, 3), dtype=np.uint8)
    transform = from_arrays((pixels, np.arange(7)), (pixels, np.arange(7))).transform
    by_channel = pixels.reshape(-1, 3) / 255
    np.testing.assert_allclose(transform.mean, by_channel.mean(0), rtol=1e-12)
    np.testing.assert_allclose(transform.std, by_channel.std(0, ddof=1), rtol=1e-12)


def test_a_channel_of_one_value_and_long_images():
    """An augmented value must not become huge, and a crop not miss the image."""
    pixels = np.random.default_rng(0).integers(0, 256, (7, 64, 16, 3), np.uint8)
    pixels[..., 2] = 9
    transform = from_arrays((pixels, np.arange(7)), (pixels, np.arange(7))).transform
    assert transform.std[2] == 1
    assert transform.pad == 2


def test_labels_that_are_no_numbers_of_classes_are_refused():
    pair = (np.zeros((3, 2, 2), np.uint8), np.array([0, 1, 20_261_116]))
    with pytest.raises(DataError, match="a label is 20261116, but there are only 3 training images"):
        from_arrays(pair, pair)


def numbers(images):
    return images[:, 0, 0, 1].tolist()


def true_classes(images):
    return images[:, 0, 0, 0].tolist()


# ---- tasks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "increment", "sizes"), [(2, 2, [2, 2, 2]), (3, 1, [3, 1, 1, 1]), (6, 1, [6]), (1, 5, [1, 5])]
)
def test_tasks_train_on_their_new_classes_only_and_test_on_all_seen(dataset, base, increment, sizes):
    tasks = class_incremental(dataset, ORDER, base, increment)
    assert len(tasks) == len(sizes)
    for index, (task, size, seen) in enumerate(zip(tasks, sizes, accumulate(sizes), strict=True)):
        assert (task.index, task.old, task.new, task.seen) == (index, seen - size, size, seen)
        new = ORDER[seen - size : seen]
        assert task.class_names == tuple(NAMES[c] for c in new)
        assert sorted(true_classes(task.train_images)) == sorted(c for c in new for _ in range(TRAIN))
        assert sorted(true_classes(task.test_images)) == sorted(c for c in ORDER[:seen] for _ in range(TEST))
        # a label is the position of the class in the order
        assert task.train_targets.tolist() == [ORDER.index(c) for c in true_classes(task.train_images)]
        assert task.test_targets.tolist() == [ORDER.index(c) for c in true_classes(task.test_images)]
        assert task.train_targets.dtype == torch.int64


def test_images_come_class_by_class_in_the_order_of_the_dataset(dataset):
    for task in class_incremental(dataset, ORDER, 2, 2):
        for images, own, labels in (
            (dataset.train_images, task.train_images, range(task.old, task.seen)),
            (dataset.test_images, task.test_images, range(task.seen)),
        ):
            wanted = [n for label in labels for n in numbers(images[images[:, 0, 0, 0] == ORDER[label]])]
            assert numbers(own) == wanted


def test_every_training_image_is_seen_in_exactly_one_task(dataset):
    tasks = class_incremental(dataset, ORDER, 2, 1)
    assert sorted(n for task in tasks for n in numbers(task.train_images)) == list(range(TRAIN * len(NAMES)))


def test_a_task_asked_for_twice_is_the_same(dataset):
    tasks = class_incremental(dataset, ORDER, 2, 2)
    assert torch.equal(tasks[1].train_images, tasks[1].train_images)
    assert torch.equal(list(tasks)[2].test_images, tasks[2].test_images)


def test_the_last_task_may_be_asked_for_from_the_end(dataset):
    tasks = class_incremental(dataset, ORDER, 2, 2)
    assert (tasks[-1].index, tasks[-1].old, tasks[-1].seen) == (2, 4, 6)
    with pytest.raises(IndexError):
        tasks[3]


def test_cumulative_tasks_train_on_all_classes_seen(dataset):
    for task in class_incremental(dataset, ORDER, 2, 2, cumulative=True):
        assert sorted(true_classes(task.train_images)) == sorted(c for c in ORDER[: task.seen] for _ in range(TRAIN))
        assert task.train_targets.tolist() == [ORDER.index(c) for c in true_classes(task.train_images)]
        assert (task.old, task.new) == (task.index * 2, 2)


@pytest.mark.parametrize("cumulative", [False, True])
def test_validation_images_replace_the_test_images_and_are_never_trained_on(dataset, cumulative):
    tasks = class_incremental(dataset, ORDER, 2, 2, validation=0.3, cumulative=cumulative)
    trained, tested = set(), set()
    for task in tasks:
        trained |= set(numbers(task.train_images))
        tested |= set(numbers(task.test_images))
        assert sorted(true_classes(task.test_images)) == sorted(c for c in ORDER[: task.seen] for _ in range(3))
        assert task.test_targets.tolist() == [ORDER.index(c) for c in true_classes(task.test_images)]
        new = ORDER[: task.seen] if cumulative else ORDER[task.old : task.seen]
        assert sorted(true_classes(task.train_images)) == sorted(c for c in new for _ in range(7))
    assert not trained & tested
    assert trained | tested == set(range(TRAIN * len(NAMES)))  # training images all, no test image among them


def test_classes_left_out_of_the_order_are_never_seen(dataset):
    tasks = class_incremental(dataset, class_order("3,1,0", dataset, seed=0, classes=3), 2, 1)
    seen = [c for task in tasks for c in true_classes(task.train_images) + true_classes(task.test_images)]
    assert set(seen) == {3, 1, 0}
    assert tasks[1].class_names == ("ant",)


@pytest.mark.parametrize(
    ("base", "increment", "message"),
    [
        (0, 1, r"base is 0.*1 to 6"),
        (7, 1, r"base is 7.*1 to 6"),
        (2, 0, r"increment is 0.*at least 1"),
        (2, -2, r"increment is -2.*at least 1"),
        (2, 3, r"increment 3 does not divide the 4 classes.*one of 1, 2, 4"),
        (2, 5, r"increment 5 does not divide the 4 classes"),
    ],
)
def test_sizes_that_cannot_be_are_refused(dataset, base, increment, message):
    with pytest.raises(ConfigError, match=message):
        class_incremental(dataset, ORDER, base, increment)


@pytest.mark.parametrize("sizes", [(2, 1, 3), (1, 1, 1, 1, 2), (5, 1), (6,)])
def test_tasks_may_have_any_sizes(dataset, sizes):
    tasks = class_incremental(dataset, ORDER, sizes[0], sizes[1:])
    assert tasks.sizes == sizes
    left = list(ORDER)
    for task, size in zip(tasks, sizes, strict=True):
        new, left = left[:size], left[size:]
        assert set(true_classes(task.train_images)) == set(new)
        assert task.class_names == tuple(NAMES[c] for c in new)
    assert not left


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((2, 0, 4), r"sizes are 2,0,4; each task needs at least 1"),
        ((2, -1, 5), r"each task needs at least 1"),
        ((2, 3), r"sizes 2,3 are 5 classes, but the order has 6"),
        ((4, 3), r"sizes 4,3 are 7 classes, but the order has 6"),
    ],
)
def test_lists_of_sizes_that_cannot_be_are_refused(dataset, sizes, message):
    with pytest.raises(ConfigError, match=message):
        class_incremental(dataset, ORDER, sizes[0], sizes[1:])


def deliveries(dataset, sizes, visits, validation, limit):
    """For each task the numbers of the images that it must bring, found image by image."""
    task_of = [task for task, size in enumerate(sizes) for _ in range(size)]
    wanted = [[] for _ in sizes]
    for label, task in zip(ORDER, task_of, strict=True):
        own = numbers(dataset.train_images[dataset.train_targets == label])[:limit]
        own = own[: len(own) - round(validation * len(own))]
        length, longer = divmod(len(own), visits)  # the first parts are one longer if it does not divide
        for visit in range(visits):
            count = length + (visit < longer)
            part, own = own[:count], own[count:]
            wanted[min(task + visit, len(sizes) - 1)] += part
    return wanted


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 1, 1, 1), (1, 4, 1), (6,), (1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("visits", [1, 2, 3, 7])
@pytest.mark.parametrize(("validation", "limit"), [(0.0, None), (0.3, None), (0.0, 8)])
def test_every_image_is_brought_once_by_the_task_of_its_part(dataset, sizes, visits, validation, limit):
    whole = class_incremental(dataset, ORDER, sizes[0], sizes[1:], validation, images_per_class=limit)
    tasks = whole.visited(visits)
    found = []
    for task, wanted, once in zip(tasks, deliveries(dataset, sizes, visits, validation, limit), whole, strict=True):
        assert sorted(numbers(task.train_images)) == sorted(wanted)
        assert task.train_targets.tolist() == [ORDER.index(c) for c in true_classes(task.train_images)]
        brought = sorted(set(task.train_targets.tolist()))
        assert brought == list(task.taught) == [*task.refreshed, *range(task.old, task.seen)]
        assert (task.old, task.new, task.class_names) == (once.old, once.new, once.class_names)
        assert torch.equal(task.test_images, once.test_images)  # testing is as without visits
        found += numbers(task.train_images)
    assert len(set(found)) == len(found) == sum(len(task.train_images) for task in whole)
    firsts = [int((task.train_targets == label).sum()) for task in tasks for label in range(task.old, task.seen)]
    assert tasks.images_at_first() == firsts


def test_joint_training_has_all_images_whatever_the_visits(dataset):
    whole = class_incremental(dataset, ORDER, 2, 2, cumulative=True)
    for once, task in zip(whole, whole.visited(3), strict=True):
        assert torch.equal(once.train_images, task.train_images)
        assert task.refreshed == ()


def test_a_class_cannot_be_visited_more_often_than_it_has_images(dataset):
    tasks = class_incremental(dataset, ORDER, 2, 2)
    assert tasks.visited(TRAIN).visits == TRAIN
    with pytest.raises(ConfigError, match="visits is 11, but class 'eel' has only 10 training images"):
        tasks.visited(TRAIN + 1)
    with pytest.raises(ConfigError, match="visits is 0"):
        tasks.visited(0)


@pytest.mark.parametrize("increment", [1, 4])
def test_a_base_of_all_classes_is_one_task_whatever_the_increment(dataset, increment):
    assert class_incremental(dataset, ORDER, 6, increment).sizes == (6,)


@pytest.mark.parametrize("validation", [-0.1, 1.0, 0.01, 0.99])
def test_a_validation_share_that_leaves_a_part_empty_is_refused(dataset, validation):
    with pytest.raises(ConfigError, match=f"validation.* {validation}"):
        class_incremental(dataset, ORDER, 2, 2, validation=validation)


# ---- orders -------------------------------------------------------------------------------------------------------


def test_the_papers_orders_are_the_shipped_permutations(cifar_like):
    file = Path(podnet.__path__[0]) / "scenario" / "class_orders.json"
    shipped = json.loads(file.read_text())["cifar100"]
    orders = [class_order(f"paper:{i}", cifar_like, seed=0) for i in range(3)]
    assert orders == shipped
    assert orders[0][:4] == [87, 0, 52, 58]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize("spec", ["paper:3", "paper:", "paper", "paper:-1", "paper:one", "paper:" + "9" * 5000])
def test_orders_that_the_paper_does_not_have_are_refused_with_those_that_it_has(cifar_like, spec):
    with pytest.raises(ConfigError, match=r"paper:0, paper:1, paper:2"):
        class_order(spec, cifar_like, seed=0)


def test_a_number_too_long_for_python_is_no_class(dataset):
    with pytest.raises(ConfigError, match="999', which is not a class of zoo"):
        class_order("9" * 5000, dataset, seed=0)


def test_a_dataset_that_the_paper_does_not_have_is_told_so(dataset):
    with pytest.raises(ConfigError, match=r"no class order for zoo.*natural, random"):
        class_order("paper:0", dataset, seed=0)


def test_the_natural_order_counts(dataset):
    assert class_order("natural", dataset, seed=5) == [0, 1, 2, 3, 4, 5]


def test_a_random_order_is_a_permutation_that_the_seed_alone_decides(cifar_like):
    first = class_order("random", cifar_like, seed=1)
    torch.manual_seed(99)
    assert class_order("random", cifar_like, seed=1) == first
    assert class_order("random", cifar_like, seed=2) != first
    assert sorted(first) == list(range(100))
    assert first != list(range(100))


@pytest.mark.parametrize("spec", ["3,1,0", "dog,bee,ant", " dog , 1,ant ", "3,1,0,"])
def test_an_explicit_order_names_classes_by_number_or_by_name(dataset, spec):
    assert class_order(spec, dataset, seed=0, classes=3) == [3, 1, 0]


@pytest.mark.parametrize("text", ["3,1,0", "dog\nbee\nant\n", "3, bee,\nant"], ids=repr)
def test_an_order_may_be_a_file_of_commas_or_lines(dataset, tmp_path, text):
    file = tmp_path / "order.txt"
    file.write_text(text)
    assert class_order(str(file), dataset, seed=0, classes=3) == [3, 1, 0]


def test_names_with_spaces_are_classes_too(dataset, tmp_path):
    spaced = replace(dataset, class_names=("red ant", *NAMES[1:]))
    assert class_order("dog,red ant", spaced, seed=0, classes=2) == [3, 0]
    file = tmp_path / "order.txt"
    file.write_text("dog\nred ant\n")
    assert class_order(str(file), spaced, seed=0, classes=2) == [3, 0]


def test_a_hundred_classes_may_be_listed(cifar_like):
    order = list(range(99, -1, -1))
    assert class_order(",".join(map(str, order)), cifar_like, seed=0) == order


@pytest.mark.parametrize("kind", ["natural", "random", "5,4,3,2,1,0"])
@pytest.mark.parametrize("classes", [1, 4, 6])
def test_classes_cuts_the_order_after_it_is_made(dataset, kind, classes):
    assert class_order(kind, dataset, 0, classes) == class_order(kind, dataset, 0)[:classes]
    assert len(class_order(kind, dataset, 0, classes)) == classes


@pytest.mark.parametrize("classes", [0, -1, 7])
def test_a_cut_outside_the_order_is_refused(dataset, classes):
    with pytest.raises(ConfigError, match=f"classes is {classes}; it must be from 1 to 6"):
        class_order("natural", dataset, 0, classes)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ant,gnu", r"'gnu'.*not a class of zoo"),
        ("0,6", r"'6'.*0 to 5"),
        ("-1,2", r"'-1'"),
        ("1.5", r"'1.5'"),
        ("2,ant,cat", r"'cat' twice"),
        ("1,1", r"'bee' twice"),
        ("3,1,2", r"3 of the 6 classes of zoo; list all of them, or use --classes 3"),
        ("4", r"1 of the 6 classes"),
        (",", r"has no classes"),
        ("", r"has no classes"),
    ],
)
def test_unknown_repeated_and_missing_classes_are_refused(dataset, spec, message):
    with pytest.raises(ConfigError, match=message):
        class_order(spec, dataset, seed=0)


def test_a_file_that_is_no_text_is_refused_in_a_sentence(dataset, tmp_path):
    file = tmp_path / "order.npy"
    file.write_bytes(b"\x93NUMPY\xff\xfe")
    with pytest.raises(ConfigError, match=r"order"):
        class_order(str(file), dataset, seed=0)


# ---- the embedded digits ------------------------------------------------------------------------------------------


def test_digits_hold_every_image_of_scikit_learn_once():
    from sklearn.datasets import load_digits as original

    data = load_digits()
    assert data.shape == (1, 8, 8)
    together = torch.cat([data.train_images, data.test_images]).flatten(1).tolist()
    source = np.round(original().images * 255 / 16).astype(int).reshape(-1, 64).tolist()
    assert sorted(together) == sorted(source)
    for digit in range(10):
        train, test = int((data.train_targets == digit).sum()), int((data.test_targets == digit).sum())
        assert 139 <= train <= 147
        assert 34 <= test <= 37
        assert train + test == int((original().target == digit).sum())


def test_a_file_called_random_is_not_an_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("random", "natural", "paper:0"):
        (tmp_path / name).write_text("3,1,2")
        assert spell_out(name) == name
    (tmp_path / "mine").write_text("3,1,2")
    assert spell_out("mine") == "3,1,2"
    assert spell_out("no\0name") == "no\0name"
