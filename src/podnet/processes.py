"""Processes: cores, decoding workers, ending together with the parent, and keeping freed memory."""

import atexit
import ctypes
import os
import platform
import sys
import threading
import time
from typing import NoReturn

MOST_WORKERS = 8  # processes that decode photos
FEW_PHOTOS = 100  # decoding these takes less time than starting processes


def cores() -> int:
    """The cores that this process may use; the machine may have more."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decoding_workers(available: int | None = None, photos: int | None = None) -> int:
    """The default number of processes that decode photos: one per available core, none for few photos."""
    if photos is not None and photos <= FEW_PHOTOS:
        return 0
    return min(MOST_WORKERS, cores() if available is None else available)


def end_with(parent: int) -> None:
    """End this process when its parent is gone, however that ended: nothing else would stop it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def is_member() -> bool:
    """Whether a launcher started this process as one of several."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def end_now(code: int) -> NoReturn:
    """End this process after its exit functions, but without shutting down the interpreter.

    A thread of torch's gloo frees the tensors of the last exchange a moment later. If Python is shutting down by then,
    that aborts the process, and a complete run seems to have failed.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def keep_freed_memory() -> None:
    """Keep the memory of freed tensors for later ones; otherwise the kernel must clear every page again.

    That takes a tenth of the training time on a CPU. Only glibc returns memory this way, and it can be configured.
    """
    if platform.libc_ver()[0] == "glibc":
        most_maps, trim_threshold, top_pad = -4, -1, -2  # from malloc.h: M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
        tell = ctypes.CDLL(None).mallopt
        tell(most_maps, 0)
        tell(trim_threshold, 2**31 - 1)
        tell(top_pad, 2**26)


def share_freed_memory() -> None:
    """Let all threads use the same freed memory: a server whose threads take turns would hold several times as much."""
    if platform.libc_ver()[0] == "glibc":
        most_arenas = -8  # from malloc.h: M_ARENA_MAX
        ctypes.CDLL(None).mallopt(most_arenas, 2)
