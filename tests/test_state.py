"""What a method keeps from task to task: in checkpoints, in losses, in every process."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from podnet.cli import main
from podnet.data import load
from podnet.engine.learner import Learner
from podnet.engine.training import Epoch
from podnet.errors import ConfigError
from podnet.io.tensors import load_tensors, save_tensors
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import Method, Phase, Replay
from podnet.methods.phases import constant, warmed_up
from podnet.runs.folder import Run
from podnet.scenario.tasks import class_incremental

REMEMBERS = """
from dataclasses import dataclass
import torch
import torch.nn.functional as F
from podnet.methods import Method, Phase
from podnet.methods.phases import cosine

@dataclass(frozen=True, kw_only=True)
class Anchored(Method):
    strength: float = 1.0
    name = "anchored"
    summary = "pulls the backbone to where it was after the task before, by squared gradients"
    presets = {"digits": {"epochs": 3, "batch_size": 64}}

    def phases(self, old, new, state):
        def loss(student, teacher, targets):
            return {"ce": F.cross_entropy(student.logits, targets)}

        def pull(network, student, targets):
            now = torch.cat([p.flatten() for p in network.backbone.parameters()])
            return {"pull": self.strength * (state["importance"] * (now - state["anchor"]).square()).sum()}

        return [Phase("train", loss, self.epochs, cosine(self.lr, self.epochs), penalty=pull if old else None)]

    def after_task(self, network, batches, state):
        total, count = 0, 0
        for inputs, targets in batches.with_exemplars():
            network.zero_grad()
            F.cross_entropy(network(inputs).logits, targets).backward()
            total = total + torch.cat([p.grad.flatten() for p in network.backbone.parameters()]).square()
            count += len(targets)
        anchor = torch.cat([p.flatten() for p in network.backbone.parameters()])
        first = next(iter(network.parameters()))  # the network's own: it is copied
        return {"importance": total / total.max(), "anchor": anchor, "seen": torch.tensor(count), "first": first}
"""
QUICK = ["--classes", "4", "--base", "2", "--images-per-class", "40", "--memory-per-class", "5", "--threads", "1"]


@pytest.fixture
def method_file(tmp_path):
    file = tmp_path / "anchored.py"
    file.write_text(REMEMBERS)
    return f"{file}:Anchored"


def state_of(folder):
    """The tensors of the newest checkpoint, without the times."""
    return load_tensors(Run(folder).checkpoint_files()[0])[0]


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)


def test_a_killed_run_resumes_to_the_same_state(method_file, tmp_path):
    options = ["run", "--method", method_file, "--checkpoint-seconds", "0", *QUICK]
    assert main([*options, "--output", str(tmp_path / "whole")]) == 0
    command = [sys.executable, "-m", "podnet", *options, "--output", str(tmp_path / "killed")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    middle = tmp_path / "killed" / "checkpoints"
    wait_for(lambda: any(middle.glob("0001-0-*.safetensors")), process)  # within the second task
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert main(["run", "--resume", str(tmp_path / "killed")]) == 0
    whole, killed = (state_of(tmp_path / name) for name in ("whole", "killed"))
    assert {"method.importance", "method.anchor", "method.seen"} <= whole.keys()
    assert whole["method.seen"] == 40 + 3 * 5  # the images of the last task, and the exemplars of the classes before
    assert equal(whole, killed)


def test_two_processes_keep_the_same_state(method_file, tmp_path):
    """Each compares its exemplars with the others' as it runs; here the state of each is written down."""
    spying = tmp_path / "spying.py"
    spying.write_text(
        REMEMBERS
        + f"""
    def class_means(self, state):
        import os
        rank = os.environ.get("RANK", "0")
        torch.save(state, f"{tmp_path}/state-{{len(state['anchor'])}}-{{rank}}.pt")
        return None
"""
    )
    assert (
        main(["run", "--method", f"{spying}:Anchored", "--devices", "2", *QUICK, "--output", str(tmp_path / "r")]) == 0
    )
    first, second = (torch.load(path) for path in sorted(tmp_path.glob("state-*.pt")))
    assert equal(first, second)


@dataclass(frozen=True, kw_only=True)
class Careless(Replay):
    name = "careless"
    given: str = "nothing"

    def after_task(self, network, batches, state):
        return {"list": [1], "tensor": {"a": 3}, "nothing": None}[self.given]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("list", "after_task of careless returned list; return the state, a dict of named tensors"),
        ("nothing", "after_task of careless returned NoneType"),
        ("tensor", "the state of careless has a = 3; it must be a tensor"),
    ],
)
def test_a_state_that_cannot_be_kept_gets_a_sentence(given, words, digits_tasks):
    learner = learner_of(Careless(epochs=1, given=given))
    with pytest.raises(ConfigError, match=words):
        list(learner.learn(digits_tasks[0]))


@dataclass(frozen=True, kw_only=True)
class OwnMeans(Replay):
    name = "own-means"

    def after_task(self, network, batches, state):
        features, targets = batches.features()
        found = torch.stack([features[targets == label].mean(0) for label in range(network.classifier.classes)])
        return {"means": F.normalize(found)}

    def class_means(self, state):
        return state["means"]


def test_class_means_may_be_part_of_the_state(tmp_path, digits_tasks):
    """In a file of tensors no two may share memory."""
    learner = learner_of(OwnMeans(epochs=1))
    list(learner.learn(digits_tasks[0]))
    tensors, meta = learner.state()
    save_tensors(tmp_path / "state.safetensors", tensors, {"learner": meta})
    assert torch.equal(tensors["means"], tensors["method.means"])


@pytest.fixture
def digits_tasks():
    return class_incremental(load("digits", None), range(4), 2, 1, images_per_class=30)


def learner_of(method):
    return Learner(method, 1, load("digits", None).transform, ExemplarMemory(5))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_an_optimiser_goes_on_where_it_was(optimizer, digits_tasks):
    method = Replay(epochs=4, batch_size=16, lr=0.01, warmup_epochs=2, optimizer=optimizer)
    whole = learner_of(method)
    for record in whole.learn(digits_tasks[0]):
        if isinstance(record, Epoch) and record.epoch == 1:
            tensors, meta = whole.state()
            saved = {name: value.clone() for name, value in tensors.items()}, meta
    resumed = learner_of(method)
    resumed.restore(*saved)
    assert [record.epoch for record in resumed.learn(digits_tasks[0]) if isinstance(record, Epoch)] == [2, 3]
    assert equal(whole.state()[0], resumed.state()[0])


def test_adamw_takes_the_step_of_its_paper(digits_tasks):
    """The first update of Adam is the learning rate in the direction of the sign, after the decoupled decay."""
    method = Replay(epochs=1, batch_size=64, lr=0.01, optimizer="adamw", weight_decay=0.1)
    learner = learner_of(method)
    records = learner.learn(digits_tasks[0])
    next(records)
    after = [weight.detach().clone() for weight in learner.network.classifier.weights]
    fresh = learner_of(method)
    before = fresh_weights(fresh, digits_tasks[0])
    moved = (after[0] - before * (1 - 0.01 * 0.1)).abs()
    assert moved[:, -1].tolist() == pytest.approx([0.01, 0.01], abs=2e-4)  # the biases
    assert ((moved < 1e-6) | ((moved - 0.01).abs() < 2e-4)).all(), "features that are 0 have no gradient"


def fresh_weights(learner, task):
    learner._begin(task, distils=False)
    return learner.network.classifier.weights[0].detach().clone()


def test_a_warm_up_rises_to_the_schedule():
    rates = [warmed_up(constant(0.3), 2)(epoch) for epoch in range(4)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.3])
    assert all(earlier <= later for earlier, later in pairwise(rates))


def test_an_optimiser_that_does_not_exist():
    with pytest.raises(ConfigError, match="the optimizer of phase train is 'adam'; it must be one of adamw, sgd"):
        Phase("train", lambda *_: {}, 1, constant(0.1), optimizer="adam")


def test_a_phase_that_trains_nothing(digits_tasks):
    @dataclass(frozen=True, kw_only=True)
    class Idle(Method):
        name = "idle"

        def phases(self, old, new, state):
            def loss(student, teacher, targets):
                return {"ce": F.cross_entropy(student.logits, targets)}

            return [Phase("train", loss, 1, constant(0.1), parameters=lambda network: [])]

    with pytest.raises(ConfigError, match="phase train of idle trains no parameter"):
        list(learner_of(Idle()).learn(digits_tasks[0]))
