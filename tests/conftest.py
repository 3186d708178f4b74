import os
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
