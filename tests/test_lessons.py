"""Lessons in closed form: order does not matter, forgetting is exact, and what it says about itself is true."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file

from coloured import HUES, copied, photos_of
from podnet.cli import main
from podnet.data.collection import read_collection
from podnet.data.photos import Photos
from podnet.errors import DataError
from podnet.losses import best_temperature
from podnet.methods import PODNet
from podnet.methods.networks import new_network
from podnet.methods.ridge import Ridge
from podnet.metrics import INFERENCES
from podnet.model.loading import load_model
from podnet.model.measure import confidences
from podnet.model.predict import predict
from podnet.model.trial import Trial
from podnet.nets.classifiers import SolvedClassifier
from podnet.ridge import Fitted

pytestmark = pytest.mark.usefixtures("weights_read_once")
SMALL = ["--image-size", "64", "--workers", "0"]


def learn(model, photos, *options):
    assert main(["learn", str(model), str(photos), *SMALL, *options]) == 0
    return load_model(model)


def tints(folder, *names, count=12, first=0):
    """Classes whose colours vary so much from photo to photo that a model mistakes some of them."""
    return photos_of(folder, *names, count=count, first=first, varied=70)


THREE = ("blue", "green", "red")


def stripes(folder, count):
    """Photos of another kind: coloured stripes."""
    folder.mkdir()
    for i in range(count):
        draws = np.random.default_rng(i)
        lines = draws.integers(0, 256, (8, 1, 3)).repeat(6, 0).repeat(48, 1)
        Image.fromarray(np.rot90(lines, i).astype(np.uint8)).save(folder / f"{i}.png")
    return folder


def scores_of(model, folder):
    """The scores of both inferences for the photos of a folder, the classes in the order of their names."""
    files = tuple(photo.source for photo in read_collection(folder).photos)
    found = model.learner.predict(Photos(files, model.settings.image_size))
    order = [model.names.index(name) for name in sorted(model.names)]
    return {"cnn": found.cnn[:, order], "nme": found.nme[:, order]}


def assert_same_answers(one, other, folder):
    for name, table in scores_of(one, folder).items():
        again = scores_of(other, folder)[name]
        torch.testing.assert_close(table, again, rtol=0, atol=1e-4)
        assert torch.equal(table.argmax(1), again.argmax(1))


@pytest.fixture(scope="module")
def hues(tmp_path_factory):
    """A model of four colours learned in two lessons, a folder for each colour, and fresh photos."""
    root = tmp_path_factory.mktemp("hues")
    for name in HUES:
        photos_of(root / name, name)
    photos_of(root / "fresh", *HUES, first=50)
    photos_of(root / "all", *HUES)
    learn(root / "m.podnet", photos_of(root / "first", "red", "green"))
    learn(root / "m.podnet", photos_of(root / "second", "blue", "grey"))
    return root


@pytest.fixture
def own(hues, tmp_path):
    return copied(hues / "m.podnet", tmp_path)


@pytest.mark.parametrize(
    "lessons", [("red green", "blue", "grey"), ("grey blue", "red", "green"), ("green grey", "red blue")]
)
def test_lessons_in_any_order_are_one_lesson(hues, tmp_path, lessons):
    together = learn(tmp_path / "one.podnet", hues / "all")
    for i, names in enumerate(lessons):
        model = learn(tmp_path / "m.podnet", photos_of(tmp_path / str(i), *names.split()))
    assert model.names != together.names
    assert_same_answers(model, together, hues / "fresh")
    for inference in INFERENCES:
        assert model.history[-1]["accuracy"][inference] == together.history[-1]["accuracy"][inference]
        assert model.temperatures[inference] == pytest.approx(together.temperatures[inference])


def test_a_forgotten_class_was_never_there(own, hues, tmp_path, capsys):
    before = load_model(own)
    label = before.label_of("blue")
    mine = before.learner.kept["targets"] == label
    rows = [row.numpy().tobytes() for row in before.learner.kept["features"][mine]]
    digests = [photo.digest for photo in read_collection(hues / "blue").photos]
    weights = torch.cat([*before.learner.network.classifier.weights])[label].detach().numpy().tobytes()
    secrets = [*rows, *map(str.encode, digests), weights, b"blue"]
    assert all(secret in own.read_bytes() for secret in secrets)
    assert main(["forget", str(own), "blue", "blue"]) == 0
    assert "forgot blue: removed its name and all data kept from its 10 photos" in capsys.readouterr().out
    assert not any(secret in own.read_bytes() for secret in secrets)
    never = learn(tmp_path / "never.podnet", hues / "first")
    never = learn(tmp_path / "never.podnet", hues / "grey")
    after = load_model(own)
    assert after.names == never.names
    found, expected = ([*model.learner.network.classifier.weights] for model in (after, never))
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), rtol=0, atol=1e-5)
    torch.testing.assert_close(after.learner.means, never.learner.means, rtol=0, atol=1e-6)
    torch.testing.assert_close(after.familiar, never.familiar, rtol=0, atol=1e-4)
    assert after.temperatures == pytest.approx(never.temperatures)
    for key in ("accuracy", "per_class", "measured", "old_accuracy", "new_accuracy"):
        assert after.history[-1][key] == never.history[-1][key], key
    again = learn(own, hues / "blue")
    assert again.names == ["green", "red", "grey", "blue"]
    assert_same_answers(again, before, hues / "fresh")


def test_the_accuracy_is_that_of_models_really_built_without_each_photo(tmp_path):
    model = learn(tmp_path / "m.podnet", tints(tmp_path / "p", *THREE, count=4), "--train", "never")
    features, targets = (model.learner.kept[name] for name in ("features", "targets"))
    assert len(targets) == 12
    strength = Fitted(features, targets, 3).strength
    found = {name: [] for name in INFERENCES}
    for i in range(12):
        rest = torch.arange(12) != i
        unit, labels, photo = features[rest].float(), targets[rest], features[i].float()
        found["cnn"].append(int(Fitted(unit, labels, 3, strength).linear(photo.double()).argmax()))
        means = F.normalize(torch.stack([unit[labels == label].mean(0) for label in range(3)]))
        found["nme"].append(int((means @ photo).argmax()))
    entry = model.history[-1]
    assert entry["measured"] == 12
    for name, labels in found.items():
        right = torch.tensor(labels) == targets
        assert entry["accuracy"][name] == pytest.approx(100 * right.float().mean().item())
        assert not right.all()  # or the measure of photos that it has seen would pass, too
        assert list(entry["per_class"][name].values()) == pytest.approx(
            (100 * right.view(3, 4).float().mean(1)).tolist()
        )


@pytest.mark.parametrize("keep", ["features", "sums"])
def test_the_only_photo_of_a_class_is_not_measured(tmp_path, capsys, keep):
    """It cannot be judged by a model of the others, which do not show its class."""
    photos = tints(tmp_path / "p", *THREE, count=4)
    photos_of(photos, "grey", count=1)
    model = learn(tmp_path / "m.podnet", photos, "--keep", keep)
    kept, entry = model.learner.kept, model.history[-1]
    assert (len(kept["targets"]), entry["measured"]) == (13, 12)
    alone = model.label_of("grey")
    for name in INFERENCES:
        right = [int(a == b) for a, b in zip(kept[f"left_out_{name}"], kept["targets"], strict=True) if b != alone]
        assert entry["accuracy"][name] == pytest.approx(100 * sum(right) / 12)
        assert entry["per_class"][name]["grey"] is None
        assert None not in [entry["per_class"][name][other] for other in THREE]
    shown = capsys.readouterr().out
    assert re.search(r"^accuracy [\d.]+ % \(95 % interval [\d.]+ to [\d.]+\) on 12 photos, each judged ", shown, re.M)
    assert "not measured: grey; a class needs at least 2 photos" in shown
    model = learn(tmp_path / "m.podnet", photos_of(tmp_path / "q", "grey", count=2, first=1), "--include-known")
    assert model.history[-1]["measured"] == 15
    assert "not measured" not in capsys.readouterr().out


def temperatures_of(features, labels):
    classifier = SolvedClassifier(features.shape[1])
    classifier.add_classes(int(labels.max()) + 1)
    return Ridge()._solved(SimpleNamespace(classifier=classifier), F.normalize(features), labels)["temperatures"]


def test_single_photos_do_not_set_confidences():
    """Left out, they are never right: with many of them every confidence would fall to chance."""
    draws = torch.Generator().manual_seed(0)
    features = torch.eye(30).repeat_interleave(5, 0) + 0.1 * torch.randn(150, 30, generator=draws)
    labels = torch.arange(30).repeat_interleave(5)
    without = temperatures_of(features, labels)
    alone = torch.cat([features, torch.randn(60, 30, generator=draws)]), torch.cat([labels, torch.arange(30, 90)])
    assert (temperatures_of(*alone) < 3 * without).all()


def test_a_small_lesson_does_not_decide_all_confidences(tmp_path):
    """With sums, each lesson measures its own photos only."""
    path = tmp_path / "m.podnet"
    before = learn(path, tints(tmp_path / "p", *THREE, count=12), "--keep", "sums").temperatures
    after = learn(path, tints(tmp_path / "q", "grey", count=3)).temperatures
    assert after == pytest.approx(before)


def test_the_history_grows_with_the_lessons_not_with_their_square(own, tmp_path):
    names = ("ash", "dust", "mist")
    for name in names:
        photos_of(tmp_path / name, "grey", count=2, first=40 + 10 * len(name) + ord(name[0])).joinpath("grey").rename(
            tmp_path / name / name
        )
        model = learn(own, tmp_path / name)
    listed = [set(entry["per_class"]["cnn"]) for entry in model.history]
    assert listed[-1] == set(model.names)
    assert listed[-2] == set(model.names) - {"mist"}
    assert listed[-3] == {"ash"}


def test_a_model_of_single_photos_has_no_accuracy(tmp_path, capsys):
    path = tmp_path / "m.podnet"
    photos = photos_of(tmp_path / "p", "red", "blue", count=1)
    (entry,) = learn(path, photos, "--minutes", "1000").history
    assert (entry["measured"], entry["accuracy"], entry["per_class"]) == (0, {}, {})
    shown = capsys.readouterr().out
    assert "accuracy not measured: a class needs at least 2 photos\n" in shown
    assert "was not tried: no class has 5 photos\n" in shown
    assert "0.0" not in shown.partition("chosen:")[2]
    for command in ("info", "card"):
        assert main([command, str(path)]) == 0
    assert "accuracy not measured: a class needs at least 2 photos\n" in capsys.readouterr().out
    assert "Accuracy not measured: a class needs at least 2 photos." in path.with_suffix(".md").read_text()
    more = learn(path, photos_of(tmp_path / "q", "red", "blue", count=3, first=5), "--include-known")
    assert more.history[-1]["measured"] == 8
    quick = ["--backbone", "resnet32", "--image-size", "16", "--epochs", "1", "--workers", "0"]
    assert main(["learn", str(tmp_path / "trained.podnet"), str(photos), *quick]) == 0
    assert "accuracy not measured: no photos were held out, which takes at least 5" in capsys.readouterr().out


def test_confidences_are_calibrated(tmp_path):
    """By photos left out, against a finer search; and on fresh photos they are as high as the share of right ones."""
    model = learn(tmp_path / "m.podnet", tints(tmp_path / "p", *THREE, count=20), "--train", "never")
    fitted = Fitted(model.learner.kept["features"], model.learner.kept["targets"], 3)
    left_out = torch.cat([part for _, part in fitted.left_out()])
    grid = np.geomspace(0.001, 10, 4000)
    rows = torch.arange(60), fitted.labels
    losses = [-confidences(left_out, float(t))[rows].log().mean() for t in grid]
    assert model.temperatures["cnn"] == pytest.approx(grid[int(np.argmin(losses))], rel=0.1)
    fresh = read_collection(tints(tmp_path / "fresh", *THREE, count=40, first=100)).photos
    answers = list(predict(model, [(photo.label, photo.source) for photo in fresh], "cnn"))
    right = np.mean([answer.file == answer.ranked[0][0] for answer in answers])
    assert 0.4 < right < 0.95
    assert np.mean([answer.ranked[0][1] for answer in answers]) == pytest.approx(right, abs=0.12)


def unknown(capsys, *arguments):
    """The share of photos that `podnet predict` calls unknown."""
    assert main(["predict", *map(str, arguments), "--format", "jsonl", "--workers", "0"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return np.mean([answer["unknown"] for answer in answers])


def test_photos_of_another_kind_are_unknown(tmp_path, capsys):
    learn(tmp_path / "m.podnet", photos_of(tmp_path / "p", *HUES, count=20))
    capsys.readouterr()
    model, strange = tmp_path / "m.podnet", stripes(tmp_path / "stripes", 20)
    fresh = photos_of(tmp_path / "fresh", *HUES, count=25, first=100)
    assert unknown(capsys, model, strange) > 0.8
    assert unknown(capsys, model, fresh) < 0.15  # about 0.05 is stated
    assert 0.25 < unknown(capsys, model, fresh, "--reject", "0.5") < 0.75
    assert unknown(capsys, model, strange, fresh, "--reject", "0") == 0
    assert main(["predict", str(model), str(strange / "0.png")]) == 0
    assert re.search(r"0\.png: unknown \(nearest: \w+ \d", capsys.readouterr().out)
    (fresh / "striped").symlink_to(strange)
    assert main(["evaluate", str(model), str(fresh)]) == 0
    shares = [float(found) for found in re.findall(r"called unknown: ([\d.]+) %", capsys.readouterr().out)]
    assert shares[0] < 15
    assert shares[1] > 80
    for command in ("predict", "evaluate"):
        assert main([command, str(model), str(fresh), "--reject", "1"]) == 2
        assert "--reject is 1.0; give a share from 0" in capsys.readouterr().err


def test_the_only_class_left_is_not_certain(own, hues, tmp_path, capsys):
    assert main(["forget", str(own), "red", "green", "blue"]) == 0
    model = load_model(own)
    own_photos = [(str(photo.source), photo.source) for photo in read_collection(hues / "grey").photos]
    strange = [(path.name, path) for path in stripes(tmp_path / "stripes", 10).iterdir()]
    for inference in INFERENCES:
        mine, others = (
            [answer.ranked[0][1] for answer in predict(model, files, inference)] for files in (own_photos, strange)
        )
        assert 0.3 < np.mean(mine) < 0.9
        assert np.mean(others) < 0.1
    capsys.readouterr()
    assert main(["predict", str(own), str(tmp_path / "stripes" / "0.png"), own_photos[0][0], "--top", "2"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("0.png: unknown (nearest: grey)")
    assert re.fullmatch(r".*\.png: grey( \d+\.\d%)?", second)


def test_what_is_kept_of_the_photos(hues, tmp_path, capsys):
    models = {
        kind: learn(tmp_path / f"{kind}.podnet", hues / "first", "--keep", kind, "--train", "never", "--exemplars", "3")
        for kind in ("features", "sums", "photos")
    }
    rows = [row.numpy().tobytes() for row in models["features"].learner.kept["features"]]
    for kind, held in {"features": True, "sums": False, "photos": True}.items():
        written = (tmp_path / f"{kind}.podnet").read_bytes()
        assert [row in written for row in rows] == [held] * 20, kind
        assert models[kind].exemplar_counts() == ([3, 3] if kind == "photos" else [0, 0])
    assert_same_answers(models["features"], models["sums"], hues / "fresh")
    assert_same_answers(models["features"], models["photos"], hues / "fresh")
    capsys.readouterr()
    for kind in models:
        models[kind] = learn(tmp_path / f"{kind}.podnet", hues / "second")
        shown = capsys.readouterr().out
        assert ("sums cannot measure old photos again" in shown) == (kind == "sums")
        assert ("no class lost more than" in shown) == (kind != "sums")
    assert_same_answers(models["features"], models["photos"], hues / "fresh")
    for name, table in scores_of(models["sums"], hues / "fresh").items():  # λ was chosen by other photos
        assert torch.equal(table.argmax(1), scores_of(models["features"], hues / "fresh")[name].argmax(1))


def test_sums_forget_what_they_can_and_say_what_remains(tmp_path, capsys):
    """Also where photos were mistaken for the forgotten class: it used to leave a file that could not be read."""
    path = tmp_path / "m.podnet"
    before = learn(path, tints(tmp_path / "p", *THREE), "--keep", "sums")
    mistaken = (before.learner.kept["left_out_cnn"] == 2) & (before.learner.kept["targets"] != 2)
    assert mistaken.any()
    capsys.readouterr()
    assert main(["forget", str(path), "red"]) == 0
    shown = capsys.readouterr().out
    assert "not removed: the sums over all photos" in shown
    assert "checked" not in shown
    after = load_model(path)
    assert after.names == ["blue", "green"]
    assert after.learner.kept["counts"].tolist() == [12, 12]
    assert after.history[-1]["measured"] == 24
    wrong = (after.learner.kept["left_out_cnn"] != after.learner.kept["targets"])[mistaken[:24]]
    assert wrong.all()
    again = learn(path, tints(tmp_path / "again", "red"))
    assert_same_labels(again, before, tints(tmp_path / "fresh", *THREE, first=100))


def assert_same_labels(one, other, folder):
    shares = [
        (table.argmax(1) == scores_of(other, folder)[name].argmax(1)).float().mean()
        for name, table in scores_of(one, folder).items()
    ]
    assert min(shares) > 0.9


@pytest.mark.parametrize("name", ["new", "photos", "cnn", "accuracy", "per_class", "date"])
def test_a_class_may_be_called_like_a_part_of_the_history(own, hues, tmp_path, capsys, name):
    """Forgetting it used to remove that part, too, and left a file that could not be read."""
    photos_of(tmp_path / "more", "red", first=300)
    (tmp_path / "more" / "red").rename(tmp_path / "more" / name)
    before = load_model(own)
    assert learn(own, tmp_path / "more").names[-1] == name
    assert main(["forget", str(own), name]) == 0
    assert main(["info", str(own)]) == 0
    after = load_model(own)
    assert after.names == before.names
    assert after.history[:-1] == before.history
    assert (after.history[-1]["new"], after.history[-1]["photos"]) == ([], 10)
    assert all(list(shares) == after.names for shares in after.history[-1]["per_class"].values())


def test_the_file_at_the_end_of_a_link_is_changed_and_stays_private(own, capsys):
    """A link that is replaced would leave the photos of a forgotten class in the real file."""
    link = own.with_name("link.podnet")
    link.symlink_to(own)
    own.chmod(0o600)
    assert main(["forget", str(link), "red"]) == 0
    assert link.is_symlink()
    assert "red" not in load_model(own).names
    assert own.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "command",
    [["learn", "~nobody/shop.podnet", "."], ["card", "."], ["undo", "."], ["forget", ".", "red"], ["info", "."]],
)
def test_odd_paths_get_a_sentence(command, capsys):
    assert main(command) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "is a folder, not a model file" in told or "there is no folder" in told


def test_photos_that_were_not_read_for_another_reason_are_not_called_unreadable(own, hues, monkeypatch):
    model = load_model(own)

    def killed(photos):
        raise DataError("a decoding process failed; use fewer workers or free memory.")

    monkeypatch.setattr(model.learner, "predict", killed)
    files = [(path.name, path) for path in sorted(hues.glob("red/*"))[:2]]
    with pytest.raises(DataError, match="fewer workers"):
        list(predict(model, files, "cnn"))


def test_undo_gives_back_the_bytes_once(own, hues, capsys):
    before = own.read_bytes()
    assert main(["forget", str(own), "red"]) == 0
    smaller = own.read_bytes()
    assert main(["undo", str(own)]) == 2
    assert "nothing to undo" in capsys.readouterr().err
    assert [path.name for path in own.parent.iterdir()] == ["m.podnet"]  # no copy with the forgotten class
    learn(own, hues / "red")
    assert own.read_bytes() not in (before, smaller)
    assert main(["undo", str(own)]) == 0
    assert "undid the last lesson; 3 classes" in capsys.readouterr().out
    assert own.read_bytes() == smaller
    assert main(["undo", str(own)]) == 2
    learn(own, hues / "red")
    assert main(["forget", str(own), "grey"]) == 0
    assert [path.name for path in own.parent.iterdir()] == ["m.podnet"]


def test_a_lesson_that_harms_old_classes_says_so_first(own, tmp_path, capsys):
    learn(own, photos_of(tmp_path / "more", *HUES, first=200, count=20), "--include-known")
    photos_of(tmp_path / "twin", "red", first=300, count=30)
    (tmp_path / "twin" / "red").rename(tmp_path / "twin" / "crimson")
    capsys.readouterr()
    entry = learn(own, tmp_path / "twin").history[-1]
    shown = capsys.readouterr().out
    said = re.search(r"WORSE on the old classes: ([\d.]+) % before, ([\d.]+) % now", shown)
    assert said
    assert float(said[2]) == pytest.approx(max(entry["old_accuracy"].values()), abs=0.06)
    assert float(said[1]) > float(said[2]) + 5
    assert shown.index("WORSE") < shown.index("accuracy  ")
    assert f"To undo this lesson: podnet undo {own}" in shown


def test_photos_that_were_learned_before_are_left_out(own, hues, tmp_path, capsys):
    again = photos_of(photos_of(tmp_path / "again", "red"), "red", first=60, count=3)
    capsys.readouterr()
    model = learn(own, again, "--include-known")
    assert "skipped 10 photos that the model has already learned" in capsys.readouterr().out
    assert {record.name: record.photos for record in model.classes} == {"red": 13, "green": 10, "blue": 10, "grey": 10}
    before = own.read_bytes()
    assert main(["learn", str(own), str(again), "--include-known"]) == 2
    assert "has already learned these photos" in capsys.readouterr().err
    assert own.read_bytes() == before


FEW_EPOCHS = ["--epochs", "1", "--batch-size", "8", "--exemplars", "2"]


def tried(capsys, tmp_path, photos, *options):
    """What learn says about training, and the model."""
    path = tmp_path / "m.podnet"
    path.unlink(missing_ok=True)
    assert main(["learn", str(path), str(photos), "--image-size", "32", "--workers", "0", *FEW_EPOCHS, *options]) == 0
    said = re.findall("^(?:training|on held-out photos|chosen: .*asked for).*$", capsys.readouterr().out, re.MULTILINE)
    return said, load_model(path)


def test_training_is_tried_where_it_may_help(tmp_path, capsys, monkeypatch):
    easy, hard = photos_of(tmp_path / "easy", "red", "blue"), tints(tmp_path / "hard", *THREE, count=5)
    said, model = tried(capsys, tmp_path, easy)
    assert said == ["training the network was not tried: there is little to gain"]
    assert not model.settings.trained
    said, _ = tried(capsys, tmp_path, hard, "--minutes", "0.00001")
    assert re.match(r"training the network was not tried: it would take about \d+ minutes?; --minutes \d+ ", said[0])
    said, _ = tried(capsys, tmp_path, hard, "--train", "never")
    assert not said
    said, _ = tried(capsys, tmp_path, tints(tmp_path / "few", *THREE, count=4), "--minutes", "1000")
    assert said == ["training the network was not tried: no class has 5 photos"]
    said, model = tried(capsys, tmp_path, hard, "--minutes", "1000")
    words = r"on held-out photos, fixed features reach ([\d.]+) %, a trained network ([\d.]+) %: the network (.*)"
    fixed, trained, verdict = re.match(words, said[0]).groups()
    assert verdict == ("is trained" if float(trained) > float(fixed) else "is not trained")
    assert model.settings.trained is (float(trained) > float(fixed))
    monkeypatch.setattr(Trial, "wins", True)
    said, model = tried(capsys, tmp_path, hard, "--minutes", "1000")
    assert said[0].endswith("the network is trained")
    assert (model.settings.trained, model.settings.keep) == (True, "photos")
    assert model.held_out_targets.bincount().tolist() == [1, 1, 1]


def test_training_is_done_where_it_is_asked_for(tmp_path, capsys):
    said, model = tried(capsys, tmp_path, photos_of(tmp_path / "p", "red", "blue"), "--train", "always")
    assert len(said) == 1
    assert "trained True (asked for); keep photos (for later training)" in said[0]
    assert model.settings.trained
    assert model.history[-1]["training"]["epochs"] == 1
    assert not model.learner.kept
    assert main(["learn", str(tmp_path / "m.podnet"), str(photos_of(tmp_path / "q", "grey")), "--train", "never"]) == 2
    assert "the model trained its network in its first lesson" in capsys.readouterr().err


def test_a_network_from_nothing_comes_with_a_warning(tmp_path, capsys):
    photos = photos_of(tmp_path / "p", "red", "blue")
    for options in (["--weights", "none"], ["--backbone", "resnet32"], []):
        assert main(["learn", str(tmp_path / "m.podnet"), str(photos), "--dry-run", *options]) == 0
        assert ("from scratch needs at least 300 photos per class" in capsys.readouterr().out) == bool(options)
    quick = ["--backbone", "resnet32", "--image-size", "16", "--epochs", "1"]
    assert main(["learn", str(tmp_path / "m.podnet"), str(photos), *quick]) == 0
    said = re.search(r"fixed features of lite0 reach ([\d.]+) % on these photos", capsys.readouterr().out)
    (tmp_path / "m.podnet").unlink()
    default = learn(tmp_path / "m.podnet", photos, "--image-size", "224", "--train", "never")
    assert float(said[1]) == pytest.approx(default.history[0]["accuracy"]["cnn"], abs=0.06)
    assert main(["learn", str(tmp_path / "n.podnet"), str(photos), "--weights", "none", "--train", "never"]) == 2
    assert "with random weights must be trained" in capsys.readouterr().err


def test_a_resnet_with_weights_of_a_file_need_not_be_trained(tmp_path):
    photos = photos_of(tmp_path / "p", "red", "blue")
    backbone = new_network(PODNet(backbone="resnet32"), 3).backbone
    save_file(backbone.state_dict(), tmp_path / "w.safetensors")
    given = ["--backbone", "resnet32", "--weights", str(tmp_path / "w.safetensors"), "--train", "never"]
    model = learn(tmp_path / "m.podnet", photos, *given)
    assert not model.settings.trained
    found, given = (next(net.parameters()) for net in (model.learner.network.backbone, backbone))
    assert torch.equal(found, given)


def test_of_many_photos_some_of_every_class_set_the_temperature(tmp_path, monkeypatch):
    """Of the first ones only, it would be that of the oldest classes."""
    seen = []

    def spy(scores, targets):
        seen.append(targets)
        return best_temperature(scores, targets)

    monkeypatch.setattr("podnet.methods.ridge.best_temperature", spy)
    monkeypatch.setattr("podnet.methods.ridge.MOST_COMPARED", 8)
    monkeypatch.setattr("podnet.methods.ridge.AT_ONCE", 32)
    learn(tmp_path / "m.podnet", photos_of(tmp_path / "p", *HUES), "--train", "never")
    assert all(set(targets.tolist()) == {0, 1, 2, 3} and len(targets) <= 8 for targets in seen)


@pytest.mark.parametrize("trained", [False, True])
def test_a_pipe_gets_the_result_and_no_progress(tmp_path, capsys, trained):
    photos = photos_of(tmp_path / "p", "red", "blue")
    options = ["--train", "always", "--image-size", "32", *FEW_EPOCHS] if trained else SMALL
    assert main(["learn", str(tmp_path / "m.podnet"), str(photos), *options]) == 0
    out, err = capsys.readouterr()
    assert not err
    lines = out.splitlines()
    assert lines[-1] == f"model: {tmp_path / 'm.podnet'} ({(tmp_path / 'm.podnet').stat().st_size / 1e6:.1f} MB)"
    assert len(lines) < 14
    assert not re.search("epoch \\d|features|\r|\x1b", "\n".join(lines[5:]))


def test_the_card_tells_what_the_model_is(own, hues, capsys):
    assert main(["card", str(own)]) == 0
    text = own.with_suffix(".md").read_text()
    model = load_model(own)
    best = max(model.history[-1]["accuracy"].values())
    assert f"value: {best:.2f}" in text
    assert f"Accuracy {best:.1f} % (95 % interval " in text
    assert ") on 40 photos, each judged by a model that has not seen it." in text
    for name in HUES:
        assert re.search(rf"^\| {name} \| \d{{4}}-\d\d-\d\d \| 10 \| [\d.]+ \|$", text, re.MULTILINE)


def test_nothing_made_of_a_model_takes_its_place(own, capsys, tmp_path):
    before = own.read_bytes()
    for command in (["card"], ["export"], ["export", "--format", "torch"], ["export", "--format", "podnet"]):
        assert main([command[0], str(own), *command[1:], "--output", str(own)]) == 2
        assert "is the model itself; choose another --output" in capsys.readouterr().err
    assert own.read_bytes() == before
    named = tmp_path / "notes.md"  # where a card would go
    named.write_bytes(before)
    assert main(["card", str(named)]) == 2
    assert named.read_bytes() == before
    assert main(["info", "~nobody-has-this-name/m.podnet"]) == 2
    assert "there is no model" in capsys.readouterr().err
    assert main(["evaluate", str(own), "nowhere", "--confusion", "matrix.gif"]) == 2
    assert "its name must end in .png" in capsys.readouterr().err
