"""`podnet reproduce --engine ...`: runs on a Ray cluster or by Slurm, and what becomes of those of a lost machine."""

import csv
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from podnet.cli import main, reproduce
from podnet.cli.engine_options import sbatch_options
from podnet.errors import BusyError, PodnetError
from podnet.paper import slurm_engine
from podnet.paper.assignment import Assignment, assign
from podnet.paper.catalogue import BENCHMARKS
from podnet.paper.plan import plan
from podnet.paper.ray_engine import RayEngine
from podnet.paper.runner import carry_out
from podnet.paper.scales import SETTINGS
from podnet.paper.slurm_engine import Job, SlurmEngine
from podnet.processes import cores
from podnet.runs.config import resolve
from podnet.runs.folder import Run

TWO_CHAINS = ["reproduce", "proxies", "--columns", "1,2", "--scale", "smoke"]  # each a first task, then two steps
PATIENCE = 600  # seconds, on a busy machine


@pytest.fixture
def longer_runs(monkeypatch):
    """Runs that last some seconds and write a checkpoint after every epoch."""
    setting = SETTINGS["smoke"]["cifar100"]
    options = {**setting.options, "epochs": 8, "checkpoint_seconds": 0.0}
    monkeypatch.setitem(SETTINGS["smoke"], "cifar100", replace(setting, options=options))


def processes_below(pid):
    """A process and all it started, itself last."""
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as file:
        return [p for child in file.read().split() for p in processes_below(int(child))] + [pid]
    return [pid]


def kill_all_below(pid):
    for process in processes_below(pid):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def writer_of(run):
    """The process that holds the lock of a run."""
    with suppress(OSError):
        inode = (run.folder / ".lock").stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
                return int(words[4])
    return None


def at_work(folder, others=()):
    """A run with checkpoints of more than one epoch, and the process that writes it; not one of the others."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for path in sorted((folder / "runs").glob("*")):
            run = Run(path)
            pid = writer_of(run)
            if pid not in (None, os.getpid()) and path not in others and len(run.checkpoint_files()) > 1:
                return run, pid
        time.sleep(0.02)
    raise TimeoutError("no run came as far as a checkpoint")


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def in_background(function, *arguments):
    """A thread whose result, or error, is asked for later."""
    future = Future()

    def work():
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def planned(folder):
    return plan(BENCHMARKS["proxies"], "smoke", folder, common={"threads": 1})[:2]


def starts(folder):
    """How often each run was started or resumed, without what it took over from its first task."""
    found = {}
    for run in planned(folder):
        first = run.first_task.record
        found[first.folder] = len(first.environments())
        found[run.record.folder] = len(run.record.environments()) - len(first.environments())
    return found


def epochs_of(run):
    return [(line["task"], line["stage"], line["epoch"]) for line in run.epochs()]


def columns_filled(folder):
    with open(folder / "proxies-smoke" / "supplementary-proxies-a-class.csv") as file:
        return [line["column"] for line in csv.DictReader(file) if line["count"] == "1"]


RAY_CLUSTER = """
import sys
from ray.cluster_utils import Cluster
small = {"object_store_memory": 80_000_000}
health = {"health_check_period_ms": 500, "health_check_failure_threshold": 4, "health_check_initial_delay_ms": 0}
head = {"gcs_server_port": int(sys.argv[1]), "num_cpus": 0, "include_dashboard": False, "_system_config": health}
cluster = Cluster(True, head_node_args=small | head)
machines = [cluster.add_node(wait=False, num_cpus=1, **small) for _ in range(2)]
print("up", *(machine.all_processes["raylet"][0].process.pid for machine in machines), flush=True)
sys.stdin.read()
"""


class RayCluster:
    """A head that performs nothing and two machines of one CPU each: all of it processes of this machine."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="pr", dir="/tmp"))  # the names of its sockets must be short
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", RAY_CLUSTER, str(port)],
            # Its workers would give way to all other programs, so a busy machine would starve them.
            env=os.environ
            | {"RAY_TMPDIR": str(self.folder), "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("up "):
                self.machines = [int(pid) for pid in line.split()[1:]]
                return
        self.stop()
        raise RuntimeError("".join(said))

    def kill_the_machine_of(self, pid):
        [machine] = [machine for machine in self.machines if pid in processes_below(machine)]
        kill_all_below(machine)

    def stop(self):
        kill_all_below(self.process.pid)
        self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def ray_cluster():
    pytest.importorskip("ray")
    cluster = RayCluster()
    yield cluster
    cluster.stop()


def test_ray_goes_on_with_what_a_lost_machine_had(ray_cluster, longer_runs, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)  # its workers are elsewhere

    def lose_a_machine():
        run, pid = at_work(tmp_path / "out")
        ray_cluster.kill_the_machine_of(pid)
        return run, epochs_of(run)

    lost = in_background(lose_a_machine)
    assert main([*TWO_CHAINS, "--output", "out", "--engine", "ray", "--address", ray_cluster.address]) == 0
    interrupted, before = lost.result(0)
    counts = starts(tmp_path / "out")
    assert (counts.pop(interrupted.folder), *counts.values()) == (2, 1, 1, 1)
    assert len(set(epochs_of(interrupted))) == len(epochs_of(interrupted)) > len(before) > 0
    assert columns_filled(tmp_path / "out") == ["1", "2"]
    printed = capfd.readouterr()
    assert printed.out.count("submitted ") == printed.out.count(" done ") == 4
    assert printed.err == ""


def local_slurm(monkeypatch):
    """`--engine slurm` by submitit's own processes."""

    def engine(name, jobs, folder, gpus, address, slurm):
        return SlurmEngine(folder / "slurm", jobs, gpus, slurm, cluster="local")

    monkeypatch.setattr(reproduce, "make_engine", engine)


def test_slurm_queues_again_what_was_warned_and_names_what_was_killed(longer_runs, tmp_path, monkeypatch, capfd):
    pytest.importorskip("submitit")
    local_slurm(monkeypatch)
    monkeypatch.setattr(slurm_engine, "MINUTES", 10)  # so short that any warning is that of its end

    def warn_one_and_kill_another():
        warned, pid = at_work(tmp_path)
        os.kill(pid, signal.SIGUSR2)
        killed, other = at_work(tmp_path, others=[warned.folder])
        os.kill(other, signal.SIGKILL)
        return warned, killed

    done = in_background(warn_one_and_kill_another)
    arguments = [*TWO_CHAINS, "--columns", "2", "--output", str(tmp_path), "--engine", "slurm", "--jobs", "2"]
    assert main(arguments) == 1
    warned, killed = done.result(0)
    printed = capfd.readouterr().out
    assert printed.count(" done ") == 1
    assert printed.count("was killed") == 2  # when it happened, and at the end
    assert str(tmp_path / "slurm") in printed
    [run] = [run for run in planned(tmp_path) if run.record.folder == killed.folder]
    assert run.first_task.record.folder == warned.folder
    assert len(warned.environments()) == 2
    assert len(set(epochs_of(warned))) == len(epochs_of(warned))
    assert columns_filled(tmp_path) == []


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch):
    """Programs that write down what they are given, in the place of Slurm's."""
    pytest.importorskip("submitit")
    folder = tmp_path / "bin"
    folder.mkdir()
    programs = {
        "sbatch": 'cat "$1" > sbatch.txt; echo Submitted batch job 7',
        "squeue": "cat squeue.txt; echo asked >> asked.txt",
        "scancel": 'echo "$@" >> scancel.txt',
        "srun": "exit 1",
    }
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}\n")
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(slurm_engine, "ASK_AGAIN", 0.0)
    monkeypatch.setattr(slurm_engine, "LOOK_AGAIN", 0.02)
    (tmp_path / "squeue.txt").write_text("7_0 RUNNING\n7_1 PENDING\n")
    return tmp_path


def assignments(folder, count, cores=1):
    return [Assignment({}, folder / f"run-{i}", None, ("podnet",), cores) for i in range(count)]


def test_what_sbatch_is_told(fake_slurm):
    options = sbatch_options("partition=gpu,time=24:00:00,exclude=a,b,cpus-per-task=9")
    engine = SlurmEngine(fake_slurm / "slurm", 50, 2, options)
    with engine:
        engine.submit(assignments(fake_slurm, 3, cores=4))
    script = (fake_slurm / "sbatch.txt").read_text()
    for line in (
        "--array=0-2%3",
        "--cpus-per-task=9",  # what the user says goes
        "--exclude=a,b",
        "--gpus-per-node=2",
        "--job-name=podnet",
        "--partition=gpu",
        "--requeue",
        "--signal=USR2@90",
        "--time=24:00:00",
        f"--output={fake_slurm}/slurm/%A_%a_0_log.out",
    ):
        assert f"#SBATCH {line}\n" in script
    assert script.count("--cpus-per-task") == script.count("--time") == 1
    assert script.count("submitit.core._submit") == 1


def test_slurm_cancels_what_is_left_behind(fake_slurm):
    engine = SlurmEngine(fake_slurm / "slurm", 50, 0, {})
    with suppress(KeyboardInterrupt), engine:
        engine.submit(assignments(fake_slurm, 2))
        raise KeyboardInterrupt
    assert (fake_slurm / "scancel.txt").read_text().split() == ["7_0", "7_1"]
    script = (fake_slurm / "sbatch.txt").read_text()
    assert "--cpus-per-task=1\n" in script
    assert "--time=240\n" in script
    assert "gpus" not in script


@pytest.mark.parametrize("line", ["7_1 OUT_OF_MEMORY", ""])
def test_a_job_that_slurm_killed_is_noticed_without_its_accounting(fake_slurm, line):
    engine = SlurmEngine(fake_slurm / "slurm", 50, 0, {})
    with engine:
        kept, killed = engine.submit(assignments(fake_slurm, 2))
        asked = fake_slurm / "asked.txt"
        wait_until(lambda: asked.exists() and len(asked.read_text().splitlines()) > 2)
        assert not killed.done()
        (fake_slurm / "squeue.txt").write_text(f"7_0 RUNNING\n{line}\n")
        told = killed.result(PATIENCE)
        assert isinstance(told, PodnetError)
        assert (line.partition(" ")[2] or "GONE") in str(told)
        assert f"{fake_slurm}/slurm/7_1_0_log.err" in str(told)
        assert not kept.done()


def test_runs_of_other_needs_are_arrays_of_their_own(fake_slurm):
    (fake_slurm / "bin" / "sbatch").write_text(f'#!/bin/sh\ncat "$1" >> {fake_slurm}/sbatch.txt; echo job 7\n')
    engine = SlurmEngine(fake_slurm / "slurm", 50, 0, {})
    few, many = assignments(fake_slurm / "few", 2, cores=1), assignments(fake_slurm / "many", 2, cores=9)
    with engine:
        futures = engine.submit([many[0], few[0], many[1], few[1]])
        assert len(set(futures)) == 4
    script = (fake_slurm / "sbatch.txt").read_text()
    assert [line for line in script.splitlines() if "cpus" in line] == [
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --cpus-per-task=9",
    ]


def test_slurm_says_why_it_takes_no_jobs(fake_slurm, capfd):
    (fake_slurm / "bin" / "sbatch").write_text("#!/bin/sh\necho sbatch: error: invalid partition >&2\nexit 1\n")
    arguments = [*TWO_CHAINS, "--output", str(fake_slurm / "out"), "--engine", "slurm", "--slurm", "partition=no"]
    assert main(arguments) == 2
    assert "error: Slurm rejected the job: sbatch: error: invalid partition\n" in capfd.readouterr().err


def test_a_process_that_decodes_photos_does_not_queue_the_job_again(monkeypatch):
    pytest.importorskip("submitit")
    job = Job(Assignment({}, Path("run"), None, ("podnet",), 1))
    job._process = os.getpid()
    assert job.checkpoint().function.assignment == job.assignment
    monkeypatch.setattr(os, "_exit", sys.exit)
    job._process = os.getppid()  # that which was started by the job
    with pytest.raises(SystemExit):
        job.checkpoint()


class LosingEngine(nullcontext):
    """The first time, says that its worker is still dying, which has learned something by then."""

    slots = 1
    taken = "submitted"

    def __init__(self):
        super().__init__()
        self.given = []

    def submit(self, assignments):
        [assignment] = assignments
        self.given.append(assignment)
        progress = assignment.folder / "epochs.jsonl"
        self.progress = progress.exists()
        progress.write_text('{"task": 0}\n')
        future = Future()
        future.set_result(BusyError("another process is writing it") if len(self.given) == 1 else "done")
        return [future]


def test_a_run_that_starts_again_is_cleared_once(tmp_path):
    run = planned(tmp_path)[0]
    for record in (run.record, run.first_task.record):
        record.clear()
        record.config_file.write_text("{}")
        record.results_file.write_text("")
    engine = LosingEngine()
    outcomes = [o.status for o in carry_out([run], engine, resume=False) if o is not None]
    assert outcomes == ["submitted", "elsewhere", "submitted", "done"]
    assert not run.record.config_file.exists()
    assert engine.progress  # tried again, it goes on
    assert [given.first_task for given in engine.given] == [None, None]
    assert not run.first_task.record.config_file.exists()  # nor does anything begin from it later


def test_an_assignment_means_the_same_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("n01\n")
    common = {"threads": 2, "workers": 3, "data_path": "photos", "subset": "classes.txt"}
    [run] = plan(BENCHMARKS["imagenet100"], "small", Path("out"), "1", common)[:1]
    given = assign(run, share=True)
    assert given.folder == tmp_path / run.record.folder
    assert given.cores == 5
    assert given.options["data_path"] == str(tmp_path / "photos")
    assert given.options["subset"] == str(tmp_path / "classes.txt")
    monkeypatch.chdir("/")
    expected = replace(run.experiment, data_path=str(tmp_path / "photos"), subset=str(tmp_path / "classes.txt"))
    assert resolve(given.options) == expected


def test_every_assignment_is_read_back_as_the_experiment_it_was_made_of(tmp_path):
    for name in ("curves", "ablation-components", "memory-total"):
        for run in plan(BENCHMARKS[name], "smoke", tmp_path, common={"threads": 1}):
            assert resolve(assign(run, share=True).options) == run.experiment


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--address", "1.2.3.4:5"], "--address works only with --engine ray, not --engine local"),
        (["--engine", "slurm", "--address", "1.2.3.4:5"], "--address works only with --engine ray, not --engine slurm"),
        (["--slurm", "time=1"], "--slurm works only with --engine slurm, not --engine local"),
        (["--engine", "ray", "--slurm", "time=1"], "--slurm works only with --engine slurm, not --engine ray"),
        (["--gpus-per-run", "1"], "--gpus-per-run works only with --engine ray or slurm, not --engine local"),
        (["--engine", "slurm", "--gpus-per-run", "0.5"], "--gpus-per-run is 0.5; it must be a whole number"),
        (["--engine", "ray", "--gpus-per-run", "1.5"], "a share of one"),
        (["--engine", "ray", "--gpus-per-run", "-1"], "--gpus-per-run is -1"),
        (["--engine", "ray", "--device", "cuda"], "needs --gpus-per-run"),
        (["--engine", "ray", "--address", "here"], "it must be HOST:PORT"),
        (["--engine", "ray", "--jobs", "0"], "jobs is 0; it must be at least 1"),
        (["--engine", "slurm", "--slurm", "gpu"], "it must be KEY=VALUE"),
        (["--engine", "kubernetes"], "invalid choice"),
    ],
)
def test_options_that_do_not_fit_get_one_sentence(arguments, words, tmp_path, capsys):
    assert main([*TWO_CHAINS, *arguments, "--output", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("engine", "package", "words"),
    [
        ("ray", "ray", "--engine ray needs Ray: pip install 'podnet[ray]'"),
        ("slurm", "submitit", "--engine slurm needs submitit: pip install 'podnet[slurm]'"),
    ],
)
def test_a_package_that_is_not_there_is_named(engine, package, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    assert main([*TWO_CHAINS, "--engine", engine, "--output", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_slurm(tmp_path, monkeypatch, capsys):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([*TWO_CHAINS, "--engine", "slurm", "--output", str(tmp_path / "out")]) == 2
    assert "needs sbatch" in capsys.readouterr().err


def test_without_a_ray_cluster(tmp_path, monkeypatch, capsys):
    ray = pytest.importorskip("ray")

    def init(address, **options):
        raise ConnectionError("Could not find any running Ray instance.\nAnd more.")

    monkeypatch.setattr(ray, "init", init)  # there may be one that is not ours
    assert main([*TWO_CHAINS, "--engine", "ray", "--output", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "no usable Ray cluster on this machine (Could not find any running Ray instance);" in told
    assert "'ray start --head'" in told
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(PodnetError, match=f"at {address} .*refused"), RayEngine(address, 1, 0):
            pass


def test_a_run_without_a_gpu_keeps_off_those_of_the_cluster(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(reproduce, "carry_out", lambda runs, engine, resume: seen.extend(runs) or iter(()))
    monkeypatch.setattr(reproduce, "make_engine", lambda *options: None)
    monkeypatch.setattr(reproduce, "_report", lambda *results: ([], tmp_path))
    for arguments in (["ray"], ["ray", "--gpus-per-run", "0.5"], ["local", "--jobs", "1"]):
        seen.clear()
        main([*TWO_CHAINS, "--output", str(tmp_path), "--engine", *arguments])
        expected = ("cpu", 1) if arguments == ["ray"] else ("auto", 1 if "ray" in arguments else cores())
        assert {(run.experiment.device, run.experiment.threads) for run in seen} == {expected}


def test_as_many_runs_as_cores_unless_told_otherwise(tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(reproduce, "make_engine", lambda name, given, *options: jobs.append(given))
    monkeypatch.setattr(reproduce, "carry_out", lambda runs, engine, resume: iter(()))
    monkeypatch.setattr(reproduce, "_report", lambda *results: ([], tmp_path))
    main([*TWO_CHAINS, "--output", str(tmp_path), "--device", "cpu"])
    main([*TWO_CHAINS, "--output", str(tmp_path), "--engine", "slurm"])
    assert jobs == [min(8, cores()), None]
