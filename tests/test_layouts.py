"""TinyImageNet and CUB-200-2011, made here by their descriptions from a few tiny photos."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from podnet.cli import main
from podnet.data import SOURCES, load
from podnet.data.layouts import load_cub200, load_tinyimagenet
from podnet.data.photos import Photos
from podnet.errors import ConfigError, DataError
from test_imagenet import photo, shades

SYNSETS = ("n02", "n01", "n10")  # as they are listed; labels follow the sorted names
BIRDS = ("002.Laysan_Albatross", "001.Black_footed_Albatross", "010.Red_winged_Blackbird")


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def tiny(root: Path) -> Path:
    """Three training photos of each class, two for validation, mixed; the red of a photo tells which it is."""
    lines = []
    for number, synset in enumerate(SYNSETS):
        for i in range(3):
            write(root / "train" / synset / "images" / f"{synset}_{i}.JPEG", photo(10 * number + i))
        write(root / "train" / synset / f"{synset}_boxes.txt", f"{synset}_0.JPEG\t0\t0\t62\t63\n")
    for i in range(6):
        write(root / "val" / "images" / f"val_{i}.JPEG", photo(100 + i))
        lines.append(f"val_{i}.JPEG\t{SYNSETS[i % 3]}\t0\t32\t44\t62")
    write(root / "val" / "val_annotations.txt", "\n".join(lines) + "\n")
    write(root / "test" / "images" / "test_0.JPEG", photo(250))
    write(root / "wnids.txt", "\n".join(SYNSETS))
    return root


def birds(root: Path) -> Path:
    """Photos 1 to 12, four of each class; every fourth is for testing."""
    rows: dict[str, list[str]] = {name: [] for name in ("images", "image_class_labels", "train_test_split")}
    for number in range(1, 13):
        bird = BIRDS[number % 3]
        name = f"{bird}/Bird_{number:04}.jpg"
        write(root / "images" / name, photo(number))
        rows["images"].append(f"{number} {name}")
        rows["image_class_labels"].append(f"{number} {int(bird[:3])}")
        rows["train_test_split"].append(f"{number} {int(number > 3)}")
    for name, lines in rows.items():
        write(root / f"{name}.txt", "\n".join(lines) + "\n")
    return root


def test_tinyimagenet(tmp_path: Path) -> None:
    root = tiny(tmp_path / "tiny-imagenet-200")
    for path in (root, tmp_path):
        dataset = load_tinyimagenet(path, image_size=16)
        assert dataset.class_names == ("n01", "n02", "n10")
        assert dataset.train_targets.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert shades(dataset.train_images) == [10, 11, 12, 0, 1, 2, 20, 21, 22]
        assert dataset.test_targets.tolist() == [1, 0, 2, 1, 0, 2]  # as the annotations say
        assert shades(dataset.test_images) == [100, 101, 102, 103, 104, 105]
        assert dataset.shape == (3, 16, 16)
    assert load_tinyimagenet(root).shape == (3, 64, 64)
    assert isinstance(dataset.train_images, Photos)


def test_cub(tmp_path: Path) -> None:
    root = birds(tmp_path / "CUB_200_2011")
    for path in (root, tmp_path):
        dataset = load_cub200(path, image_size=16, unreadable="skip")
        assert dataset.class_names == ("001.Black_footed_Albatross", "002.Laysan_Albatross", "010.Red_winged_Blackbird")
        # photo n has the class BIRDS[n % 3]: 2, 1 and 10 of its list
        assert shades(dataset.train_images) == list(range(4, 13))
        assert dataset.train_targets.tolist() == [0, 2, 1] * 3
        assert shades(dataset.test_images) == [1, 2, 3]
        assert dataset.test_targets.tolist() == [0, 2, 1]
        assert dataset.train_images.unreadable == "skip"
    assert load_cub200(root).shape == (3, 224, 224)


def refusal(loader, path: Path) -> str:
    with pytest.raises(DataError) as caught:
        loader(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("part", ["train", "val/images", "val/val_annotations.txt"])
def test_parts_of_tinyimagenet_that_are_missing(tmp_path: Path, part: str) -> None:
    root = tiny(tmp_path / "tiny-imagenet-200")
    (root / part).rename(tmp_path / "elsewhere")
    said = refusal(load_tinyimagenet, root)
    assert part in said
    assert "give the folder tiny-imagenet-200, or one that holds it" in said


def test_annotations_that_make_no_sense(tmp_path: Path) -> None:
    root = tiny(tmp_path)
    file = root / "val" / "val_annotations.txt"
    whole = file.read_text()
    file.write_text(whole + "val_9.JPEG\tn99\t0\t0\t1\t1\n")
    assert "val_annotations.txt, line 7: 'val_9.JPEG n99' is not a photo and a class of train" in refusal(
        load_tinyimagenet, root
    )
    file.write_text("val_9.JPEG\n" + whole)
    assert "line 1: 'val_9.JPEG'" in refusal(load_tinyimagenet, root)
    file.write_text("\n".join(whole.splitlines()[:2]))
    assert "no test images of n10" in refusal(load_tinyimagenet, root)
    (root / "train" / "n05" / "images").mkdir(parents=True)
    assert "n05/images has no photos" in refusal(load_tinyimagenet, root)
    (root / "train" / "n05" / "images").rmdir()
    assert refusal(load_tinyimagenet, root).startswith(f"{root}/train/n05/images/ cannot be read: No such file")


@pytest.mark.parametrize("part", ["images", "images.txt", "image_class_labels.txt", "train_test_split.txt"])
def test_parts_of_cub_that_are_missing(tmp_path: Path, part: str) -> None:
    root = birds(tmp_path / "CUB_200_2011")
    (root / part).rename(tmp_path / "elsewhere")
    said = refusal(load_cub200, root)
    assert part in said
    assert "give the folder CUB_200_2011, or one that holds it" in said


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("images.txt", "13 999.Bird/a.jpg", "photo 13 is in images.txt, but not in image_class_labels.txt"),
        ("image_class_labels.txt", "14 1", "photo 14 is in image_class_labels.txt, but not in images.txt"),
        ("train_test_split.txt", "15 1", "photo 15 is in train_test_split.txt, but not in images.txt"),
        ("train_test_split.txt", "3 1", "train_test_split.txt, line 13: '3 1' is not a new number and a value"),
        ("images.txt", "x", "images.txt, line 13: 'x' is not a new number"),
        ("images.txt", "9" * 5000 + " x", " x' is not a new number"),
    ],
)
def test_lists_of_cub_that_make_no_sense(tmp_path: Path, file: str, line: str, complaint: str) -> None:
    root = birds(tmp_path)
    (root / file).write_text((root / file).read_text() + line + "\n")
    assert complaint in refusal(load_cub200, root)


def test_lists_of_cub_that_are_empty(tmp_path: Path) -> None:
    root = birds(tmp_path)
    for name in ("images.txt", "image_class_labels.txt", "train_test_split.txt"):
        (root / name).write_text("")
    assert refusal(load_cub200, root) == f"{root}/images.txt is empty; get the file again."


def test_a_photo_that_is_for_neither(tmp_path: Path) -> None:
    root = birds(tmp_path)
    file = root / "train_test_split.txt"
    file.write_text(file.read_text().replace("5 1", "5 2"))
    assert "train_test_split.txt says neither 0 nor 1 of photo 5" in refusal(load_cub200, root)


@pytest.mark.parametrize(("name", "make", "classes"), [("tinyimagenet", tiny, 3), ("cub200", birds, 3)])
def test_they_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, make, classes: int) -> None:
    root = make(tmp_path / "data")
    options = ["--classes", "3", "--base", "2", "--image-size", "16", "--epochs", "1", "--memory-per-class", "1"]
    options += ["--method", "replay", "--workers", "0", "--threads", "1", "--output", str(tmp_path / "run")]
    assert main(["run", "--dataset", name, "--data-path", str(root), *options]) == 0
    assert f"accuracy on {classes} classes" in capsys.readouterr().out


def test_they_are_listed_and_take_only_their_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("cifar10 ", "tinyimagenet", "cub200"))
    with pytest.raises(ConfigError, match="cub200 does not use --subset"):
        load("cub200", str(tmp_path), {"subset": "released"})
    assert {SOURCES[name].classes for name in ("tinyimagenet", "cub200")} == {200}


def test_targets_are_numbers_for_torch(tmp_path: Path) -> None:
    for dataset in (load_tinyimagenet(tiny(tmp_path / "a")), load_cub200(birds(tmp_path / "b"))):
        assert dataset.train_targets.dtype == dataset.test_targets.dtype == torch.int64
