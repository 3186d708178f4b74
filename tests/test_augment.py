"""Augmentation found again by search: which window of the padded image, mirrored or not, is this output?"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from podnet.data.augment import Transform, batches
from podnet.data.digits import load_digits

PLAIN = {"mean": (0.0, 0.0), "std": (1 / 255, 1 / 255)}  # the normalisation that changes nothing


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_images(count, channels=2, height=4, width=5, low=1):
    """Pixels of at least `low`: with 1, no pixel can be taken for padding."""
    return torch.randint(low, 256, (count, channels, height, width), generator=seeded(7), dtype=torch.uint8)


def windows(image, pad):
    """Every crop of the zero-padded image, mirrored or not: (top, left, flipped) -> pixels."""
    channels, height, width = image.shape
    canvas = np.zeros((channels, height + 2 * pad, width + 2 * pad), dtype=np.int64)
    canvas[:, pad : pad + height, pad : pad + width] = image.numpy()
    found = {}
    for top in range(2 * pad + 1):
        for left in range(2 * pad + 1):
            crop = canvas[:, top : top + height, left : left + width]
            found[top, left, False] = crop
            found[top, left, True] = crop[:, :, ::-1]
    return found


def draws(images, transform, seed=0):
    """For each image the one window that its augmented version is."""
    augmented = transform.augment(images, seeded(seed)).numpy()
    assert augmented.shape == images.shape
    result = []
    for image, output in zip(images, augmented, strict=True):
        pixels = np.round(output)
        assert np.abs(output - pixels).max() < 1e-3
        hits = [key for key, crop in windows(image, transform.pad).items() if (crop == pixels).all()]
        assert len(hits) == 1
        result.append(hits[0])
    return result


@pytest.mark.parametrize("pad", [0, 1, 3])
def test_every_output_is_a_window_of_its_own_zero_padded_image(pad):
    found = draws(random_images(60), Transform(**PLAIN, pad=pad))
    assert {flipped for _, _, flipped in found} == {False, True}
    assert max(top for top, _, _ in found) == 2 * pad
    assert max(left for _, left, _ in found) == 2 * pad
    assert min(min(top, left) for top, left, _ in found) == 0


def test_each_image_of_a_batch_has_a_draw_of_its_own_and_all_windows_come_equally_often():
    images = random_images(1).expand(900, -1, -1, -1)
    counts = Counter(draws(images, Transform(**PLAIN, pad=1)))
    assert len(counts) == 18  # 3 rows, 3 columns, mirrored or not
    assert min(counts.values()) > 20  # 50 each, give or take four standard deviations
    assert max(counts.values()) < 80


def test_about_half_of_the_images_are_mirrored_and_none_if_told_so():
    images = random_images(2000, channels=1)
    plain = {"mean": (0.0,), "std": (1 / 255,)}
    flipped = [flip for _, _, flip in draws(images, Transform(**plain, pad=0))]
    assert 0.45 < np.mean(flipped) < 0.55
    assert not any(flip for _, _, flip in draws(images, Transform(**plain, pad=0, flip=False)))


def test_augmentation_leaves_its_input_alone():
    images = random_images(8)
    copy = images.clone()
    Transform(**PLAIN, intensity="shift").augment(images, seeded())
    assert torch.equal(images, copy)


@pytest.mark.parametrize("intensity", ["none", "shift", "scale"])
def test_draws_come_from_the_generator_alone(intensity):
    images, transform = random_images(8), Transform(**PLAIN, intensity=intensity)
    first = transform.augment(images, seeded(1))
    torch.manual_seed(123)
    state = torch.random.get_rng_state()
    assert torch.equal(transform.augment(images, seeded(1)), first)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(transform.augment(images, seeded(2)), first)
    shared = seeded(1)
    assert torch.equal(transform.augment(images, shared), first)
    assert not torch.equal(transform.augment(images, shared), first)  # the next batch has other draws


# ---- intensity ----------------------------------------------------------------------------------------------------


def changed(level, intensity, count=3000):
    """The new level of each of `count` images that are `level` all over; one for a whole image."""
    images = torch.full((count, 2, 2, 3), level, dtype=torch.uint8)
    outputs = Transform(**PLAIN, pad=0, flip=False, intensity=intensity).augment(images, seeded(3))
    assert (outputs - outputs[:, :1, :1, :1]).abs().max() < 1e-3
    return outputs[:, 0, 0, 0].double().numpy()


def test_shift_adds_one_whole_number_from_minus_63_to_63_to_an_image():
    shifts = changed(128, "shift") - 128
    assert np.abs(shifts - np.round(shifts)).max() < 1e-3
    assert (np.round(shifts).min(), np.round(shifts).max()) == (-63, 63)
    assert len(np.unique(np.round(shifts))) == 127
    assert abs(shifts.mean()) < 3  # four standard deviations are 2.7
    assert abs((np.abs(shifts) < 31.5).mean() - 0.5) < 0.05  # evenly spread


def test_scale_multiplies_an_image_by_one_factor_within_63_255ths_of_one():
    factors = changed(200, "scale") / 200
    reach = 63 / 255
    assert 1 - reach - 1e-6 <= factors.min() < 1 - 0.98 * reach
    assert 1 + 0.98 * reach < factors.max() <= 1 + reach + 1e-6
    assert abs(factors.mean() - 1) < 0.012
    assert len(np.unique(factors)) > 2500


@pytest.mark.parametrize(
    ("level", "intensity", "lowest", "highest"),
    [(10, "shift", 0, 73), (250, "shift", 187, 255), (250, "scale", 250 * (1 - 63 / 255), 255), (0, "scale", 0, 0)],
)
def test_changed_pixels_are_clamped_to_0_and_255(level, intensity, lowest, highest):
    levels = changed(level, intensity)
    assert levels.min() == pytest.approx(lowest, abs=0.3)
    assert levels.max() == pytest.approx(highest, abs=0.3)


# ---- normalisation ------------------------------------------------------------------------------------------------


def test_normalise_equals_a_loop_over_pixels():
    mean, std = (0.5, 0.2, 0.7), (0.1, 0.3, 0.25)
    images = random_images(2, channels=3, low=0)
    output = Transform(mean, std).normalise(images)
    assert output.dtype == torch.float32
    assert output.is_contiguous(memory_format=torch.channels_last)
    for b, c, h, w in np.ndindex(*images.shape):
        wanted = (int(images[b, c, h, w]) / 255 - mean[c]) / std[c]
        assert output[b, c, h, w].item() == pytest.approx(wanted, abs=1e-5)


def test_augmented_images_are_normalised_too():
    images = torch.full((4, 1, 2, 2), 255, dtype=torch.uint8)
    output = Transform((0.5,), (0.25,), pad=0).augment(images, seeded())
    torch.testing.assert_close(output, torch.full((4, 1, 2, 2), 2.0))


def test_normalised_digits_have_mean_zero_and_deviation_one():
    data = load_digits()
    pixels = data.transform.normalise(data.train_images)
    assert pixels.mean().item() == pytest.approx(0, abs=2e-3)
    assert pixels.std().item() == pytest.approx(1, abs=2e-3)


# ---- batches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [(10, 4, [4, 4, 2]), (9, 4, [4, 5]), (8, 4, [4, 4]), (3, 4, [3]), (1, 4, [1]), (5, 4, [5]), (128, 128, [128])],
)
def test_batches_hold_every_index_once_and_a_lone_last_image_joins_the_batch_before(count, size, sizes):
    parts = batches(count, size, seeded())
    assert [len(part) for part in parts] == sizes
    assert sorted(torch.cat(parts).tolist()) == list(range(count))


def test_the_order_of_batches_is_random_and_comes_from_the_generator_alone():
    first = torch.cat(batches(50, 8, seeded(1)))
    torch.manual_seed(5)
    assert torch.equal(torch.cat(batches(50, 8, seeded(1))), first)
    assert not torch.equal(torch.cat(batches(50, 8, seeded(2))), first)
    assert not torch.equal(first, torch.arange(50))
