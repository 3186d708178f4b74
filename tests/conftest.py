import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    import torch

    torch.set_num_threads(1)
