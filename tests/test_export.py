"""A model in the hands of other programs: what the exported graph says, against `podnet predict`."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from coloured import HUES, photos_of
from podnet.cli import main
from podnet.data.decode import decode
from podnet.metrics import INFERENCES, REJECT
from podnet.model import export
from podnet.model.export_check import pictures
from podnet.model.loading import load_model
from podnet.model.predict import predict

TRAINED = ["--train", "always", "--backbone", "resnet32", "--weights", "none", "--image-size", "21", "--epochs", "4"]
TRAINED += ["--finetune-epochs", "2", "--exemplars", "4"]
SOLVED = ["--train", "never", "--image-size", "21"]

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, about itself


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two models, trained and solved in closed form, and each with a single class left."""
    root = tmp_path_factory.mktemp("export")
    photos = str(photos_of(root / "photos", "red", "green", "blue"))
    for name, options in (("trained", TRAINED), ("solved", SOLVED)):
        assert main(["learn", str(root / f"{name}.podnet"), photos, *options, "--workers", "0"]) == 0
        single = root / f"{name}-single.podnet"
        single.write_bytes((root / f"{name}.podnet").read_bytes())
        assert main(["forget", str(single), "red", "green"]) == 0
    return root


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """Photos that no model has seen: of the classes, of another colour, and of something else."""
    folder = photos_of(tmp_path_factory.mktemp("fresh"), *HUES, first=50)
    rows, columns = np.indices((24, 36))
    for i in range(2, 8):
        stripes = np.where((rows // i + columns // i) % 2, 255, 0).astype(np.uint8)
        Image.fromarray(stripes).convert("RGB").save(folder / f"checked{i}.png")
    return sorted(folder.rglob("*.png"))


def exported(root, name, output, *options):
    """Export by the command; what the file says about itself, and a function from pixels to its named outputs."""
    assert main(["export", str(root / f"{name}.podnet"), "--output", str(output), *options]) == 0
    assert [path.name for path in output.parent.iterdir()] == [output.name]
    if "torch" in options:
        kept = {"podnet.json": ""}
        program = torch.export.load(output, extra_files=kept).module()
        return json.loads(kept["podnet.json"]), lambda pixels: _named(program(torch.from_numpy(pixels)))
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(output)
    return session.get_modelmeta().custom_metadata_map, lambda pixels: _named(session.run(None, {"pixels": pixels}))


def _named(tables):
    return dict(zip(("cnn", "nme", "familiar", "unknown"), map(np.asarray, tables), strict=True))


def squares(files, size):
    """In two batches."""
    pixels = np.stack([decode(path, size).transpose(2, 0, 1) for path in files])
    return pixels[:1], pixels[1:]


def whole(files):
    """As a program decodes them, one at a time: they are of several sizes."""
    return [np.asarray(Image.open(path))[None] for path in files]


def require_same(model, files, found, tolerance):
    """The outputs of the graph are what `podnet predict` says."""
    table = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    for inference in INFERENCES:
        answers = list(predict(model, [(str(path), path) for path in files], inference, len(model.names), 0, REJECT))
        wanted = np.array([[dict(answer.ranked)[name] for name in model.names] for answer in answers])
        np.testing.assert_allclose(table[inference], wanted, atol=tolerance)
        clear = np.abs(table["familiar"] - model.familiarity.threshold(REJECT)) > tolerance
        assert clear.sum() > 0.8 * len(files)
        unknown = np.array([answer.unknown for answer in answers])
        assert table["unknown"].dtype == bool
        assert table["unknown"][clear].tolist() == unknown[clear].tolist()
        assert set(unknown[clear].tolist()) == {True, False}  # the photos have both
    return table


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("trained", ("--format", "torch")),
        ("trained", ("--input", "square")),
        ("solved", ("--format", "torch")),
        ("solved-single", ("--format", "torch")),
    ],
)
def test_a_graph_of_squares_says_what_the_model_says(root, fresh, tmp_path, name, options):
    """On photos that no check of ours has seen, in batches of other sizes, run by the other program alone."""
    model = load_model(root / f"{name}.podnet")
    size = model.settings.image_size
    about, run = exported(root, name, tmp_path / "out", *options)
    require_same(model, fresh, [run(part) for part in squares(fresh, size)], 1e-4)
    assert json.loads(about["classes"]) == model.names
    assert f"shorter side to {round(size * 8 / 7)}" in about["preprocessing"]
    assert about["reject"] == str(REJECT)


@pytest.mark.parametrize("name", ["solved", "trained-single"])
def test_a_graph_of_photos_says_what_the_model_says(root, fresh, tmp_path, name, capsys):
    pytest.importorskip("onnxscript")
    model = load_model(root / f"{name}.podnet")
    about, run = exported(root, name, tmp_path / "out.onnx")
    checked = {"solved": "30 generated images", "trained-single": "6 photos"}
    assert f"checked on {checked[name]}" in capsys.readouterr().out
    found = [run(pixels) for pixels in whole(fresh)]
    table = require_same(model, fresh, found, 1e-4)  # they need no scaling, which rounds a little differently
    assert "(N, H, W, 3)" in about["input"]
    same = [pixels for pixels in whole(fresh) if pixels.shape == (1, 24, 28, 3)]
    together = run(np.concatenate(same))
    assert together["cnn"].shape == (40, len(model.names))
    np.testing.assert_allclose(
        together["familiar"], np.concatenate([run(each)["familiar"] for each in same]), atol=1e-3
    )
    if len(model.names) == 1:
        assert len(set(table["cnn"][:, 0].tolist())) > 1  # a share of its photos, not always 1


@pytest.mark.parametrize(
    ("width", "height"),
    [(36, 36), (37, 36), (300, 36), (32, 57), (5, 9), (1, 1), (640, 427), (427, 640), (1500, 1001), (100, 99)],
)
def test_the_graph_cuts_out_and_scales_what_we_do(width, height):
    """Against Pillow, by way of `decode`."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    size = 32
    unchanged = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> same (uint8[photos, 3, {size}, {size}] square) '
        f"=> (uint8[photos, 3, {size}, {size}] out) {{ out = Identity (square) }}"
    )
    session = onnxruntime.InferenceSession(export._from_photos(unchanged, size).SerializeToString())
    draws = np.random.default_rng(width)
    colours = Image.fromarray(draws.integers(0, 256, (7, 9, 3), np.uint8)).resize((width, height))
    pixels = np.asarray(colours)
    (found,) = session.run(None, {"pixels": np.stack([pixels, pixels[:, ::-1]])})
    file = io.BytesIO()
    colours.save(file, "PNG")
    apart = np.abs(found[0].transpose(1, 2, 0).astype(int) - decode(file.getvalue(), size))
    assert apart.max() <= 3  # of 255
    assert apart.mean() < 0.3


def test_the_rate_of_unknown_photos_is_the_one_given(root, fresh, tmp_path, capsys):
    """Against numpy: the highest scores in their own standard deviations, added, below their quantile."""
    model = load_model(root / "solved.podnet")
    known = model.familiar.double().numpy()
    own = ((known - known.mean(0)) / known.std(0, ddof=1)).sum(1)
    pixels = torch.from_numpy(np.concatenate(squares(fresh, model.settings.image_size)))
    counts = []
    for rate in (0.0, 0.1, 0.5, 0.9):
        *_, familiar, unknown = export.Exported(model, rate).eval()(pixels)
        least = np.quantile(own, rate) if rate else -np.inf
        assert unknown.tolist() == (familiar.numpy() < least).tolist()
        assert export.describe(model, export.Wanted(reject=rate))["reject"] == str(rate)
        counts.append(int(unknown.sum()))
    assert counts == sorted(set(counts))
    assert counts[0] == 0
    assert main(["export", str(root / "solved.podnet"), "--output", str(tmp_path / "o"), "--reject", "1.5"]) == 2
    assert "--reject is 1.5; give a share from 0" in capsys.readouterr().err


def test_a_model_without_scores_of_known_photos_calls_none_unknown(root):
    """Such are those of earlier formats."""
    model = load_model(root / "trained.podnet")
    model.familiar = torch.zeros(0, 2)
    noise = torch.randint(0, 256, (5, 3, 21, 21), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert not export.Exported(model, 0.5).eval()(noise)[3].any()
    assert export.describe(model, export.Wanted(reject=0.5))["reject"] == "0.0"


def test_a_graph_that_differs_is_not_written(root, tmp_path, monkeypatch, capsys):
    right = export.nme_scores
    monkeypatch.setattr(export, "nme_scores", lambda features, means: right(features, means.flip(0)))
    output = tmp_path / "m.pt2"
    assert main(["export", str(root / "trained.podnet"), "--format", "torch", "--output", str(output)]) == 2
    assert "the exported graph differs from the model" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_pictures_made_to_check_with_are_coarse_and_fine_and_always_the_same():
    made = pictures(64)
    assert made.dtype == torch.uint8
    assert made.shape == (30, 3, 64, 64)
    assert torch.equal(made, pictures(64))
    steps = made.float().diff(dim=3).abs().mean((1, 2, 3))
    assert steps.max() > 5 * steps.min()


def test_what_cannot_be_exported_is_told(root, monkeypatch, capsys):
    assert main(["export", str(root / "trained.podnet"), "--format", "torch", "--input", "photo"]) == 2
    assert "use --input square" in capsys.readouterr().err
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxscript" else name)
    assert main(["export", str(root / "trained.podnet")]) == 2
    assert "needs onnxscript: pip install 'podnet[onnx]'" in capsys.readouterr().err
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    assert main(["export", str(root / "trained.podnet")]) == 2
    assert "needs onnx, onnxscript and onnxruntime: pip install" in capsys.readouterr().err


def test_a_model_for_prediction_alone_does_not_replace_the_model(root, tmp_path):
    own = tmp_path / "m.podnet"
    own.write_bytes((root / "trained.podnet").read_bytes())
    assert main(["export", str(own), "--format", "podnet", "--output", str(own)]) == 2
    assert load_model(own).can_learn
    assert main(["export", str(own), "--format", "podnet"]) == 0
    assert not load_model(own.with_name("m-small.podnet")).can_learn
