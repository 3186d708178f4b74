"""A process killed at any change of a file: nothing is lost, nothing stays behind. The campaign tries many more."""

import errno
import itertools
import resource
import signal
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "campaign"))

from faults import STOPPED, Faults
from forked import forked

from coloured import photos_of
from podnet.cli import main
from podnet.errors import PodnetError
from podnet.io.files import write_atomically
from podnet.model.changing import can_undo, changing, tidy, undo
from podnet.runs.config import resolve
from podnet.runs.folder import Run
from podnet.runs.loop import run

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child uses one thread


def killed(action, folder, at):
    """Carry out the action in a process that stops at that change of a file in the folder; False if it did not."""

    def stopping():
        Faults(str(folder), at, "stop").install()
        action(folder)

    code = forked(stopping, folder.parent / "output")
    assert code in (0, STOPPED), (folder.parent / "output").read_text()
    return code == STOPPED


def replace_model(folder):
    with changing(folder / "m", undoable=True):
        write_atomically(folder / "m", "new")


def everything(folder):
    return {path.name for path in folder.iterdir()}


def test_a_change_killed_at_any_moment_is_whole_can_be_undone_and_leaves_nothing(tmp_path):
    at, seen = 0, set()
    while True:
        folder = tmp_path / str(at := at + 1)
        folder.mkdir()
        (folder / "m").write_text("old")
        stopped = killed(replace_model, folder, at)
        found = (folder / "m").read_text()
        seen.add(found)
        tidy(folder / "m")
        if found == "new":
            assert can_undo(folder / "m")
            undo(folder / "m")
        assert (folder / "m").read_text() == "old"
        assert everything(folder) == {"m"}
        if not stopped:
            break
    assert at > 10
    assert seen == {"old", "new"}


def test_an_undo_survives_a_lesson_that_was_killed_before_it_changed_the_model(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "m").write_text("old")
    replace_model(folder)
    assert killed(replace_model, folder, 5)
    undo(folder / "m")
    assert (folder / "m").read_text() == "old"
    assert everything(folder) == {"m"}


def without_links(*paths):
    raise OSError(errno.EPERM, "no links here")


def test_a_copy_cut_short_is_not_what_undo_gives_back(tmp_path, monkeypatch):
    """Where files cannot be linked, the file before the change is copied; here the disk is full before the end."""
    monkeypatch.setattr("os.link", without_links)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "m").write_text("old")
    with changing(folder / "m", undoable=True):
        write_atomically(folder / "m", "much longer " * 100)

    def on_a_full_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with pytest.raises(PodnetError, match="cannot write"):
            replace_model(folder)

    assert forked(on_a_full_disk, tmp_path / "output") == 0, (tmp_path / "output").read_text()
    assert (folder / "m").read_text() == "much longer " * 100
    undo(folder / "m")
    assert (folder / "m").read_text() == "old"
    assert everything(folder) == {"m"}


def forget_grey(folder):
    from podnet.model.forget import forget

    forget(folder / "m.podnet", ["grey"])


@pytest.fixture(scope="module")
def lessons(tmp_path_factory):
    """A model of two lessons, and its backup."""
    root = tmp_path_factory.mktemp("lessons")
    options = ["--train", "never", "--image-size", "32", "--workers", "0"]
    for photos in (photos_of(root / "a", "red", "blue", count=2), photos_of(root / "b", "grey", count=2)):
        assert main(["learn", str(root / "m.podnet"), str(photos), *options]) == 0
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


def test_no_backup_outlives_what_was_forgotten(lessons, tmp_path):
    """However the command is killed, wherever the class is gone from the model it is gone from the folder."""
    from podnet.model.loading import load_model

    stopped, gone = True, 0
    for at in itertools.count(7):  # before that, the model without the class is not written yet
        folder = tmp_path / str(at)
        folder.mkdir()
        for name, content in lessons.items():
            (folder / name).write_bytes(content)
        stopped = killed(forget_grey, folder, at)
        if "grey" not in load_model(folder / "m.podnet").names:
            assert not [name for name in everything(folder) if "before" in name or "unchanged" in name]
            gone += 1
        tidy(folder / "m.podnet")
        assert everything(folder) <= set(lessons)
        if not stopped:
            break
    assert everything(folder) == {"m.podnet"}
    assert gone > 1


def test_the_next_write_removes_what_a_killed_one_left(tmp_path):
    left = tmp_path / ".file.unfinished"
    left.write_text("half")
    write_atomically(tmp_path / "file", "whole")
    assert everything(tmp_path) == {"file"}


def test_two_processes_that_write_the_same_file_do_not_disturb_each_other(tmp_path):
    """The second does not take the unfinished file of the first for that of a killed process."""

    def parts():
        yield b"first"
        write_atomically(tmp_path / "file", "second")
        yield b" and last"

    write_atomically(tmp_path / "file", parts())
    assert (tmp_path / "file").read_text() == "first and last"
    assert everything(tmp_path) == {"file"}


def test_a_name_that_is_no_unicode_can_be_written(tmp_path):
    write_atomically(tmp_path / "page", "class \ud800")
    assert (tmp_path / "page").read_text() == "class \\ud800"


def test_ctrl_c_leaves_no_unfinished_file(tmp_path):
    def parts():
        yield b"first"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", parts())
    assert not everything(tmp_path)


def test_a_run_that_could_not_write_its_configuration_can_be_started_again(tmp_path, monkeypatch):
    """There is no run yet: nothing to resume, and nothing that forbids another."""
    options = {"classes": 2, "base": 1, "epochs": 1, "finetune_epochs": 1, "images_per_class": 2, "threads": 1}
    experiment = resolve(options | {"method": "podnet", "memory_per_class": 1})
    record = Run(tmp_path / "run")

    def full(self, config):
        raise PodnetError("cannot write config.yaml: No space left on device.")

    with monkeypatch.context() as patched:
        patched.setattr(Run, "write_config", full)
        with pytest.raises(PodnetError, match="No space left"):
            list(run(experiment, record))
    assert not record.exists()
    list(run(experiment, record))
    assert record.is_finished()
