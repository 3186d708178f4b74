"""Start the processes of a team on this machine with torch's launcher, and report which of them failed first."""

import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podnet.errors import PodnetError

LAUNCHED = "PODNET_LAUNCHED"  # environment variable of the processes
MEETING = "podnet"  # rendezvous id shared by the machines
OURS = 2  # exit code of a process that ended with a PodnetError


def launch(
    arguments: Sequence[str], folder: Path, devices: int, num_nodes: int = 1, address: str | None = None
) -> None:
    """Run `podnet ARGUMENTS`, which writes to the folder, in `devices` processes on each of `num_nodes` machines.

    Each machine calls this with the same arguments; they meet at the address, HOST:PORT of one of them.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _silence_elastic()
    os.environ[LAUNCHED] = "1"
    with tempfile.TemporaryDirectory(prefix="podnet-") as logs:
        config = LaunchConfig(
            min_nodes=num_nodes,
            max_nodes=num_nodes,
            nproc_per_node=devices,
            run_id=MEETING if address else f"{MEETING}-{os.getpid()}",
            rdzv_backend="c10d",
            rdzv_endpoint=address or "localhost:0",
            local_addr=None if address else "localhost",
            max_restarts=0,  # the user should see what went wrong; finished work is on disk
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(config, sys.executable)("-m", "podnet", *arguments)
        except ChildFailedError as error:
            raise PodnetError(_what_ended(error.failures, folder)) from None
        except RendezvousError as error:
            raise PodnetError(
                f"lost contact with the other processes at {address or 'this machine'} ({error}); check their "
                f"messages, then start all of them again with --resume {folder} to continue from the last checkpoint."
            ) from error
        except SignalException as error:
            if error.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise PodnetError(f"stopped by {error.sigval.name}; continue with --resume {folder}.") from None


def _silence_elastic() -> None:
    """Turn torch's own log messages off; this module reports what matters of them."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _what_ended(failures: dict[int, Any], folder: Path) -> str:
    """The message about the process that ended first; the others may have ended because of it."""
    killed = [
        rank for rank, failure in failures.items() if failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM
    ]
    rank = killed[0] if killed else min(failures, key=lambda rank: failures[rank].timestamp)
    failure = failures[rank]
    kept = f"continue from the last checkpoint with --resume {folder} and any number of --devices"
    if failure.exitcode < 0:
        name = failure.signal_name()
        who = f"process {rank} (pid {failure.pid} on {socket.gethostname()})"
        return f"{who} was killed by {name}, possibly out of memory, and the others were stopped; {kept}."
    text = failure.message["message"] if isinstance(failure.message, dict) else str(failure.message)
    if failure.exitcode == OURS:
        return text.partition(": ")[2]  # without the name of its class
    return f"process {rank} failed ({text}), and the others were stopped; {kept}."


def is_launched() -> bool:
    """Whether `launch` started this process. Then `launch` reports its failure, once for all processes."""
    return LAUNCHED in os.environ and "RANK" in os.environ


def note_failure(error: Exception) -> None:
    """Tell the launcher which error ends this process."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    get_error_handler().record_exception(error)
