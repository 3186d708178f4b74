"""A model of one's own on the command line: what the commands say and do, in the default way of learning."""

import errno
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from coloured import HUES, accuracy, copied, photos_of, two_lessons
from podnet.cli import main
from podnet.data.collection import read_collection
from podnet.data.photos import Photos
from podnet.errors import DataError, PodnetError
from podnet.model import lessons
from podnet.model.loading import load_model
from podnet.model.measure import interval
from podnet.model.model import ClassRecord, Model
from podnet.model.planning import prepare

QUICK = ["--image-size", "64", "--workers", "0"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    return two_lessons(tmp_path_factory.mktemp("own"), QUICK)


@pytest.fixture
def own(learned, tmp_path):
    return copied(learned / "m.podnet", tmp_path)


def test_a_preview_changes_nothing(learned, tmp_path, capsys):
    (tmp_path / "photos" / "red").mkdir(parents=True)
    photos_of(tmp_path / "photos", "red", "blue")
    (tmp_path / "photos" / "red" / "broken.png").write_bytes(b"broken")
    assert main(["learn", str(tmp_path / "new.podnet"), str(tmp_path / "photos"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"red +new +10 +10 +28x24", shown)
    assert "broken.png: not a JPEG" in shown
    assert "image size 224 (native size of lite0)" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_two_calls_at_once_do_not_overwrite_each_other(own, tmp_path):
    """Whichever comes first; what a call says it has learned is in the file, what it refused is not."""
    calls = {}
    for number, name in enumerate(("ash", "smoke")):
        photos_of(tmp_path / name, "grey", first=70 + 20 * number)  # not the same photos: those would be left out
        (tmp_path / name / "grey").rename(tmp_path / name / name)
        command = [sys.executable, "-m", "podnet", "learn", str(own), str(tmp_path / name)]
        command += ["--workers", "0"]
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
    lesson = prepare(own, tmp_path / "more", {}, False, "cpu")
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
    assert re.fullmatch(r".*2\.png: (unknown \(nearest: )?\w+ \d+\.\d%  \w+ \d+\.\d%\)?", lines[0])
    assert err == f"cannot read {bad}: not a JPEG, PNG, WebP, GIF, BMP or TIFF image\n"
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
    assert rows[0] == "file,rank,class,confidence,unknown"
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


def test_a_damaged_image_on_standard_input_is_no_list_of_names(learned, monkeypatch, capsys):
    content = (learned / "first" / "blue" / "3.png").read_bytes()
    for damaged, why in ((content[:400], "truncated"), (b"\0" + content, "not a JPEG, PNG")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(damaged)))
        assert main(["predict", str(learned / "m.podnet"), "-"]) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("cannot read -: ")
        assert why in err


def test_the_reason_is_told_whatever_the_name(learned, tmp_path, capsys):
    (tmp_path / "a\tb.png").write_bytes(b"broken")
    assert main(["predict", str(learned / "m.podnet"), str(tmp_path)]) == 1
    assert (
        capsys.readouterr().err == f"cannot read {tmp_path}/a\\tb.png: not a JPEG, PNG, WebP, GIF, BMP or TIFF image\n"
    )


def test_evaluation_counts_as_by_hand(learned, tmp_path, capsys):
    picture = tmp_path / "confusion.png"
    photos = photos_of(tmp_path / "test", *HUES, first=80)
    (photos / "grey").rename(photos / "unknown")
    assert main(["evaluate", str(learned / "m.podnet"), str(photos), "--confusion", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert picture.stat().st_size > 1000
    assert f"confusion matrix: {picture}" in shown
    assert "not part of the accuracy: unknown" in shown
    rows = dict(re.findall(r"^ (red|green|blue|all) +\d+ +[\d.]+ +([\d.]+)", shown, re.MULTILINE))
    model = load_model(learned / "m.podnet")
    for name in ("red", "green", "blue"):
        own = read_collection(photos).of([name])
        assert float(rows[name]) == pytest.approx(100 * accuracy(model, own), abs=0.06)
    assert float(rows["all"]) == pytest.approx(np.mean([float(rows[n]) for n in ("red", "green", "blue")]), abs=0.06)


def test_an_evaluation_refuses_a_class_in_another_case(learned, tmp_path, capsys):
    """Otherwise its photos would be those of an unknown class, and the accuracy that of the others."""
    photos = photos_of(tmp_path, "red", "green")
    (photos / "red").rename(photos / "Red")
    assert main(["evaluate", str(learned / "m.podnet"), str(photos)]) == 2
    assert "the model knows a class 'red', and the photos have 'Red'" in capsys.readouterr().err


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
    assert re.search(r"^ grey +\d{4}-\d\d-\d\d +10 +10 ", shown, re.MULTILINE)
    assert "backbone lite0, image_size 64" in shown
    assert "kept: features of 40 photos; " in shown
    value = max(load_model(learned / "m.podnet").history[-1]["accuracy"].values())
    low, high = interval(value, 40)
    words = f"accuracy {value:.1f} % (95 % interval {low:.1f} to {high:.1f}) on 40 photos, "
    assert f"{words}each judged by a model that has not seen it\n" in shown


CHANGES = """
import os, sys
from pathlib import Path
from podnet.errors import BusyError
from podnet.model.changing import changing

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
    said = "the model has no class 'gren'. Did you mean 'green'? It knows blue, green, red and grey."
    assert said in capsys.readouterr().err
    assert own.read_bytes() == before


def test_of_many_classes_ten_are_listed():
    model = Model(None, None, [ClassRecord(f"c{i}", "2026-01-01", 1) for i in range(12)])
    with pytest.raises(PodnetError, match=r"It knows c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 and 2 more\.$"):
        model.label_of("cat")


@pytest.mark.parametrize("command", ["predict", "evaluate", "forget", "export", "info", "undo", "card"])
def test_a_model_that_does_not_exist_can_be_created(tmp_path, capsys, command):
    model = tmp_path / "missing.podnet"
    more = ["something"] if command in ("predict", "evaluate", "forget") else []
    assert main([command, str(model), *more]) == 2
    said = f"error: there is no model {model}; 'podnet learn {model} PHOTOS' creates it.\n"
    assert capsys.readouterr().err == said
    assert not list(tmp_path.iterdir())


def test_the_same_photos_again_are_nothing_to_learn(own, learned, capsys):
    before = own.read_bytes()
    assert main(["learn", str(own), str(learned / "first")]) == 2
    said = f"nothing to learn: {own} already knows blue, green and red; to add new photos of them use --include-known."
    assert said in capsys.readouterr().err
    assert own.read_bytes() == before


def test_a_model_comes_before_its_photos(own, learned, capsys):
    photo, folder = learned / "first" / "red" / "1.png", learned / "first"
    for command, first, words in [
        ("predict", photo, f"{photo} is not a podnet model; the model comes first: podnet predict MODEL PHOTO."),
        ("predict", folder, f"{folder} is a folder, not a model file; the model comes first: podnet predict"),
        ("evaluate", folder, f"{folder} is a folder, not a model file; the model comes first: podnet evaluate"),
        ("learn", photo, f"{photo} is not a podnet model; the model comes first: podnet learn MODEL PHOTOS."),
    ]:
        assert main([command, str(first), str(own)]) == 2
        assert f"error: {words}" in capsys.readouterr().err
    assert main(["info", str(photo)]) == 2
    assert capsys.readouterr().err == f"error: {photo} is not a podnet model.\n"


def test_subfolders_learned_as_one_class_come_with_a_warning(tmp_path, capsys):
    photos_of(tmp_path / "two" / "plants", "red", "green", count=2)
    photos_of(tmp_path / "two" / "animals", "blue", count=2)
    assert main(["learn", str(tmp_path / "m"), str(tmp_path / "two"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "warning: plants has subfolders with photos (green, red); they are learned as one class. For" in shown
    assert "animals has" not in shown


def test_a_folder_without_photos_is_told(learned, tmp_path, monkeypatch, capsys):
    empty, model = tmp_path / "empty-folder", str(learned / "m.podnet")
    empty.mkdir()
    assert main(["predict", model, str(empty)]) == 1
    assert capsys.readouterr() == ("", f"{empty} has no photos\n")
    assert main(["predict", model, str(learned / "first" / "red"), str(empty), str(learned / "first" / "red")]) == 1
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (10, f"{empty} has no photos\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["predict", model, "-"]) == 1
    assert capsys.readouterr().err == "standard input has no photos\n"


def test_an_evaluation_writes_nothing_unasked(own, learned, capsys, monkeypatch):
    monkeypatch.chdir(own.parent)
    assert main(["evaluate", str(own), str(learned / "first")]) == 0
    assert "confusion" not in capsys.readouterr().out
    assert list(own.parent.iterdir()) == [own]


def test_numbers_of_one_are_singular(tmp_path, capsys):
    photos_of(tmp_path / "p", "red", "blue", count=1)
    model = tmp_path / "m.podnet"
    assert main(["learn", str(model), str(tmp_path / "p"), *QUICK]) == 0
    photos_of(photos_of(tmp_path / "q", "red", count=2), "green", count=2)
    assert main(["learn", str(model), str(tmp_path / "q"), "--include-known", *QUICK]) == 0
    assert main(["undo", str(model)]) == 0
    assert main(["forget", str(model), "red"]) == 0
    assert main(["learn", str(model), str(tmp_path / "q"), "--dry-run"]) == 0
    assert main(["info", str(model)]) == 0
    assert main(["card", str(model)]) == 0
    shown = capsys.readouterr().out + (tmp_path / "m.md").read_text()
    for words in ("skipped 1 photo that", "its 1 photo\n", "features of 1 photo;", "knows 1 class;", "for 1 class,"):
        assert words in shown
    assert not re.search(r"\b1 (photos|classes|images|minutes)", shown)


def test_without_exemplars_it_only_predicts(own, learned, tmp_path, capsys):
    small = tmp_path / "small.podnet"
    load_model(own).save(small, exemplars=False)
    assert small.stat().st_size < own.stat().st_size
    image = Photos(tuple(sorted((learned / "first" / "red").iterdir())), 64)
    assert torch.equal(load_model(small).learner.predict(image).cnn, load_model(own).learner.predict(image).cnn)
    assert main(["learn", str(small), str(photos_of(tmp_path / "x", "grey").rename(tmp_path / "y"))]) == 2
    assert main(["info", str(small)]) == 0
    shown = capsys.readouterr().out
    assert "can predict but not learn more" in shown
    assert "kept: no data from its photos; " in shown


def test_learning_without_keeping_photos(tmp_path):
    photos = photos_of(tmp_path / "p", "red", "blue")
    assert main(["learn", str(tmp_path / "m.podnet"), str(photos), "--no-exemplars", *QUICK]) == 0
    model = load_model(tmp_path / "m.podnet")
    assert not model.can_learn
    assert not model.digests
    assert not model.learner.kept


def test_settings_of_a_model_stay(own, learned, capsys):
    assert main(["learn", str(own), str(learned / "first"), "--include-known", "--image-size", "32"]) == 2
    assert "image_size 64, not 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--held-out", "0.9", "a share from 0 to 0.5"),
        ("--image-size", "4", "it must be from 8 to 1024"),
        ("--exemplars", "0", "at least 1 photo"),
        ("--epochs", "0", "epochs is 0; it must be above 0"),
        ("--lr", "nan", "lr is nan"),
        ("--batch-size", "-1", "batch_size is -1"),
        ("--threads", "0", "threads is 0; it must be at least 1"),
        ("--minutes", "0", "minutes above 0"),
        ("--workers", "-1", "workers is -1"),
        ("--device", "warp", "device 'warp' is not available"),
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


def test_a_folder_that_is_gone_is_told(tmp_path, capsys):
    photos = photos_of(tmp_path / "p", "red", "blue")
    assert main(["learn", str(tmp_path / "no" / "m"), str(photos), *QUICK]) == 2
    assert "create it first" in capsys.readouterr().err
    with pytest.raises(DataError):
        read_collection(tmp_path / "nothing")


def test_a_table_is_checked_before_anything_is_shown(tmp_path, capsys):
    """A row that cannot be one is refused; a file that is missing is named in the preview."""
    photos_of(tmp_path, "red", "blue", count=2)
    table, model = tmp_path / "photos.csv", str(tmp_path / "m")
    rows = ["species,image", *(f"{name},{name}/{i}.png" for name in ("red", "blue") for i in range(2))]
    table.write_text("\n".join([*rows, "red"]))
    assert main(["learn", model, str(table), *QUICK, "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "photos.csv, line 6: 'red'; expected 2 cells" in err
    table.write_text("\n".join([*rows, "red,red/9.png"]))
    assert main(["learn", model, str(table), *QUICK, "--dry-run"]) == 0
    assert f"{tmp_path / 'red' / '9.png'}: No such file or directory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "told"), [("learn", "run the same command again"), ("predict", "stopped."), ("info", "stopped.")]
)
def test_what_is_told_after_an_interruption_fits_the_command(learned, tmp_path, monkeypatch, capsys, command, told):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for module in ("learn.teach", "predict.predict", "info.load_model"):
        monkeypatch.setattr(f"podnet.cli.{module}", interrupt)
    photos = [str(photos_of(tmp_path / "p", "red", "blue"))] if command != "info" else []
    model = tmp_path / "new.podnet" if command == "learn" else learned / "m.podnet"
    assert main([command, str(model), *photos]) == 130
    err = capsys.readouterr().err
    assert told in err
    assert "--resume" not in err


def test_a_folder_that_cannot_be_written_is_told(learned, tmp_path, monkeypatch, capsys):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    photos = photos_of(tmp_path / "p", "red", "blue")
    monkeypatch.setattr("podnet.io.files.open", refuse, raising=False)
    assert main(["learn", str(tmp_path / "m"), str(photos), *QUICK]) == 2
    assert f"cannot write in {tmp_path}: Permission denied; choose another folder" in capsys.readouterr().err
