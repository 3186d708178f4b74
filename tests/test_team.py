"""Several processes against one: the same losses, gradients, exemplars, means and predictions; and how they end."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as multiprocessing
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from podnet.cli import main
from podnet.data.augment import Share, batches
from podnet.data.digits import load_digits
from podnet.engine.batches import TrainingSet
from podnet.engine.device import Compute
from podnet.engine.launch import _what_ended, launch, note_failure
from podnet.engine.learner import Learner
from podnet.engine.team import ALONE, SynchronisedBatchNorm2d, Team, joined
from podnet.engine.training import Epoch, Iteration, Stepper, fit, make_optimizer
from podnet.errors import DataError, PodnetError
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import UCIR, PODNet, Replay
from podnet.methods.der import DER
from podnet.nets.network import frozen_copy
from podnet.runs.folder import Run
from podnet.scenario.tasks import class_incremental

PATIENCE = 300  # seconds, on a busy machine
QUICK = ["--classes", "4", "--base", "3", "--images-per-class", "30", "--memory-per-class", "5", "--batch-size", "32"]


# --- what both sides compute; at the top of the module, for processes of their own ---


def digit_tasks():
    return class_incremental(load_digits(), list(range(5)), 3, 1, images_per_class=28)


def small(**changes):
    return PODNet(**({"epochs": 1, "finetune_epochs": 1, "batch_size": 33, "proxies": 3} | changes))


def learner_of(team, method, sync_batchnorm=True):
    compute = Compute(team=team, sync_batchnorm=sync_batchnorm)
    return Learner(method, 1, load_digits().transform, ExemplarMemory(6), compute=compute)


def gradients_in_a_step(team, fidelity):
    """The gradients of each update, and the losses, with POD and NCA, BatchNorm in evaluation mode.

    28 images in batches of 9 leave one over, which joins the batch before: two processes have 5 of its 10.
    """
    method = small(fidelity=fidelity, intensity="shift", epochs=2)
    learner = learner_of(ALONE, method)
    tasks = digit_tasks()
    learner.network.classifier.add_classes(3, torch.randn(3, 3, 64, generator=torch.Generator().manual_seed(3)))
    teacher = frozen_copy(learner.network)
    with torch.no_grad():  # or the first updates would find student and teacher equal, where POD has no slope
        draws = torch.Generator().manual_seed(0)
        for parameter in learner.network.backbone.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=draws)
    learner.network.classifier.add_classes(1, torch.ones(1, 3, 64))
    phase = replace(method.phases(3, 1, {})[0], update_statistics=False, epochs=2)
    optimizer = make_optimizer(learner.network, phase, method)
    images, targets = tasks[1].train_images, tasks[1].train_targets
    found = []
    data = TrainingSet(images, targets, learner.transform, 9)
    stepper = Stepper(learner.network, phase, optimizer, teacher, team=team)
    for record in fit(stepper, data, (1, 1)):
        if isinstance(record, Iteration):
            found.append([parameter.grad.clone() for parameter in optimizer.param_groups[0]["params"]])
        else:
            found.append([torch.tensor(list(record.losses.values()))])
    return found


def two_tasks(team, method, sync_batchnorm=True):
    """Everything a run on two tasks leaves: losses, exemplars, means, predictions, statistics."""
    learner = learner_of(team, method, sync_batchnorm)
    tasks = digit_tasks()
    losses, fingerprints = [], []
    for index in range(2):
        for record in learner.learn(tasks[index]):
            losses += record.losses.values() if isinstance(record, Epoch) else []
        fingerprints.append(learner.fingerprint)
    tensors, _ = learner.state()
    return {
        "losses": torch.tensor(losses),
        "fingerprints": fingerprints,
        "exemplars": (learner.memory.images, learner.memory.targets),
        "means": learner.means,
        "best": learner.rank(tasks[1].test_images, 3),
        "scores": learner.predict(tasks[1].test_images),
        "tensors": tensors,
    }


def shares_of_photos(team):
    """What is read of a batch of photos, and how they are augmented."""
    from podnet.data.images import feed

    tasks = digit_tasks()
    parts = batches(84, 20, torch.Generator().manual_seed(1))
    transform = replace(load_digits().transform, intensity="shift", flip=True)
    draws = torch.Generator().manual_seed(2)
    found = []
    for part, (chosen, pixels) in zip(parts, feed(tasks[0].train_images, parts, None, team.rows), strict=True):
        share = Share(torch.isin(part, chosen).nonzero().flatten(), len(part))
        found.append((chosen, transform.augment(pixels, draws, share)))
    return found


def exchanges(team):
    """What each process gives to and gets from the others."""
    own = torch.arange(2 * team.rank, dtype=torch.int64).view(team.rank, 2)  # no rows in the first process
    refused = ""
    try:
        team.require_same("exemplars", f"digest {team.rank}")
    except Exception as error:
        refused = str(error)
    return team.gathered(own), team.collected(team.rank), team.from_main(lambda: [team.rank]), refused


def work(rank, size, port, folder, functions):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    with joined("cpu") as team:
        torch.save([function(team) for function in functions], folder / f"{rank}.pt")


def free_port():
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


FUNCTIONS = {
    "paper": partial(gradients_in_a_step, fidelity="paper"),
    "released": partial(gradients_in_a_step, fidelity="released"),
    "podnet": partial(two_tasks, method=small()),
    # A small rate: without blocks that start as their shortcuts, rounding grows a thousandfold in two epochs at 0.1.
    "ucir": partial(two_tasks, method=UCIR(epochs=1, batch_size=33, lr=0.001, ranking_weight=0.0)),
    "mixing": partial(two_tasks, method=Replay(epochs=1, batch_size=33, augmentation=("trivial", "cutout", "cutmix"))),
    "der": partial(two_tasks, method=DER(epochs=1, classifier_epochs=2, batch_size=33, lr=0.01)),
    "unsynchronised": partial(two_tasks, method=small(), sync_batchnorm=False),
    "shares": shares_of_photos,
    "exchanges": exchanges,
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """What each of two processes came to, by function."""
    folder = tmp_path_factory.mktemp("team")
    multiprocessing.spawn(work, (2, free_port(), folder, list(FUNCTIONS.values())), nprocs=2)
    results = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]
    return [dict(zip(FUNCTIONS, result, strict=True)) for result in results]


@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_losses_and_gradients_are_those_of_one_process(pair, fidelity):
    alone = gradients_in_a_step(ALONE, fidelity)
    assert len(alone) == 2 * (3 + 1)
    assert all(float(gradient.abs().max()) > 0 for gradient in alone[0])
    for rank in range(2):
        for update, (ours, theirs) in enumerate(zip(alone, pair[rank][fidelity], strict=True)):
            for one, two in zip(ours, theirs, strict=True):
                torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-5, msg=lambda m, u=update: f"update {u}: {m}")


@pytest.mark.parametrize("name", ["podnet", "ucir", "mixing", "der"])
def test_two_tasks_come_to_what_one_process_comes_to(pair, name):
    """BatchNorm synchronised, in training mode: statistics, exemplars, means and predictions are those of one."""
    alone = FUNCTIONS[name](ALONE)
    for rank in range(2):
        found = pair[rank][name]
        torch.testing.assert_close(found["losses"], alone["losses"])
        assert found["fingerprints"] == alone["fingerprints"]
        for ours, theirs in zip(found["exemplars"], alone["exemplars"], strict=True):
            assert torch.equal(ours, theirs)
        assert len(found["exemplars"][0]) == 6 * 4  # not twice as many
        torch.testing.assert_close(found["means"], alone["means"], rtol=1e-4, atol=1e-4)
        for inference in ("cnn", "nme"):
            assert (getattr(found["best"], inference)[:, 0] == getattr(alone["best"], inference)[:, 0]).all()
            torch.testing.assert_close(
                getattr(found["scores"], inference), getattr(alone["scores"], inference), rtol=1e-3, atol=1e-3
            )


def test_both_processes_hold_the_same_to_the_last_bit(pair):
    for name in ("podnet", "ucir", "mixing", "der", "unsynchronised"):
        first, second = (pair[rank][name]["tensors"] for rank in range(2))
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first), name


def test_statistics_of_shares_are_other_than_those_of_batches(pair):
    """The switch does something: or BatchNorm were synchronised either way, or neither."""
    with_it, without = (pair[0][name]["tensors"] for name in ("podnet", "unsynchronised"))
    name = "network.backbone.stages.3.0.first.norm.running_var"
    assert not torch.allclose(with_it[name], without[name], rtol=1e-3)


def test_shares_make_up_the_batch_and_are_augmented_as_in_it(pair):
    whole = shares_of_photos(ALONE)
    for i, (chosen, augmented) in enumerate(whole):
        rows = [torch.arange(rank, len(chosen), 2) for rank in range(2)]
        for rank in range(2):
            own, pixels = pair[rank]["shares"][i]
            assert torch.equal(own, chosen[rows[rank]])
            assert torch.equal(pixels, augmented[rows[rank]])


def test_what_is_exchanged(pair):
    for rank in range(2):
        gathered, collected, from_main, refused = pair[rank]["exchanges"]
        assert gathered.tolist() == [[0, 1]]
        assert collected == [0, 1]
        assert from_main == [0]
        assert "process 1 does not have the same exemplars as process 0" in refused


def test_a_batch_of_fewer_images_than_processes_is_done_by_each():
    team = Team(rank=2, size=4)
    assert team.rows(3).tolist() == [0, 1, 2]
    assert 4 * team.images(3, 3) == 3
    assert team.rows(9).tolist() == [2, 6]
    assert sum(Team(rank, 4).images(len(Team(rank, 4).rows(9)), 9) for rank in range(4)) == 9


def test_a_team_of_one_exchanges_nothing():
    values = torch.arange(3)
    assert ALONE.gathered(values) is values
    assert ALONE.summed(values) is values
    network = torch.nn.Linear(2, 2)
    assert ALONE.wrapped(network) is network


def test_synchronised_batchnorm_is_batchnorm(monkeypatch):
    """Of one process alone: output, gradients, statistics are torch's own."""
    for name, value in {"all_reduce": None, "get_rank": 0, "get_world_size": 1}.items():
        monkeypatch.setattr(f"torch.distributed.{name}", lambda *_, value=value: value)
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(6, 5, 4, 3, generator=draws) * 3 + 1
    norms = [torch.nn.BatchNorm2d(5).double(), SynchronisedBatchNorm2d(5).double()]
    found = []
    for norm in norms:
        torch.nn.init.uniform_(norm.weight, 0.5, 2, generator=torch.Generator().manual_seed(1))
        inputs = x.double().requires_grad_()
        out = norm(inputs)
        (out.relu().square() * torch.arange(3)).sum().backward()
        found.append([out, inputs.grad, norm.weight.grad, norm.bias.grad, *norm.buffers(), norm.eval()(inputs)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


# --- as a user starts, kills and resumes it ---


def start(*arguments, launcher=("-m", "podnet")):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, "run", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def process_of_rank(rank, folder):
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            files = [Path("/proc", entry, name).read_bytes() for name in ("environ", "cmdline")]
        except OSError:
            continue
        environment, command = (content.split(b"\0") for content in files)
        if f"RANK={rank}".encode() in environment and str(folder).encode() in command:
            return int(entry)
    return None


def test_a_killed_process_ends_the_run_by_name_and_another_number_goes_on(tmp_path, capsys):
    folder = tmp_path / "run"
    options = [*QUICK, "--epochs", "12", "--finetune-epochs", "1", "--checkpoint-seconds", "0", "--output", folder]
    record = Run(folder)
    with start("--devices", "2", *options) as running:
        while len(record.epochs()) < 2:
            assert running.poll() is None, running.communicate(timeout=PATIENCE)
            time.sleep(0.05)
        victim = process_of_rank(1, folder)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2
    assert f"error: process 1 (pid {victim} on " in err
    assert "was killed by SIGKILL" in err
    assert f"--resume {folder}" in err
    assert "Traceback" not in out + err
    done = record.epochs()
    assert not record.is_being_written()

    assert main(["run", "--resume", str(folder), "--devices", "1", "--threads", "1"]) == 0
    assert len(record.results()) == 2
    epochs = record.epochs()
    assert len(epochs) == 2 * 12 + 1
    place = ("task", "stage", "epoch", "losses")
    assert [[line[key] for key in place] for line in epochs[: len(done)]] == [
        [line[key] for key in place] for line in done
    ]
    assert len(record.environments()) == 2
    assert [line["memory"] for line in record.results()] == [15, 20]


def test_machines_that_meet_each_with_a_launcher_of_its_own(tmp_path):
    """Ours on one, torchrun on the other: what they come to is what a single process comes to."""
    common = [*QUICK, "--epochs", "1", "--finetune-epochs", "1", "--threads", "1", "--output"]
    address = f"localhost:{free_port()}"
    meeting = ("--rdzv-backend", "c10d", "--rdzv-endpoint", address, "--rdzv-id", "podnet")
    torchrun = ("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *meeting, "-m", "podnet")
    ours = start("--num-nodes", "2", "--address", address, *common, tmp_path / "met")
    theirs = start(*common, tmp_path / "met", launcher=torchrun)
    assert main(["run", *common, str(tmp_path / "alone")]) == 0
    for process in (ours, theirs):
        with process:
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, out + err
    alone, met = (Run(tmp_path / name).results() for name in ("alone", "met"))
    for key in ("exemplars", "accuracy", "memory"):
        assert [line[key] for line in met] == [line[key] for line in alone]
    assert len(Run(tmp_path / "met").environments()) == 1  # one process writes


LATE = """
import sys, torch
import torch.distributed as dist
from podnet.cli import main
dist.init_process_group("gloo")
dist.barrier()
for _ in range(1000):
    dist.all_reduce(torch.zeros(100_000), async_op=True)
sys.argv = ["podnet", "methods"]
sys.exit(main())
"""


def test_exchanges_that_end_late_do_not_abort_a_finished_command():
    """torch's threads still free tensors while Python ends, which they must not find taken apart."""
    members = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LATE],
            env=os.environ | members | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        assert "podnet" in out  # nothing that was printed is lost


def test_other_machines_that_cannot_be_reached_are_told_in_a_sentence(tmp_path, monkeypatch):
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError
    from torch.distributed.launcher import api

    def unreachable(*arguments, **options):
        raise RendezvousConnectionError("The connection to the C10d store has failed.")

    monkeypatch.setattr(api, "launch_agent", unreachable)
    monkeypatch.setenv("PODNET_LAUNCHED", "")  # launching sets it; this puts it back
    with pytest.raises(PodnetError, match=r"lost contact with the other processes at far:1 .* --resume"):
        launch(["run"], tmp_path, 1, 2, "far:1")


def test_what_ended_the_processes_is_told_once(tmp_path, monkeypatch):
    """Both failed, by an error of ours and for want of the other; or one was killed, and the other lost it."""
    failures = {}
    for rank, error in enumerate([DataError("a.jpg cannot be read."), PodnetError("process 1 lost contact.")]):
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / f"{rank}.json"))
        monkeypatch.setattr(time, "time", lambda rank=rank: 1e9 + rank)
        note_failure(error)
        failures[rank] = ProcessFailure(rank, 100 + rank, 2, str(tmp_path / f"{rank}.json"))
    assert _what_ended(failures, tmp_path) == "a.jpg cannot be read."
    failures[2] = ProcessFailure(2, 102, -signal.SIGKILL, str(tmp_path / "none"))
    assert _what_ended(failures, tmp_path).startswith("process 2 (pid 102 on ")
    assert "killed by SIGKILL" in _what_ended(failures, tmp_path)
    bug = {0: ProcessFailure(0, 100, 1, str(tmp_path / "none"))}
    assert _what_ended(bug, tmp_path).startswith("process 0 failed (")


def test_options_that_cannot_work(tmp_path, capsys):
    for options, words in [
        (["--devices", "0"], "devices is 0; it must be 1 or more."),
        (["--num-nodes", "2"], "--num-nodes needs --address HOST:PORT"),
    ]:
        assert main(["run", *options, "--output", str(tmp_path / "run")]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
