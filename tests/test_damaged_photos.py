"""Five hundred photos as they come from the world, whole, odd and broken, in one folder: see docs/own-classifier.md."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from podnet.cli import main
from podnet.data.collection import read_collection
from podnet.data.photos import Photos
from podnet.model.loading import load_model

EACH = 20
ODD = {}  # can be used
BROKEN = {}  # cannot, and how the reason reads
QUICK = ["--image-size", "16", "--epochs", "1", "--finetune-epochs", "1", "--exemplars", "3", "--workers", "0"]
QUICK += ["--train", "never"]


def odd(make):
    ODD[make.__name__] = make
    return make


def broken(reason):
    def keep(make):
        BROKEN[make.__name__] = (make, reason)
        return make

    return keep


def pixels(draws, *shape):
    """Smooth enough for a real JPEG, and no two alike."""
    coarse = draws.integers(0, 256, (6, 7, *shape), dtype=np.uint8)
    return np.kron(coarse, np.ones((8, 8, *[1] * len(shape)), dtype=np.uint8))


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def rgb(draws):
    return Image.fromarray(pixels(draws, 3))


@odd
def cmyk(path, draws):
    path.with_suffix(".jpg").write_bytes(encoded(Image.fromarray(pixels(draws, 4), "CMYK"), "JPEG"))


@odd
def sixteen_bits(path, draws):
    Image.fromarray(pixels(draws).astype(np.uint16) * 257).save(path.with_suffix(".png"))


@odd
def palette_with_alpha(path, draws):
    image = rgb(draws).quantize(32)
    image.save(path.with_suffix(".png"), transparency=bytes(range(0, 256, 8)))


@odd
def turned(path, draws):
    exif = Image.Exif()
    exif[0x0112] = int(draws.integers(1, 9))
    rgb(draws).save(path.with_suffix(".jpg"), exif=exif)


@odd
def animated_gif(path, draws):
    rgb(draws).save(path.with_suffix(".gif"), save_all=True, append_images=[rgb(draws), rgb(draws)])


@odd
def animated_webp(path, draws):
    rgb(draws).save(path.with_suffix(".webp"), save_all=True, append_images=[rgb(draws)], lossless=True)


@odd
def wrong_ending(path, draws):
    path.with_suffix(".jpg").write_bytes(encoded(rgb(draws), "PNG"))


@odd
def no_ending(path, draws):
    path.with_suffix("").write_bytes(encoded(rgb(draws), "BMP"))


@odd
def unicode_name(path, draws):
    rgb(draws).save(path.with_name(f"Ünïcødé 写真 \U0001f431 {path.name}.png"))


@odd
def very_long_name(path, draws):
    rgb(draws).save(path.with_name(f"{path.name}{'x' * (245 - len(path.name))}.png"))


@odd
def transparent(path, draws):
    Image.fromarray(pixels(draws, 4)).save(path.with_suffix(".png"))


@odd
def one_bit(path, draws):
    rgb(draws).convert("1").save(path.with_suffix(".tif"))


@odd
def narrow(path, draws):
    Image.fromarray(draws.integers(0, 256, (1, 300, 3), dtype=np.uint8)).save(path.with_suffix(".png"))


@odd
def rubbish_behind(path, draws):
    path.with_suffix(".jpg").write_bytes(encoded(rgb(draws), "JPEG") + draws.bytes(200))


@odd
def damaged_notes(path, draws):
    """EXIF that is no EXIF."""
    path.with_suffix(".jpg").write_bytes(encoded(rgb(draws), "JPEG", exif=b"Exif\0\0" + draws.bytes(40)))


@broken("truncated|cut|broken|not a JPEG|Truncated|data")
def truncated_jpeg(path, draws):
    whole = encoded(rgb(draws), "JPEG", quality=95)
    path.with_suffix(".jpg").write_bytes(whole[: int(len(whole) * draws.uniform(0.05, 0.9))])


@broken("truncated|broken|not a JPEG|Truncated")
def truncated_png(path, draws):
    whole = encoded(Image.fromarray(draws.integers(0, 256, (48, 56, 3), dtype=np.uint8)), "PNG")
    path.with_suffix(".png").write_bytes(whole[: int(len(whole) * draws.uniform(0.05, 0.9))])


@broken("not a JPEG")
def no_bytes(path, draws):
    path.with_suffix(".jpg").touch()


@broken("not a JPEG")
def text(path, draws):
    path.with_suffix(".jpg").write_text(f"holiday {draws.integers(1e9)}")


@broken("pixels than the 89,000,000 allowed")
def huge_claims(path, draws):
    """A small file that would fill the memory."""
    side = int(draws.integers(20_000, 60_000))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    parts = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    path.with_suffix(".png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


@broken("")
def rubbish(path, draws):
    starts = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\x20\0\0\0WEBP", b"II*\0", b"BM"]
    path.with_suffix(".png").write_bytes(starts[draws.integers(len(starts))] + draws.bytes(500))


@broken("No such file")
def dead_link(path, draws):
    path.with_suffix(".jpg").symlink_to("nowhere")


@broken("Too many levels")
def link_to_itself(path, draws):
    path.with_suffix(".jpg").symlink_to(path.with_suffix(".jpg").name)


@broken("not a file")
def pipe(path, draws):
    os.mkfifo(path.with_suffix(".jpg"))


@broken("the same photo as")
def twin(path, draws):
    path.with_suffix(".png").write_bytes(encoded(rgb(np.random.default_rng(4321)), "PNG"))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with all of them in two classes, links in a circle, and a folder without photos."""
    root = tmp_path_factory.mktemp("world") / "photos"
    for name in ("left", "right"):
        (root / name / "deeper").mkdir(parents=True)
    kinds = {**ODD, **{name: make for name, (make, _) in BROKEN.items()}}
    for number, (name, make) in enumerate(kinds.items()):
        for i in range(EACH):
            folder = root / ("left", "right")[i % 2]
            make((folder / "deeper" if i % 3 else folder) / f"{name}-{i}", np.random.default_rng([number, i]))
    rgb(np.random.default_rng(4321)).save(root / "left" / "0 first of the twins.png")
    (root / "left" / "circle").symlink_to(root)
    (root / "right" / "deeper" / "circle").symlink_to(root / "right")
    (root / "empty").mkdir()
    (root / "beside.txt").write_text("not in a class")
    return root


@pytest.fixture(scope="module")
def learned(world):
    path = world.parent / "m.podnet"
    assert main(["learn", str(path), str(world), *QUICK]) == 0
    return path


def test_there_are_five_hundred():
    assert EACH * (len(ODD) + len(BROKEN)) >= 500


def test_each_is_used_or_named_with_its_reason(world):
    collection = read_collection(world)
    used = [photo.source.name for photo in collection.photos]
    skipped = {os.path.basename(name): why for name, why in collection.skipped}
    for name in ODD:
        assert sum(name in file for file in used) == EACH, name
    for name, (_, reason) in BROKEN.items():
        reasons = [why for file, why in skipped.items() if file.startswith(f"{name}-")]
        assert len(reasons) == EACH, name
        for why in reasons:
            assert any(part in why for part in reason.split("|")), (name, why)
    assert len(used) == EACH * len(ODD) + 1
    assert {photo.label for photo in collection.photos if "right" in photo.source.parts} == {"right"}
    assert skipped["empty"] == "a folder without photos"
    assert skipped["beside.txt"] == "not in a class folder"
    photos = Photos(tuple(photo.source for photo in collection.photos), 16)
    [(read, _)] = photos.batches([torch.arange(len(photos))], torch.Generator().manual_seed(0))  # random crops
    assert len(read) == len(used)


def test_a_model_learns_from_what_can_be_used(learned, world, capsys):
    model = load_model(learned)
    assert model.names == ["left", "right"]
    assert sum(record.photos for record in model.classes) + len(model.held_out_targets) == EACH * len(ODD) + 1
    before = learned.read_bytes()
    assert main(["predict", str(learned), str(world), "--format", "csv", "--top", "1", "--workers", "0"]) == 1
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err + shown.out
    assert len(shown.out.splitlines()) == 1 + EACH * (len(ODD) + 1) + 1  # heading; twins are photos, too
    for name in set(BROKEN) - {"twin"}:
        assert shown.err.count(f"/{name}-") == EACH, name
    assert learned.read_bytes() == before


def test_what_cannot_be_learned_leaves_the_model_as_it_was(learned, world, tmp_path, capsys):
    before = learned.read_bytes()
    (tmp_path / "broken" / "other").mkdir(parents=True)
    for number, (name, (make, _)) in enumerate(BROKEN.items()):
        if name != "twin":
            make(tmp_path / "broken" / "other" / name, np.random.default_rng(number))
    for name in ("coin", "Coin"):
        (tmp_path / "case" / name).mkdir(parents=True)
        rgb(np.random.default_rng(len(name))).save(tmp_path / "case" / name / "a.png")
    (tmp_path / "empty" / "class").mkdir(parents=True)
    told = {"broken": "no readable photo", "case": "differs only in case", "empty": "no class folders"}
    for folder, message in told.items():
        assert main(["learn", str(learned), str(tmp_path / folder), *QUICK]) == 2
        shown = " ".join(capsys.readouterr().err.split())
        assert message in shown
        assert "Traceback" not in shown
    assert learned.read_bytes() == before
    assert [path.name for path in learned.parent.iterdir() if path.name.startswith(".")] == []
