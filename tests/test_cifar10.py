"""CIFAR-10 from small files made here by the format's description; what it shares with CIFAR-100 is in test_cifar."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from podnet.cli import main
from podnet.data.augment import Transform
from podnet.data.cifar import load_cifar10, load_cifar100
from podnet.data.cifar_kinds import CIFAR10, CIFAR100
from podnet.data.dataset import Dataset
from podnet.errors import ConfigError, DataError
from test_cifar import PYTHON as CIFAR100_PYTHON
from test_cifar import write_archive, write_folder

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SIZES = {f"data_batch_{number}": 10 * number for number in range(1, 6)} | {"test_batch": 20}


def pixels(name: str) -> np.ndarray:
    """Each batch has its own; the second record begins with the red pixel of row 0, column 0."""
    seed = list(SIZES).index(name)
    data = np.random.default_rng(seed).integers(0, 256, (SIZES[name], 3072), dtype=np.uint8)
    data[1, [0, 33, 1024, 3071]] = [seed, 100 + seed, 150 + seed, 200 + seed]
    return data


def labels(name: str) -> list[int]:
    return [(3 * i + SIZES[name]) % 10 for i in range(SIZES[name])]


def record(name: str) -> bytes:
    return b"".join(bytes([label]) + row.tobytes() for label, row in zip(labels(name), pixels(name), strict=True))


BINARY = {f"{name}.bin": record(name) for name in SIZES} | {"batches.meta.txt": ("\n".join(NAMES) + "\n\n").encode()}
PYTHON = {
    name: pickle.dumps({b"batch_label": b"one of six", b"labels": labels(name), b"data": pixels(name)}, protocol=2)
    for name in SIZES
} | {"batches.meta": pickle.dumps({b"num_vis": 3072, b"label_names": [n.encode() for n in NAMES]}, protocol=2)}
both = pytest.mark.parametrize(
    ("files", "folder"), [(PYTHON, "cifar-10-batches-py"), (BINARY, "cifar-10-batches-bin")], ids=["python", "binary"]
)


def check(dataset: Dataset) -> None:
    train = [name for name in SIZES if name != "test_batch"]
    for images, targets, parts in (
        (dataset.train_images, dataset.train_targets, train),
        (dataset.test_images, dataset.test_targets, ["test_batch"]),
    ):
        assert isinstance(images, torch.Tensor)
        assert bytes(images.flatten().tolist()) == b"".join(pixels(part).tobytes() for part in parts)
        assert targets.tolist() == [label for part in parts for label in labels(part)]
    assert dataset.train_images.shape == (150, 3, 32, 32)
    second = dataset.train_images[1]  # batch 1 has the seed 0
    assert [int(second[0, 0, 0]), int(second[0, 1, 1]), int(second[1, 0, 0]), int(second[2, 31, 31])] == [
        0,
        100,
        150,
        200,
    ]
    assert dataset.class_names == tuple(NAMES)
    assert (dataset.name, dataset.shape) == ("cifar10", (3, 32, 32))
    assert dataset.transform == Transform((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), pad=4, flip=True)


@both
def test_folders_and_archives(tmp_path: Path, files: Mapping[str, bytes], folder: str) -> None:
    check(load_cifar10(write_folder(tmp_path / "plain", files), checksums=None))
    write_folder(tmp_path / "above" / folder, files)
    check(load_cifar10(tmp_path / "above", checksums=None))
    check(load_cifar10(write_archive(tmp_path / "any.tar.gz", files, f"{folder}/"), checksums=None))
    check(load_cifar10(tmp_path, checksums=None))  # the only archive there


def test_it_is_not_taken_for_the_other(tmp_path: Path) -> None:
    write_archive(tmp_path / "cifar-100-python.tar.gz", CIFAR100_PYTHON)
    with pytest.raises(DataError, match=r"not a complete CIFAR-10 archive.*data_batch_1.*found none of them"):
        load_cifar10(tmp_path, checksums=None)
    write_archive(tmp_path / "cifar-10-python.tar.gz", PYTHON)
    check(load_cifar10(tmp_path, checksums=None))
    assert load_cifar100(tmp_path, checksums=None).name == "cifar100"


@both
@pytest.mark.parametrize("number", range(7))
def test_every_file_is_needed(tmp_path: Path, files: Mapping[str, bytes], folder: str, number: int) -> None:
    missing = list(files)[number]
    write_folder(tmp_path, {name: data for name, data in files.items() if name != missing})
    with pytest.raises(DataError, match="does not contain CIFAR-10"):
        load_cifar10(tmp_path, checksums=None)


@both
def test_files_other_than_the_official_ones_are_refused(
    tmp_path: Path, files: Mapping[str, bytes], folder: str
) -> None:
    with pytest.raises(DataError, match=r"data_batch_1(\.bin)? is damaged or not the official file \(md5 is not"):
        load_cifar10(write_folder(tmp_path, files))
    own = {name: f"md5:{hashlib.md5(data).hexdigest()}" for name, data in files.items()}
    check(load_cifar10(tmp_path, own))
    last = list(files)[4]
    changed = bytearray(files[last])
    changed[-5] ^= 1
    (tmp_path / last).write_bytes(changed)
    with pytest.raises(DataError, match=f"{last} is damaged"):
        load_cifar10(tmp_path, own)


def test_every_file_but_the_list_of_names_has_an_official_checksum() -> None:
    for kind in (CIFAR10, CIFAR100):
        assert kind.checksums.keys() == {*kind.python.files, *kind.binary.files} - {kind.binary.names}
        lengths = {"md5": 32, "sha1": 40}
        assert all(
            len(value.partition(":")[2]) == lengths[value.partition(":")[0]] for value in kind.checksums.values()
        )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({b"labels": None}, r"data_batch_3 has no list of labels \(labels\)"),
        ({b"labels": [10] * 30}, "record 0 .from 0. has a label outside 0 to 9"),
        ({b"labels": [0] * 29}, "data_batch_3 has 30 images but 29 labels"),
        ({b"data": np.zeros((30, 3071), np.uint8)}, "no images"),
    ],
)
def test_other_content(tmp_path: Path, change: dict[bytes, Any], complaint: str) -> None:
    content = {b"labels": labels("data_batch_3"), b"data": pixels("data_batch_3")} | change
    write_folder(tmp_path, {**PYTHON, "data_batch_3": pickle.dumps(content, protocol=2)})
    with pytest.raises(DataError, match=complaint):
        load_cifar10(tmp_path, checksums=None)


def test_records_and_names_of_the_binary_version(tmp_path: Path) -> None:
    write_folder(tmp_path, {**BINARY, "data_batch_2.bin": BINARY["data_batch_2.bin"][:-1]})
    with pytest.raises(DataError, match="not a multiple of the record size 3073"):
        load_cifar10(tmp_path, checksums=None)
    write_folder(tmp_path, {**BINARY, "batches.meta.txt": b"airplane\n"})
    with pytest.raises(DataError, match=r"batches\.meta\.txt has 1 class names instead of 10"):
        load_cifar10(tmp_path, checksums=None)
    with pytest.raises(ConfigError, match="for CIFAR-10 it must be 32"):
        load_cifar10(tmp_path, checksums=None, image_size=20)


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "files", BINARY)
    run = ["run", "--dataset", "cifar10", "--data-path", str(folder), "--output", str(tmp_path / "run")]
    assert main(run) == 2
    assert "data_batch_1.bin is damaged or not the official file" in capsys.readouterr().err
    monkeypatch.setattr("podnet.data.cifar.load_cifar10.__defaults__", (None, 32))
    options = [
        "--method",
        "replay",
        "--image-size",
        "8",
        "--epochs",
        "1",
        "--increment",
        "5",
        "--memory-per-class",
        "2",
    ]
    assert main([*run, *options, "--threads", "1"]) == 0
    assert "accuracy on 10 classes" in capsys.readouterr().out
