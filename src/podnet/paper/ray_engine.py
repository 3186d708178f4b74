"""Runs as tasks of a Ray cluster, which distributes them and retries those of a lost machine."""

import logging
import os
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from podnet.errors import ConfigError, PodnetError, importing
from podnet.paper.assignment import Assignment, Taken, perform

RETRIES = 3  # lost machines per run; after more, the run itself is the likely cause, by its memory
PATIENCE = 5.0  # seconds for the head node to answer


class RayEngine:
    """A cluster that was started with `ray start`."""

    taken: Taken = "submitted"

    def __init__(self, address: str, slots: int, gpus: float) -> None:
        with importing("ray", "--engine ray needs Ray"):
            import ray
        self.slots = slots
        self._ray = ray
        self._address = address
        self._head = None if address == "auto" else _host_and_port(address)
        self._gpus = gpus
        self._under_way: dict[Future[str | PodnetError], Any] = {}  # and the reference that cancels it

    def __enter__(self) -> None:
        spinning = {name: os.environ[name] for name in ("GOMP_SPINCOUNT",) if name in os.environ}
        try:
            if self._head:  # Ray itself would retry for minutes
                socket.create_connection(self._head, PATIENCE).close()
            self._ray.init(
                self._address, log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": spinning}
            )
        except (OSError, RuntimeError, ValueError) as error:
            where = "on this machine" if self._address == "auto" else f"at {self._address}"
            raise PodnetError(
                f"no usable Ray cluster {where} ({_first(error)}); start one with 'ray start --head', "
                "then each further machine with 'ray start --address HOST:PORT'."
            ) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            for reference in list(self._under_way.values()):
                self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def submit(self, assignments: Sequence[Assignment]) -> list[Future[str | PodnetError]]:
        task = self._ray.remote(perform)
        futures = []
        for assignment in assignments:
            needs = {"num_cpus": assignment.cores, "num_gpus": self._gpus}
            reference = task.options(max_retries=RETRIES, **needs).remote(assignment)
            futures.append(future := Future[str | PodnetError]())
            self._under_way[future] = reference
            reference.future().add_done_callback(partial(self._pass_on, future))
        return futures

    def _pass_on(self, future: Future[str | PodnetError], done: Future[str | PodnetError]) -> None:
        self._under_way.pop(future, None)
        error = done.exception()
        future.set_result(done.result() if error is None else _in_a_sentence(error))


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"address is {address!r}; it must be HOST:PORT of the cluster's head node, or auto.")
    return host.strip("[]"), int(port)


def _in_a_sentence(error: BaseException) -> PodnetError:
    """A one-sentence error for a task that failed outside of the run itself."""
    cause = getattr(error, "cause", None)  # an error in the worker: podnet is missing there, or another version
    if cause is not None:
        return PodnetError(f"a machine of the cluster cannot run it: {type(cause).__name__}: {_first(cause)}")
    return PodnetError(
        f"its machine or its process was lost {RETRIES + 1} times ({type(error).__name__}: {_first(error)}), "
        "possibly out of memory; to continue, run the same command again."
    )


def _first(error: BaseException) -> str:
    """The first sentence of an error message."""
    return str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
