"""Tensor files: what goes in comes out, and no change of any byte goes unnoticed."""

from __future__ import annotations

import errno
import os
import resource
import stat

import pytest
import torch
from safetensors import safe_open

from podnet.errors import DamagedFileError, PodnetError
from podnet.io.tensors import load_tensors, save_tensors

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def small(path):
    save_tensors(path, {"a": torch.tensor([1.5, -2.0]), "b": torch.tensor([3], dtype=torch.uint8)}, {"epoch": 7})
    return path.read_bytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)], ids=str)
def test_tensors_come_back_bit_for_bit(tmp_path, dtype, shape):
    tensor = (torch.arange(6)[: max(1, int(torch.tensor(shape).prod()))] % 5).to(dtype)
    tensor = tensor[:0].reshape(shape) if 0 in shape else tensor.reshape(shape)
    save_tensors(tmp_path / "t", {"x": tensor}, {})
    loaded, _ = load_tensors(tmp_path / "t")
    assert list(loaded) == ["x"]
    assert loaded["x"].dtype == dtype
    assert loaded["x"].shape == tensor.shape
    assert torch.equal(loaded["x"], tensor)


def test_nan_infinity_and_signed_zero_come_back_as_they_were(tmp_path):
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45])
    save_tensors(tmp_path / "t", {"x": odd}, {})
    assert torch.equal(load_tensors(tmp_path / "t")[0]["x"].view(torch.int32), odd.view(torch.int32))


def test_parameters_views_and_other_layouts_are_stored_by_value(tmp_path):
    whole = torch.arange(12.0)
    tensors = {
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "front": whole[:5],
        "back": whole[5:],
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "channels last": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
    }
    save_tensors(tmp_path / "t", tensors, {})
    loaded, _ = load_tensors(tmp_path / "t")
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    assert not loaded["parameter"].requires_grad


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"epoch": 3, "rate": 0.1, "done": False, "sizes": [5, 1], "previous": None, "nested": {"a": [{"b": 1}]}},
        {"class_names": ["naïve", "猫", 'a "quoted" name', "line\nbreak", "back\\slash", "\x00"]},
        {"sha256": "0" * 64, "trap": '"sha256":"' + "f" * 64 + '"', "podnet": {"sha256": "x"}},
    ],
    ids=["empty", "plain", "text", "looks like the checksum"],
)
def test_metadata_come_back(tmp_path, meta):
    save_tensors(tmp_path / "t", {"sha256": torch.ones(1), "podnet": torch.zeros(1)}, meta)
    tensors, loaded = load_tensors(tmp_path / "t")
    assert loaded == meta
    assert tensors["sha256"].item() == 1


def test_a_file_without_tensors_comes_back(tmp_path):
    save_tensors(tmp_path / "t", {}, {"a": 1})
    assert load_tensors(tmp_path / "t") == ({}, {"a": 1})


def test_the_file_is_plain_safetensors_that_others_can_read(tmp_path):
    small(tmp_path / "t")
    with safe_open(tmp_path / "t", framework="pt") as file:
        assert set(file.keys()) == {"a", "b"}
        assert file.get_tensor("a").tolist() == [1.5, -2.0]


# ---- damage -------------------------------------------------------------------------------------------------------


def test_every_change_of_a_single_byte_is_noticed(tmp_path):
    path = tmp_path / "t"
    data = small(path)
    unnoticed = []
    with path.open("r+b", buffering=0) as file:
        for position, byte in enumerate(data):
            others = {byte ^ (1 << bit) for bit in range(8)} | {0, ord(" "), ord("0")}
            for other in others - {byte}:
                os.pwrite(file.fileno(), bytes([other]), position)
                try:
                    load_tensors(path)
                    unnoticed.append((position, byte, other))
                except DamagedFileError:
                    pass
            os.pwrite(file.fileno(), bytes([byte]), position)
    assert not unnoticed
    assert load_tensors(path)[1] == {"epoch": 7}


def test_every_truncation_and_every_addition_is_noticed(tmp_path):
    path = tmp_path / "t"
    data = small(path)
    for changed in [data[:length] for length in range(len(data))] + [data + b"\0", data + data, b"\0" + data]:
        path.write_bytes(changed)
        with pytest.raises(DamagedFileError, match=f"{path} is damaged"):
            load_tensors(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 100, bytes(8), b'{"json": 1}' * 20])
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(DamagedFileError, match="was not written by podnet"):
        load_tensors(tmp_path / "t")


def test_a_missing_file_and_a_folder_are_told_in_a_sentence(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(PodnetError, match=f"cannot read {path}"):
            load_tensors(path)


# ---- failing writes -----------------------------------------------------------------------------------------------


def no_space(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call, existing):
    path = tmp_path / "t"
    before = small(path) if existing else None
    with monkeypatch.context() as patch:
        patch.setattr(os, call, no_space)
        with pytest.raises(PodnetError, match=f"cannot write {path}: No space left"):
            save_tensors(path, {"a": torch.zeros(3)}, {})
    assert list(tmp_path.iterdir()) == ([path] if existing else [])
    if existing:
        assert path.read_bytes() == before
    save_tensors(path, {"a": torch.zeros(3)}, {})  # and with room again it works
    assert load_tensors(path)[0]["a"].tolist() == [0, 0, 0]


def test_a_write_cut_off_by_the_operating_system_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "t"
    before = small(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # the write below stops midway
    try:
        with pytest.raises(PodnetError, match=f"cannot write {path}"):
            save_tensors(path, {"a": torch.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_told_in_a_sentence(tmp_path):
    with pytest.raises(PodnetError, match="cannot write"):
        save_tensors(tmp_path / "none" / "t", {}, {})


def test_the_files_permissions_follow_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        small(tmp_path / "t")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "t").stat().st_mode) == 0o640
