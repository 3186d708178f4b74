"""Files written to do harm: they grow when they are read, claim huge sizes, lead elsewhere or carry code."""

from __future__ import annotations

import io
import pickle
import random
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from forked import podnet
from kills import CLOSED

from coloured import photos_of

MARK = "/tmp/podnet-was-here"  # what the code in these files would write


class _Code:
    """A pickle of it runs code where it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return eval, (f"open({MARK!r}, 'w').close()",)


def readers(draws: random.Random, folder: Path, material: Path) -> Iterable[Callable[[], object]]:
    kind = draws.choice((_yaml, _run_yaml, _table, _npz, _tar, _pickled))
    return kind(draws, folder, material)


def _laughs(draws: random.Random) -> str:
    depth, width = draws.choice((9, 15, 30)), draws.choice((9, 20))
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, depth)]
    return "\n".join([*lines, f"{draws.choice(('epochs', 'method', 'order', 'sizes', 'data_path'))}: *a{depth - 1}"])


def _yaml_text(draws: random.Random) -> str:
    deep = draws.choice((100, 2000, 100_000))
    return draws.choice(
        (
            _laughs(draws),
            "epochs: " + "[" * deep + "]" * deep,
            "epochs: " + "{a: " * deep + "}" * deep,
            "? " * deep + "a",
            "- " * deep + "a",
            f"method: !!python/object/apply:os.system ['touch {MARK}']",
            f"method: !!python/object/new:subprocess.check_call [['touch', '{MARK}']]",
            "<<: &a {b: *a}",
            "a: &a [*a]\nsizes: *a",
            "epochs: 1e999999",
            "epochs: 0x" + "f" * 5000,
            "epochs: " + "9" * 5000,
            "seed: 12345678901234567890123",
            "order: ../../../../etc/passwd",
            "data_path: /dev/zero\ndataset: npz",
            "method: /dev/zero:Method",
            "dataset: cifar100\ndata_path: /proc/self/fd",
            f"classes: {10**18}\nbase: {10**17}",
            "sizes: [" + "1, " * 100_000 + "1]",
            "threads: 1000000000\nbatch_size: 1000000000000",
            "images_per_class: -5\nmemory_per_class: 1000000000000000000000",
            "\ufeffepochs: \u0000",
            "&" * 10_000,
            "epochs: 2021-99-99\nseed: 1:60:60",
        )
    )


def _yaml(draws: random.Random, folder: Path, material: Path) -> Iterable[Callable[[], object]]:
    path = folder / "config.yaml"
    path.write_bytes(_yaml_text(draws).encode("utf-8", "surrogatepass"))
    yield podnet("run", "--config", path, "--output", folder / "run", "--print-config", "--threads", "1")


def _run_yaml(draws: random.Random, folder: Path, material: Path) -> Iterable[Callable[[], object]]:
    from inputs import _on_the_page

    run = folder / "runs" / "run"
    shutil.copytree(material / "run", run)
    text = _yaml_text(draws).encode("utf-8", "surrogatepass")
    (run / "config.yaml").write_bytes(text if draws.random() < 0.5 else (run / "config.yaml").read_bytes() + text)
    yield lambda: _on_the_page(run.parent)
    yield podnet("report", run, "--output", folder / "report")
    yield podnet("run", "--resume", run, "--print-config")


def _table(draws: random.Random, folder: Path, material: Path) -> Iterable[Callable[[], object]]:
    photos_of(folder / "photos", "red", "green", count=2)
    good = "path,label\n" + "".join(f"photos/{name}/{i}.png,{name}\n" for name in ("red", "green") for i in (0, 1))
    rows = (
        "../../../../etc/passwd,red", "/dev/zero,red", "/dev/stdin,red", "photos,red",
        "photos/red/0.png," + "x" * 10**6,
        "photos/red/0.png,\x1b[31m", "photos/red/0.png,../..", '"' + "a" * 10**7, "photos/red/0.png", ",,,,,,", "\0,\0",
        "photos/red/0.png,red\n" * 20_000, "=cmd|'/C calc'!A0,red", "photos/red/0.png,[/bold]",
        "photos/red/nothing.png,red",
        "\ud800,red", "http://localhost/photo.png,red", "/proc/self/mem,red",
    )  # fmt: skip
    text = draws.choice((good, "path,label\n", "")) + draws.choice(rows) + "\n"
    path = folder / "photos.csv"
    path.write_bytes(text.encode(draws.choice(("utf-8", "utf-16", "latin-1")), "replace"))
    yield podnet("learn", folder / "m.podnet", path, *CLOSED)


def _header(shape: tuple[int, ...], descr: str = "|u1") -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _npz(draws: random.Random, folder: Path, material: Path) -> Iterable[Callable[[], object]]:
    good = io.BytesIO()
    np.save(good, np.zeros((4, 8, 8, 3), np.uint8))
    code = io.BytesIO()
    np.save(code, np.array([_Code()], dtype=object), allow_pickle=True)
    bad = (
        _header((10**12,)), _header((2**63, 2**63)), _header((-1, 5)), _header((10**9, 0)), code.getvalue(),
        bytes(3 * 10**9 // 1000), _header((4,), "|O"), _header((4,), "<U1000000000"), b"", b"\x93NUMPY\x09\x09",
        _header((3000, 1000, 1000)) + bytes(10**6),
    )  # fmt: skip
    path = folder / "data.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(f"{name}.npy", draws.choice((good.getvalue(), draws.choice(bad))))
        if draws.random() < 0.5:
            archive.writestr(
                draws.choice(("../../tmp/podnet-was-here.npy", "/tmp/podnet-was-here.npy")), good.getvalue()
            )
    if draws.random() < 0.2:
        shutil.copy(_bomb(material), path)
    yield podnet("run", "--dataset", "npz", "--data-path", path, "--output", folder / "run", "--print-config")


def _bomb(material: Path) -> Path:
    """A file of 3 MB whose array takes 3 GB, made once."""
    path = material / "bomb.npz"
    if not path.exists():
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("x_train.npy", "w", force_zip64=True) as bomb,
        ):
            bomb.write(_header((3 * 10**9,)))
            for _ in range(3000):
                bomb.write(bytes(10**6))
    return path


def _tar(draws: random.Random, folder: Path, material: Path) -> Iterable[Callable[[], object]]:
    path = folder / draws.choice(("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"))
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name in ("train.bin", "test.bin", "fine_label_names.txt", "train", "test", "meta"):
            member = tarfile.TarInfo(draws.choice((f"cifar-100-binary/{name}", f"../../{name}", f"/tmp/{name}")))
            how = draws.randrange(7)
            content = draws.randbytes(draws.choice((0, 3074, 5000)))
            if how == 0:
                content = bytes(300 * 10**6)
            elif how == 1:
                content = pickle.dumps(_Code())
            elif how == 2:
                member.type, member.linkname, content = tarfile.SYMTYPE, "/etc/passwd", b""
            elif how == 3:
                member.type, member.linkname, content = tarfile.LNKTYPE, "../../../etc/passwd", b""
            elif how == 4:
                member.type, content = tarfile.CHRTYPE, b""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    if draws.random() < 0.3:
        data = bytearray(path.read_bytes())
        data[draws.randrange(len(data))] ^= 255
        path.write_bytes(data)
    options = ["--dataset", "cifar100", "--data-path", folder, "--output", folder / "run", "--print-config"]
    yield podnet("run", *options)


def _pickled(draws: random.Random, folder: Path, material: Path) -> Iterable[Callable[[], object]]:
    """Code where a model, a checkpoint or an array is expected."""
    content = draws.choice((pickle.dumps(_Code()), b"\x80\x04" + pickle.dumps(_Code()), pickle.dumps({"a": _Code()})))
    path = folder / "m.podnet"
    path.write_bytes(content)
    yield podnet("info", path)
    yield podnet("predict", path, material / "photos" / "red" / "0.png")
    run = folder / "run"
    shutil.copytree(material / "run", run)
    for file in (run / "checkpoints").iterdir():
        file.write_bytes(content)
    yield podnet("run", "--resume", run)
    (folder / "cifar-100-python").mkdir()
    for name in ("train", "test", "meta"):
        (folder / "cifar-100-python" / name).write_bytes(content)
    options = ["--dataset", "cifar100", "--data-path", folder, "--output", folder / "other", "--print-config"]
    yield podnet("run", *options)
