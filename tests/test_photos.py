"""Photos made here with known pixels, decoded by us and, one by one, by plain Pillow."""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from podnet.data.augment import Transform
from podnet.data.decode import _jpeg_pixels
from podnet.data.photos import Photos
from podnet.data.sources import FileNames, Pack, Shelf
from podnet.errors import DamagedFileError, DataError

REAL = Path(os.environ.get("PODNET_IMAGENET", Path(__file__).resolve().parents[2] / "shared/data/imagenet-sample20"))
ORIENTATION = 0x0112
RED, GREEN, BLUE, YELLOW = (200, 30, 30), (30, 180, 40), (40, 50, 210), (220, 210, 40)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def corners(width: int = 120, height: int = 80) -> Image.Image:
    """Red, green / blue, yellow: tells when it is turned or mirrored."""
    image = Image.new("RGB", (width, height), RED)
    image.paste(GREEN, (width // 2, 0, width, height // 2))
    image.paste(BLUE, (0, height // 2, width // 2, height))
    image.paste(YELLOW, (width // 2, height // 2, width, height))
    return image


def ramp(width: int, height: int) -> Image.Image:
    """Red tells the column and green the row, from 0 to 255: a crop of it tells where it was cut."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = (np.arange(width) + 0.5) / width * 255
    pixels[..., 1] = ((np.arange(height) + 0.5) / height * 255)[:, None]
    return Image.fromarray(pixels)


def landscape(width: int, height: int, seed: int = 0) -> Image.Image:
    """Something like a photo: coarse and fine structure in all colours."""
    draws = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3))
    for cells, weight in ((3, 120), (12, 80), (50, 40)):
        noise = Image.fromarray(draws.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        pixels += np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC)) * (weight / 240)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def only(photos: Photos, draws: torch.Generator | None = None) -> Tensor:
    """All photos in one batch."""
    [(indices, images)] = photos.batches([torch.arange(len(photos))], draws)
    assert indices.tolist() == list(range(len(photos)))
    assert images.dtype == torch.uint8
    assert images.shape == (len(photos), 3, photos.size, photos.size)
    return images


def seen(content: bytes, size: int = 32) -> np.ndarray:
    """What the network sees of one photo at test time, (size, size, 3)."""
    return only(Photos((content,), size))[0].permute(1, 2, 0).numpy()


def plain(content: bytes | Path, size: int) -> np.ndarray:
    """The same the plain way: convert, scale all of it, cut."""
    with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as file:
        image = ImageOps.exif_transpose(file).convert("RGB")
    shorter = round(size * 256 / 224)
    width, height = (int(shorter * side / min(image.size)) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image.crop((left, top, left + size, top + size)))


def difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.abs(one.astype(int) - other.astype(int))


def close(pixel: np.ndarray, colour: tuple[int, ...], tolerance: int = 12) -> bool:
    return bool((difference(pixel, np.array(colour)) <= tolerance).all())


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# The centre


@pytest.mark.parametrize("shape", [(256, 256), (500, 375), (333, 500), (60, 45), (41, 900), (1, 1), (2000, 3)])
@pytest.mark.parametrize("size", [224, 64, 7])
def test_centre_is_that_of_plain_pillow(shape: tuple[int, int], size: int) -> None:
    content = encoded(landscape(*shape))
    bound = 1 if min(shape) < 6 * size else 3  # where pixels are averaged first
    assert difference(seen(content, size), plain(content, size)).max() <= bound


@pytest.mark.parametrize("size", [224, 112, 64, 32])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 2}], ids=["", "progressive", "4:2:0"])
def test_jpeg_decoded_small_is_that_of_plain_pillow(size: int, options: dict[str, Any]) -> None:
    content = encoded(landscape(1203, 897), "JPEG", quality=92, **options)
    off = difference(seen(content, size), plain(content, size))
    assert off.mean() < 1.5
    assert off.max() <= 16


def test_jpeg_is_decoded_small_only_where_pixels_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[int, int]] = []
    resize = Image.Image.resize

    def spy(image: Image.Image, *args: Any, **kwargs: Any) -> Image.Image:
        loaded.append(image.size)
        return resize(image, *args, **kwargs)

    contents = [encoded(Image.new("RGB", (side, side)), "JPEG") for side in (511, 512, 1024, 2048, 4096)]
    monkeypatch.setattr(Image.Image, "resize", spy)
    only(Photos(contents, 224))  # of which the centre takes 7/8: 447, 448, 896 ... pixels
    assert loaded == [(511, 511), (256, 256), (256, 256), (256, 256), (512, 512)]


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_jpeg_pixels_are_those_of_pillow_to_the_bit(mode: str, factor: int) -> None:
    for options in ({}, {"progressive": True}, {"subsampling": 0}, {"quality": 35}):
        content = io.BytesIO(encoded(landscape(203, 151).convert(mode), "JPEG", **options))
        with Image.open(content) as quick, Image.open(io.BytesIO(content.getvalue())) as pillow:
            for image in (quick, pillow):
                image.draft(None, (203 // factor, 151 // factor))
            pixels = _jpeg_pixels(quick, content)
            assert (pixels is None) == (mode == "CMYK")
            assert pixels is None or np.array_equal(np.asarray(pixels), np.asarray(pillow))


# Random crops


def cuts(image: Image.Image, count: int, size: int = 64) -> np.ndarray:
    """Where `count` random crops of a ramp were cut: left, top, right, bottom as shares of its sides."""
    images = only(Photos((encoded(image),) * count, size), generator(1)).double() / 255
    across, down = images[:, 0].mean(1), images[:, 1].mean(2)  # (count, size), rising

    def ends(rise: Tensor) -> tuple[Tensor, Tensor]:
        inner = rise[:, size // 4 : -size // 4]  # away from the borders
        step = (inner[:, -1] - inner[:, 0]) / (inner.shape[1] - 1)
        middle = rise[:, size // 4 : -size // 4].mean(1)
        return middle - step * size / 2, middle + step * size / 2

    (left, right), (top, bottom) = ends(across), ends(down)
    return torch.stack([left, top, right, bottom], 1).numpy()


def test_random_crops_have_the_area_aspect_and_place_they_should() -> None:
    left, top, right, bottom = cuts(ramp(256, 256), 600).T
    area = (right - left) * (bottom - top)
    aspect = np.log((right - left) / (bottom - top))
    assert min(left.min(), top.min()) > -0.02
    assert max(right.max(), bottom.max()) < 1.02
    assert 0.07 < area.min() < 0.12
    assert 0.9 < area.max() < 1.03
    assert area.mean() == pytest.approx(0.51, abs=0.04)  # a little below 0.54: large crops of odd aspect do not fit
    assert -np.log(4 / 3) - 0.06 < aspect.min() < -0.25
    assert 0.25 < aspect.max() < np.log(4 / 3) + 0.06
    assert aspect.mean() == pytest.approx(0, abs=0.03)
    small = area < 0.3
    room = left[small] / (1 - right + left)[small]  # uniform from 0 to 1
    assert room.mean() == pytest.approx(0.5, abs=0.08)
    assert room.std() == pytest.approx(12**-0.5, abs=0.05)
    assert abs(np.corrcoef(left[small], top[small])[0, 1]) < 0.2


def test_a_crop_that_never_fits_is_the_centre() -> None:
    wide = cuts(ramp(2400, 24), 3)  # even 8 % of its area is wider than high
    assert wide == pytest.approx(np.array([[0.5 - 16 / 2400, 0, 0.5 + 16 / 2400, 1]] * 3), abs=0.03)
    high = cuts(ramp(24, 2400), 3)
    assert high == pytest.approx(np.array([[0, 0.5 - 16 / 2400, 1, 0.5 + 16 / 2400]] * 3), abs=0.03)


def test_crops_depend_on_the_draws_alone() -> None:
    photos = Photos(tuple(encoded(ramp(100 + i, 90)) for i in range(12)), 32)
    parts = torch.arange(12).split(5)
    crops = [images for _, images in photos.batches(parts, generator(3))]

    draws, again = generator(3), []
    for _, images in photos.batches(parts, draws):
        torch.rand(7, generator=draws)  # as the augmentation of the batch does
        again.append(images)
    assert torch.equal(torch.cat(crops), torch.cat(again))
    assert not torch.equal(torch.cat(crops), only(photos, generator(4)))
    assert len({tuple(image.flatten().tolist()) for image in only(photos[torch.zeros(8).long()], generator(3))}) == 8


def test_crop_of_a_small_jpeg_is_a_crop() -> None:
    content = encoded(ramp(1200, 900), "JPEG", quality=95)
    reduced, whole = (
        only(Photos((content,) * 8, 32), generator(5)),
        only(Photos((encoded(ramp(1200, 900)),) * 8, 32), generator(5)),
    )
    assert difference(reduced.numpy(), whole.numpy()).max() <= 6


# Processes


@pytest.fixture
def files(tmp_path: Path) -> Photos:
    names = []
    for i in range(11):
        name = f"{i}.{'jpg' if i % 2 else 'png'}"
        landscape(90 + 10 * i, 200, seed=i).save(tmp_path / name)
        names.append(name.encode())
    return Photos(FileNames.pack(tmp_path, names), size=48)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("random", [True, False])
def test_processes_change_nothing(files: Photos, workers: int, random: bool) -> None:
    several = Photos(files.sources, files.size, workers)
    parts = [torch.tensor(part) for part in ([3, 1], [10, 0, 4], [5], [2, 9, 8, 7])]

    def run(photos: Photos) -> list[tuple[list[int], Tensor]]:
        draws = generator(1) if random else None
        return [(part.tolist(), images) for part, images in photos.batches(parts, draws)]

    before = torch.random.get_rng_state()
    for (part, images), (own, expected) in zip(run(several), run(files), strict=True):
        assert part == own
        assert torch.equal(images, expected)
    assert torch.equal(torch.random.get_rng_state(), before)


class Watched:
    """Sources that tell how far they were asked for."""

    def __init__(self, content: bytes, count: int) -> None:
        self.content, self.count, self.asked = content, count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int, /) -> bytes:
        self.asked = max(self.asked, index + 1)
        return self.content


def test_processes_do_not_run_far_ahead_and_end() -> None:
    sources = Watched(encoded(corners()), 400)
    batches = Photos(sources, 16, workers=2).batches(torch.arange(400).split(10))
    next(batches)
    assert sources.asked <= 50  # the batch in hand, and two for each process
    assert len(multiprocessing.active_children()) == 2
    del batches
    gc.collect()
    assert not multiprocessing.active_children()


class Deadly(bytes):
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(DataError, match=r"decoding process failed .*; use fewer workers"):
        only(Photos((Deadly(),), 16, workers=1))


def test_no_batches() -> None:
    assert list(Photos((), 16, workers=1).batches([])) == []
    assert list(Photos((encoded(corners()),), 16).batches([], generator(1))) == []


# Kinds of photos


def check_corners(image: np.ndarray, tolerance: int = 12) -> None:
    last = len(image) - 3
    assert close(image[2, 2], RED, tolerance)
    assert close(image[2, last], GREEN, tolerance)
    assert close(image[last, 2], BLUE, tolerance)
    assert close(image[last, last], YELLOW, tolerance)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "MPO"])
def test_colours(kind: str) -> None:
    check_corners(seen(encoded(corners(), kind)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("shape", [(120, 80), (1000, 600)])
def test_photos_taken_with_a_turned_camera_are_upright(kind: str, orientation: int, shape: tuple[int, int]) -> None:
    undo = {6: 8, 8: 6}.get(orientation, orientation)  # the turn that the turn of `orientation` takes back
    exif = Image.Exif()
    exif[ORIENTATION] = undo
    turned = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded(corners(*shape), exif=exif))))
    exif[ORIENTATION] = orientation
    content = encoded(turned, kind, exif=exif, **({"quality": 95} if kind == "JPEG" else {}))
    check_corners(seen(content))
    assert difference(seen(content), plain(content, 32)).max() <= (24 if kind == "JPEG" else 3)


def test_a_random_crop_of_a_turned_photo_is_upright() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    content = encoded(ramp(300, 200).transpose(Image.Transpose.ROTATE_90), exif=exif)
    upright = encoded(ramp(300, 200))
    assert torch.equal(only(Photos((content,), 32), generator(2)), only(Photos((upright,), 32), generator(2)))


def test_damaged_exif_does_not_matter() -> None:
    content = encoded(corners(), "JPEG", exif=b"Exif\x00\x00II*\x00\x08\x00\x00\x00\xff\xff\x12\x01")
    check_corners(seen(content))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_greyscale(kind: str) -> None:
    image = seen(encoded(corners().convert("L"), kind))
    assert close(image[2, 2], (81, 81, 81), 4)  # 0.299 x 200 + 0.587 x 30 + 0.114 x 30
    assert close(image[29, 2], (65, 65, 65), 4)
    assert (image.std(axis=2) == 0).all()


def test_black_and_white() -> None:
    image = Image.new("1", (40, 40))
    image.paste(1, (20, 0, 40, 40))
    assert seen(encoded(image))[5, [2, 29]].tolist() == [[0, 0, 0], [255, 255, 255]]


def test_sixteen_bits_are_scaled() -> None:
    for value, expected in ((0, 0), (256, 1), (32768, 128), (65535, 255)):
        content = encoded(Image.fromarray(np.full((40, 40), value, np.uint16)))
        assert content[24] == 16  # bits of a sample, by the PNG specification
        assert (seen(content) == expected).all()


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (np.int32, (0, 128, 255), (0, 128, 255)),
        (np.int32, (0, 32768, 65535), (0, 128, 255)),
        (np.int32, (-5, 500_000, 1_000_000), (0, 128, 255)),
        (np.float32, (0, 0.5, 1), (0, 128, 255)),
        (np.float32, (np.nan, 100, 200), (0, 100, 200)),
    ],
)
def test_thirty_two_bits_are_scaled(dtype: type[np.generic], values: Sequence[float], expected: Sequence[int]) -> None:
    image = Image.fromarray(np.repeat(np.array([values], dtype), 60, axis=0).repeat(20, axis=1))
    assert seen(encoded(image, "TIFF"))[16, [2, 16, 29], 0].tolist() == list(expected)


def test_cmyk() -> None:
    content = encoded(corners().convert("CMYK"), "JPEG", quality=95)
    assert b"Adobe" in content  # who wrote ink upside down, and all others with them
    check_corners(seen(content))
    check_corners(seen(encoded(corners(1200, 900).convert("CMYK"), "JPEG", quality=95)))


def test_what_is_transparent_shows_white() -> None:
    image = corners().convert("RGBA")
    image.paste((255, 0, 255, 0), (60, 0, 120, 40))  # green corner: an invisible magenta
    image.paste((0, 0, 0, 128), (0, 40, 60, 80))  # blue corner: half-transparent black
    shown = seen(encoded(image))
    assert close(shown[2, 2], RED, 1)
    assert close(shown[2, 29], (255, 255, 255), 1)
    assert close(shown[29, 2], (127, 127, 127), 1)


def test_greyscale_with_alpha() -> None:
    image = Image.new("LA", (40, 40), (90, 255))
    image.paste((90, 0), (20, 0, 40, 40))
    assert seen(encoded(image))[5, [2, 29]].tolist() == [[90] * 3, [255] * 3]


@pytest.mark.parametrize("transparency", [None, 1, bytes([255, 0, 255, 128])])
def test_palette(transparency: int | bytes | None) -> None:
    image = Image.new("P", (80, 80))
    image.putpalette([*RED, *GREEN, *BLUE, 10, 10, 10])
    for index, place in enumerate([(0, 0), (40, 0), (0, 40), (40, 40)]):
        image.paste(index, (*place, place[0] + 40, place[1] + 40))
    shown = seen(encoded(image, **({} if transparency is None else {"transparency": transparency})))
    assert close(shown[2, 2], RED, 1)
    assert close(shown[2, 29], GREEN if transparency is None else (255, 255, 255), 1)
    assert close(shown[29, 2], BLUE, 1)
    assert close(shown[29, 29], (132, 132, 132) if isinstance(transparency, bytes) else (10, 10, 10), 1)


# What cannot be read


def png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )


WHOLE = encoded(landscape(300, 200), "JPEG")
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not a JPEG, PNG, WebP, GIF, BMP or TIFF image"),
    "text": (b"<html>404 not found</html>", "not a JPEG, PNG, WebP, GIF, BMP or TIFF image"),
    "header": (WHOLE[:100], ""),
    "truncated": (WHOLE[: len(WHOLE) // 2], "truncated"),
    "png": (encoded(landscape(300, 200))[:30_000], "truncated"),
    "large": (png_claiming(10_000, 10_000), "10000 x 10000 pixels, more than the 89,000,000 allowed"),
    "bomb": (png_claiming(60_000, 60_000), "far more pixels than the 89,000,000 allowed"),
    "ppm": (encoded(corners(), "PPM"), "not a JPEG, PNG, WebP, GIF, BMP or TIFF image"),
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_file_is_an_error(tmp_path: Path, name: str, workers: int) -> None:
    content, why = DAMAGED[name]
    (tmp_path / "bad.JPEG").write_bytes(content)
    (tmp_path / "good.JPEG").write_bytes(WHOLE)
    photos = Photos((tmp_path / "good.JPEG", tmp_path / "bad.JPEG"), 32, workers)
    with pytest.raises(DataError) as caught:
        only(photos)
    sentence = str(caught.value)
    assert sentence.startswith(f"{tmp_path / 'bad.JPEG'} cannot be read (")
    assert why in sentence
    assert sentence.endswith("; fix or remove it.")


def test_an_error_tells_how_to_skip_photos_where_that_can_be_done(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"bad")
    hint = "skip such files with --unreadable skip"
    for name, words in {"bad.png": "cannot be read", "gone.png": "does not exist"}.items():
        for own, end in {"": f"{'; fix or remove it' * (name == 'bad.png')}.", hint: f" {hint}."}.items():
            with pytest.raises(DataError, match=words) as caught:
                only(Photos((tmp_path / name,), 8, hint=own))
            assert str(caught.value).endswith(end)


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_files_can_be_skipped(tmp_path: Path, workers: int) -> None:
    for name, (content, _) in DAMAGED.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    good = [f"good{i}" for i in range(3)]
    for i, name in enumerate(good):
        (tmp_path / name).write_bytes(encoded(corners(), "JPEG", quality=60 + i))
    bad = [*DAMAGED, "folder", "missing"]
    names = [good[0], *bad[:4], good[1], *bad[4:], good[2]]
    photos = Photos(FileNames.pack(tmp_path, [name.encode() for name in names]), 32, workers, "skip")

    selected = photos[torch.arange(len(names))]
    found = list(selected.batches([torch.tensor([5, 4, 0]), torch.tensor([1, 2]), torch.arange(3, len(names))]))
    assert [part.tolist() for part, _ in found] == [[5, 0], [], [5, len(names) - 1]]  # nothing of the second
    for _, images in found:
        for image in images:
            check_corners(image.permute(1, 2, 0).numpy(), 24)
    told = photos.unreadable_names()  # by a selection, known to all
    assert sorted(told) == sorted(str(tmp_path / name) for name in bad)
    assert told[str(tmp_path / "missing")] == "No such file or directory"
    assert told[str(tmp_path / "folder")] == "not a file"
    assert Photos((), 32).unreadable_names() == {}


def test_a_photo_in_memory_that_cannot_be_read() -> None:
    with pytest.raises(DataError, match=r"exemplar 1 in memory cannot be read"):
        only(Photos((WHOLE, b"nothing")))


def test_any_damage_is_told() -> None:
    """Bytes changed anywhere: an image, or a name on the list; nothing else, and no warning."""
    draws = np.random.default_rng(0)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    told = 0
    for content in (encoded(corners(), "JPEG", exif=exif), encoded(corners().convert("P"), exif=exif)):
        for _ in range(150):
            changed = bytearray(content)
            for at in draws.integers(0, min(len(content), 700), 3):
                changed[at] = draws.integers(256)
            photos = Photos((bytes(changed),), 32, unreadable="skip")
            [(found, _)] = photos.batches([torch.tensor([0])])
            assert len(found) + len(photos.unreadable_names()) == 1
            told += len(photos.unreadable_names())
    assert 20 < told < 280


@pytest.mark.parametrize(
    ("options", "complaint"), [({"size": 0}, "image size is 0"), ({"workers": -1}, "workers is -1")]
)
def test_settings_that_cannot_be(options: dict[str, int], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        Photos((), **options)


# Selections, and photos in memory


def colours(photos: Photos) -> list[list[int]]:
    return [images[0, :, 4, 4].tolist() for _, images in photos.batches(torch.arange(len(photos)).split(1))]


def flat(*colour: int) -> bytes:
    return encoded(Image.new("RGB", (10, 10), colour))


def test_selections() -> None:
    photos = Photos([flat(i, 0, 0) for i in range(6)], 8)
    some = photos[torch.tensor([4, 1, 1, 5])][torch.tensor([3, 0, 1])]
    assert len(some) == 3
    assert colours(some) == [[5, 0, 0], [4, 0, 0], [1, 0, 0]]
    assert len(photos[torch.tensor([], dtype=torch.int64)]) == 0
    assert colours(photos[torch.tensor([False, True] * 3)]) == [[1, 0, 0], [3, 0, 0], [5, 0, 0]]
    with pytest.raises(IndexError):
        photos[torch.tensor([6])]


def test_one_after_the_other(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(flat(0, i, 0))
    files = Photos(FileNames.pack(tmp_path, [b"0.png", b"1.png", b"2.png", b"3.png"]), 8, unreadable="skip")
    kept = Photos([flat(i, 0, 0) for i in range(3)], 8)
    both = files[torch.tensor([3, 1])].followed_by(kept[torch.tensor([2, 0])])
    assert colours(both) == [[0, 3, 0], [0, 1, 0], [2, 0, 0], [0, 0, 0]]
    assert colours(both[torch.tensor([2, 1])].followed_by(files)[torch.tensor([0, 1, 5])]) == [
        [2, 0, 0],
        [0, 1, 0],
        [0, 3, 0],
    ]
    assert both.unreadable == "skip"


def test_exemplars_survive_their_files(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(flat(i, i, 9))
    kept = Photos(FileNames.pack(tmp_path, [b"0.png", b"1.png", b"2.png"]), 8)[torch.tensor([2, 0])].kept()
    for i in range(3):
        (tmp_path / f"{i}.png").unlink()
    assert colours(kept) == [[2, 2, 9], [0, 0, 9]]

    state = kept.state()
    assert state["bytes"].numpy().tobytes() == flat(2, 2, 9) + flat(0, 0, 9)
    assert state["bytes"].dtype == torch.uint8
    assert state["lengths"].tolist() == [len(flat(2, 2, 9)), len(flat(0, 0, 9))]
    restored = Photos.from_state(state)
    assert restored.size == 8
    assert colours(restored) == [[2, 2, 9], [0, 0, 9]]
    assert colours(restored.followed_by(kept[torch.tensor([1])])) == [[2, 2, 9], [0, 0, 9], [0, 0, 9]]


def test_state_of_no_photos() -> None:
    assert len(Photos.from_state(Photos((), 8).state())) == 0


def test_only_kept_photos_have_a_state(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(flat(1, 1, 1))
    with pytest.raises(ValueError, match="kept"):
        Photos((tmp_path / "a.png",)).state()


def test_a_file_that_is_gone_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot keep .*gone\.png"):
        Photos((tmp_path / "gone.png",), unreadable="skip").kept()


def test_exemplars_that_were_dropped_are_freed() -> None:
    dropped, stays = flat(1, 2, 3), flat(4, 5, 6)
    before = sys.getrefcount(dropped)
    memory = Photos((dropped, stays), 8)
    memory = memory[torch.tensor([1])].followed_by(Photos((stays,), 8))
    assert sys.getrefcount(dropped) == before
    assert len(memory) == 2


def test_names_of_all_sorts(tmp_path: Path) -> None:
    names = [b"a b.png", "fünf.png".encode(), b"latin\xe9.png", b"new\nline.png", b"n01/x.png"]
    (tmp_path / "n01").mkdir()
    for i, name in enumerate(names):
        (tmp_path / os.fsdecode(name)).write_bytes(flat(i, 0, 0))
    files = FileNames.pack(tmp_path, names)
    assert [files[i] for i in range(len(files))] == [tmp_path / os.fsdecode(name) for name in names]
    assert colours(Photos(files, 8, workers=1)) == [[i, 0, 0] for i in range(len(names))]


def test_augmentation_without_padding_mirrors_and_normalises() -> None:
    images = only(Photos((encoded(corners(80, 80)),) * 40, 32))
    transform = Transform((0.5, 0.25, 0.125), (0.5, 1.0, 2.0), pad=0)
    expected = (images.double() / 255 - torch.tensor([0.5, 0.25, 0.125]).view(3, 1, 1)) / torch.tensor(
        [0.5, 1.0, 2.0]
    ).view(3, 1, 1)
    assert (transform.normalise(images) - expected).abs().max() < 1e-5
    mirrored = [
        bool((image - own.flip(2)).abs().max() < 1e-5)
        for image, own in zip(transform.augment(images, generator(0)), expected, strict=True)
        if (image - own).abs().max() > 1e-5
    ]
    assert all(mirrored)
    assert 8 < len(mirrored) < 32


# Real ones


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no photos at {REAL}; PODNET_IMAGENET can say where they are")
def test_real_photos_are_those_of_plain_pillow() -> None:
    paths = sorted(path for path in REAL.rglob("*") if path.suffix.lower() in (".jpeg", ".jpg", ".png"))[::17][:200]
    for size, mean, most in ((224, 0.3, 3.0), (64, 1.5, 4.0)):  # at 64 the JPEGs are decoded small
        images = only(Photos(paths, size)).permute(0, 2, 3, 1).numpy()
        off = [difference(image, plain(path, size)).mean() for path, image in zip(paths, images, strict=True)]
        assert np.mean(off) < mean
        assert max(off) < most


def test_a_pack_gives_back_what_was_put_in(tmp_path: Path) -> None:
    contents = [b"first", b"", b"the third", bytes(3_000_000)]
    Pack.write(tmp_path / "folder" / "0.pack", iter(contents))
    pack = Pack.open(tmp_path / "folder" / "0.pack")
    before = len(os.listdir("/dev/fd"))
    assert [pack[i] for i in range(len(pack))] == contents
    assert pack[-1] == contents[-1]
    assert len(os.listdir("/dev/fd")) == before, "a run of many tasks has many packs"
    Pack.write(tmp_path / "empty.pack", [])
    assert len(Pack.open(tmp_path / "empty.pack")) == 0


@pytest.mark.parametrize("damage", ["changed", "short", "nothing", "missing"])
def test_a_damaged_pack_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "0003.pack"
    Pack.write(path, [b"some", b"photos"])
    whole = path.read_bytes()
    broken = {"changed": whole[:5] + b"?" + whole[6:], "short": whole[:-1], "nothing": b""}
    path.unlink() if damage == "missing" else path.write_bytes(broken[damage])
    with pytest.raises(DamagedFileError, match=r"0003\.pack, which contains exemplars, is missing or damaged"):
        Pack.open(path)


def test_photos_go_to_the_shelf_when_memory_is_full(tmp_path: Path) -> None:
    """Two of 100 bytes fit beside 50 into 250; the next do not. Selected and joined, they are saved and restored."""
    shelf = Shelf(tmp_path / "exemplars", 250)
    contents = [bytes([i]) * 100 for i in range(6)]
    written: list[None] = []

    def write(work: Callable[[], None]) -> None:
        written.append(work())

    held = Photos(tuple(contents[:2]), 8).shelved(shelf, "0.pack", 50, write)
    assert not written
    more = Photos(tuple(contents[2:4]), 8).shelved(shelf, "1.pack", held.held(), write)
    last = Photos(tuple(contents[4:]), 8).shelved(shelf, "2.pack", held.held() + more.held(), write)
    assert len(written) == 2
    assert sorted(path.name for path in shelf.folder.iterdir()) == ["1.pack", "2.pack"]
    assert (held.held(), more.held(), last.held()) == (200, 0, 0)
    order = [5, 0, 3, 1, 2]
    joined = held.followed_by(more).followed_by(last)[torch.tensor(order)]
    assert list(joined.contents()) == [contents[i] for i in order]
    assert joined.held() == 200
    state = joined.state()
    assert len(state["bytes"]) == 200  # the others are in their files already
    restored = Photos.from_state(state, shelf=shelf)
    assert list(restored.contents()) == [contents[i] for i in order]
    assert list(restored[torch.tensor([4, 2])].followed_by(held).contents()) == [contents[i] for i in (2, 3, 0, 1)]
    with pytest.raises(ValueError, match="files of a run"):
        Photos.from_state(state)
