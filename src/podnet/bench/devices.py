"""One run in two processes compared with one: the gain of the second."""

import os
import socket

import torch
import torch.distributed as dist

from podnet.bench.measure import Figure, processes, ratio, seconds
from podnet.bench.training import BATCH, Epochs
from podnet.engine.team import joined

UPDATES = 5  # per epoch; real runs have more, so the costs per epoch and per phase weigh less there
THREADS = {"one": 1, "two threads": 2, "both": 1, "both, unsynchronised": 1}  # per process, in each turn


def devices(quick: bool) -> dict[str, Figure]:
    """Training iterations with distillation, with 128 images in one process or split between two."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port = asked.getsockname()[1]
    with processes(2, keeps=True) as pool:
        rounds = 3 if quick else 9
        taken, _ = (done.result() for done in [pool.submit(_measure, rank, port, rounds) for rank in range(2)])
    words = f"speed relative to one process with one thread, batch of {BATCH}"
    one = taken["one"]
    return {
        "two_processes_vs_one": ratio(one, taken["both"], f"two processes: {words}"),
        "two_unsynchronised_vs_one": ratio(
            one, taken["both, unsynchronised"], f"two processes, BatchNorm not synchronised: {words}"
        ),
        "two_threads_vs_one": ratio(one, taken["two threads"], f"one process with two threads: {words}"),
    }


def _measure(rank: int, port: int, rounds: int) -> dict[str, list[float]]:
    """In each of two processes: seconds of each turn; the first one warms up."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    taken: dict[str, list[float]] = {name: [] for name in THREADS}
    with joined("cpu") as team:
        epochs = Epochs(batches=UPDATES)
        works = {
            "one": epochs.ours(),
            "two threads": epochs.ours(),
            "both": epochs.ours(team=team, synchronised=True),
            "both, unsynchronised": epochs.ours(team=team),
        }
        for number in range(rounds + 1):
            for name, work in works.items():
                torch.set_num_threads(THREADS[name])
                dist.barrier()
                took = seconds(work) if rank == 0 or name.startswith("both") else 0.0
                if number:
                    taken[name].append(took)
        dist.barrier()
    return taken
