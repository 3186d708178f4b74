"""Whole runs on a folder of photos: resumed, decoded by other processes, with photos missing, damaged or deleted."""

import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from podnet.cli import main
from podnet.data import Photos
from podnet.engine.learner import Learner
from podnet.engine.training import Epoch
from podnet.errors import BusyError, DataError
from podnet.io.tensors import load_tensors
from podnet.memory.exemplars import ExemplarMemory
from podnet.runs.config import resolve
from podnet.runs.folder import Run
from podnet.runs.loop import Notice, run

COLOURS = {"n01": (200, 40, 40), "n02": (40, 200, 40), "n03": (40, 40, 200), "n04": (200, 200, 40)}
OPTIONS = {
    "dataset": "imagenet",
    "order": "natural",
    "base": 2,
    "epochs": 2,
    "finetune_epochs": 1,
    "batch_size": 8,
    "memory_per_class": 3,
    "image_size": 16,
    "backbone": "resnet32",
    "threads": 1,
    "workers": 0,
    "checkpoint_seconds": 0,
}


@pytest.fixture
def photos(tmp_path):
    """Four classes of noise in a colour of their own, 12 photos to train on and 4 to test with."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 12), ("val", 4)):
        for synset, colour in COLOURS.items():
            folder = tmp_path / "photos" / part / synset
            folder.mkdir(parents=True)
            for i in range(count):
                noise = generator.integers(-40, 40, (40 + i, 48, 3))
                Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(folder / f"{i}.JPEG")
    return tmp_path / "photos"


def experiment(photos, **changes):
    return resolve(OPTIONS | {"data_path": str(photos)} | changes)


def finish(records):
    for _ in records:
        pass


def outcome(record):
    tensors, _ = load_tensors(record.checkpoint_files()[0])
    lines = [{key: value for key, value in line.items() if key != "seconds"} for line in record.results()]
    return lines, {name: value.tolist() for name, value in tensors.items()}


def test_a_run_on_photos_resumes_to_the_same_weights(photos, tmp_path):
    finish(run(experiment(photos), Run(tmp_path / "whole")))
    cut = Run(tmp_path / "cut")
    for stop in range(1, 6):  # each time one epoch further
        epochs = 0
        for event in run(experiment(photos), cut, "resume"):
            epochs += isinstance(event, Epoch)
            if epochs == 2 and stop < 5:
                break
    assert outcome(cut) == outcome(Run(tmp_path / "whole"))


def test_the_number_of_decoding_processes_changes_nothing(photos, tmp_path):
    for workers in (0, 2):
        finish(run(experiment(photos, base=3, workers=workers), Run(tmp_path / str(workers))))
    assert outcome(Run(tmp_path / "0")) == outcome(Run(tmp_path / "2"))


def test_exemplars_outlive_their_files(photos):
    chosen = experiment(photos)
    dataset = chosen.load_dataset()
    learner = chosen.learner(dataset)
    tasks = chosen.tasks(dataset)
    finish(learner.learn(tasks[0]))
    for synset in ("n01", "n02"):
        shutil.rmtree(photos / "train" / synset)
    tensors, meta = learner.state()
    again = Learner(chosen.method, 3, dataset.transform, ExemplarMemory(3))
    again.restore(tensors, meta)
    finish(again.learn(tasks[1]))
    assert isinstance(again.memory.images, Photos)
    assert again.memory.targets is not None
    assert again.memory.targets.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_damaged_photo_is_an_error_or_is_left_out_by_name(photos, tmp_path):
    damaged = photos / "train" / "n03" / "5.JPEG"
    damaged.write_bytes(damaged.read_bytes()[:200])
    with pytest.raises(DataError, match=r"5\.JPEG"):
        finish(run(experiment(photos), Run(tmp_path / "strict")))
    record = Run(tmp_path / "lenient")
    notices = [e.text for e in run(experiment(photos, unreadable="skip"), record) if isinstance(e, Notice)]
    assert len(notices) == 1
    assert "skipped 1 photo that cannot be read: " in notices[0]
    assert str(damaged) in notices[0]
    assert [line["memory"] for line in record.results()] == [6, 9, 12]


def test_a_class_of_which_nothing_can_be_read_is_named(photos, tmp_path):
    for part, name in (("train", "n03"), ("val", "n04")):
        for photo in (photos / part / name).iterdir():
            photo.write_bytes(b"no photo")
        with pytest.raises(DataError, match=rf"no photo of class '{name}'|none of"):
            finish(run(experiment(photos, unreadable="skip"), Run(tmp_path / part)))
        shutil.copytree(photos / "train" / "n01", photos / part / name, dirs_exist_ok=True)


def test_a_killed_run_leaves_no_process_that_keeps_its_lock(photos, tmp_path):
    record = Run(tmp_path / "run")
    chosen = OPTIONS | {"workers": 2, "epochs": 200, "data_path": photos, "output": record.folder}
    options = [f"--{key.replace('_', '-')}={value}" for key, value in chosen.items()]
    process = subprocess.Popen([sys.executable, "-m", "podnet", "run", *options], stdout=subprocess.DEVNULL)
    while not record.epochs():
        time.sleep(0.1)
        assert process.poll() is None
    process.kill()
    process.wait()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with record.locked():
                return
        except BusyError:
            time.sleep(0.2)
    pytest.fail("a decoding process still holds the lock")


@pytest.mark.parametrize("method", ["ucir", "icarl", "bic", "replay", "joint"])
def test_every_method_learns_from_photos(photos, tmp_path, method):
    own = {key: value for key, value in OPTIONS.items() if key != "finetune_epochs" or method == "ucir"}
    own |= {"bias_epochs": 2} if method == "bic" else {}
    record = Run(tmp_path / "run")
    finish(run(resolve(own | {"data_path": str(photos), "method": method, "epochs": 1}), record))
    assert [line["seen"] for line in record.results()] == [2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dataset", "digits", "--image-size", "32"], "does not use --image-size"),
        (["--dataset", "imagenet1000", "--subset", "ucir"], "does not use --subset"),
        (["--dataset", "imagenet100"], "first 100 classes"),
        (["--dataset", "imagenet", "--unreadable", "perhaps"], "error or skip"),
        (["--dataset", "imagenet", "--image-size", "0"], "at least 1"),
        (["--dataset", "imagenet", "--images-per-class", "2"], "has only 2 training images"),
        (["--dataset", "imagenet", "--images-per-class", "0"], "images_per_class is 0"),
    ],
)
def test_a_mistake_gets_one_sentence(arguments, words, photos, tmp_path, capsys):
    path = [] if "digits" in arguments else ["--data-path", str(photos)]
    assert main(["run", "--output", str(tmp_path / "run"), *path, *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_exemplars_on_disk_change_nothing(photos, tmp_path):
    """A run that holds none of them in memory, stopped and resumed, against one that holds them all."""
    finish(run(experiment(photos), Run(tmp_path / "held")))
    on_disk, chosen = Run(tmp_path / "on disk"), experiment(photos, exemplar_megabytes=0)
    for stop in (2, 4, 99):
        for i, event in enumerate(run(chosen, on_disk, "resume")):
            if isinstance(event, Epoch) and i > stop:
                break
    assert [path.name for path in sorted(on_disk.exemplars.iterdir())] == ["0000.pack", "0001.pack", "0002.pack"]
    assert not Run(tmp_path / "held").exemplars.exists()
    (lines, tensors), (held_lines, held_tensors) = outcome(on_disk), outcome(Run(tmp_path / "held"))
    assert lines == held_lines
    assert tensors.pop("memory.bytes") == []
    assert len(held_tensors.pop("memory.bytes")) > 1000
    assert all(tensors[name] == value for name, value in held_tensors.items() if name != "memory.lengths")
    (on_disk.exemplars / "0002.pack").unlink()  # then the checkpoint before it counts, and makes it again
    notices = [event.text for event in run(chosen, on_disk, "resume") if isinstance(event, Notice)]
    assert "0002.pack, which contains exemplars, is missing" in notices[0]
    assert outcome(on_disk)[0] == held_lines
    on_disk.clear()
    assert not on_disk.exemplars.exists()

    first = Run(tmp_path / "first task")
    finish(run(chosen.first_task(), first))
    begun = Run(tmp_path / "begun")
    finish(run(chosen, begun, "resume", first))
    assert outcome(begun)[0] == held_lines


LIMITED = """
import resource, sys
from podnet.cli import main
limit, size, *arguments = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
try:
    bytes(int(size))
    sys.exit("the limit does not limit")
except MemoryError:
    sys.exit(main(arguments))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_training_set_larger_than_the_memory_that_the_system_gives(tmp_path):
    """0.95 GB of uncompressed photos (each file under many names), and 900 MB for everything, torch included."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 88), ("val", 2)):
        for synset, colour in list(COLOURS.items())[:3]:
            folder = tmp_path / "photos" / part / synset
            folder.mkdir(parents=True)
            noise = np.clip(np.array(colour) + generator.integers(-40, 40, (1100, 1100, 3)), 0, 255)
            Image.fromarray(noise.astype(np.uint8)).save(folder / "0.png", "BMP")
            for i in range(1, count):
                (folder / f"{i}.png").hardlink_to(folder / "0.png")
    size = sum(path.stat().st_size for path in (tmp_path / "photos" / "train").rglob("*.png"))
    limit = 900 * 10**6
    assert size > limit
    options = OPTIONS | {"data_path": tmp_path / "photos", "output": tmp_path / "run", "epochs": 1}
    options |= {"exemplar_megabytes": 1, "batch_size": 32}
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    command = [sys.executable, "-c", LIMITED, str(limit), str(size), "run", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = Run(tmp_path / "run")
    assert [line["memory"] for line in record.results()] == [6, 9]
    assert sum(path.stat().st_size for path in record.exemplars.iterdir()) > 9 * 3 * 10**6
