"""A user's own photos, with all that can be wrong with them."""

import io
import os
import unicodedata

import numpy as np
import pytest
from PIL import Image

from coloured import photos_of
from podnet.data.collection import read_collection, refuse_lookalikes
from podnet.data.decode import decode, shrink
from podnet.data.photos import Photos
from podnet.errors import DataError


def picture(seed, width=40, height=30, kind="PNG", **options):
    """Something that no other seed gives."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def put(folder, *seeds, ending="png", kind="PNG"):
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (folder / f"{seed}.{ending}").write_bytes(picture(seed, kind=kind))


def reasons(collection):
    return {os.path.basename(name): why for name, why in collection.skipped}


def test_a_folder_for_each_class(tmp_path):
    put(tmp_path / "coin", 1, 2)
    put(tmp_path / "bill" / "old", 3)
    put(tmp_path / ".hidden", 4)
    (tmp_path / "coin" / ".DS_Store").write_bytes(b"x")
    found = read_collection(tmp_path)
    assert [(photo.label, photo.source.name, photo.size) for photo in found.photos] == [
        ("bill", "3.png", (40, 30)),
        ("coin", "1.png", (40, 30)),
        ("coin", "2.png", (40, 30)),
    ]
    assert found.counts == {"bill": 1, "coin": 2}
    assert found.skipped == ()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_kinds_of_photos_whatever_their_names_end_in(tmp_path, kind):
    put(tmp_path / "a", 1, ending="dat", kind=kind)
    assert read_collection(tmp_path).photos[0].size == (40, 30)


def test_what_cannot_be_used_is_named_with_its_reason(tmp_path):
    put(tmp_path / "good", 1)
    bad = tmp_path / "good"
    (bad / "empty.jpg").write_bytes(b"")
    (bad / "notes.txt").write_text("not a photo")
    (bad / "cut.png").write_bytes(picture(5, 300, 200)[:5000])
    (bad / "twin.png").write_bytes(picture(1))
    (bad / "gone.png").symlink_to(tmp_path / "nothing")
    os.mkfifo(bad / "pipe.png")
    (tmp_path / "nothing here").mkdir()
    (tmp_path / "stray.png").write_bytes(picture(9))
    put(tmp_path / "all bad")
    (tmp_path / "all bad" / "x.png").write_bytes(b"x")
    found = read_collection(tmp_path)
    assert [photo.source.name for photo in found.photos] == ["1.png"]
    why = reasons(found)
    assert why.pop("cut.png")
    assert why == {
        "empty.jpg": "not a JPEG, PNG, WebP, GIF, BMP or TIFF image",
        "notes.txt": "not a JPEG, PNG, WebP, GIF, BMP or TIFF image",
        "twin.png": f"the same photo as {bad / '1.png'}",
        "gone.png": "No such file or directory",
        "pipe.png": "not a file",
        "nothing here": "a folder without photos",
        "stray.png": "not in a class folder",
        "x.png": "not a JPEG, PNG, WebP, GIF, BMP or TIFF image",
        "all bad": "a class without readable photos",
    }


def test_links_in_a_circle_end(tmp_path):
    put(tmp_path / "a", 1)
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    put(tmp_path / "b", 2)
    found = read_collection(tmp_path)
    assert {photo.source.name for photo in found.photos} == {"1.png", "2.png"}


def test_one_name_for_letters_that_can_be_written_in_two_ways(tmp_path):
    put(tmp_path / unicodedata.normalize("NFD", "Käse"), 1)
    assert read_collection(tmp_path).counts == {unicodedata.normalize("NFC", "Käse"): 1}


def test_classes_that_differ_only_in_case_are_refused(tmp_path):
    put(tmp_path / "Coin", 1)
    put(tmp_path / "coin", 2)
    with pytest.raises(DataError, match="differs only in case; rename one"):
        read_collection(tmp_path)
    with pytest.raises(DataError, match="the model knows a class 'Coin'"):
        refuse_lookalikes(["coin"], ["Coin"])


def test_a_class_name_must_be_fit_to_be_shown(tmp_path):
    put(tmp_path / "a\x1b[31m", 1)
    with pytest.raises(DataError, match=r"invalid class name 'a\\x1b\[31m'"):
        read_collection(tmp_path)


@pytest.mark.parametrize("heading", ["", "path,label\n"])
def test_a_table_of_files(tmp_path, heading):
    put(tmp_path / "any", 1, 2)
    table = tmp_path / "photos.csv"
    table.write_text(f'{heading}any/1.png,coin\n"any/2.png","bill, old"\nany/3.png,coin\n')
    found = read_collection(table)
    assert found.counts == {"bill, old": 1, "coin": 1}
    assert reasons(found) == {"3.png": "No such file or directory"}


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("filename,class", "{file},{label}"),
        ("file,category", "{file},{label}"),
        ("species,image", "{label},{file}"),
        ("Image Path, Label", "{file}, {label}"),
        ("id,label,width,file_name", "7,{label},40,{file}"),
        ("image,CLASS_NAME,class_id,notes", "{file},{label},3,"),
    ],
)
def test_a_table_whose_header_names_the_columns(tmp_path, header, row):
    put(tmp_path / "any", 1, 2, 3)
    labels = {1: "coin", 2: "bill", 3: "coin"}
    rows = [row.format(file=f"any/{i}.png", label=label) for i, label in labels.items()]
    (tmp_path / "photos.csv").write_text("\n".join([header, "", *rows]))
    found = read_collection(tmp_path / "photos.csv")
    assert {photo.source.name: photo.label for photo in found.photos} == {f"{i}.png": own for i, own in labels.items()}
    assert not found.skipped


def test_a_table_without_header_may_have_photos_named_like_one(tmp_path):
    put(tmp_path / "label", 1)
    put(tmp_path / "path", 2)
    (tmp_path / "photos.csv").write_text("path/2.png,label\nlabel/1.png,path\n")
    assert read_collection(tmp_path / "photos.csv").counts == {"label": 1, "path": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("path,label\n", "is empty"),
        ("a.png\n", "line 1: 'a.png'; expected path,label, or a first row that names"),
        ("a.png,\n", "line 1: 'a.png,'; expected path,label"),
        ("7,a.png,coin\n", "line 1: '7,a.png,coin'; expected path,label, or a first row that names"),
        ("id,file,class\n\n1,a.png,coin\n2,b.png,\n", "line 4: '2,b.png,'; expected 3 cells"),
        ("file,class\na.png,coin,7\n", "line 2: 'a.png,coin,7'; expected 2 cells"),
        ("a\0.png,coin\n", "line 1: a path cannot contain a null character"),
        ('a.png,"coin\n', "neither a folder nor a CSV table"),
    ],
)
def test_a_table_that_is_none(tmp_path, text, message):
    table = tmp_path / "photos.csv"
    table.write_text(text)
    with pytest.raises(DataError, match=r"photos\.csv") as told:
        read_collection(table)
    assert message in str(told.value)


@pytest.mark.parametrize("name", ["missing", "empty", "notes"])
def test_a_folder_without_classes(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("no photo")
    with pytest.raises(DataError, match="one subfolder of photos per class"):
        read_collection(tmp_path / name)


def test_photos_beside_the_class_folders_are_counted(tmp_path):
    flat = tmp_path / "flat"
    put(flat, 1)
    (flat / "notes.txt").write_text("no photo")
    (flat / ".hidden.png").write_bytes(picture(9))
    for seeds, words in [
        ((), f"1 photo but no class folders; move it to {flat / 'CLASS'}/."),
        ((2, 3), f"3 photos but no class folders; move them to {flat / 'CLASS'}/."),
    ]:
        put(flat, *seeds)
        with pytest.raises(DataError) as told:
            read_collection(flat)
        assert str(told.value) == f"{flat} has {words}"
    (flat / "coin").mkdir()
    with pytest.raises(DataError, match="3 photos but no class folders with files; move them"):
        read_collection(flat)


def test_subfolders_that_may_be_meant_as_classes_are_told(tmp_path):
    put(tmp_path / "plants" / "flower", 1)
    put(tmp_path / "plants" / "temple" / "old", 2)
    (tmp_path / "plants" / "empty").mkdir()
    put(tmp_path / "animals" / "portrait", 3)  # a single one is no choice of classes
    put(tmp_path / "coin", 4, 5)
    found = read_collection(tmp_path)
    assert found.counts == {"animals": 1, "coin": 2, "plants": 2}
    sentence = (
        "plants has subfolders with photos (flower, temple); they are learned as one class. "
        f"For classes of their own, give {tmp_path / 'plants'}."
    )
    assert found.nested == (("plants", sentence),)
    (tmp_path / "photos.csv").write_text("plants/flower/1.png,a\nplants/temple/old/2.png,a\n")
    assert not read_collection(tmp_path / "photos.csv").nested


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_picture_is_no_table(tmp_path, kind):
    put(tmp_path / "coin", 1, ending="jpg", kind=kind)
    file = tmp_path / "coin" / "1.jpg"
    with pytest.raises(DataError) as told:
        read_collection(file)
    assert str(told.value) == f"{file} is a picture; give the folder that contains the class folders."


def test_a_file_of_bytes_is_no_table(tmp_path):
    (tmp_path / "m.podnet").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match=r"neither a folder nor a CSV table \(it is not UTF-8 text\)"):
        read_collection(tmp_path / "m.podnet")


def test_a_small_copy_is_upright_small_and_without_notes():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    exif[0x010E] = "where it was taken"
    original = picture(1, 400, 200, "JPEG", exif=exif, quality=95)
    assert b"where it was taken" in original
    copy = shrink(original, 40)
    with Image.open(io.BytesIO(copy)) as image:
        assert image.size == (80, 160)  # twice 40 on the shorter side, for random crops
        assert not image.getexif()
    assert b"where it was taken" not in copy
    difference = np.abs(decode(copy, 40).astype(float) - decode(original, 40).astype(float))
    assert difference.mean() < 8  # noise, scaled twice


def test_a_photo_that_is_small_already_keeps_its_pixels():
    original = picture(3, 36, 33)
    assert np.array_equal(decode(shrink(original, 32), 32), decode(original, 32))


def test_kept_photos_are_small_copies(tmp_path):
    put(tmp_path, 1)
    file = tmp_path / "1.png"
    kept = Photos((file,), 8, shrinks=True).kept()
    assert list(kept.contents()) == [shrink(file, 8)]
    assert list(Photos((file,), 8).kept().contents()) == [file.read_bytes()]


def test_a_photo_listed_with_two_classes_is_told(tmp_path):
    photos_of(tmp_path / "p", "red", "blue")
    file = sorted((tmp_path / "p" / "red").iterdir())[0]
    other = sorted((tmp_path / "p" / "blue").iterdir())[0]
    (tmp_path / "t.csv").write_text(f"path,label\n{file},cat\n{file},dog\n{other},dog\n{other},dog\n")
    found = read_collection(tmp_path / "t.csv")
    assert found.counts == {"cat": 1, "dog": 1}
    assert dict(found.skipped) == {str(file): "listed as cat before"}
