"""A model of one's own, from photos to a file that predicts, goes on learning and forgets."""

import copy
import io
import json
import lzma
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from coloured import HUES, photos_of
from podnet.cli import main
from podnet.data.collection import Collection, read_collection
from podnet.data.decode import decode
from podnet.errors import DamagedFileError, DataError, PodnetError
from podnet.io.tensors import load_tensors, save_tensors
from podnet.methods.networks import new_network
from podnet.model import lessons
from podnet.model.measure import confidences, fit_temperatures
from podnet.model.model import FORMAT, changing, checkpoint_file, load_model
from podnet.model.predict import predict
from podnet.model.settings import Settings, choose
from podnet.model.undo import accept, undo

QUICK = ["--image-size", "16", "--epochs", "4", "--finetune-epochs", "2", "--exemplars", "4", "--workers", "0"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model that learned three classes, then one more; and the photos."""
    root = tmp_path_factory.mktemp("own")
    first = photos_of(root / "first", "red", "green", "blue")
    second = photos_of(root / "second", "grey")
    assert main(["learn", str(root / "m.podnet"), str(first), *QUICK]) == 0
    before = (root / "m.podnet").read_bytes()
    assert main(["learn", str(root / "m.podnet"), str(second), *QUICK]) == 0
    (root / "before.podnet").write_bytes(before)
    return root


@pytest.fixture
def own(learned, tmp_path):
    """A copy of the model, to be changed."""
    path = tmp_path / "m.podnet"
    path.write_bytes((learned / "m.podnet").read_bytes())
    return path


def test_it_learns_and_goes_on_learning(learned):
    before, after = load_model(learned / "before.podnet"), load_model(learned / "m.podnet")
    assert before.names == ["blue", "green", "red"]
    assert after.names == ["blue", "green", "red", "grey"]
    assert [record.photos for record in after.classes] == [8, 8, 8, 8]  # of 10, two held out
    assert torch.bincount(after.learner.memory.targets).tolist() == [4, 4, 4, 4]
    assert torch.bincount(after.held_out_targets).tolist() == [2, 2, 2, 2]
    assert len(after.history) == 2
    assert after.history[1]["new"] == ["grey"]
    fresh = read_collection(photos_of(learned / "fresh", *HUES, first=50))
    assert accuracy(after, fresh) > 0.8
    assert not [path.name for path in learned.iterdir() if path.name.startswith(".")]  # nothing is left behind


def accuracy(model, collection):
    answers = predict(model, [(photo.label, photo.path) for photo in collection.photos], "nme")
    return np.mean([answer.file == answer.ranked[0][0] for answer in answers])


def test_a_preview_changes_nothing(learned, tmp_path, capsys):
    (tmp_path / "photos" / "red").mkdir(parents=True)
    photos_of(tmp_path / "photos", "red", "blue")
    (tmp_path / "photos" / "red" / "broken.png").write_bytes(b"broken")
    assert main(["learn", str(tmp_path / "new.podnet"), str(tmp_path / "photos"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"red +new +10 +8 +2 +28x24", shown)
    assert "broken.png: not a JPEG" in shown
    assert "image size 32 (the shorter side of most photos is about 24 pixels)" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_known_classes_are_refreshed_only_when_asked(own, learned, tmp_path, capsys):
    more = photos_of(tmp_path / "more", "red", first=30)
    before = own.read_bytes()
    assert main(["learn", str(own), str(more), *QUICK]) == 2
    assert "--include-known refreshes them" in capsys.readouterr().err
    assert own.read_bytes() == before
    assert main(["learn", str(own), str(more), "--include-known", *QUICK]) == 0
    model = load_model(own)
    assert model.names == ["blue", "green", "red", "grey"]
    assert [record.photos for record in model.classes] == [8, 8, 16, 8]
    memory = model.learner.memory
    assert memory.targets.tolist() == sorted([0, 1, 2, 3] * 4)
    assert model.held_out_targets.tolist().count(2) == 4
    old, new = (list(load_model(path).learner.memory.images.contents()) for path in (learned / "m.podnet", own))
    assert [photo in old for photo in new[:8]] == [True] * 8  # the other classes' exemplars are as they were
    assert [photo in old for photo in new[12:]] == [True] * 4


def test_what_was_held_out_is_never_trained_on(own, learned):
    """Photos that come again, among more, must not move from the measured to the trained ones."""
    model = load_model(own)
    again = read_collection(photos_of(photos_of(learned / "again", "red"), "red", count=30, first=100))
    todo = lessons.plan(again, model, 0.15, include_known=True)
    used = {photo.digest for photo in todo.training}
    assert len(todo.training) + len(todo.held_out) == 38
    assert used.isdisjoint(model.held_out_digests)
    assert len(set(model.held_out_digests) & {photo.digest for photo in again.photos}) == 2


def test_an_interrupted_call_leaves_the_model_and_goes_on(own, learned, tmp_path, monkeypatch):
    """Stopped after any checkpoint and called again, it comes to the same file as when it is not stopped."""
    monkeypatch.setattr(lessons, "CHECKPOINT_SECONDS", 0)
    extra = photos_of(tmp_path / "extra", "grey", "red", first=70)
    (extra / "grey").rename(extra / "ash")
    before = own.read_bytes()
    other = tmp_path / "other.podnet"
    other.write_bytes(before)

    def call(path):
        given = {"epochs": 3, "finetune_epochs": 2, "batch_size": 8}
        return lessons.teach(path, lessons.prepare(path, extra, given, False, "cpu"), "cpu", workers=0)

    epochs = 0
    for record in call(own):
        epochs += isinstance(record, lessons.Epoch)
        if epochs == 4:
            break  # in the fine-tuning
    assert own.read_bytes() == before
    records = list(call(own))
    assert records[0] == lessons.Resumed(phase=1, epoch=1)
    assert sum(isinstance(record, lessons.Epoch) for record in records) == 1
    list(call(other))
    first, second = load_model(own), load_model(other)
    for name, tensor in first.learner.network.state_dict().items():
        assert torch.equal(tensor, second.learner.network.state_dict()[name]), name
    assert list(first.learner.memory.images.contents()) == list(second.learner.memory.images.contents())
    assert not list(tmp_path.glob(".*"))


def test_what_an_interrupted_call_left_goes_when_it_no_longer_fits(own, learned, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lessons, "CHECKPOINT_SECONDS", 0)
    left = checkpoint_file(own)
    extra = photos_of(tmp_path / "extra", "grey", first=70)
    (extra / "grey").rename(extra / "ash")
    given = {"epochs": 3, "finetune_epochs": 2, "batch_size": 8}

    def interrupt():
        for record in lessons.teach(own, lessons.prepare(own, extra, given, False, "cpu"), "cpu", workers=0):
            if isinstance(record, lessons.Epoch) and record.epoch == 1:
                return

    interrupt()
    assert main(["info", str(own)]) == 0
    assert f"Repeat its command to continue, or delete {left}." in capsys.readouterr().out
    accept(own)  # changes nothing
    assert left.exists()
    assert main(["learn", str(own), str(extra), *QUICK, "--epochs", "1", "--finetune-epochs", "1"]) == 0
    assert "was interrupted, but with other photos or settings" in capsys.readouterr().out
    assert not left.exists()
    assert main(["info", str(own)]) == 0
    assert "interrupted" not in capsys.readouterr().out

    with changing(own, undoable=True):  # as the page teaches
        load_model(own).save(own)
    left.write_bytes(b"of the model as it is now")
    undo(own)
    assert not left.exists()

    left.write_bytes(b"of the model as it was long ago")
    os.utime(left, (0, 0))
    lesson = lessons.prepare(own, photos_of(tmp_path / "red", "red", first=90), given, True, "cpu")
    records = lessons.teach(own, lesson, "cpu", workers=0)
    assert not isinstance(next(records), lessons.NotResumed)
    assert not left.exists()
    records.close()


def test_two_calls_at_once_do_not_overwrite_each_other(own, tmp_path):
    """Whichever comes first; what a call says it has learned is in the file, what it refused is not."""
    calls = {}
    for name in ("ash", "smoke"):
        photos_of(tmp_path / name, "grey", first=70)
        (tmp_path / name / "grey").rename(tmp_path / name / name)
        command = [sys.executable, "-m", "podnet", "learn", str(own), str(tmp_path / name)]
        command += ["--epochs", "1", "--finetune-epochs", "1", "--workers", "0"]
        calls[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    learned = []
    for name, call in calls.items():
        error = call.communicate()[1]
        learned += [name] if call.returncode == 0 else []
        if call.returncode:
            assert re.search(r"another process is changing|was changed by another process", error), error
    assert learned
    assert set(load_model(own).names) == {"blue", "green", "red", "grey", *learned}


def test_a_model_that_changed_since_it_was_read_is_not_overwritten(own, tmp_path):
    photos_of(tmp_path / "more", "grey", first=70)
    (tmp_path / "more" / "grey").rename(tmp_path / "more" / "ash")
    lesson = lessons.prepare(own, tmp_path / "more", {"epochs": 1}, False, "cpu")
    lesson.model.history = lesson.model.history[:1]
    with pytest.raises(PodnetError, match="was changed by another process"):
        next(lessons.teach(own, lesson, "cpu", 0))


def test_predictions_in_every_format(learned, tmp_path, capsys):
    files = [str(learned / "first" / "red" / f"{i}.png") for i in (2, 1)]
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"")
    model = str(learned / "m.podnet")
    assert main(["predict", model, *files, str(bad), "--top", "2"]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines] == files
    assert re.fullmatch(r".*2\.png: \w+ \d+\.\d%  \w+ \d+\.\d%", lines[0])
    assert err == f"cannot be read: {bad}: not a JPEG, PNG, WebP, GIF, BMP or TIFF image\n"
    assert main(["predict", model, str(learned / "second"), "--format", "jsonl", "--inference", "nme"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["file"] for answer in answers] == sorted(answer["file"] for answer in answers)
    assert len(answers) == 10
    for answer in answers:
        chances = [entry["confidence"] for entry in answer["predictions"]]
        assert len(chances) == 3
        assert chances == sorted(chances, reverse=True)
        assert 0 < sum(chances) <= 1 + 1e-5
    assert main(["predict", model, str(learned / "fi*" / "re*" / "[12].png"), "--format", "csv", "--top", "1"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "file,rank,class,confidence"
    assert [row.split(",")[:2] for row in rows[1:]] == [[file, "1"] for file in sorted(files)]


def test_standard_input_gives_names_or_an_image(learned, monkeypatch, capsys):
    file = learned / "first" / "blue" / "3.png"
    model = str(learned / "m.podnet")
    shown = []
    for content in (f"{file}\n\n".encode(), file.read_bytes()):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main(["predict", model, "-"]) == 0
        shown.append(capsys.readouterr().out.split(": "))
    assert shown[0][0] == str(file)
    assert shown[1][0] == "-"
    assert shown[0][1] == shown[1][1]


def test_evaluation_counts_as_by_hand(learned, tmp_path, capsys):
    picture = tmp_path / "confusion.png"
    photos = photos_of(tmp_path / "test", *HUES, first=80)
    (photos / "grey").rename(photos / "unknown")
    assert main(["evaluate", str(learned / "m.podnet"), str(photos), "--output", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert picture.stat().st_size > 1000
    assert "does not know them: unknown" in shown
    rows = dict(re.findall(r"^ (red|green|blue|all) +\d+ +[\d.]+ +([\d.]+)", shown, re.MULTILINE))
    model = load_model(learned / "m.podnet")
    for name in ("red", "green", "blue"):
        own = read_collection(photos).of([name])
        assert float(rows[name]) == pytest.approx(100 * accuracy(model, own), abs=0.06)
    assert float(rows["all"]) == pytest.approx(np.mean([float(rows[n]) for n in ("red", "green", "blue")]), abs=0.06)


def test_few_photos_are_evaluated_without_processes_and_without_torchs_compiler(learned, monkeypatch):
    """Both took seconds for 75 photos; the compiler is imported where weights of a network without memory are drawn."""
    started = []
    monkeypatch.setattr(torch.utils.data, "DataLoader", lambda *_, **options: started.append(options) or iter(()))
    model, photos = str(learned / "m.podnet"), str(photos_of(learned / "few", "red", "green", count=30, first=100))
    assert main(["evaluate", model, photos]) == 0
    assert not started
    code = "import sys; from podnet.cli import main; main(sys.argv[1:]); sys.exit('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "evaluate", model, photos], capture_output=True, check=False)
    assert done.returncode == 0


def test_information_about_a_model(learned, capsys):
    assert main(["info", str(learned / "m.podnet")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^ grey +\d{4}-\d\d-\d\d +8 +4 ", shown, re.MULTILINE)
    assert "backbone resnet32, image_size 16" in shown
    assert "16 exemplars, 8 photos held out" in shown


def test_a_forgotten_class_leaves_no_trace(own, learned, capsys):
    before = load_model(own)
    memory = before.learner.memory
    gone = [*memory.images[(memory.targets == 1).nonzero().flatten()].contents()]
    gone += [*before.held_out[(before.held_out_targets == 1).nonzero().flatten()].contents()]
    assert len(gone) == 6
    assert all(photo in own.read_bytes() for photo in gone)
    proxies = torch.cat([*before.learner.network.classifier.weights])[1].detach().numpy().tobytes()
    assert proxies in own.read_bytes()
    interrupted = own.with_name(".m.podnet.learning")
    interrupted.write_bytes(b"of an interrupted call, with the same photos")
    assert main(["forget", str(own), "green"]) == 0
    assert not interrupted.exists()
    assert "forgot green: its proxies, its name and its 6 photos" in capsys.readouterr().out
    written = own.read_bytes()
    for secret in (*gone, proxies, b"green"):
        assert secret not in written
    after = load_model(own)
    assert after.names == ["blue", "red", "grey"]
    images = before.held_out
    old, new = before.learner.predict(images), after.learner.predict(images)
    torch.testing.assert_close(new.cnn, old.cnn[:, [0, 2, 3]], rtol=0, atol=1e-6)
    torch.testing.assert_close(new.nme, old.nme[:, [0, 2, 3]], rtol=0, atol=1e-6)
    assert after.learner.memory.targets.tolist() == sorted([0, 1, 2] * 4)
    assert main(["learn", str(own), str(photos_of(learned / "anew", "green")), *QUICK]) == 0  # it can be learned again
    assert load_model(own).names == ["blue", "red", "grey", "green"]


CHANGES = """
import os, sys
from pathlib import Path
from podnet.errors import BusyError
from podnet.model.model import changing

model, alone, done = Path(sys.argv[1]), Path(sys.argv[2]), 0
print("ready", flush=True)
sys.stdin.readline()
while done < 300:
    try:
        with changing(model):
            os.close(os.open(alone, os.O_CREAT | os.O_EXCL))  # fails where another is inside
            alone.unlink()
            done += 1
    except BusyError:
        pass
"""


def test_only_one_process_at_a_time_changes_a_model(tmp_path):
    """Five processes race for the lock, whose file comes and goes."""
    command = [sys.executable, "-c", CHANGES, str(tmp_path / "m.podnet"), str(tmp_path / "alone")]
    pipe = subprocess.PIPE
    racing = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(5)]
    for process in racing:
        assert process.stdout.readline() == "ready\n"
    for process in racing:
        process.stdin.write("go\n")
        process.stdin.flush()
    errors = [process.communicate()[1] for process in racing]
    assert errors == [""] * 5
    assert not list(tmp_path.iterdir())


def test_an_unknown_class_cannot_be_forgotten(own, capsys):
    before = own.read_bytes()
    assert main(["forget", str(own), "gren"]) == 2
    assert "the model knows no class 'gren'. Did you mean 'green'?" in capsys.readouterr().err
    assert own.read_bytes() == before


def test_without_exemplars_it_only_predicts(own, learned, tmp_path, capsys):
    small = tmp_path / "small.podnet"
    load_model(own).save(small, exemplars=False)
    assert small.stat().st_size < own.stat().st_size
    image = load_model(own).held_out
    assert torch.equal(load_model(small).learner.predict(image).cnn, load_model(own).learner.predict(image).cnn)
    assert main(["learn", str(small), str(photos_of(tmp_path / "x", "grey").rename(tmp_path / "y"))]) == 2
    assert main(["info", str(small)]) == 0
    assert "it cannot go on learning" in capsys.readouterr().out


def test_learning_without_keeping_photos(tmp_path):
    photos = photos_of(tmp_path / "p", "red", "blue")
    assert main(["learn", str(tmp_path / "m.podnet"), str(photos), "--no-exemplars", *QUICK]) == 0
    model = load_model(tmp_path / "m.podnet")
    assert not model.can_learn
    assert model.held_out is None


def test_settings_of_a_model_stay(own, learned, capsys):
    assert main(["learn", str(own), str(learned / "first"), "--include-known", "--image-size", "32"]) == 2
    assert "the model was made with image_size 16, not 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--held-out", "0.9", "give a share from 0 to 0.5"),
        ("--image-size", "4", "it must be from 8 to 1024"),
        ("--exemplars", "0", "keep at least 1 photo"),
        ("--epochs", "0", "epochs is 0; it must be above 0"),
        ("--lr", "nan", "lr is nan"),
        ("--batch-size", "-1", "batch_size is -1"),
        ("--workers", "-1", "-1 workers given"),
        ("--device", "warp", "device is 'warp'"),
        ("--backbone", "resnet", "backbone is 'resnet'"),
    ],
)
def test_options_that_cannot_work(tmp_path, capsys, option, value, message):
    photos = photos_of(tmp_path / "p", "red", "blue")
    assert main(["learn", str(tmp_path / "m"), str(photos), option, value]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


def test_a_first_call_needs_two_classes(tmp_path, capsys):
    assert main(["learn", str(tmp_path / "m"), str(photos_of(tmp_path / "p", "red"))]) == 2
    assert "at least 2 classes" in capsys.readouterr().err


def test_a_damaged_file_is_named_or_is_the_same(own):
    """Whatever byte is flipped, wherever the file is cut."""
    data = own.read_bytes()
    draws = np.random.default_rng(0)
    for number in range(150):
        broken = bytearray(data)
        if number % 3 == 0:
            broken = broken[: draws.integers(len(data))]
        else:
            limit = 3000 if number % 3 == 1 else len(data)
            broken[draws.integers(limit)] ^= 1 << draws.integers(8)
        own.write_bytes(broken)
        with pytest.raises(DamagedFileError, match=r"m\.podnet"):
            load_model(own)


FORGERIES = {
    "sizes": lambda t, m: m["learner"].update(sizes=[10**9]),
    "negative sizes": lambda t, m: m["learner"].update(sizes=[-1, 5]),
    "words for sizes": lambda t, m: m["learner"].update(sizes="many"),
    "names": lambda t, m: m["classes"].pop(),
    "no settings": lambda t, m: m.pop("settings"),
    "huge images": lambda t, m: m["settings"].update(image_size=10**6),
    "strange setting": lambda t, m: m["settings"].update(run="rm"),
    "backbone": lambda t, m: m["settings"].update(backbone="os.system"),
    "lengths": lambda t, m: t.update({"learner.memory.lengths": torch.full((16,), 2**40)}),
    "targets": lambda t, m: t.update({"learner.memory.targets": torch.full((16,), 99)}),
    "weights": lambda t, m: t.update({"learner.network.classifier.weights.0": torch.zeros(3, 1, 64)}),
    "kind of weights": lambda t, m: t.update(
        {"learner.network.backbone.stem.0.conv.weight": torch.zeros(16, 3, 3, 3, dtype=torch.float64)}
    ),
    "means": lambda t, m: t.update({"learner.means": torch.zeros(2, 64)}),
    "history": lambda t, m: m.update(history=[{}]),
    "no history": lambda t, m: m.update(history=[]),
    "text for history": lambda t, m: m.update(history=""),
    "history of words": lambda t, m: m["history"][0]["accuracy"].update(cnn="high"),
    "temperature": lambda t, m: m["temperatures"].update(cnn=0),
    "format": lambda t, m: m.update(format="one"),
    "list": lambda t, m: m.update(learner=[]),
    "held out": lambda t, m: t.pop("held_out.targets"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_file_is_refused(own, forgery):
    """Its checksum is right, what it claims is not."""
    tensors, meta = load_tensors(own)
    tensors, meta = dict(tensors), copy.deepcopy(meta)
    FORGERIES[forgery](tensors, meta)
    save_tensors(own, tensors, meta)
    with pytest.raises(DamagedFileError, match=r"m\.podnet is damaged or not a model file"):
        load_model(own)


def test_a_file_of_the_first_version_predicts_as_it_did_and_goes_on_learning(tmp_path):
    """Written by podnet at commit 95c20c7, nine of ten weights set to zero to make it small; its answers noted then."""
    path = tmp_path / "m.podnet"
    path.write_bytes(lzma.decompress((Path(__file__).parent / "data" / "format-1.podnet.xz").read_bytes()))
    assert load_tensors(path)[1]["format"] == 1
    model = load_model(path)
    assert model.names == ["blue", "green", "red", "grey"]
    assert model.settings == Settings(backbone="resnet32", image_size=16, exemplars=2, weights="none")
    photos = photos_of(tmp_path / "photos", *HUES, count=1, first=50)
    files = [(name, photos / name / "50.png") for name in HUES]
    noted = {
        "nme": {"red": 0.4426, "green": 0.4746, "blue": 0.4530, "grey": 0.3579},
        "cnn": {"red": 0.0161, "green": 0.0039, "blue": 0.0153, "grey": 0.9778},
    }
    for inference, confidences_then in noted.items():
        for answer in predict(model, files, inference):
            assert dict(answer.ranked)[answer.file] == pytest.approx(confidences_then[answer.file], abs=1e-3)
    photos_of(tmp_path / "more", "red", first=30)
    (tmp_path / "more" / "red").rename(tmp_path / "more" / "ruby")
    assert main(["learn", str(path), str(tmp_path / "more"), *QUICK[2:4], "--workers", "0"]) == 0
    assert load_tensors(path)[1]["format"] == FORMAT
    assert load_model(path).names == ["blue", "green", "red", "grey", "ruby"]


def test_a_file_of_the_future_says_so(own):
    tensors, meta = load_tensors(own)
    save_tensors(own, tensors, meta | {"format": FORMAT + 1})
    with pytest.raises(PodnetError, match="written by a newer podnet"):
        load_model(own)


def test_the_size_that_a_file_claims_for_its_photos_is_not_believed(own):
    tensors, meta = load_tensors(own)
    save_tensors(own, tensors | {"held_out.size": torch.tensor(10**9)}, meta)
    assert load_model(own).held_out.size == 16


def test_temperatures_make_held_out_photos_most_likely():
    """Against a finer search; scores that are scaled need a temperature scaled alike."""
    from podnet.engine.extraction import Scores

    draws = torch.Generator().manual_seed(0)
    targets = torch.randint(5, (200,), generator=draws)
    scores = torch.randn(200, 5, generator=draws) + 2 * torch.nn.functional.one_hot(targets, 5)
    found = fit_temperatures(Scores(scores, 10 * scores, targets), targets)
    grid = np.linspace(0.2, 5, 2000)
    losses = [-confidences(scores.double(), t)[range(200), targets].log().mean() for t in grid]
    assert found["cnn"] == pytest.approx(grid[int(np.argmin(losses))], rel=0.07)
    assert found["nme"] == pytest.approx(10 * found["cnn"], rel=0.07)
    assert fit_temperatures(Scores(scores[:5], None, targets[:5]), targets[:5])["cnn"] == 1.0


def test_fine_tuning_for_comparison_forgets_what_the_model_keeps(learned, capsys):
    """The example, as docs/own-classifier.md uses it; the epochs it takes from the model are enough to forget here."""
    test = photos_of(learned / "compared", *HUES, first=80)
    tensors, meta = load_tensors(learned / "m.podnet")
    for entry in meta["history"]:
        entry["training"]["epochs"] = 20
    save_tensors(learned / "long.podnet", tensors, meta)
    file = Path(__file__).parent.parent / "examples" / "against_finetuning.py"
    example = runpy.run_path(str(file))
    example["main"](*(str(learned / name) for name in ("long.podnet", "compared", "first", "second")))
    lines = capsys.readouterr().out.splitlines()[1:]
    rows = {line.split()[0]: [float(cell) for cell in line.split()[1:]] for line in lines}
    model = load_model(learned / "m.podnet")
    first = read_collection(test).of(model.history[0]["new"])
    assert rows[str(learned / "first")][1] == pytest.approx(100 * accuracy(model, first), abs=0.1)
    assert rows[str(learned / "first")][2] < 10  # a new class alone was trained on last
    assert rows[str(learned / "second")][2] == 100
    assert len(rows) == 3
    same, ours = example["OnTheSameNetwork"](backbone=model.settings.backbone), model.learner.method
    assert repr(new_network(same, 3).backbone) == repr(new_network(ours, 3).backbone)
    relus = [[block.relu for stage in new_network(m, 3).backbone.stages for block in stage] for m in (same, ours)]
    assert relus[0] == relus[1]


def test_settings_follow_from_the_photos():
    from podnet.data.collection import Photo

    def chosen(side, count, on_gpu, **given):
        photos = Collection(tuple(Photo(f"{i}", "a", (side + 100, side), str(i)) for i in range(count)))
        return choose(photos, given, None, on_gpu)

    assert chosen(500, 1000, False).settings.image_size == 48
    assert chosen(500, 1000, True).settings.image_size == 224
    assert chosen(500, 1000, True).settings.backbone == "resnet18"
    assert chosen(40, 1000, True).settings.image_size == 32
    assert chosen(10, 1000, False).settings.backbone == "resnet32"
    assert chosen(500, 100, False).training.batch_size == 8
    assert chosen(500, 100, False).training.epochs == 60
    assert chosen(500, 100_000, False).training.epochs == 20
    assert chosen(500, 1000, False, batch_size=10).training.batch_size == 10
    assert "image_size" not in chosen(500, 1000, False, image_size=96).reasons
    with pytest.raises(PodnetError, match="backbone is 'resnet19'"):
        chosen(500, 1000, False, backbone="resnet19")


def test_a_folder_that_is_gone_is_told(tmp_path, capsys):
    photos = photos_of(tmp_path / "p", "red", "blue")
    assert main(["learn", str(tmp_path / "no" / "m"), str(photos), *QUICK]) == 2
    assert "make it first" in capsys.readouterr().err
    with pytest.raises(DataError):
        read_collection(tmp_path / "nothing")


@pytest.mark.parametrize("kind", ["onnx", "torch"])
@pytest.mark.filterwarnings("ignore")  # torch's, about itself
def test_an_exported_graph_says_what_the_model_says(learned, tmp_path, kind, capsys):
    """On photos that no check of ours has seen, in batches of other sizes, run by the other program alone."""
    if kind == "onnx":
        pytest.importorskip("onnxscript")
    output = tmp_path / {"onnx": "m.onnx", "torch": "m.pt2"}[kind]
    assert main(["export", str(learned / "m.podnet"), "--format", kind, "--output", str(output)]) == 0
    assert "checked on 24 photos, both inferences" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [output.name]
    model = load_model(learned / "m.podnet")
    photos = [photo.path for photo in read_collection(learned / "first").photos]
    pixels = np.stack([decode(path, 16).transpose(2, 0, 1) for path in photos])
    if kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(output)
        about = session.get_modelmeta().custom_metadata_map
        found = [session.run(None, {"pixels": part}) for part in (pixels[:1], pixels[1:])]
    else:
        kept = {"podnet.json": ""}
        program = torch.export.load(output, extra_files=kept).module()
        about = json.loads(kept["podnet.json"])
        found = [program(torch.from_numpy(part)) for part in (pixels[:1], pixels[1:])]
    assert json.loads(about["classes"]) == model.names
    assert "shorter side to 18" in about["preprocessing"]
    for i, inference in enumerate(("cnn", "nme")):
        answers = list(predict(model, [(str(path), path) for path in photos], inference, top=1))
        table = np.concatenate([np.asarray(part[i]) for part in found])
        assert [model.names[label] for label in table.argmax(1)] == [answer.ranked[0][0] for answer in answers]
        np.testing.assert_allclose(table.max(1), [answer.ranked[0][1] for answer in answers], atol=1e-4)


def test_a_missing_package_is_named(learned, monkeypatch, capsys):
    from podnet.model import export

    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxscript" else name)
    assert main(["export", str(learned / "m.podnet")]) == 2
    assert "needs onnxscript: pip install 'podnet[onnx]'" in capsys.readouterr().err


def test_a_model_for_prediction_alone_does_not_replace_the_model(own, capsys):
    assert main(["export", str(own), "--format", "podnet", "--output", str(own)]) == 2
    assert load_model(own).can_learn
    assert main(["export", str(own), "--format", "podnet"]) == 0
    assert not load_model(own.with_name("m-small.podnet")).can_learn
