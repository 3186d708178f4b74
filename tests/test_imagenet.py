"""ImageNet's layouts, made here from a few tiny photos, and a sample of the real one where there is one."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from podnet.data import imagenet
from podnet.data.augment import Transform
from podnet.data.dataset import Dataset
from podnet.data.imagenet import choose_classes, load_imagenet
from podnet.data.photos import Photos
from podnet.errors import DataError

REAL = Path(os.environ.get("PODNET_IMAGENET", Path(__file__).resolve().parents[2] / "shared/data/imagenet-sample20"))
SYNSETS = ("n01440764", "n01443537", "n02102040")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def photo(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 30), (shade, 0, 255 - shade)).save(file, "PNG")
    return file.getvalue()


def shade_of(split: str, label: int, number: int) -> int:
    return 100 * (split == "val") + 10 * label + number


def make_tree(root: Path, synsets: Sequence[str] = SYNSETS, train: int = 3, val: int = 2) -> Path:
    """train/<synset>/<synset>_<number>.JPEG and the same in val; the red of a photo tells which it is."""
    for split, count in (("train", train), ("val", val)):
        for label, synset in enumerate(synsets):
            folder = root / split / synset
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{synset}_{number}.JPEG").write_bytes(photo(shade_of(split, label, number)))
    return root


def shades(images: Any) -> list[int]:
    assert isinstance(images, Photos)
    return [int(pixels[0, 0, 4, 4]) for _, pixels in images.batches(torch.arange(len(images)).split(1))]


def shades_that_can_be_read(images: Any) -> list[int]:
    return [int(pixels[0, 0, 4, 4]) for part, pixels in images.batches(torch.arange(len(images)).split(1)) if len(part)]


def check(dataset: Dataset, labels: Sequence[int] = (0, 1, 2)) -> None:
    """All that `make_tree` wrote of the classes with these labels."""
    assert dataset.class_names == tuple(SYNSETS[label] for label in labels)
    assert dataset.train_targets.tolist() == [new for new in range(len(labels)) for _ in range(3)]
    assert dataset.test_targets.tolist() == [new for new in range(len(labels)) for _ in range(2)]
    assert dataset.train_targets.dtype == torch.int64
    assert shades(dataset.train_images) == [shade_of("train", label, i) for label in labels for i in range(3)]
    assert shades(dataset.test_images) == [shade_of("val", label, i) for label in labels for i in range(2)]


def refusal(path: Path, **options: Any) -> str:
    """The one sentence with which loading `path` is refused."""
    with pytest.raises(DataError) as caught:
        load_imagenet(path, **options)
    sentence = str(caught.value)
    assert sentence.endswith((".", "?"))
    assert "\n" not in sentence
    return sentence


# Layouts


def test_folders(tmp_path: Path) -> None:
    dataset = load_imagenet(make_tree(tmp_path), image_size=16, workers=1, unreadable="skip")
    check(dataset)
    assert dataset.name == "imagenet"
    assert dataset.shape == (3, 16, 16)
    assert dataset.transform == Transform((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), pad=0, flip=True)
    for images in (dataset.train_images, dataset.test_images):
        assert isinstance(images, Photos)
        assert (images.size, images.workers, images.unreadable) == (16, 1, "skip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train", "val"]  # a small tree is not cached


def test_any_ending_of_photos_and_nothing_else(tmp_path: Path) -> None:
    make_tree(tmp_path)
    folder = tmp_path / "train" / SYNSETS[1]
    (folder / f"{SYNSETS[1]}_1.JPEG").rename(folder / f"{SYNSETS[1]}_1.jpg")
    (folder / f"{SYNSETS[1]}_2.JPEG").rename(folder / f"{SYNSETS[1]}_2.PNG")
    (folder / "readme.txt").write_text("not a photo")
    (folder / f"._{SYNSETS[1]}_0.JPEG").write_bytes(b"what macOS leaves behind")
    (tmp_path / "train" / ".hidden").mkdir()
    (tmp_path / "val" / "readme.txt").write_text("not a class")
    check(load_imagenet(tmp_path))


def test_names_that_are_no_unicode_can_be_shown(tmp_path: Path) -> None:
    make_tree(tmp_path)
    for split in ("train", "val"):
        folder = os.fsencode(tmp_path / split)
        os.rename(folder + b"/" + SYNSETS[0].encode(), folder + b"/caf\xe9")
    dataset = load_imagenet(tmp_path)
    assert dataset.class_names[0] == "caf\\xe9"
    assert len(shades(dataset.train_images)) == 9
    (tmp_path / "train" / os.fsdecode(b"caf\xe9") / os.fsdecode(b"\xff.JPEG")).write_bytes(b"no photo")
    with pytest.raises(DataError, match=r"fix or remove it, or skip such files with --unreadable skip\.$"):
        shades(load_imagenet(tmp_path).train_images)
    images = load_imagenet(tmp_path, unreadable="skip").train_images
    assert len(shades_that_can_be_read(images)) == 9
    assert all(name.isprintable() for name in images.unreadable_names())


def write_list(root: Path, split: str, name: str, classes: Sequence[str | int], below: str = "") -> None:
    lines = [
        f"{below}{name.format(synset=SYNSETS[label], number=number)} {classes[label]}"
        for label in (2, 0, 1)  # in no order
        for number in range(3 if split == "train" else 2)
    ]
    (root / f"{split}.txt").write_text("\n".join([*lines, "", ""]))


def check_lists(dataset: Dataset, class_names: Sequence[str]) -> None:
    assert dataset.class_names == tuple(class_names)
    for split, images, targets, count in (
        ("train", dataset.train_images, dataset.train_targets, 3),
        ("val", dataset.test_images, dataset.test_targets, 2),
    ):
        expected = [(label, number) for label in (2, 0, 1) for number in range(count)]
        assert targets.tolist() == [label for label, _ in expected]
        assert shades(images) == [shade_of(split, label, number) for label, number in expected]


@pytest.mark.parametrize("below", [True, False], ids=["from the folder", "from the split"])
@pytest.mark.parametrize("classes", [("cat", "cow", "dog"), (2, 10, 300)], ids=["names", "numbers"])
def test_lists(tmp_path: Path, classes: Sequence[str | int], below: bool) -> None:
    make_tree(tmp_path)
    for split in ("train", "val"):
        write_list(tmp_path, split, "{synset}/{synset}_{number}.JPEG", classes, f"{split}/" if below else "")
    check_lists(load_imagenet(tmp_path), [str(name) for name in classes])


@pytest.mark.parametrize("classes", [SYNSETS, (0, 1, 2)], ids=["names", "numbers"])
def test_flat_val_with_a_list(tmp_path: Path, classes: Sequence[str | int]) -> None:
    make_tree(tmp_path)
    for synset in SYNSETS:
        for path in (tmp_path / "val" / synset).iterdir():
            path.rename(tmp_path / "val" / f"the {path.name}")  # a space in the name
        (tmp_path / "val" / synset).rmdir()
    write_list(tmp_path, "val", "the {synset}_{number}.JPEG", classes)
    dataset = load_imagenet(tmp_path)
    assert dataset.class_names == SYNSETS
    assert dataset.test_targets.tolist() == [2, 2, 0, 0, 1, 1]
    assert shades(dataset.test_images) == [shade_of("val", label, i) for label in (2, 0, 1) for i in range(2)]


# Subsets


def names(count: int) -> list[str]:
    return [f"n{i:08}" for i in range(count)]


def test_released_subset_is_the_first_hundred() -> None:
    assert choose_classes("released", names(1000)) == tuple(names(100))
    assert choose_classes("all", names(7)) == tuple(names(7))


def test_ucir_subset_is_the_draw_of_its_authors() -> None:
    """Done as they did: the global generator, and names instead of numbers."""
    state = np.random.get_state()
    try:
        np.random.seed(1993)
        drawn = np.random.choice(names(1000), 100, replace=False)
    finally:
        np.random.set_state(state)
    chosen = choose_classes("ucir", names(1000))
    assert len(set(chosen)) == 100
    assert chosen == tuple(sorted(map(str, drawn)))


def test_subset_from_a_file(tmp_path: Path) -> None:
    make_tree(tmp_path / "data")
    (tmp_path / "list").write_text(f"{SYNSETS[2]}\n\n  {SYNSETS[0]}\n{SYNSETS[0]}\n")
    check(load_imagenet(tmp_path / "data", str(tmp_path / "list")), labels=(0, 2))


def test_names_of_the_known_sizes(tmp_path: Path) -> None:
    make_tree(tmp_path, names(101), train=1, val=1)
    assert load_imagenet(tmp_path).name == "imagenet"
    released = load_imagenet(tmp_path, "released")
    assert (released.name, released.class_names) == ("imagenet100", tuple(names(100)))
    assert released.train_targets.tolist() == list(range(100))


def test_subsets_that_cannot_be(tmp_path: Path) -> None:
    make_tree(tmp_path)
    assert "the first 100 classes, but there are only 3; use --subset all" in refusal(tmp_path, subset="released")
    assert "1000 classes of ImageNet, but there are 3" in refusal(tmp_path, subset="ucir")
    assert "subset is relased; it must be all, released, ucir or" in refusal(tmp_path, subset="relased")
    file = tmp_path / "list"
    file.write_text(f"{SYNSETS[0]}\nn01443538\n")
    sentence = refusal(tmp_path, subset=str(file))
    assert "list lists class n01443538, but train has no such class" in sentence
    assert "'n01443537'?" in sentence
    file.write_text("\n")
    assert "lists no classes" in refusal(tmp_path, subset=str(file))
    file.write_bytes(b"\xff\xfe")
    assert "text file" in refusal(tmp_path, subset=str(file))


# What can be wrong


def test_missing_folder(tmp_path: Path) -> None:
    assert "nowhere is not a folder" in refusal(tmp_path / "nowhere")


@pytest.mark.parametrize("split", ["train", "val"])
def test_missing_split(tmp_path: Path, split: str) -> None:
    make_tree(tmp_path)
    (tmp_path / split).rename(tmp_path / "other")
    sentence = refusal(tmp_path)
    assert f"neither a folder {split} nor a list {split}.txt" in sentence
    assert "train/CLASS/*.JPEG" in sentence


def test_flat_val_without_a_list(tmp_path: Path) -> None:
    make_tree(tmp_path)
    (tmp_path / "val").rename(tmp_path / "away")
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(photo(1))
    assert "val has no class folders; expected" in refusal(tmp_path)


def test_class_only_in_train(tmp_path: Path) -> None:
    make_tree(tmp_path)
    (tmp_path / "val" / SYNSETS[1]).rename(tmp_path / "away")
    assert f"train has class {SYNSETS[1]}, but val does not" in refusal(tmp_path)
    (tmp_path / "list").write_text(f"{SYNSETS[2]}\n{SYNSETS[0]}")
    check(load_imagenet(tmp_path, str(tmp_path / "list")), labels=(0, 2))


def test_class_only_in_val(tmp_path: Path) -> None:
    make_tree(tmp_path)
    (tmp_path / "train" / SYNSETS[1]).rename(tmp_path / "away")
    assert f"val has class {SYNSETS[1]}, but train does not" in refusal(tmp_path)
    (tmp_path / "list").write_text(f"{SYNSETS[2]}\n{SYNSETS[0]}")
    check(load_imagenet(tmp_path, str(tmp_path / "list")), labels=(0, 2))


def test_class_folder_without_photos(tmp_path: Path) -> None:
    make_tree(tmp_path)
    (tmp_path / "val" / "n03").mkdir()
    (tmp_path / "val" / "n03" / "labels.txt").write_text("")
    assert refusal(tmp_path).startswith(f"{tmp_path / 'val' / 'n03'} has no photos")


@pytest.mark.parametrize("line", ["a.JPEG", "my photo.jpg", "  b.png  "])
def test_list_line_without_a_class(tmp_path: Path, line: str) -> None:
    (tmp_path / "train.txt").write_text(f"x.JPEG cat\n\n{line}\n")
    sentence = refusal(tmp_path)
    assert "train.txt, line 3:" in sentence
    assert "has no class; write 'path class'" in sentence


def test_list_without_lines(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n\n")
    assert "train.txt is empty" in refusal(tmp_path)


def test_numbers_that_are_names_are_no_indices(tmp_path: Path) -> None:
    """A class that train does not have must not be tested as another."""
    for split, names in (("train", (0, 1, 2, 4)), ("val", (0, 1, 2, 3, 4))):
        (tmp_path / f"{split}.txt").write_text("".join(f"{name}.JPEG {name}\n" for name in names))
    assert "val has class 3, but train does not" in refusal(tmp_path)


def test_number_beyond_the_classes(tmp_path: Path) -> None:
    make_tree(tmp_path)
    (tmp_path / "val.txt").write_text("a.JPEG 0\nb.JPEG 3\n")
    assert "val.txt, line 2: 3 is not a class; train has 3, 0 to 2" in refusal(tmp_path)


@pytest.mark.parametrize("split", ["train", "val"])
def test_number_too_long_for_python(tmp_path: Path, split: str) -> None:
    make_tree(tmp_path)
    (tmp_path / f"{split}.txt").write_text(f"a.JPEG {'9' * 5000}\n")
    assert "but val does not" in refusal(tmp_path)


def test_name_beyond_the_classes(tmp_path: Path) -> None:
    make_tree(tmp_path)
    write_list(tmp_path, "val", "{synset}/{synset}_{number}.JPEG", (*SYNSETS[:2], "elephant"))
    assert f"train has class {SYNSETS[2]}, but val does not" in refusal(tmp_path)
    (tmp_path / "val.txt").write_text("".join(f"a.JPEG {name}\n" for name in (*SYNSETS, "elephant")))
    assert "val has class elephant, but train does not" in refusal(tmp_path)


def test_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path)

    def denied(path: Any) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    assert refusal(tmp_path).startswith(f"{tmp_path / 'train'} cannot be read: Permission denied")


# The list of a large tree


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose list is kept, after it was loaded once."""
    monkeypatch.setattr(imagenet, "WORTH_CACHING", 1)
    root = make_tree(tmp_path / "imagenet")
    check(load_imagenet(root))
    return root


def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The class folders whose files are listed from now on."""
    listed: list[str] = []
    listdir = os.listdir

    def spy(path: Any) -> Any:
        listed.append(os.path.basename(os.fsdecode(path)))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", spy)
    return listed


def test_a_large_tree_is_listed_once(cached: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    listed = scans(monkeypatch)
    check(load_imagenet(cached))
    check(load_imagenet(cached / ".." / "imagenet"))
    assert listed == []
    assert sorted(path.name for path in cached.iterdir()) == [".podnet-train.npz", ".podnet-val.npz", "train", "val"]
    assert list(own_cache.iterdir()) == []


def test_the_list_moves_with_the_tree(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = cached.rename(cached.parent / "moved")
    listed = scans(monkeypatch)
    check(load_imagenet(moved))
    assert listed == []


def test_files_that_come_and_go_are_seen(cached: Path) -> None:
    folder = cached / "train" / SYNSETS[1]
    (folder / "zzz.jpg").write_bytes(photo(77))
    assert shades(load_imagenet(cached).train_images) == [0, 1, 2, 10, 11, 12, 77, 20, 21, 22]
    (folder / "zzz.jpg").unlink()
    check(load_imagenet(cached))
    (folder / f"{SYNSETS[1]}_0.JPEG").rename(folder / "zzz.jpg")
    assert shades(load_imagenet(cached).train_images) == [0, 1, 2, 11, 12, 10, 20, 21, 22]


def test_classes_that_come_and_go_are_seen(cached: Path) -> None:
    for split in ("train", "val"):
        (cached / split / SYNSETS[1]).rename(cached / split / "n99")
    dataset = load_imagenet(cached)
    assert dataset.class_names == (SYNSETS[0], SYNSETS[2], "n99")
    assert shades(dataset.test_images) == [100, 101, 120, 121, 110, 111]


def test_a_damaged_list_is_made_anew(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cached / ".podnet-train.npz"
    whole = file.read_bytes()
    draws = np.random.default_rng(0)
    for damage in range(200):
        content = bytearray(whole)
        if damage % 4 == 0:
            content = content[: draws.integers(len(whole))]
        else:
            content[draws.integers(len(whole))] ^= int(draws.integers(1, 256))
        file.write_bytes(content)
        images = load_imagenet(cached).train_images
        assert isinstance(images, Photos)
        found = [images.sources[i] for i in range(len(images))]
        assert found == [cached / "train" / name / f"{name}_{i}.JPEG" for name in SYNSETS for i in range(3)]
    file.write_bytes(b"damaged")
    check(load_imagenet(cached))
    listed = scans(monkeypatch)
    check(load_imagenet(cached))
    assert listed == []  # and written anew


def test_a_tree_that_cannot_be_written(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenet, "WORTH_CACHING", 1)
    make_tree(tmp_path)
    (tmp_path / ".podnet-train.npz").mkdir()  # in the way, for root too
    (tmp_path / ".podnet-val.npz").mkdir()
    check(load_imagenet(tmp_path))
    assert len(list((own_cache / "podnet").iterdir())) == 2
    listed = scans(monkeypatch)
    check(load_imagenet(tmp_path))
    assert listed == []

    (own_cache / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache / "file"))  # nowhere to write
    check(load_imagenet(tmp_path))
    assert len(listed) == 6


# The real one


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no photos at {REAL}; PODNET_IMAGENET can say where they are")
def test_real_photos() -> None:
    dataset = load_imagenet(REAL, image_size=32)
    assert list(dataset.class_names) == sorted(path.name for path in (REAL / "train").iterdir())
    assert isinstance(dataset.train_images, Photos)
    assert len(dataset.train_images) == len(list((REAL / "train").rglob("*.JPEG")))
    last = int(dataset.train_targets[-1])
    source = dataset.train_images.sources[len(dataset.train_images) - 1]
    assert isinstance(source, Path)
    assert source.parent.name == dataset.class_names[last]
    [(indices, images)] = dataset.train_images.batches([torch.arange(0, len(dataset.train_images), 25)])
    assert len(indices) == len(range(0, len(dataset.train_images), 25))
    means = images.double().mean((0, 2, 3)) / 255  # published numbers of all of ImageNet
    assert means.numpy() == pytest.approx(np.array(dataset.transform.mean), abs=0.06)
