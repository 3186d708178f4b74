"""The model file: damaged, forged, of an earlier version, of a later one."""

import lzma
from pathlib import Path

import numpy as np
import pytest
import torch

from coloured import HUES, TRAINED, copied, photos_of
from podnet.cli import main
from podnet.errors import DamagedFileError, PodnetError
from podnet.io.tensors import load_tensors, save_tensors
from podnet.model.loading import load_model
from podnet.model.model import FORMAT
from podnet.model.predict import predict
from podnet.model.settings import Settings


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A trained model, and one in closed form for each thing that it can keep."""
    root = tmp_path_factory.mktemp("files")
    photos = str(photos_of(root / "pictures", "red", "green", "blue"))
    assert main(["learn", str(root / "trained"), photos, *TRAINED]) == 0
    for kind in ("features", "sums", "photos"):
        options = ["--keep", kind, "--train", "never", "--image-size", "32", "--exemplars", "4", "--workers", "0"]
        assert main(["learn", str(root / kind), photos, *options]) == 0
    return root


@pytest.fixture
def own(models, tmp_path):
    """A copy of the trained model, to be changed."""
    return copied(models / "trained", tmp_path)


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
    "lengths": lambda t, m: t.update({"learner.memory.lengths": torch.full((12,), 2**40)}),
    "targets": lambda t, m: t.update({"learner.memory.targets": torch.full((12,), 99)}),
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


def kept(name, change):
    """Replace a tensor that a model in closed form keeps."""
    return lambda t, m: t.update({f"learner.method.{name}": change(t[f"learner.method.{name}"])})


def first(value):
    """Replace the first number of a tensor."""
    return lambda tensor: tensor.clone().index_fill_(0, torch.tensor([0]), value)


CLOSED = {  # of a model that keeps features
    "kind of features": kept("features", torch.Tensor.float),
    "width of features": kept("features", lambda t: t[:, :-1].contiguous()),
    "flat features": kept("features", torch.Tensor.flatten),
    "fewer features": kept("features", lambda t: t[:-1].clone()),
    "no number as a feature": kept("features", first(float("nan"))),
    "endless feature": kept("features", first(float("inf"))),
    "no features": lambda t, m: t.pop("learner.method.features"),
    "no targets": lambda t, m: t.pop("learner.method.targets"),
    "one target": kept("targets", lambda t: t[0].clone()),
    "high target": kept("targets", first(3)),
    "negative target": kept("targets", first(-1)),
    "kind of targets": kept("targets", torch.Tensor.int),
    "class without photos": kept("targets", lambda t: t.clamp(max=1)),
    "high answer": kept("left_out_cnn", first(3)),
    "negative answer": kept("left_out_nme", first(-1)),
    "fewer answers": kept("left_out_nme", lambda t: t[:-1].clone()),
    "no number as a score": kept("familiar", first(float("nan"))),
    "shape of scores": kept("familiar", lambda t: t[:, :1].contiguous()),
    "temperature of 0": kept("temperatures", first(0.0)),
    "no number as a temperature": kept("temperatures", first(float("nan"))),
    "growths of nothing": lambda t, m: m["learner"]["sizes"].extend([0] * 1000),
    "a temperature of 400 digits": lambda t, m: m["temperatures"].update(cnn=10**400),
    "a duration of 400 digits": lambda t, m: m["history"][0].update(seconds=10**400),
    "something more": lambda t, m: t.update({"learner.method.run": torch.zeros(1)}),
    "scores beside": lambda t, m: t.update(familiar=torch.full((30, 2), float("nan"))),
    "shape of scores beside": lambda t, m: t.update(familiar=torch.zeros(30)),
    "temperature beside": lambda t, m: m["temperatures"].update(nme=float("nan")),
    "digests": lambda t, m: m["digests"].pop(),
    "no digests": lambda t, m: m.pop("digests"),
    "keeps sums": lambda t, m: m["settings"].update(keep="sums"),
    "keeps photos": lambda t, m: m["settings"].update(keep="photos"),
    "keeps anything": lambda t, m: m["settings"].update(keep="all"),
    "trained": lambda t, m: m["settings"].update(trained=True, keep="photos"),
    "trained, not whether": lambda t, m: m["settings"].update(trained="yes"),
    "kind of means": lambda t, m: t.update({"learner.means": t["learner.means"].long()}),
    "no number as a mean": lambda t, m: t["learner.means"].fill_(float("nan")),
    "no number as a weight": lambda t, m: t["learner.network.classifier.weights.0"].fill_(float("nan")),
    "measured on nothing": lambda t, m: m["history"][0].update(measured=0),
    "accuracy above 100": lambda t, m: m["history"][0]["accuracy"].update(cnn=101),
    "accuracy that is none": lambda t, m: m["history"][0]["accuracy"].update(cnn=float("nan")),
    "strange inference": lambda t, m: m["history"][0].update(accuracy={"run": 100}),
    "day": lambda t, m: m["classes"][0].update(learned="[/today]"),
    "day of a lesson": lambda t, m: m["history"][0].update(date="[/today]"),
    "name that cannot be shown": lambda t, m: (
        m["classes"][0].update(name="a\x1b[31m"),
        m["learner"]["class_names"].__setitem__(0, "a\x1b[31m"),
    ),
}
SUMMED = {
    "kind of sums": kept("gram", torch.Tensor.double),
    "shape of sums": kept("gram", lambda t: t[:-1].clone()),
    "endless sum": kept("totals", first(float("inf"))),
    "counts": kept("counts", lambda t: t + 1),
    "count of 0": kept("counts", first(0)),
    "features, too": lambda t, m: t.update({"learner.method.features": torch.zeros(30, 1280).half()}),
    "keeps features": lambda t, m: m["settings"].update(keep="features"),
}
WITH_PHOTOS = {
    "keeps features": lambda t, m: m["settings"].update(keep="features"),
    "only photos": lambda t, m: (
        [t.pop(name) for name in list(t) if name.startswith("learner.method.")],
        m.update(digests=[]),
    ),
    "no photos": lambda t, m: [t.pop(name) for name in list(t) if name.startswith("learner.memory.")],
}
ALL = {"trained": FORGERIES, "features": CLOSED, "sums": SUMMED, "photos": WITH_PHOTOS}


@pytest.mark.parametrize(("kind", "forgery"), [(kind, forgery) for kind, own in ALL.items() for forgery in own])
def test_a_forged_file_is_refused(models, tmp_path, kind, forgery):
    """Its checksum is right, what it claims is not."""
    path = copied(models / kind, tmp_path)
    tensors, meta = load_tensors(path)
    ALL[kind][forgery](tensors, meta)
    save_tensors(path, tensors, meta)
    with pytest.raises(DamagedFileError, match=r"m\.podnet is damaged or not a model file"):
        load_model(path)


@pytest.mark.parametrize("kind", ALL)
def test_a_file_that_is_read_and_written_again_is_the_same(models, tmp_path, kind):
    """So that a refused forgery is refused for what was forged."""
    path = copied(models / kind, tmp_path)
    before, about = load_tensors(path)
    save_tensors(path, before, about)
    load_model(path).save(path)
    after, again = load_tensors(path)
    assert about == again
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_file_of_the_first_version_predicts_as_it_did_and_goes_on_learning(tmp_path):
    """Written by podnet at commit 95c20c7, nine of ten weights set to zero to make it small; its answers noted then."""
    path = tmp_path / "m.podnet"
    path.write_bytes(lzma.decompress((Path(__file__).parent / "data" / "format-1.podnet.xz").read_bytes()))
    assert load_tensors(path)[1]["format"] == 1
    model = load_model(path)
    assert model.names == ["blue", "green", "red", "grey"]
    assert model.settings == Settings(backbone="resnet32", image_size=16, exemplars=2, keep="photos", trained=True)
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
    assert main(["learn", str(path), str(tmp_path / "more"), "--epochs", "4", "--workers", "0"]) == 0
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
