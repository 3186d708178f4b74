"""CIFAR-100 from small files made here by the format's description, and from the real archive where there is one."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from podnet.data.augment import Transform
from podnet.data.cifar import load_cifar100
from podnet.data.dataset import Dataset
from podnet.data.unpickle import load_plain
from podnet.errors import ConfigError, DataError

Files = Mapping[str, bytes]

NAMES = [f"class{i:02}" for i in range(100)]
REAL = Path(
    os.environ.get("PODNET_CIFAR100", Path(__file__).resolve().parents[2] / "shared/data/cifar-100-binary.tar.gz")
)


def fine(record: int) -> int:
    """Each fine label once in a hundred records, out of order; never the coarse label below."""
    return (37 * record + 50) % 100


def pixels(count: int, seed: int) -> np.ndarray:
    data = np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)
    data[7, 0 * 1024 + 1 * 32 + 2] = 201  # red, row 1, column 2
    data[7, 1 * 1024 + 31 * 32 + 0] = 202  # green, row 31, column 0
    data[7, 2 * 1024 + 0 * 32 + 31] = 203  # blue, row 0, column 31
    return data


TRAIN, TEST = pixels(200, seed=1), pixels(100, seed=2)


def records(data: np.ndarray) -> bytes:
    return b"".join(bytes([i % 20, fine(i)]) + row.tobytes() for i, row in enumerate(data))


def entries(data: np.ndarray) -> dict[bytes, Any]:
    return {
        b"coarse_labels": [i % 20 for i in range(len(data))],
        b"data": data,
        b"fine_labels": [fine(i) for i in range(len(data))],
        b"filenames": [b"photo.png"] * len(data),
    }


BINARY: Files = {
    "train.bin": records(TRAIN),
    "test.bin": records(TEST),
    "fine_label_names.txt": "\n".join([*NAMES, "", ""]).encode(),  # the official file ends in empty lines
}
PYTHON: Files = {
    "train": pickle.dumps(entries(TRAIN), protocol=2),
    "test": pickle.dumps(entries(TEST), protocol=2),
    "meta": pickle.dumps({b"fine_label_names": [name.encode() for name in NAMES]}, protocol=2),
}
both_versions = pytest.mark.parametrize(
    ("files", "official"), [(PYTHON, "cifar-100-python"), (BINARY, "cifar-100-binary")], ids=["python", "binary"]
)


def write_folder(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def write_archive(path: Path, files: Files, prefix: str = "cifar-100/", mode: str = "w:gz") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def refusal(path: Path, **options: Any) -> str:
    """The one sentence with which loading `path` is refused."""
    with pytest.raises(DataError) as caught:
        load_cifar100(path, **{"checksums": None, **options})
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def check(dataset: Dataset) -> None:
    """Everything that the files above say, and nothing taken from the loader."""
    for images, targets, data in (
        (dataset.train_images, dataset.train_targets, TRAIN),
        (dataset.test_images, dataset.test_targets, TEST),
    ):
        assert isinstance(images, torch.Tensor)
        assert images.dtype == torch.uint8
        assert images.is_contiguous()
        assert images.shape == (len(data), 3, 32, 32)
        assert [int(images[7, 0, 1, 2]), int(images[7, 1, 31, 0]), int(images[7, 2, 0, 31])] == [201, 202, 203]
        assert bytes(images.flatten().tolist()) == data.tobytes()
        assert targets.dtype == torch.int64
        assert targets.tolist() == [fine(i) for i in range(len(data))]
    assert dataset.class_names == tuple(NAMES)
    assert dataset.name == "cifar100"
    assert dataset.shape == (3, 32, 32)
    assert dataset.transform == Transform((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), pad=4, flip=True)


def test_both_versions_give_the_same_dataset(tmp_path: Path) -> None:
    python = load_cifar100(write_folder(tmp_path / "python", PYTHON), checksums=None)
    binary = load_cifar100(write_folder(tmp_path / "binary", BINARY), checksums=None)
    for field in dataclasses.fields(Dataset):
        one, other = getattr(python, field.name), getattr(binary, field.name)
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_images_scaled_down_are_means_of_their_pixels(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "files", BINARY)
    whole = load_cifar100(folder, checksums=None)
    for size in (16, 8):
        small = load_cifar100(folder, checksums=None, image_size=size)
        step = 32 // size
        for large, scaled in ((whole.train_images, small.train_images), (whole.test_images, small.test_images)):
            blocks = large.numpy().astype(float).reshape(-1, 3, size, step, size, step)
            assert np.abs(scaled.numpy() - blocks.mean((3, 5))).max() <= 0.5
        assert (small.shape, small.transform.pad) == ((3, size, size), size // 8)
    with pytest.raises(ConfigError, match="image_size is 12"):
        load_cifar100(folder, checksums=None, image_size=12)


# Where the files may be


@both_versions
def test_extracted_folder(tmp_path: Path, files: Files, official: str) -> None:
    check(load_cifar100(write_folder(tmp_path / "any name", files), checksums=None))


@both_versions
def test_folder_that_holds_the_extracted_folder(tmp_path: Path, files: Files, official: str) -> None:
    write_folder(tmp_path / official, files)
    check(load_cifar100(str(tmp_path), checksums=None))


@both_versions
@pytest.mark.parametrize("prefix", ["cifar-100/", "./a/b/", ""])
def test_archive_of_any_name_and_layout(tmp_path: Path, files: Files, official: str, prefix: str) -> None:
    check(load_cifar100(write_archive(tmp_path / "download", files, prefix), checksums=None))


@both_versions
def test_folder_that_holds_the_archive(tmp_path: Path, files: Files, official: str) -> None:
    write_archive(tmp_path / "a-first.tar.gz", {"unrelated": b"0"})
    write_archive(tmp_path / f"{official}.tar.gz", files)
    check(load_cifar100(tmp_path, checksums=None))


def test_folder_that_holds_one_archive_of_another_name(tmp_path: Path) -> None:
    write_archive(tmp_path / "downloaded.tgz", BINARY)
    check(load_cifar100(tmp_path, checksums=None))


def test_archive_beside_a_folder_that_is_not_complete(tmp_path: Path) -> None:
    write_folder(tmp_path / "cifar-100-python", {"train": PYTHON["train"]})
    write_archive(tmp_path / "cifar-100-python.tar.gz", PYTHON)
    check(load_cifar100(tmp_path, checksums=None))


def test_archive_is_not_extracted_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_archive(tmp_path / "cifar.tar.gz", BINARY, prefix="../escaped/")
    check(load_cifar100(tmp_path, checksums=None))
    assert [p.name for p in tmp_path.rglob("*")] == ["cifar.tar.gz"]
    assert not (tmp_path.parent / "escaped").exists()


def test_images_can_be_written_to(tmp_path: Path) -> None:
    dataset = load_cifar100(write_folder(tmp_path, BINARY), checksums=None)
    assert isinstance(dataset.train_images, torch.Tensor)
    dataset.train_images[0] = 9
    assert dataset.train_images[0].float().mean() == 9


def test_images_lie_one_after_the_other_however_the_pickle_has_them(tmp_path: Path) -> None:
    """Otherwise each pixel of a batch is in another place of memory, and taking it is many times slower."""
    columns = {**PYTHON, "train": pickle.dumps(entries(np.asfortranarray(TRAIN)), protocol=2)}
    dataset = load_cifar100(write_folder(tmp_path, columns), checksums=None)
    assert isinstance(dataset.train_images, torch.Tensor)
    assert dataset.train_images.is_contiguous()
    assert torch.equal(dataset.train_images.flatten(1), torch.from_numpy(TRAIN))


# Checksums


def digests(files: Files, algorithm: str) -> dict[str, str]:
    return {name: f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}" for name, data in files.items()}


@both_versions
def test_files_other_than_the_official_ones_are_refused(tmp_path: Path, files: Files, official: str) -> None:
    folder = write_folder(tmp_path, files)
    with pytest.raises(DataError, match=r"train(\.bin)? is damaged or not the official file.*download it again"):
        load_cifar100(folder)


@pytest.mark.parametrize("name", PYTHON)
def test_one_changed_byte_is_found(tmp_path: Path, name: str) -> None:
    checksums = digests(PYTHON, "md5")
    check(load_cifar100(write_folder(tmp_path, PYTHON), checksums))
    changed = bytearray(PYTHON[name])
    changed[len(changed) // 2] ^= 1
    (tmp_path / name).write_bytes(changed)
    assert f": {name} is damaged or not the official file" in refusal(tmp_path, checksums=checksums)


def test_a_checksum_of_the_other_kind(tmp_path: Path) -> None:
    check(load_cifar100(write_archive(tmp_path / "a.tgz", BINARY), digests(BINARY, "sha1")))


# What can be wrong with the files


def test_missing_path(tmp_path: Path) -> None:
    assert "nowhere does not exist" in refusal(tmp_path / "nowhere")


def test_empty_folder(tmp_path: Path) -> None:
    sentence = refusal(tmp_path)
    for looked_for in ("train, test, meta", "train.bin, test.bin, fine_label_names.txt", ".tar.gz", "cifar-100-python"):
        assert looked_for in sentence


@pytest.mark.parametrize("size", [5, 40, 5_000, 500_000])
def test_truncated_archive(tmp_path: Path, size: int) -> None:
    archive = write_archive(tmp_path / "cut.tar.gz", BINARY)
    assert archive.stat().st_size > 600_000
    os.truncate(archive, size)
    assert "cut.tar.gz is truncated or damaged" in refusal(archive)


@pytest.mark.parametrize("mode", ["w", "w:xz"])
def test_truncated_archive_packed_otherwise(tmp_path: Path, mode: str) -> None:
    archive = write_archive(tmp_path / "cut.tar", BINARY, mode=mode)
    check(load_cifar100(archive, checksums=None))
    os.truncate(archive, 300_000)
    assert "cut.tar is truncated or damaged" in refusal(archive)


@pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
def test_garbage_in_the_middle_of_an_archive(tmp_path: Path, mode: str) -> None:
    archive = write_archive(tmp_path / "bad.tar.gz", BINARY, mode=mode)
    content = bytearray(archive.read_bytes())
    content[300_000:300_100] = b"\xff" * 100
    archive.write_bytes(content)
    assert "bad.tar.gz" in refusal(archive, checksums=digests(BINARY, "sha1"))


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>404</html>", bytes(range(256)) * 20, gzip.compress(b"no tar in it" * 99), BINARY["test.bin"]],
    ids=["empty", "page", "bytes", "gzip", "records"],
)
def test_not_an_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "page.tar.gz").write_bytes(content)
    assert "page.tar.gz is not a tar archive" in refusal(tmp_path)
    assert "damaged" not in refusal(tmp_path)


@pytest.mark.parametrize(
    ("files", "name"), [pytest.param(files, name, id=name) for files in (PYTHON, BINARY) for name in files]
)
def test_missing_member(tmp_path: Path, files: Files, name: str) -> None:
    rest = {other: data for other, data in files.items() if other != name}
    sentence = refusal(write_archive(tmp_path / "a.tar.gz", rest))
    assert "not a complete CIFAR-100 archive" in sentence
    assert f"found {', '.join(rest)};" in sentence
    assert "does not contain CIFAR-100" in refusal(write_folder(tmp_path / "folder", rest))


def test_member_that_is_not_a_regular_file(tmp_path: Path) -> None:
    archive = tmp_path / "links.tar"
    secret = tmp_path / "secret"
    secret.write_bytes(BINARY["train.bin"])
    with tarfile.open(archive, "w") as tar:
        for name, kind in (("train.bin", tarfile.SYMTYPE), ("test.bin", tarfile.LNKTYPE), ("meta", tarfile.DIRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, str(secret)
            tar.addfile(member)
    assert "found none of them" in refusal(archive)


@pytest.mark.parametrize("name", ["train.bin", "test.bin"])
def test_file_of_a_broken_record(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, {**BINARY, name: BINARY[name][:-1]})
    sentence = refusal(tmp_path)
    assert f"{name} has {len(BINARY[name]) - 1} bytes" in sentence
    assert "3074" in sentence


def test_label_out_of_range_in_the_binary_version(tmp_path: Path) -> None:
    data = bytearray(BINARY["test.bin"])
    data[42 * 3074 + 1] = 100
    write_folder(tmp_path, {**BINARY, "test.bin": bytes(data)})
    assert "test.bin: record 42 (from 0) has a label outside 0 to 99" in refusal(tmp_path)


@pytest.mark.parametrize("label", [100, -1, 10**5000], ids=["100", "-1", "huge"])
def test_label_out_of_range_in_the_python_version(tmp_path: Path, label: int) -> None:
    content = entries(TRAIN)
    content[b"fine_labels"][42] = label
    write_folder(tmp_path, {**PYTHON, "train": pickle.dumps(content, protocol=2)})
    assert "train: record 42 (from 0) has a label outside 0 to 99" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({b"data": None}, "no images"),
        ({b"data": TRAIN.astype(np.int64)}, "no images"),
        ({b"data": TRAIN[:, 1:]}, "no images"),
        ({b"data": TRAIN[0]}, "no images"),
        ({b"data": TRAIN[1:]}, "train has 199 images but 200 labels"),
        ({b"fine_labels": None}, "no list of fine labels"),
        ({b"fine_labels": ["3"] * 200}, "no list of fine labels"),
    ],
)
def test_pickle_of_other_content(tmp_path: Path, change: dict[bytes, Any], complaint: str) -> None:
    write_folder(tmp_path, {**PYTHON, "train": pickle.dumps({**entries(TRAIN), **change}, protocol=2)})
    assert complaint in refusal(tmp_path)


def test_pickle_that_is_no_dict(tmp_path: Path) -> None:
    write_folder(tmp_path, {**PYTHON, "test": pickle.dumps([1, 2], protocol=2)})
    assert "test contains a list, not a dict" in refusal(tmp_path)


@pytest.mark.parametrize("names", [NAMES[:99], NAMES + NAMES, []])
def test_wrong_number_of_class_names(tmp_path: Path, names: list[str]) -> None:
    write_folder(tmp_path / "b", {**BINARY, "fine_label_names.txt": "\n".join(names).encode()})
    assert f"fine_label_names.txt has {len(names)} fine class names instead of 100" in refusal(tmp_path / "b")
    write_folder(tmp_path / "p", {**PYTHON, "meta": pickle.dumps({"fine_label_names": names}, protocol=2)})
    assert f"meta has {len(names)} fine class names instead of 100" in refusal(tmp_path / "p")


def test_file_without_records(tmp_path: Path) -> None:
    assert "no training images of class00" in refusal(write_folder(tmp_path, {**BINARY, "train.bin": b""}))


def test_absurdly_large_member_is_not_read(tmp_path: Path) -> None:
    member = tarfile.TarInfo("cifar-100-binary/train.bin")
    member.size = 500_000_000
    (tmp_path / "bomb.tar").write_bytes(member.tobuf() + bytes(10_240))
    assert "bomb.tar: train.bin has 500,000,000 bytes" in refusal(tmp_path)


def test_absurdly_large_file_is_not_read(tmp_path: Path) -> None:
    write_folder(tmp_path, BINARY)
    os.truncate(tmp_path / "test.bin", 400_000_001)  # sparse: takes no room
    assert "test.bin has 400,000,001 bytes" in refusal(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of another kind")
def test_unreadable_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "closed", BINARY)
    folder.chmod(0)
    try:
        if was_root := os.geteuid() == 0:
            os.seteuid(65534)  # root may read everything
        try:
            sentence = refusal(folder)
        finally:
            if was_root:
                os.seteuid(0)
    finally:
        folder.chmod(0o700)
    assert "closed" in sentence
    assert "cannot be read" in sentence


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = write_archive(tmp_path / "cifar.tar.gz", BINARY)

    def denied(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    assert refusal(tmp_path).startswith(f"{archive} cannot be read: Permission denied")


# Pickles: those of Python 2, and those that would run something


def python2_string(data: bytes) -> bytes:
    """How Python 2 pickles its str: an opcode that Python 3 never writes."""
    return b"U" + bytes([len(data)]) + data if len(data) < 256 else b"T" + struct.pack("<i", len(data)) + data


def python2_array(data: np.ndarray) -> bytes:
    """A uint8 matrix as numpy 1 under Python 2 pickled it with protocol 2."""
    rows, columns = data.shape
    return b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python2_string(b"b") + b"\x87R",
            b"(K\x01" + b"J" + struct.pack("<i", rows) + b"J" + struct.pack("<i", columns) + b"\x86",
            b"cnumpy\ndtype\n" + python2_string(b"u1") + b"K\x00K\x01\x87R",
            b"(K\x03" + python2_string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89" + python2_string(data.tobytes()) + b"tb",
        ]
    )


def python2_list(items: list[bytes]) -> bytes:
    return b"](" + b"".join(items) + b"e"


def python2_pickle(content: Mapping[bytes, bytes]) -> bytes:
    return b"\x80\x02}(" + b"".join(python2_string(key) + value for key, value in content.items()) + b"u."


def test_pickles_of_python_2(tmp_path: Path) -> None:
    def split(data: np.ndarray) -> bytes:
        labels = python2_list([b"K" + bytes([fine(i)]) for i in range(len(data))])
        return python2_pickle({b"fine_labels": labels, b"data": python2_array(data)})

    meta = python2_pickle({b"fine_label_names": python2_list([python2_string(name.encode()) for name in NAMES])})
    write_folder(tmp_path, {"train": split(TRAIN), "test": split(TEST), "meta": meta})
    check(load_cifar100(tmp_path, checksums=None))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_plain_values(protocol: int) -> None:
    value = {"a": [1, -2.5, True, None, (b"\x00\xff", "é")], b"b": {3: 2**70}, "n": np.int64(7), "f": np.float32(0.5)}
    assert load_plain(pickle.dumps(value, protocol=protocol), "it") == value


@pytest.mark.parametrize("kind", ["u1", "<i2", ">i4", "<f8", ">c16", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_plain_arrays(kind: str, order: Any) -> None:
    array = np.array([[0, 1, 2], [3, 4, 100]], dtype=kind, order=order)
    loaded = load_plain(pickle.dumps(array, protocol=2), "it")
    assert isinstance(loaded, np.ndarray)
    assert loaded.dtype == np.dtype(kind).newbyteorder("=")
    assert loaded.tolist() == array.tolist()


class Calls:
    """Pickles as a call, which `pickle.loads` then makes; `state` is handed to what it returns."""

    def __init__(self, function: Callable[..., Any], *args: Any, state: Any = None) -> None:
        self.call = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> Any:
        return self.call


ATTACKS: dict[str, Callable[[Path], Any]] = {
    f"{os.system.__module__}.system": lambda mark: Calls(os.system, f"echo > '{mark}'"),
    "builtin__.eval": lambda mark: Calls(eval, f"open({str(mark)!r}, 'w').close()"),
    "builtin__.exec": lambda mark: Calls(exec, f"open({str(mark)!r}, 'w').close()"),
    "builtin__.getattr": lambda mark: Calls(Path.touch, mark),
    "a numpy array of 'O8'": lambda mark: np.array([Calls(os.mkdir, str(mark))], dtype=object),
}


@pytest.mark.parametrize("used", ATTACKS)
def test_nothing_in_a_pickle_is_run(tmp_path: Path, used: str) -> None:
    mark = tmp_path / "it-ran"
    pickled = pickle.dumps({**entries(TRAIN), b"data": ATTACKS[used](mark)}, protocol=2)

    write_folder(tmp_path / "cifar", {**PYTHON, "train": pickled})
    sentence = refusal(tmp_path / "cifar")
    assert not mark.exists()
    assert used in sentence
    assert "train tried to use" in sentence
    assert "was not run" in sentence

    assert "damaged or not the official" in refusal(tmp_path / "cifar", checksums=digests(PYTHON, "md5"))  # seen first
    pickle.loads(pickled)  # the proof that the attack is one
    assert mark.exists()


def test_other_functions_of_the_allowed_modules_are_refused() -> None:
    for refused in (b"cnumpy\nload\n", b"cnumpy.core.multiarray\nfromfile\n", b"c_codecs\nlookup\n", b"cnumpy\nsave\n"):
        with pytest.raises(DataError, match="was not run"):
            load_plain(refused + b".", "it")
    with pytest.raises(DataError, match="codec 'zlib'"):
        load_plain(b"c_codecs\nencode\n(Vtext\nVzlib\ntR.", "it")


POINTERS = (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0)  # claims to hold no objects: numpy would crash
RECONSTRUCT: Any = np.zeros(1).__reduce__()[0]


@pytest.mark.parametrize(
    ("forged", "complaint"),
    [
        (Calls(np.dtype, "V8", False, True, state=POINTERS), "a numpy array of 'V8'"),
        (Calls(np.dtype, "u1,O", False, True), "a numpy array of 'u1,O'"),
        (Calls(np.dtype, "u1", False, True, state=(3, "O,", None, None, None, -1, -1, 0)), "byte order 'O,'"),
        (Calls(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (9,), np.dtype("u1"), False, b"short")), "has 5 bytes"),
        (Calls(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (-1, -5), np.dtype("u1"), False, b"short")), "or shape"),
        (Calls(RECONSTRUCT, np.ndarray, (0,), b"b", state=(1, (1,), np.dtype("u1"), False, [b"x"])), "without numbers"),
        (Calls(np.ndarray, (10**12,)), "not callable"),
    ],
    ids=["pointers", "objects", "order", "size", "shape", "list", "huge"],
)
def test_forged_arrays_are_refused(forged: Calls, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        load_plain(pickle.dumps(forged, protocol=2), "it")


def test_damaged_pickles() -> None:
    whole = pickle.dumps(entries(TEST[:1]), protocol=2)
    for size in range(len(whole)):
        with pytest.raises(DataError, match=r"it is damaged and cannot be unpickled \(.+\); download it again\."):
            load_plain(whole[:size], "it")
    for garbage in (b"not a pickle", b"\x80\x02N", b"\x80\x63N.", b"R.", b"Pid\n.", b"h\x09."):
        with pytest.raises(DataError, match="it is damaged"):
            load_plain(garbage, "it")


# The real one


@pytest.mark.skipif(not REAL.exists(), reason=f"no CIFAR-100 at {REAL}; PODNET_CIFAR100 can say where it is")
def test_real_archive() -> None:
    dataset = load_cifar100(REAL)
    assert isinstance(dataset.train_images, torch.Tensor)
    assert isinstance(dataset.test_images, torch.Tensor)
    assert dataset.train_images.shape == (50_000, 3, 32, 32)
    assert dataset.test_images.shape == (10_000, 3, 32, 32)
    assert torch.bincount(dataset.train_targets).tolist() == [500] * 100
    assert torch.bincount(dataset.test_targets).tolist() == [100] * 100
    assert (dataset.class_names[0], dataset.class_names[99]) == ("apple", "worm")
    assert list(dataset.class_names) == sorted(dataset.class_names)
    for channel, mean in enumerate(dataset.transform.mean):  # published numbers: planes taken for another would show
        total = int(dataset.train_images[:, channel].sum(dtype=torch.int64))
        assert total / (50_000 * 32 * 32 * 255) == pytest.approx(mean, abs=2e-4)
