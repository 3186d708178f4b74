import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items):
    """Tests that share a long preparation go to one process of several, and first, so that none ends alone with it."""
    shared = [item for item in items if "everything" in item.fixturenames]
    for item in shared:
        item.add_marker(pytest.mark.xdist_group("everything"))
    items.sort(key=lambda item: item not in shared)
