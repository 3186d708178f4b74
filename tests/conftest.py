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
    out = tmp_path_factory.mktemp("double") / "winograd.so"
    source = Path(podnet.__file__).with_name("nets") / "winograd.cpp"
    kind = {"AVX2": "-mavx2", "AVX512": "-mavx512f"}[torch.backends.cpu.get_cpu_capability()]
    flags = ["-DREAL=double", "-O2", kind, "-mfma", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(out)], check=True)
    return kernels.load(str(out))


@pytest.fixture
def float64(double_winograd, monkeypatch):
    """Networks in float64 have our convolutions, as those in float32 have."""
    import torch

    from podnet.nets import kernels

    monkeypatch.setattr(kernels, "library", lambda: double_winograd)
    monkeypatch.setattr(kernels, "REAL", torch.float64)
    monkeypatch.setattr(kernels, "PIXELS", 0)
