"""Decode one photo of any supported format to a square of RGB pixels."""

from __future__ import annotations

import io
import math
import random
import stat
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from simplejpeg import decode_jpeg

Box = tuple[float, float, float, float]  # left, top, right, bottom

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # the first frame of an animation
LARGEST_FILE = 200_000_000  # bytes
MOST_PIXELS = 89_000_000  # per photo; a small file can claim any number and fill the memory
LEAST_AREA = 0.08  # of a random crop, as a share of the photo
ASPECT = (3 / 4, 4 / 3)  # of a random crop, width to height
TRIES = 10
KEPT = 2  # shorter side of a small copy per pixel of the network's input; random crops need more than 1
LOSSLESS = 64  # pixels: small copies with a shorter side up to this are lossless
TURNS = {  # how to rotate a photo upright, by its EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)


def open_photo(source: Path | bytes) -> BinaryIO:
    """Open a photo for reading; refuse anything but a regular file of acceptable size."""
    if isinstance(source, bytes):
        return io.BytesIO(source)
    status = source.stat()
    if not stat.S_ISREG(status.st_mode):  # reading a pipe could block for ever
        raise ValueError("not a file")
    if status.st_size > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE // 10**6} MB")
    return source.open("rb")


def decode(source: Path | bytes, size: int, seed: int | None = None, least_area: float = LEAST_AREA) -> np.ndarray:
    """RGB pixels (size, size, 3) of one upright photo: a random crop by `seed`, or the centre without one."""
    with open_photo(source) as file, Image.open(file, formats=FORMATS) as image:
        width, height = _checked_size(image)
        orientation = _orientation(image)
        upright = (height, width) if orientation in SIDEWAYS else (width, height)
        box = centre_box(*upright, size) if seed is None else random_box(*upright, random.Random(seed), least_area)
        scale = _reduce(image, min(box[2] - box[0], box[3] - box[1]) / size)
        pixels = _turned(_jpeg_pixels(image, file) or without_alpha(image), orientation)
        left, top, right, bottom = (edge / scale for edge in box)
        # Greyscale stays so until it is small; a gap of 3 first averages whole pixels if there are far too many.
        square = pixels.resize((size, size), Image.Resampling.BILINEAR, (left, top, right, bottom), reducing_gap=3.0)
        return np.asarray(square.convert("RGB"))


def shrink(source: Path | bytes, size: int) -> bytes:
    """The photo upright, no larger than training at `size` needs, and without the file's metadata."""
    with open_photo(source) as file, Image.open(file, formats=FORMATS) as image:
        shorter = KEPT * size
        _reduce(image, min(_checked_size(image)) / shorter)
        orientation = _orientation(image)
        pixels = _turned(without_alpha(image), orientation)
        factor = shorter / min(pixels.size)
        if factor < 1:
            width, height = (max(1, round(side * factor)) for side in pixels.size)
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0)
        small = io.BytesIO()
        if min(pixels.size) <= LOSSLESS:
            Image.fromarray(np.asarray(pixels)).save(small, "PNG")
        else:
            Image.fromarray(np.asarray(pixels)).save(small, "JPEG", quality=95, subsampling=0)
        return small.getvalue()


def encode(picture: Image.Image) -> bytes:
    """A picture in memory as the content of a file: upright, without metadata, lossless."""
    orientation, file = _orientation(picture), io.BytesIO()
    pixels = _turned(without_alpha(picture), orientation)
    Image.fromarray(np.asarray(pixels)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _checked_size(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise ValueError(f"{width} x {height} pixels, more than the {MOST_PIXELS:,} allowed")
    return width, height


def is_picture(source: Path | bytes) -> bool:
    """Whether a file, or its content, begins like a photo; only its header is read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about many pixels
        try:
            with open_photo(source) as opened, Image.open(opened, formats=FORMATS):
                return True
        except Exception:  # Pillow raises almost anything on damaged files
            return False


def measure(source: bytes) -> tuple[int, int]:
    """Width and height of an upright photo that can be decoded."""
    decode(source, size=8)
    with Image.open(io.BytesIO(source), formats=FORMATS) as image:
        return image.size[::-1] if _orientation(image) in SIDEWAYS else image.size


def random_box(width: int, height: int, draws: random.Random, least_area: float = LEAST_AREA) -> Box:
    """A random part of a photo; if ten tries do not fit, the largest central one with an allowed aspect ratio."""
    for _ in range(TRIES):
        area = width * height * draws.uniform(least_area, 1.0)
        aspect = math.exp(draws.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(draws.random() * (width - across + 1)), int(draws.random() * (height - down + 1))
            return left, top, left + across, top + down
    across = min(width, max(1, round(height * ASPECT[1])))
    down = min(height, max(1, round(width / ASPECT[0])))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def shorter_side(size: int) -> int:
    """The scaled shorter side of a photo whose centre is seen at `size`: 256 for each 224."""
    return round(size * 256 / 224)


def centre_box(width: int, height: int, size: int) -> Box:
    """The part that remains after scaling the shorter side to 256 per 224 of `size` and cutting out the centre."""
    shorter = shorter_side(size)
    scaled = [max(shorter, shorter * side // min(width, height)) for side in (width, height)]
    left, top = (round((side - size) / 2) for side in scaled)
    x, y = width / scaled[0], height / scaled[1]
    return left * x, top * y, (left + size) * x, (top + size) * y


def _reduce(image: Image.Image, excess: float) -> float:
    """Decode a JPEG at 1/2, 1/4 or 1/8 if enough pixels remain; returns the scale factor."""
    factor = max((factor for factor in (2, 4, 8) if factor <= excess), default=1)
    drafted = image.draft(None, (image.width // factor, image.height // factor)) if factor > 1 else None
    return factor if drafted else 1


def _jpeg_pixels(image: Image.Image, file: BinaryIO) -> Image.Image | None:
    """The pixels of an ordinary JPEG, equal to Pillow's in a third of the time; None if only Pillow can read it."""
    if image.format != "JPEG" or image.mode not in ("RGB", "L"):
        return None
    file.seek(0)
    try:
        colours = "RGB" if image.mode == "RGB" else "GRAY"
        pixels = decode_jpeg(file.read(), colours, min_height=image.height, min_width=image.width)
    except ValueError:  # damaged: Pillow knows which damage is tolerable
        return None
    return Image.fromarray(pixels if image.mode == "RGB" else pixels[:, :, 0])


def _orientation(image: Image.Image) -> int:
    """The rotation still needed; Pillow already rotates a TIFF."""
    if image.format == "TIFF":
        return 1
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged metadata is no reason to skip the photo
        return 1


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    return image.transpose(TURNS[orientation]) if orientation in TURNS else image


def without_alpha(image: Image.Image) -> Image.Image:
    """RGB or greyscale with 8 bits; transparent parts become white."""
    if image.mode.startswith("I;16"):
        return Image.fromarray(np.round(np.asarray(image) / 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        values = np.nan_to_num(np.asarray(image, np.float64))
        tops = (255, 65535) if image.mode == "I" else (1, 255, 65535)  # what white may be
        highest = values.max()
        white = next((top for top in tops if highest <= 1.01 * top), highest)
        return Image.fromarray(np.round(values.clip(0, white) * (255 / white)).astype(np.uint8))
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(background, image.convert("RGBA")).convert("RGB")
    return image if image.mode in ("RGB", "L") else image.convert("RGB")


def reason(error: Exception) -> str:
    """A short reason why a photo could not be decoded."""
    if isinstance(error, UnidentifiedImageError):
        return "not a JPEG, PNG, WebP, GIF, BMP or TIFF image"
    if isinstance(error, Image.DecompressionBombError):  # Pillow's own limit, twice as high, is checked first
        return f"far more pixels than the {MOST_PIXELS:,} allowed"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
