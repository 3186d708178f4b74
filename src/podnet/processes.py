"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import threading
import time


def end_with(parent: int) -> None:
    """Let this process stop when its parent is gone, however that ended: nobody else would stop it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
