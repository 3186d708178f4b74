"""The page's server: what it says of runs and models, checked against the files and against plain loops."""

import fcntl
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
import yaml
from safetensors.numpy import load_file
from studio_at_scale import make_run

from coloured import photos_of
from podnet.cli import main
from podnet.data.decode import decode
from podnet.errors import PodnetError
from podnet.io.files import GrowingLines, append_line, is_locked, keep_lines, locked, write_atomically
from podnet.model.changing import accept, can_undo, changing, undo
from podnet.model.loading import load_model
from podnet.model.look import look
from podnet.paper.numbers import published
from podnet.studio.index import RunIndex
from podnet.studio.model_view import ModelView, interval_of, nearest_classes, plane
from podnet.studio.worker import Pace
from studio import events, runs_of, serving

SMALL = ("--backbone", "resnet32", "--image-size", "16", "--exemplars", "4")
QUICK = ("--epochs", "2", "--finetune-epochs", "1", "--batch-size", "8")


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A model of three colours, as podnet learn makes it by default."""
    folder = tmp_path_factory.mktemp("taught")
    photos_of(folder / "photos", "red", "green", "blue")
    assert main(["learn", str(folder / "m.podnet"), str(folder / "photos"), "--train", "never"]) == 0
    return folder / "m.podnet"


@pytest.fixture(scope="module")
def trained(taught):
    """One of the same photos whose network is trained."""
    path = taught.with_name("trained.podnet")
    assert main(["learn", str(path), str(taught.parent / "photos"), *SMALL, *QUICK]) == 0
    return path


@pytest.fixture
def model(taught, tmp_path):
    return shutil.copy(taught, tmp_path / "shop.podnet")


@pytest.fixture(scope="module")
def grey(tmp_path_factory):
    """Photos of a colour that the model does not know."""
    folder = photos_of(tmp_path_factory.mktemp("grey"), "grey")
    return [file.read_bytes() for file in sorted((folder / "grey").iterdir())]


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A server for runs in every state."""
    folder = tmp_path_factory.mktemp("several")
    make_run(folder / "done", 3, seed=1, epochs=2, base=4)
    make_run(folder / "deep" / "other seed", 3, seed=2, epochs=2, base=4)
    make_run(folder / "stopped", 2, total=5, epochs=2, base=4)
    make_run(folder / "failed", 1, total=5, epochs=2, base=4)
    (folder / "failed" / "failure.json").write_text(json.dumps({"message": "the disk is <b>full</b>."}))
    make_run(folder / "damaged", 1, epochs=1, base=4)
    (folder / "damaged" / "results.jsonl").write_text("{not json}\n")
    make_run(folder / "running", 2, total=5, epochs=3, base=4)
    append_line(
        folder / "running" / "epochs.jsonl",
        {"task": 2, "tasks": 5, "stage": 0, "phase": "train", "epoch": 1, "epochs": 4, "rate": 0.1, "losses": {}}
        | {"seconds": 2.0},
    )
    (folder / ".hidden").mkdir()
    make_run(folder / ".hidden" / "run", 1, epochs=1, base=4)
    with open(folder / "running" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with serving(folder) as client:
            client.folder = folder
            yield client


def test_every_run_with_its_state(several):
    runs = runs_of(several)
    states = {name: run["state"] for name, run in runs.items()}
    assert states == {
        "done": "done",
        "deep/other seed": "done",
        "stopped": "stopped",
        "failed": "failed",
        "damaged": "unreadable",
        "running": "running",
    }
    assert runs["failed"]["message"] == "the disk is <b>full</b>."
    assert "not JSON" in runs["damaged"]["message"]
    assert (runs["running"]["tasks_done"], runs["running"]["tasks"]) == (2, 5)
    assert runs["running"]["underway"] == {"task": 2, "phase": "train", "epoch": 2, "epochs": 4, "seconds_left": 4.0}
    assert 0 < runs["running"]["seconds_left"] <= 3 * 245.1  # three steps like the one before
    assert runs["stopped"]["seconds_left"] is None
    lines = [json.loads(line) for line in (several.folder / "done" / "results.jsonl").read_text().splitlines()]
    assert runs["done"]["seen"] == [4, 5, 6]
    for inference in ("cnn", "nme"):
        assert runs["done"]["curves"][inference] == pytest.approx([x["accuracy"][inference] for x in lines], abs=1e-3)
        average = statistics.fmean(x["accuracy"][inference] for x in lines)
        assert runs["done"]["average"][inference] == pytest.approx(average, abs=1e-3)


def test_one_run_in_full(several):
    key = runs_of(several)["done"]["id"]
    about = several.get(f"/api/runs/{key}").json()
    assert yaml.safe_load(about["config"])["seed"] == 1
    assert about["environments"][0]["cores"] == 2
    assert about["command"].startswith("podnet run --config ")
    results = several.get(f"/api/runs/{key}/results", params={"start": 2}).json()
    assert [line["task"] for line in results["lines"]] == [2]
    assert len(several.get(f"/api/runs/{key}/epochs").json()["lines"]) == 6


def test_classes_then_and_now_by_a_plain_count(several):
    key = runs_of(several)["done"]["id"]
    found = several.get(f"/api/runs/{key}/classes").json()
    assert found["learned"] == [0, 0, 0, 0, 1, 2]
    for inference in ("cnn", "nme"):
        own = found["inferences"][inference]
        for label, task in enumerate(found["learned"]):
            for moment, value in ((task, own["then"][label]), (2, own["now"][label])):
                file = load_file(several.folder / "done" / "predictions" / f"task-{moment:04d}.safetensors")
                said = [
                    p for p, t in zip(file[inference].tolist(), file["targets"].tolist(), strict=True) if t == label
                ]
                assert value == pytest.approx(100 * said.count(label) / len(said), abs=1e-3)
        file = load_file(several.folder / "done" / "predictions" / "task-0002.safetensors")
        counted = [[0] * 6 for _ in range(6)]
        for predicted, target in zip(file[inference].tolist(), file["targets"].tolist(), strict=True):
            counted[target][predicted] += 1
        assert own["confusion"] == counted


def test_comparison_is_mean_and_deviation_over_seeds(several):
    runs = runs_of(several)
    keys = [runs[name]["id"] for name in ("done", "deep/other seed", "running")]
    compared = several.get("/api/compare", params={"run": keys}).json()
    own = [runs[name]["average"]["cnn"] for name in ("done", "deep/other seed")]
    row = next(row for row in compared["rows"] if row["label"] == "podnet (CNN)")
    assert row["values"][0]["mean"] == pytest.approx(statistics.fmean(own), abs=1e-3)
    assert row["values"][0]["std"] == pytest.approx(statistics.stdev(own), abs=1e-3)
    assert row["values"][0]["runs"] == 2
    curve = next(curve for curve in compared["curves"] if curve["label"].startswith("podnet (CNN)"))
    curves = [runs[name]["curves"]["cnn"] for name in ("done", "deep/other seed")]
    assert curve["mean"] == pytest.approx([statistics.fmean(pair) for pair in zip(*curves, strict=True)], abs=1e-3)
    assert curve["std"] == pytest.approx([statistics.stdev(pair) for pair in zip(*curves, strict=True)], abs=1e-3)
    assert "2 of 5 tasks" in compared["rows"][-1]["label"]
    assert compared["paper"] == []  # of four classes the paper says nothing


def test_the_papers_average_stands_beside_its_protocol(tmp_path):
    make_run(tmp_path / "run", 2, total=51, epochs=1)
    make_run(tmp_path / "less memory", 2, total=51, epochs=1, memory_per_class=5)
    with serving(tmp_path) as client:
        runs = runs_of(client)
        paper = client.get("/api/compare", params={"run": runs["run"]["id"]}).json()["paper"]
        assert {(p["label"], p["mean"]) for p in paper} == {
            ("PODNet (CNN), 50 steps", 57.98),
            ("PODNet (NME), 50 steps", 61.4),
        }
        assert client.get("/api/compare", params={"run": runs["less memory"]["id"]}).json()["paper"] == []


def test_changes_are_pushed_and_nothing_else(tmp_path, tmp_path_factory):
    gone = tmp_path_factory.mktemp("gone")
    make_run(tmp_path / "a", 1, total=3, epochs=1, base=4)
    make_run(tmp_path / "b", 1, epochs=1, base=4)
    with serving(tmp_path) as client:
        known = client.get("/api/runs").json()
        told = events(client, known["version"])
        name, about = next(told)  # of the model, which there is not
        assert (name, about["model"]) == ("model", None)
        line = json.loads((tmp_path / "a" / "results.jsonl").read_text())
        append_line(tmp_path / "a" / "results.jsonl", line | {"task": 1, "seen": 5})
        name, news = next(told)
        assert name == "runs"
        assert [(run["name"], run["seen"]) for run in news["runs"]] == [("a", [4, 5])]
        assert news["complete"] is False
        (tmp_path / "b").rename(gone / "b")  # at once: files that vanish one by one are changes too
        _, news = next(told)
        assert (news["runs"], news["removed"]) == ([], [run["id"] for run in known["runs"] if run["name"] == "b"])
        make_run(tmp_path / "c", 1, epochs=1, base=4)
        _, news = next(told)
        assert "c" in [run["name"] for run in news["runs"]]
        _, news = next(events(client, "another-server-7"))
        assert news["complete"]  # whoever comes from elsewhere gets everything


def test_a_run_that_is_being_cut_back_is_read_anew(tmp_path):
    lines = GrowingLines(tmp_path / "lines.jsonl")
    assert lines.update() == []
    for task in range(3):
        append_line(lines.path, {"task": task})
    assert [line["task"] for line in lines.update()] == [0, 1, 2]
    before = lines.generation
    with open(lines.path, "ab") as file:
        file.write(b'{"task": 3')
    assert len(lines.update()) == 3  # the fourth is being written
    with open(lines.path, "ab") as file:
        file.write(b"}\n")
    assert [line["task"] for line in lines.update()] == [0, 1, 2, 3]
    assert lines.generation == before
    keep_lines(lines.path, lambda line: line["task"] < 2)
    append_line(lines.path, {"task": 2, "again": True})
    assert lines.update()[-1] == {"task": 2, "again": True}
    assert lines.generation != before
    before = lines.generation
    lines.path.unlink()
    assert lines.update() == []
    with open(lines.path, "w") as file:  # perhaps with the inode of the one before, and longer
        file.writelines(json.dumps({"task": 0, "of": "another run", "number": i}) + "\n" for i in range(9))
    assert len(lines.update()) == 9
    assert lines.generation != before
    before = lines.generation
    with open(lines.path, "r+") as file:  # the same file, other lines
        file.write(json.dumps({"task": 7, "of": "a third one!", "number": 1}) + "\n")
        file.truncate()
    assert [line["task"] for line in lines.update()] == [7]
    assert lines.generation != before


def test_looking_at_a_lock_does_not_stop_who_wants_it(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    assert not is_locked(path)
    with locked(path, "busy"):
        assert is_locked(path)
        assert is_locked(path)
    assert not is_locked(path)
    with open(path) as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))  # while it waits
        with locked(path, "busy"):
            assert is_locked(path)


def test_an_index_of_nothing_and_of_a_folder_that_comes_later(tmp_path):
    index = RunIndex(tmp_path / "runs")
    assert index.refresh() is False
    make_run(tmp_path / "runs" / "a", 1, epochs=1, base=4)
    index._next_walk = 0
    assert index.refresh() is True
    assert len(index.since(0).runs) == 1


def test_a_run_that_was_replaced_is_another_run(tmp_path):
    """Removed and run again between two looks."""
    index = RunIndex(tmp_path)
    make_run(tmp_path / "a", 3, seed=1, epochs=1, base=4)
    index.refresh()
    [first] = index.since(0).runs
    run = index.entry(json.loads(first)["id"]).run
    assert len(run.epochs()) == 3
    before = run.generation(run.epochs_file)
    shutil.rmtree(tmp_path / "a")
    make_run(tmp_path / "a", 3, seed=2, epochs=2, base=4)
    index.refresh()
    [second] = index.since(0).runs
    assert json.loads(first)["curves"] != json.loads(second)["curves"]
    run = index.entry(json.loads(second)["id"]).run
    assert [line["task"] for line in run.results()] == [0, 1, 2]
    assert len(run.epochs()) == 6
    assert run.generation(run.epochs_file) != before


def test_one_odd_run_does_not_hide_the_others(tmp_path):
    good = make_run(tmp_path / "good", 2, epochs=1, base=4)
    for name, config, line in (
        ("infinite", "seed: .inf\n", '{"task": 0}\n'),
        ("nan", "seed: 1\n", (good / "results.jsonl").read_text().replace('"cnn": ', '"cnn": NaN, "x": ')),
        ("deep", "seed: 1\n", "[" * 100_000 + "\n"),
        ("list", "[]\n", ""),
        ("empty", "", ""),
        ("binary", "\x00\x01", "\x00\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(config)
        (tmp_path / name / "results.jsonl").write_text(line)
    with serving(tmp_path) as client:
        states = {name: run["state"] for name, run in runs_of(client).items()}
        assert states.pop("good") == "done"
        assert set(states.values()) == {"unreadable"}
        for run in runs_of(client).values():
            for view in ("", "/results", "/epochs", "/classes"):
                assert client.get(f"/api/runs/{run['id']}{view}").status_code in (200, 422), (run["name"], view)


def test_interrupted_it_ends_in_peace(tmp_path):
    make_run(tmp_path / "a", 1, epochs=1, base=4)
    command = [sys.executable, "-m", "podnet", "studio", str(tmp_path), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        address = next(line.strip() for line in server.stdout if line.startswith("http://"))
        with httpx.Client(base_url=address, timeout=60) as client:
            told = events(client)
            next(told)  # a page is open
            server.send_signal(signal.SIGINT)
            for _ in told:
                pass  # to its end
        assert server.wait(20) == 0
        assert server.stderr.read() == ""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"PODNet (CNN), 50 steps": 57.98, "PODNet (NME), 50 steps": 61.4}),
        ({"base": None, "increment": 5}, {"PODNet (CNN), 10 steps": 63.19, "PODNet (NME), 10 steps": 64.03}),
        ({"method": "icarl", "increment": 10}, {"iCaRL, 5 steps": 58.08}),
        ({"increment": 9}, {}),
        ({"increment": 0}, {}),
        ({"memory_per_class": 5}, {}),
        ({"validation": 0.1}, {}),
        ({"lambda_c": 0.0}, {}),
        ({"distillation": "pixels"}, {}),
        ({"classes": 20}, {}),
        ({"dataset": "digits"}, {}),
    ],
)
def test_when_the_paper_has_a_number(change, expected):
    config = {"method": "podnet", "dataset": "cifar100", "base": 50, "increment": 1, "memory_per_class": 20}
    assert {label: number.mean for label, number in published(config | change).items()} == expected


def test_a_failed_run_says_why(tmp_path):
    from podnet.runs.folder import Run

    run = Run(tmp_path)
    run.write_config({})
    with pytest.raises(PodnetError), run.noting_failure():
        raise PodnetError("training diverged.")
    assert run.failure() == "training diverged."
    with pytest.raises(KeyboardInterrupt), run.noting_failure():
        raise KeyboardInterrupt
    assert run.failure() is None  # stopped by hand, and not failed


@pytest.fixture(scope="module")
def shown(taught):
    """A server for the model, which nobody changes."""
    with serving(taught.parent, taught) as client:
        yield client


def test_the_model_and_its_classes(shown, taught):
    described = shown.get("/api/model").json()
    assert [c["name"] for c in described["classes"]] == ["blue", "green", "red"]
    assert [(c["exemplars"], c["kept"]) for c in described["classes"]] == [(0, "features of 10 photos")] * 3
    assert {c["task"] for c in described["classes"]} == {0}
    assert described["kept"] == "features of 30 photos"
    assert (described["can_undo"], described["can_learn"]) == (False, True)
    assert (described["map"]["of"], len(described["map"]["points"])) == ("photos", 30)
    points = torch.tensor(described["map"]["points"]).reshape(3, 10, 2)  # in the order of the photos: by class
    assert torch.allclose(points.mean(1), torch.tensor(described["map"]["middles"]), atol=1e-3)
    low, high = described["interval"]
    best = described["history"][0]["accuracy"][described["best"]]
    assert low < best <= high + 1e-9
    for photo in ("0/photos/0", "9/photos/0"):
        answer = shown.get(f"/api/model/classes/{photo}")
        assert (answer.status_code, answer.json()["detail"]) == (422, "the model has no photos.")


def test_a_trained_model_shows_its_exemplars_and_proxies(trained):
    with serving(trained.parent, trained) as client:
        described = client.get("/api/model").json()
        assert [(c["exemplars"], c["kept"]) for c in described["classes"]] == [(4, "4 small photos")] * 3
        assert described["kept"] == "12 small photos and 6 held-out photos"
        assert (described["map"]["of"], len(described["map"]["points"])) == ("proxies", 30)
        assert described["history"][0]["measured"] == 6  # held out
        picture = client.get("/api/model/classes/2/photos/0", params={"size": 32})
        assert picture.headers["content-type"] == "image/jpeg"
        assert decode(picture.content, 8).mean((0, 1)).argmax() == 0  # class 2 is red
        assert client.get("/api/model/classes/2/photos/4").status_code == 422
        assert client.get("/api/model/classes/9/photos/0").status_code == 422


@pytest.mark.parametrize(
    ("keep", "kept", "of"),
    [
        ("photos", "features of 10 photos and 4 small photos", "photos"),
        ("sums", "sums of the features of 10 photos", "means"),
    ],
)
def test_what_is_kept_is_told(taught, tmp_path, keep, kept, of):
    path = tmp_path / "m.podnet"
    options = ["--keep", keep, "--exemplars", "4", "--train", "never"]
    assert main(["learn", str(path), str(taught.parent / "photos"), *options]) == 0
    described = ModelView(path).describe()
    assert {c["kept"] for c in described["classes"]} == {kept}
    assert described["map"]["of"] == of
    assert ("each judged in its own lesson" in described["measured"]) is (keep == "sums")
    assert len(described["map"]["middles"]) == 3
    small = tmp_path / "small.podnet"
    assert main(["export", str(path), "--format", "podnet", "--output", str(small)]) == 0
    assert ModelView(small).describe()["kept"] == "no data from its photos"


def test_the_interval_holds_the_shares_that_chance_could_have_turned_into_this_one():
    """Wilson's: at its ends, the share that was found is 1.96 standard deviations away."""
    entry = {"accuracy": {"cnn": 90.0, "nme": 80.0}, "measured": 40}
    low, high = interval_of(entry)
    for end in (low / 100, high / 100):
        assert abs(0.9 - end) == pytest.approx(1.96 * (end * (1 - end) / 40) ** 0.5)
    assert low < 90 < high
    assert interval_of({"accuracy": {}, "measured": 0}) is None


def test_the_time_left_of_a_phase():
    pace = Pace()
    assert pace.seconds_left("train", 0.5, now=100.0) is None  # resumed in the middle: nothing is known yet
    assert pace.seconds_left("train", 0.6, now=102.0) == pytest.approx(8.0)  # a tenth in two seconds, four to go
    assert pace.seconds_left("features", 0.1, now=110.0) is None
    assert pace.seconds_left("features", 1.0, now=119.0) == 0.0
    assert pace.seconds_left("features", 0.2, now=120.0) is None  # again, from the beginning


def test_points_that_lie_in_a_plane_keep_their_distances():
    draws = torch.Generator().manual_seed(1)
    angles = torch.rand(12, generator=draws) * 6
    basis = torch.linalg.qr(torch.randn(7, 2, generator=draws))[0]
    points = torch.stack([angles.cos(), angles.sin()], 1) @ basis.t()
    labels = torch.arange(4).repeat_interleave(3)
    found = plane(points, labels, points[:4], points)
    assert found["labels"] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert sum(found["shares"]) == pytest.approx(1, abs=1e-3)
    shown = torch.tensor(found["points"])
    assert torch.allclose(torch.cdist(shown, shown), torch.cdist(points, points), atol=1e-3)
    assert found["middles"] == found["points"][:4]
    assert plane(points.flip(1), labels, points[:4].flip(1), points.flip(1))["shares"] == found["shares"]
    assert plane(points[:1], labels[:1], points[:1], points[:1])["points"] == [[0.0, 0.0]]  # one class of one photo


def test_neighbours_by_hand():
    means = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0]])
    near = nearest_classes(means, ["a", "b", "c"])
    assert near[0] == [{"name": "b", "cosine": 0.8}, {"name": "c", "cosine": 0.0}]
    assert near[2] == [{"name": "b", "cosine": 0.6}, {"name": "a", "cosine": 0.0}]
    assert nearest_classes(means[:1], ["a"]) == [[]]


@pytest.mark.parametrize("known", [True, False])
def test_trying_a_photo_says_what_predict_says(shown, taught, grey, tmp_path, capsys, known):
    photo = taught.parent / "photos" / "green" / "3.png"
    if not known:
        photo = tmp_path / "grey.png"
        photo.write_bytes(grey[0])
    capsys.readouterr()
    assert main(["predict", str(taught), str(photo), "--format", "jsonl", "--inference", "nme"]) == 0
    printed = json.loads(capsys.readouterr().out)
    answer = shown.post("/api/predict", content=photo.read_bytes()).json()
    assert printed["unknown"] is answer["unknown"] is not known
    for said, expected in zip(answer["ranked"]["nme"], printed["predictions"], strict=True):
        assert said["name"] == expected["class"]
        assert said["confidence"] == pytest.approx(expected["confidence"], abs=1e-5)
    assert len(answer["ranked"]["cnn"]) == 3
    assert answer["photo"].startswith("data:image/")
    assert max(map(max, answer["heat"])) == 1.0
    assert min(map(min, answer["heat"])) >= 0
    left, top, right, bottom = answer["seen"]
    assert 0 <= left < right <= 1
    assert 0 <= top < bottom <= 1


def test_many_clients_hold_hardly_more_memory_than_one(model, grey):
    """Each thread that loads the model or runs it would otherwise keep what it freed: some 300 MB more."""

    def attempt(_):
        return client.post("/api/predict", content=grey[0]).status_code

    def shown(_):
        return client.get("/api/model").status_code

    def megabytes():
        status = Path(f"/proc/{client.server.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    with serving(model.parent, model) as client, ThreadPoolExecutor(20) as pool:
        assert [attempt(0), attempt(1), shown(0)] == [200, 200, 200]
        before = megabytes()
        assert set(pool.map(attempt, range(10))) == {200}
        for _ in range(4):
            os.utime(model)  # it is loaded again, by any thread
            assert set(pool.map(shown, range(8))) == {200}
        assert megabytes() < before + 180  # 15 to 102 seen


def test_the_heat_map_is_grad_cam_by_loops(trained):
    model = load_model(trained)
    photo = (trained.parent / "photos" / "red" / "1.png").read_bytes()
    seen = look(model, photo, label=1)
    pixels = torch.from_numpy(decode(photo, model.settings.image_size).copy()).permute(2, 0, 1)[None]
    inputs = model.learner.transform.normalise(pixels)
    network = model.learner.network.eval()
    maps, _ = network.backbone(inputs)
    last = maps[-1].detach().requires_grad_()
    score = network.classifier.scale * network.classifier(last.mean((2, 3)))[0, 1]
    (gradient,) = torch.autograd.grad(score, last)
    _, channels, height, width = last.shape
    heat = torch.zeros(height, width)
    for c in range(channels):
        heat += float(gradient[0, c].mean()) * last[0, c].detach()
    heat = heat.clamp_min(0)
    assert heat.max() > 0
    torch.testing.assert_close(seen.heat, heat / heat.max(), atol=1e-4, rtol=1e-3)


def test_undo_brings_back_the_very_file(model):
    before = model.read_bytes()
    assert not can_undo(model)
    with changing(model, undoable=True):
        write_atomically(model, b"changed")
    assert can_undo(model)
    undo(model)
    assert model.read_bytes() == before
    assert not can_undo(model)
    with pytest.raises(PodnetError, match="nothing to undo"):
        undo(model)
    with changing(model, undoable=True):
        write_atomically(model, b"changed")
    accept(model)
    assert not can_undo(model)
    assert [file.name for file in model.parent.iterdir()] == ["shop.podnet"]


def test_undo_never_replaces_another_change(model):
    with changing(model, undoable=True):
        write_atomically(model, b"changed")
    write_atomically(model, b"changed by another program")
    assert not can_undo(model)
    with pytest.raises(PodnetError, match="tells what can be recovered"):
        undo(model)
    assert model.read_bytes() == b"changed by another program"


def test_a_failed_change_leaves_nothing_to_undo(model):
    before = model.read_bytes()
    with pytest.raises(ValueError, match="no"), changing(model, undoable=True):
        raise ValueError("no")
    assert model.read_bytes() == before
    assert [file.name for file in model.parent.iterdir()] == ["shop.podnet"]


def wait_for(client, wanted, seconds=300):
    """Until the teaching is in one of the wanted states."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        teaching = client.get("/api/teach").json()
        if teaching["state"] in wanted:
            return teaching
        time.sleep(0.1)
    raise AssertionError(f"still {teaching}")


def test_teach_undo_forget(model, grey):
    before = model.read_bytes()
    with serving(model.parent, model) as client:
        assert client.post("/api/teach", json={}).status_code == 422  # nothing to teach
        for photo in grey:
            assert client.post("/api/draft", params={"name": " ash "}, content=photo).status_code == 200
        assert client.post("/api/draft", params={"name": "dust"}, content=grey[0]).status_code == 422  # it is of ash
        assert client.post("/api/draft", params={"name": "Ash"}, content=grey[0]).status_code == 422
        assert client.post("/api/draft", params={"name": "  "}, content=grey[0]).status_code == 422
        [draft] = client.get("/api/draft").json()
        assert (draft["name"], len(draft["photos"])) == ("ash", 10)
        assert client.get(f"/api/draft/{draft['photos'][0]}").headers["content-type"] == "image/jpeg"
        client.delete(f"/api/draft/{draft['photos'][0]}")
        assert client.post("/api/teach", json={}).status_code == 202
        again = client.post("/api/teach", json={})
        assert again.status_code == 409
        assert "the model is learning ash" in again.json()["detail"]
        assert client.post("/api/model/forget", json={"name": "red"}).status_code == 409
        assert client.post("/api/draft", params={"name": "ash"}, content=grey[0]).status_code == 409
        done = wait_for(client, ("done", "failed"))
        assert done["state"] == "done", done
        assert [done["before"], done["entry"]] == load_model(model).history
        assert (done["entry"]["new"], done["entry"]["measured"]) == (["ash"], 39)  # each photo of four classes
        assert done["interval"][0] < done["entry"]["accuracy"][done["best"]]
        assert (done["phase"], done["share"], done["worse"], done["note"]) == ("features", 1.0, None, "")
        described = client.get("/api/model").json()
        assert [c["name"] for c in described["classes"]] == ["blue", "green", "red", "ash"]
        assert described["can_undo"]
        assert client.get("/api/draft").json() == []
        answer = client.post("/api/predict", content=grey[1]).json()
        assert answer["ranked"]["nme"][0]["name"] == "ash"
        undone = client.post("/api/model/undo").json()
        assert [c["name"] for c in undone["classes"]] == ["blue", "green", "red"]
        assert model.read_bytes() == before
        assert client.get("/api/teach").json()["state"] == "idle"  # what is undone is not told as done
        assert client.post("/api/model/undo").status_code == 422
        forgotten = client.post("/api/model/forget", json={"name": "green"}).json()
        assert [c["name"] for c in forgotten["classes"]] == ["blue", "red"]
        assert client.post("/api/model/forget", json={"name": "no such"}).status_code == 422
        accepted = client.post("/api/model/accept").json()
        assert accepted["can_undo"] is False
    assert [file.name for file in model.parent.iterdir()] == ["shop.podnet"]


def test_a_new_model_from_the_page(tmp_path, taught):
    """In a folder with a stranger's torch.py, which nobody may run."""
    path = tmp_path / "new.podnet"
    (tmp_path / "torch.py").write_text("raise SystemExit('a stranger ran')")
    with serving(tmp_path / "runs", path) as client:
        assert client.get("/api/model").json() == {"file": "new.podnet", "exists": False}
        assert "teach two classes" in client.post("/api/predict", content=b"x").json()["detail"]
        for name in ("red", "blue"):
            for file in sorted((taught.parent / "photos" / name).iterdir()):
                client.post("/api/draft", params={"name": name}, content=file.read_bytes())
        photo = (taught.parent / "photos" / "green" / "0.png").read_bytes()
        assert client.post("/api/draft", params={"name": "cafe\u0301"}, content=photo).json()["name"] == "caf\u00e9"
        client.delete("/api/draft", params={"name": "cafe\u0301"})
        assert [draft["name"] for draft in client.get("/api/draft").json()] == ["red", "blue"]
        client.post("/api/teach", json={})
        done = wait_for(client, ("done", "failed"))
        assert (done["state"], done["before"]) == ("done", None)
        assert done["note"].startswith("training the network was not tried")  # whatever is told of the trial
        assert [c["name"] for c in client.get("/api/model").json()["classes"]] == ["blue", "red"]


def worker_of(server):
    """The process that teaches."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return next(int(c) for c in children if b"podnet.studio.worker" in Path(f"/proc/{c}/cmdline").read_bytes())


def test_a_lesson_that_did_harm_is_told(model, tmp_path):
    """The same colour under another name takes photos away from the class that it is."""
    photos_of(tmp_path / "more", "red", first=100, count=20)
    with serving(model.parent, model) as client:
        for file in (tmp_path / "more" / "red").iterdir():
            client.post("/api/draft", params={"name": "crimson"}, content=file.read_bytes())
        client.post("/api/teach", json={})
        done = wait_for(client, ("done", "failed"))
        then, now = done["worse"]
        assert (then, now) == (done["before"]["accuracy"][done["best"]], done["entry"]["old_accuracy"][done["best"]])
        assert now < interval_of(done["before"])[0]
        assert [name for name, *_ in done["forgotten"]] == ["red"]
        client.post("/api/model/undo")
        assert client.get("/api/teach").json()["worse"] is None


def test_the_server_survives_a_killed_training(trained, tmp_path, grey):
    model = shutil.copy(trained, tmp_path / "shop.podnet")
    before = model.read_bytes()
    with serving(model.parent, model) as client:
        for photo in grey:
            client.post("/api/draft", params={"name": "ash"}, content=photo)
        client.post("/api/teach", json={"epochs": 1000})
        end = time.monotonic() + 300
        while not client.get("/api/teach").json()["phase"] and time.monotonic() < end:
            time.sleep(0.1)
        os.kill(worker_of(client.server), signal.SIGKILL)
        failed = wait_for(client, ("failed",))
        assert "was killed (SIGKILL). The model is unchanged" in failed["message"]
        assert model.read_bytes() == before
        assert len(client.get("/api/draft").json()[0]["photos"]) == 10  # to teach again
        client.post("/api/teach", json={"epochs": 1000})
        assert client.delete("/api/teach").json()["state"] == "stopped"
        client.post("/api/teach", json={"epochs": 1000})  # at once, and it is not taken for the one that was stopped
        end = time.monotonic() + 300
        while not client.get("/api/teach").json()["phase"] and time.monotonic() < end:
            time.sleep(0.1)
        assert client.get("/api/teach").json()["state"] == "running"
        assert client.delete("/api/teach").json()["state"] == "stopped"
        assert model.read_bytes() == before
    assert {file.name for file in model.parent.iterdir()} <= {"shop.podnet", ".shop.podnet.learning"}


def test_without_a_model_the_page_says_so(several):
    for path in ("/api/model", "/api/teach", "/api/model/classes/0/photos/0"):
        answer = several.get(path)
        assert (answer.status_code, answer.json()["detail"]) == (
            404,
            "no model: podnet studio was started without --model.",
        )


def test_everything_is_documented(several):
    listed = several.get("/api/openapi.json").json()["paths"]
    assert {"/api/runs", "/api/compare", "/api/model", "/api/teach", "/api/predict"} <= set(listed)
    assert all(about.get("description") for path in listed.values() for about in path.values())
    docs = several.get("/docs")
    assert "/vendor/swagger/swagger-ui-bundle.js" in docs.text
    assert "https://" not in docs.text.replace("https://fastapi.tiangolo.com", "")
    assert several.get("/vendor/swagger/swagger-ui-bundle.js").status_code == 200
    assert "plotly.js v" in several.get("/vendor/plotly.js").text[:1000]


def test_options_that_cannot_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for options, words in (
        ([str(tmp_path / "file")], "is a file; give the folder"),
        ([str(tmp_path), "--model", str(tmp_path)], "is a folder, not a model file"),
        ([str(tmp_path), "--model", str(tmp_path / "no" / "m.podnet")], "there is no folder"),
        ([str(tmp_path), "--host", "256.1.1.1"], "cannot listen on 256.1.1.1"),
        ([str(tmp_path), "--port", "99999"], "cannot listen on 127.0.0.1, port 99999"),
    ):
        assert main(["studio", *options, "--no-browser"]) == 2
        assert words in capsys.readouterr().err
