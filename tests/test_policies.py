"""TrivialAugment's operations against Pillow's, pixel for pixel, and how they are drawn."""

from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from podnet.data import policies
from podnet.data.augment import Transform
from podnet.data.policies import OPERATIONS, transformed

SHAPES = [(3, 32, 32), (1, 32, 32), (3, 17, 24), (1, 8, 8), (3, 2, 5)]


def pictures(channels, height, width):
    """Noise, a dull one, one colour, few levels, a ramp, a dark channel, black and white."""
    draws = torch.Generator().manual_seed(height)
    noise = torch.randint(0, 256, (7, channels, height, width), generator=draws, dtype=torch.uint8)
    noise[1] = noise[1] // 3 + 50
    noise[2] = 77
    noise[3] = noise[3] // 64 * 64
    noise[4] = (torch.arange(height * width).view(1, height, width) * 255 // (height * width)).to(torch.uint8)
    noise[5, 0] = 0
    noise[6] = (noise[6] > 127).to(torch.uint8) * 255
    return noise


def as_pillow(image):
    pixels = image.numpy()
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def as_tensor(picture):
    pixels = np.array(picture)
    return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def by_pillow(name, picture, strength):
    """The operation as the paper's table has it for the wide space; the sign only where it draws one."""
    strong, sign = abs(strength), -1 if strength < 0 else 1
    width, height = picture.size
    enhanced = 0.01 + strong * 1.99 / 30
    shear = sign * strong * 0.99 / 30
    x, y = (sign * int(strong * min(32, side) / 30) for side in (width, height))

    def moved(*matrix):
        return picture.transform(picture.size, Image.Transform.AFFINE, matrix)

    return {
        "identity": lambda: picture,
        "auto_contrast": lambda: ImageOps.autocontrast(picture),
        "equalize": lambda: ImageOps.equalize(picture),
        "rotate": lambda: picture.rotate(sign * int(strong * 135 / 30)),
        "solarize": lambda: ImageOps.solarize(picture, 256 - int(strong * 256 / 30)),
        "color": lambda: ImageEnhance.Color(picture).enhance(enhanced),
        "posterize": lambda: ImageOps.posterize(picture, 8 - int(strong * 6 / 30)),
        "contrast": lambda: ImageEnhance.Contrast(picture).enhance(enhanced),
        "brightness": lambda: ImageEnhance.Brightness(picture).enhance(enhanced),
        "sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(enhanced),
        "shear_x": lambda: moved(1, shear, 0, 0, 1, 0),
        "shear_y": lambda: moved(1, 0, 0, shear, 1, 0),
        "translate_x": lambda: moved(1, 0, x, 0, 1, 0),
        "translate_y": lambda: moved(1, 0, 0, 0, 1, y),
    }[name]()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_every_operation_gives_pillows_pixels_at_every_strength(operation, shape):
    images = pictures(*shape)
    for strength in range(-30, 31):
        ours = operation(images, torch.full((len(images),), strength))
        assert ours.dtype == torch.uint8
        theirs = [as_tensor(by_pillow(operation.__name__, as_pillow(image), strength)) for image in images]
        assert torch.equal(ours, torch.stack(theirs)), strength


def test_a_stretch_between_any_two_levels_is_pillows():
    """Rounding differs if 255 / range is computed as 255 times its reciprocal."""
    for lowest in range(0, 256, 15):
        ramps = [
            torch.arange(256).clamp(lowest, highest).view(1, 16, 16).to(torch.uint8) for highest in range(lowest, 256)
        ]
        ours = policies.auto_contrast(torch.stack(ramps), torch.zeros(len(ramps)))
        assert torch.equal(ours, torch.stack([as_tensor(ImageOps.autocontrast(as_pillow(ramp))) for ramp in ramps]))


def test_each_image_goes_through_its_own_operation_and_the_input_stays():
    images = pictures(3, 32, 32).repeat(8, 1, 1, 1)
    draws = torch.Generator().manual_seed(0)
    operations = torch.randint(0, 14, (56,), generator=draws)
    strengths = torch.randint(-30, 31, (56,), generator=draws)
    before = images.clone()
    ours = transformed(images, operations, strengths)
    assert torch.equal(images, before)
    for row in range(56):
        name = OPERATIONS[int(operations[row])].__name__
        assert torch.equal(ours[row], as_tensor(by_pillow(name, as_pillow(images[row]), int(strengths[row])))), name
    layout = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(transformed(layout, operations, strengths), ours), "photos are stored in another layout"


def test_all_operations_and_strengths_are_drawn_equally_often(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "podnet.data.augment.transformed",
        lambda images, operations, strengths: seen.append((operations, strengths)) or images,
    )
    images = torch.zeros(62_000, 1, 2, 2, dtype=torch.uint8)
    Transform((0.0,), (1.0,), pad=0).augment(images, torch.Generator().manual_seed(1), None, ("trivial",))
    operations, strengths = (each.tolist() for each in seen[0])
    counts = Counter(operations)
    assert sorted(counts) == list(range(14))
    assert all(abs(count - 62_000 / 14) < 5 * (62_000 / 14) ** 0.5 for count in counts.values())
    counts = Counter(strengths)
    assert sorted(counts) == list(range(-30, 31))
    expected = {strength: 1000 if strength else 2000 for strength in counts}
    assert all(abs(counts[s] - expected[s]) < 5 * expected[s] ** 0.5 for s in counts)
    assert abs(np.corrcoef(operations, strengths)[0, 1]) < 0.02
