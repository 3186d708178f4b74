"""A model of one's own whose network is trained: exemplars, held-out photos, interruptions."""

import os

import numpy as np
import pytest
import torch

from coloured import HUES, TRAINED, accuracy, copied, photos_of, two_lessons
from podnet.cli import main
from podnet.data.collection import Collection, read_collection
from podnet.errors import PodnetError
from podnet.model import lessons
from podnet.model.changing import accept, changing, checkpoint_file, undo
from podnet.model.loading import load_model
from podnet.model.measure import confidences, fit_temperatures
from podnet.model.planning import plan, prepare
from podnet.model.settings import choose


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    return two_lessons(tmp_path_factory.mktemp("own"), TRAINED)


@pytest.fixture
def own(learned, tmp_path):
    return copied(learned / "m.podnet", tmp_path)


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
    left = [path.name for path in learned.iterdir() if path.name.startswith(".")]
    assert [name.split("-")[0] for name in left] == [".m.podnet.before"]  # for undo


def test_known_classes_are_refreshed_only_when_asked(own, learned, tmp_path, capsys):
    more = photos_of(tmp_path / "more", "red", first=30)
    before = own.read_bytes()
    assert main(["learn", str(own), str(more), *TRAINED]) == 2
    assert "to add new photos of them use --include-known" in capsys.readouterr().err
    assert own.read_bytes() == before
    assert main(["learn", str(own), str(more), "--include-known", *TRAINED]) == 0
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
    todo = plan(again, model, 0.15, include_known=True)
    used = {photo.digest for photo in todo.training}
    assert len(todo.training) + len(todo.held_out) == 38
    assert used.isdisjoint(model.held_out_digests)
    assert len(set(model.held_out_digests) & {photo.digest for photo in again.photos}) == 2


def test_what_was_trained_on_is_never_held_out(own, learned, tmp_path):
    """It used to be, if photos were given again: then the accuracy was that on photos the network was trained on."""
    model = load_model(own)
    first = read_collection(photos_of(learned / "twice", "red"))
    known = {photo.digest for photo in first.photos} - set(model.held_out_digests)
    todo = plan(first, model, 0.5, include_known=True)
    assert ({photo.digest for photo in todo.training}, todo.held_out) == (known, ())
    more = photos_of(photos_of(tmp_path / "more", "red"), "red", count=10, first=100)
    assert main(["learn", str(own), str(more), "--include-known", *TRAINED]) == 0
    after = load_model(own)
    assert known.isdisjoint(after.held_out_digests)
    assert len(after.held_out_digests) == len(model.held_out_digests) + 2
    assert len(after.trained_on["red"]) == 8 + 8
    assert main(["forget", str(own), "red"]) == 0
    assert not any(digest.encode() in own.read_bytes() for digest in known)


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
        return lessons.teach(path, prepare(path, extra, given, False, "cpu"), "cpu", workers=0)

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
        for record in lessons.teach(own, prepare(own, extra, given, False, "cpu"), "cpu", workers=0):
            if isinstance(record, lessons.Epoch) and record.epoch == 1:
                return

    interrupt()
    assert main(["info", str(own)]) == 0
    assert f"Repeat it to continue, or delete {left}." in capsys.readouterr().out
    accept(own)  # changes nothing
    assert left.exists()
    assert main(["learn", str(own), str(extra), *TRAINED, "--epochs", "1", "--finetune-epochs", "1"]) == 0
    assert "the interrupted lesson had other photos or settings" in capsys.readouterr().out
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
    lesson = prepare(own, photos_of(tmp_path / "red", "red", first=90), given, True, "cpu")
    records = lessons.teach(own, lesson, "cpu", workers=0)
    assert not isinstance(next(records), lessons.NotResumed)
    assert not left.exists()
    records.close()


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
    assert "forgot green: removed its name and all data kept from its 6 photos" in capsys.readouterr().out
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
    assert main(["learn", str(own), str(photos_of(learned / "anew", "green")), *TRAINED]) == 0
    assert load_model(own).names == ["blue", "red", "grey", "green"]


def test_temperatures_make_held_out_photos_most_likely():
    """Against a finer search; scores that are scaled need a temperature scaled alike."""
    from podnet.engine.extraction import Scores

    draws = torch.Generator().manual_seed(0)
    targets = torch.randint(5, (200,), generator=draws)
    scores = torch.randn(200, 5, generator=draws) + 2 * torch.nn.functional.one_hot(targets, 5)
    found = fit_temperatures(Scores(scores, 10 * scores, targets), targets)
    grid = np.linspace(0.2, 5, 2000)
    wanted = torch.nn.functional.one_hot(targets, 5) * (1 - 1 / 202) + 1 / 202 / 5  # Laplace: one more was wrong
    losses = [-(wanted * confidences(scores.double(), t).log()).sum(1).mean() for t in grid]
    assert found["cnn"] == pytest.approx(grid[int(np.argmin(losses))], rel=0.07)
    assert found["nme"] == pytest.approx(10 * found["cnn"], rel=0.07)
    assert fit_temperatures(Scores(scores[:5], None, targets[:5]), targets[:5])["cnn"] == 1.0


def test_settings_follow_from_the_photos():
    from podnet.data.collection import Photo

    def chosen(side, count, on_gpu, weights="none", **given):
        photos = Collection(tuple(Photo(f"{i}", "a", (side + 100, side), str(i)) for i in range(count)))
        return choose(photos, {"weights": weights, **given}, None, on_gpu)

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
