import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "examples"))

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side


@pytest.fixture(autouse=True)
def _one_thread():
    """Whatever the test before has set."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def double_winograd(tmp_path_factory):
    """Our convolutions compiled for float64, where equal mathematics gives equal numbers."""
    import torch

    import podnet
    from podnet.nets import kernels

    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if kernels.library() is None or compiler is None:
        pytest.skip("our convolutions are for a CPU with AVX2 or AVX-512, and need a C++ compiler")
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    out, source = folder / "winograd.so", Path(podnet.__file__).with_name("nets") / "winograd.cpp"
    kind = {"AVX2": "-mavx2", "AVX512": "-mavx512f"}[torch.backends.cpu.get_cpu_capability()]
    flags = ["-DREAL=double", "-O2", kind, "-mfma", "-fopenmp", "-shared", "-fPIC"]
    with open(folder / "winograd.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes side by side compile it once
        if not out.exists():
            subprocess.run([compiler, *flags, str(source), "-o", str(out)], check=True)
    return kernels.load(str(out))


@pytest.fixture(scope="module")
def weights_read_once():
    """The 19 MB of lite0's weights are read and checked for the first model of a module only."""
    from podnet.nets import building

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(building, "packaged", functools.cache(building.packaged))
        yield


@pytest.fixture
def float64(double_winograd, monkeypatch):
    """Networks in float64 have our convolutions, as those in float32 have."""
    import torch

    from podnet.nets import kernels

    monkeypatch.setattr(kernels, "library", lambda: double_winograd)
    monkeypatch.setattr(kernels, "REAL", torch.float64)
    monkeypatch.setattr(kernels, "PIXELS", 0)
