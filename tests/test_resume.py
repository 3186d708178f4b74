"""A run killed at any moment ends, when resumed, with exactly the numbers and weights of one that was not."""

import json
import multiprocessing
import random
import resource
import shutil
import signal

import pytest
import torch

from podnet.cli import main
from podnet.engine.training import Iteration
from podnet.errors import PodnetError
from podnet.io.tensors import load_tensors, save_tensors
from podnet.runs.config import resolve
from podnet.runs.folder import Run
from podnet.runs.loop import Notice, run

OPTIONS = {
    "classes": 6,
    "base": 4,
    "epochs": 2,
    "batch_size": 32,
    "memory_per_class": 5,
    "images_per_class": 32,
    "checkpoint_seconds": 0,
    "threads": 1,
}
SHORT_PHASES = {"podnet": {"finetune_epochs": 2}, "ucir": {"finetune_epochs": 2}, "bic": {"bias_epochs": 3}}
KILLS = 20


def do_run(folder, resume=False, method="podnet", **options):
    experiment = resolve(OPTIONS | {"method": method} | SHORT_PHASES.get(method, {}) | options)
    return run(experiment, Run(folder), "resume" if resume else "refuse")


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory):
    """A run that stopped in the middle of an epoch, checkpoints of earlier epochs behind it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    records = do_run(folder)
    for record in records:
        if isinstance(record, Iteration) and record.phase == "finetune" and record.epoch == 1:
            break
    records.close()
    return folder


@pytest.fixture
def stopped(stopped_once, tmp_path):
    """A copy of it, to go on with."""
    return shutil.copytree(stopped_once, tmp_path / "run")


def outcome(folder):
    """All that a run leaves, without the seconds: results, losses, predictions, the final state."""
    record = Run(folder)
    results = [{k: v for k, v in line.items() if k != "seconds"} for line in record.results()]
    epochs = [{k: v for k, v in line.items() if k != "seconds"} for line in record.epochs()]
    state, meta = load_tensors(record.checkpoint_files()[0])
    predictions = {p.name: load_tensors(p)[0] for p in sorted(record.predictions.iterdir())}
    return results, epochs, meta["task"], state, predictions


def assert_same_outcome(one, other):
    results, epochs, task, state, predictions = outcome(one)
    others = outcome(other)
    assert (results, epochs, task) == others[:3]
    assert state.keys() == others[3].keys()
    assert all(torch.equal(value, others[3][name]) for name, value in state.items())
    assert predictions.keys() == others[4].keys()
    for name, tensors in predictions.items():
        assert all(torch.equal(value, others[4][name][key]) for key, value in tensors.items())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    for _ in do_run(folder):
        pass
    return folder


def forking():
    """Processes that are copies of one that has imported what a run needs; torch imports its compiler to train."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["podnet.runs.config", "sklearn.cluster", "sklearn.datasets", "torch._dynamo"])
    return context


def live(folder, resume, pipe):
    """One life of a process: run, telling the parent of each record, until it ends or is killed."""
    torch.set_num_threads(1)
    for record in do_run(folder, resume):
        pipe.send((type(record).__name__, getattr(record, "phase", None)))
    pipe.send(("finished", None))


def test_twenty_kills_change_nothing(uninterrupted, tmp_path):
    context = forking()
    chance = random.Random(7)
    moments = []  # the last record before each kill
    while len(moments) < KILLS:  # a run that ends before it was killed often enough is followed by another
        folder = tmp_path / f"run{len(moments)}"
        finished = False
        while not finished:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=live, args=(folder, (folder / "config.yaml").exists(), sender))
            process.start()
            sender.close()
            # Kill some records after the start, or every fourth time after the fine-tuning began.
            begun = len(moments) % 4 != 3
            left = chance.randint(1, 24 if begun else 4) if len(moments) < KILLS else 10**9
            while left and not finished:
                last = receiver.recv()
                finished = last[0] == "finished"
                begun = begun or last[1] == "finetune"
                left -= begun
            if not finished:
                process.kill()
            process.join()
            finished = finished or process.exitcode == 0  # its end may come before the kill
            if not finished:
                assert process.exitcode == -signal.SIGKILL
                moments.append(last)
        assert_same_outcome(uninterrupted, folder)
    assert {phase for _, phase in moments} >= {"train", "finetune"}


@pytest.mark.parametrize("method", ["ucir", "icarl", "bic", "replay", "joint"])
def test_every_method_resumes_exactly(method, tmp_path):
    fewer = {"classes": 3, "base": 2}
    for _ in do_run(tmp_path / "whole", method=method, **fewer):
        pass
    stops = 0
    while True:  # stop in the middle of every epoch but the first
        records = do_run(tmp_path / "cut", resume=stops > 0, method=method, **fewer)
        epochs = 0
        for record in records:
            epochs += isinstance(record, Iteration) and record.iteration == 1
            if epochs == 2:
                break
        else:
            break
        records.close()
        stops += 1
    assert stops >= 3
    assert_same_outcome(tmp_path / "whole", tmp_path / "cut")


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-100])


def change_one_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut_short, change_one_byte])
def test_a_damaged_checkpoint_is_told_and_the_one_before_used(damage, uninterrupted, stopped):
    damage(Run(stopped).checkpoint_files()[0])
    notices = [record for record in do_run(stopped, resume=True) if isinstance(record, Notice)]
    assert len(notices) == 1
    assert "damaged" in notices[0].text
    assert_same_outcome(uninterrupted, stopped)


def test_all_checkpoints_damaged_stops_with_a_sentence_and_keeps_the_results(uninterrupted, tmp_path):
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    before = Run(folder).results_file.read_bytes()
    for path in Run(folder).checkpoint_files():
        cut_short(path)
    with pytest.raises(PodnetError, match=r"all checkpoints .* are damaged"):
        list(do_run(folder, resume=True))
    assert Run(folder).results_file.read_bytes() == before


@pytest.mark.parametrize("forged", [{"sizes": 7}, {"task": 10**30}, {"class_names": None}])
def test_a_checkpoint_that_does_not_fit_is_told_and_nothing_is_removed(forged, stopped):
    """Its checksum is right, what it holds is not of this run."""
    newest = Run(stopped).checkpoint_files()[0]
    tensors, meta = load_tensors(newest)
    save_tensors(newest, tensors, meta | forged | {"learner": meta["learner"] | forged})
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(PodnetError, match="does not fit this run"):
        list(do_run(stopped, resume=True))
    Run(stopped).failure_file.unlink()
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before


def test_resuming_with_a_damaged_environment_file(uninterrupted, stopped):
    Run(stopped).environment_file.write_text("[")
    list(do_run(stopped, resume=True))
    assert_same_outcome(uninterrupted, stopped)


def test_resuming_a_finished_run_changes_nothing(uninterrupted):
    before = {p: p.read_bytes() for p in uninterrupted.rglob("*") if p.is_file()}
    assert list(do_run(uninterrupted, resume=True)) == []
    assert {p: p.read_bytes() for p in uninterrupted.rglob("*") if p.is_file()} == before


def limited(folder, bytes_allowed, pipe):
    """A run on a machine where no file can grow beyond a limit, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, bytes_allowed))
    try:
        for _ in do_run(folder, resume=True):
            pass
        pipe.send("finished")
    except PodnetError as error:
        pipe.send(str(error))


def test_a_full_disk_stops_the_run_and_damages_nothing(uninterrupted, stopped):
    checkpoint = Run(stopped).checkpoint_files()[0]
    context = forking()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=limited, args=(stopped, checkpoint.stat().st_size // 2, sender))
    process.start()
    message = receiver.recv()
    process.join()
    assert "cannot write" in message
    assert "--resume" in message
    assert not list(stopped.rglob(".*.safetensors.*")), "a half-written file was left"
    for _ in do_run(stopped, resume=True):
        pass
    assert_same_outcome(uninterrupted, stopped)


def test_a_line_cut_short_by_a_crash_is_ignored(uninterrupted, stopped):
    with open(Run(stopped).epochs_file, "a") as file:
        file.write(json.dumps({"task": 0})[:-3])
    for _ in do_run(stopped, resume=True):
        pass
    assert_same_outcome(uninterrupted, stopped)


def test_a_run_uses_its_threads_and_leaves_torch_as_it_was(tmp_path):
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("high")
    try:
        records = do_run(tmp_path / "run", threads=1)
        next(records)
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (1, "highest")
        records.close()
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, "high")
    finally:
        torch.set_float32_matmul_precision("highest")


def test_two_processes_cannot_write_the_same_run(tmp_path):
    records = do_run(tmp_path / "run")
    next(records)
    with pytest.raises(PodnetError, match="another process"):
        next(do_run(tmp_path / "run", resume=True))
    records.close()


def options_of(**options):
    values = OPTIONS | {"method": "podnet", "finetune_epochs": 2} | options
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def test_a_run_from_the_first_task_of_another_equals_one_from_nothing(tmp_path):
    """Of a finished run of other steps and another memory; its first task was learned in the same way."""
    other = {"increment": 2, "memory_per_class": 3, "finetune_epochs": 1}
    assert main(["run", *options_of(**other), "--output", str(tmp_path / "other")]) == 0
    assert main(["run", *options_of(), "--output", str(tmp_path / "alone")]) == 0
    from_base = ["--from-base", str(tmp_path / "other"), "--output", str(tmp_path / "based")]
    assert main(["run", *options_of(), *from_base]) == 0
    assert_same_outcome(tmp_path / "alone", tmp_path / "based")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"epochs": 1}, "learned with epochs 1, not 2"),
        ({"base": 3}, "learned with classes 3, not 4"),
        ({"seed": 2}, "learned with seed 2, not 1"),
        (None, "has no trained first task"),
    ],
)
def test_a_first_task_learned_in_another_way_is_refused(other, words, tmp_path, capsys):
    if other is not None:
        assert main(["run", *options_of(**other), "--output", str(tmp_path / "other")]) == 0
    from_base = ["--from-base", str(tmp_path / "other"), "--output", str(tmp_path / "based")]
    assert main(["run", *options_of(), *from_base]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "based").exists()


def test_a_base_without_its_environment_is_good_enough(tmp_path):
    """`podnet check` says to remove a damaged one."""
    assert main(["run", *options_of(), "--output", str(tmp_path / "other")]) == 0
    (tmp_path / "other" / "environment.json").unlink()
    from_base = ["--from-base", str(tmp_path / "other"), "--output", str(tmp_path / "based")]
    assert main(["run", *options_of(), *from_base]) == 0
    assert len(Run(tmp_path / "based").environments()) == 1


def test_a_published_base_needs_one_checkpoint_and_holds_no_images(tmp_path):
    assert main(["run", *options_of(), "--output", str(tmp_path / "alone")]) == 0
    whole, published = Run(tmp_path / "alone"), Run(tmp_path / "published")
    published.checkpoints.mkdir(parents=True)
    for file in (whole.config_file, whole.epochs_file):
        shutil.copy(file, published.folder)
    shutil.copy(whole.trained_first_task(), published.checkpoints)
    [checkpoint] = published.checkpoint_files()
    assert {name.split(".")[0] for name in load_tensors(checkpoint)[0]} == {"network", "progress"}
    from_base = ["--from-base", str(published.folder), "--output", str(tmp_path / "based")]
    assert main(["run", *options_of(), *from_base]) == 0
    assert_same_outcome(tmp_path / "alone", tmp_path / "based")
    checkpoint.rename(checkpoint.with_stem("0000-0-00001"))  # of a training that goes on
    assert published.trained_first_task() is None


def test_the_newest_checkpoint_is_the_newest_by_number(tmp_path):
    record = Run(tmp_path)
    record.checkpoints.mkdir(parents=True)
    names = ["0000-0-00002", "0000-end", "9999-2-00001", "9999-10-00001", "9999-end", "10000-0-00001", "10000-end"]
    for name in sorted(names):
        (record.checkpoints / f"{name}.safetensors").touch()
    assert [path.stem for path in record.checkpoint_files()] == names[::-1]
    assert record.trained_first_task() == record.checkpoints / "0000-0-00002.safetensors"
    for name in names[1:]:
        (record.checkpoints / f"{name}.safetensors").unlink()
    assert record.trained_first_task() is None


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A run that nobody changes."""
    folder = tmp_path_factory.mktemp("short") / "run"
    assert main(["run", *options_of(epochs=1, classes=3, base=2), "--output", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    "option", ["lr=0.3", "memory_per_class=7", "weight_decay=0.3", "batch_size=17", "seed=4", "epochs=5"]
)
def test_a_run_is_not_resumed_with_other_values(option, short, capsys):
    name, value = option.split("=")
    assert main(["run", "--resume", str(short), f"--{name.replace('_', '-')}", value]) == 2
    assert f"was started with {name}" in capsys.readouterr().err
