"""A method from the user's own file: the examples run, show up in a report, and mistakes get a sentence."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from sklearn.linear_model import Ridge

from podnet.cli import main
from podnet.data import load
from podnet.engine.learner import Learner
from podnet.memory.exemplars import ExemplarMemory
from podnet.methods import configured, load_method
from podnet.runs.config import resolve
from podnet.runs.folder import Run
from podnet.runs.loop import TaskDone, run
from podnet.scenario.tasks import class_incremental

EXAMPLES = Path(__file__).parent.parent / "examples"
QUICK = ["--classes", "4", "--base", "3", "--images-per-class", "40", "--epochs", "1", "--threads", "1"]
OWN = {
    "MyMethod": f"{EXAMPLES}/my_method.py:MyMethod",
    "AttentionPODNet": f"{EXAMPLES}/my_distillation.py:AttentionPODNet",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for name, method in OWN.items():
        few = ["--finetune-epochs", "1"] if name == "AttentionPODNet" else []
        assert main(["run", "--method", method, "--output", str(folder / name), *QUICK, *few]) == 0
    return folder


def test_two_methods_of_ones_own_stand_on_one_curve(runs, tmp_path, capsys):
    assert main(["report", str(runs), "--output", str(tmp_path)]) == 0
    rows = {line["row"] for line in csv.DictReader((tmp_path / "averages.csv").read_text().splitlines())}
    assert rows == {"MyMethod (CNN)", "MyMethod (NME)", "AttentionPODNet (CNN)", "AttentionPODNet (NME)"}
    assert (tmp_path / "accuracy-on-all-classes-seen.pdf").read_bytes().startswith(b"%PDF")


def test_a_summary_with_brackets_is_shown_as_it_is(tmp_path, capsys):
    text = (EXAMPLES / "my_method.py").read_text()
    (tmp_path / "mine.py").write_text(
        text.replace('summary = "Cross-entropy', 'summary = "[bold] Cross-entropy [/red]')
    )
    assert main(["methods", f"{tmp_path}/mine.py:MyMethod"]) == 0
    assert "[bold] Cross-entropy [/red]" in " ".join(capsys.readouterr().out.split())


def test_runs_stand_side_by_side_in_the_terminal(runs, capsys):
    assert main(["compare", *(str(runs / name) for name in OWN)]) == 0
    printed = capsys.readouterr().out
    assert "MyMethod" in printed
    assert "temperature" not in printed  # only one of the methods has it
    assert "Averages" in printed
    assert "object at 0x" not in printed


def test_a_field_of_the_method_is_an_option_and_is_recorded(capsys):
    assert main(["run", "--method", OWN["MyMethod"], "--weight", "2.5", "--print-config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert (config["weight"], config["epochs"], config["method"]) == (2.5, 20, OWN["MyMethod"])


def test_a_run_with_ones_own_method_resumes(runs, capsys):
    assert main(["run", "--resume", str(runs / "MyMethod")]) == 0
    assert "average incremental accuracy" in capsys.readouterr().out


def test_a_method_that_changes_while_its_run_is_stopped_is_refused_unless_allowed(tmp_path, capsys):
    file, folder = tmp_path / "lwf.py", tmp_path / "run"
    before = (EXAMPLES / "my_method.py").read_text()
    file.write_text(before)
    records = run(resolve({"method": f"{file}:MyMethod", "classes": 4, "base": 3, "epochs": 1}), Run(folder))
    for record in records:
        if isinstance(record, TaskDone):
            break
    records.close()
    file.write_text(before + "\n# another thought\n")
    assert main(["run", "--resume", str(folder)]) == 2
    told = capsys.readouterr().err
    assert f"{file} was changed after the run in {folder} started" in told
    assert "--allow-changed-method" in told
    assert len(Run(folder).results()) == 1
    assert Run(folder).failure() is None
    assert main(["run", "--resume", str(folder), "--allow-changed-method"]) == 0
    assert f"{file} was changed after" in " ".join(capsys.readouterr().out.split())
    assert (folder / "method.py").read_text() == before
    assert main(["run", "--resume", str(folder)]) == 0, "a finished run has nothing left to learn with it"


def test_a_base_task_of_another_code_is_refused(tmp_path, capsys):
    file, folder = tmp_path / "lwf.py", tmp_path / "run"
    file.write_text((EXAMPLES / "my_method.py").read_text())
    command = ["run", "--method", f"{file}:MyMethod", "--classes", "4", "--base", "3", "--epochs", "1", "--output"]
    assert main([*command, str(folder)]) == 0
    file.write_text(file.read_text() + "\n# another thought\n")
    assert main([*command, str(tmp_path / "new"), "--from-base", str(folder)]) == 2
    assert f"{file} was changed after {folder} began" in capsys.readouterr().err


GOOD = """
from dataclasses import dataclass
from podnet.methods import Method, Phase
from podnet.methods.phases import constant
@dataclass(frozen=True, kw_only=True)
class Mine(Method):
    name = "mine"
    summary = "nothing"
    presets = {"digits": {"epochs": 1}}
    def phases(self, old, new, state):
        return [Phase("train", lambda student, teacher, targets: {"ce": student.logits.mean()}, 1, constant(0.1))]
"""
END = "constant(0.1))]"
AFTER_TASK = "\n    def after_task(self, network, batches, state): "


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (None, "Mine", "there is no file"),
        ("import nothing_of_that_name", "Mine", "nothing_of_that_name"),
        ("def broken(:", "Mine", "SyntaxError"),
        (GOOD, "Mind", "Did you mean 'Mine'"),
        ("Mine = 3", "Mine", "no subclass of podnet.methods.Method"),
        (GOOD.replace("@dataclass(frozen=True, kw_only=True)\n", ""), "Mine", "is not a dataclass"),
        (GOOD.replace('    summary = "nothing"', ""), "Mine", "lacks summary"),
        (GOOD.replace("phases(", "stages("), "Mine", "has no phases(self, old, new, state)"),
        (GOOD.replace(", new, state)", ", new)"), "Mine", "takes self, old, new; it must take self, old, new, state"),
        (f"{GOOD}\n    def class_means(self): ...\n", "Mine", "class_means of Mine"),
        (GOOD.replace('summary = "nothing"', "summary = 3"), "Mine", "lacks summary, a text"),
        (f"{GOOD}\n    inferences = ('knn',)\n", "Mine", "are ('knn',); give a tuple of 'cnn' and 'nme'"),
        (f"{GOOD}\n    inferences = 'cnn'\n", "Mine", "are 'cnn'; give a tuple"),
        (f"{GOOD}\n    exemplars = 'some'\n", "Mine", "is 'some'; it must be one of none, optional, needed"),
        (f"{GOOD}\n    later = frozenset({{'epoch'}})\n", "Mine", "not one of its fields. Did you mean 'epochs'"),
        (f"{GOOD}\n    weight: float = 'a'\n", "Mine", "has weight = 'a', which is not float"),
        (GOOD.replace('"epochs": 1', '"epochs": "a"'), "Mine", "sets epochs to 'a', which is not int"),
        (f"{GOOD}\n    seed: int = 3\n", "Mine", "has a field seed, which is an option of every run; rename it"),
        (GOOD.replace('"epochs"', '"epoch"'), "Mine", "'epoch', which is not one of its fields. Did you mean 'epochs'"),
    ],
)
def test_a_mistake_gets_one_sentence(text, name, words, tmp_path, capsys):
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    assert main(["run", "--method", f"{tmp_path}/mine.py:{name}", "--output", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ('{"ce": student.logits.mean()}', "student.logits.mean()", "returned Tensor, not named terms"),
        ("student.logits.mean()", "student.logits.mean(1)", "the term ce of phase train is a tensor of shape (120,)"),
        ("student.logits.mean()", "1.5", "the term ce of phase train is 1.5; it must be a scalar tensor"),
        ("constant(0.1)", "0.1", "the lr of phase train is 0.1; give a function"),
        ("constant(0.1)", "constant(-0.1)", "the lr of phase train is -0.1 in epoch 1; it must be 0 or more"),
        (", 1, constant", ", 1.5, constant", "the epochs of phase train are 1.5; give a whole number"),
        (", 1, constant", ", -1, constant", "the epochs of phase train are -1; give a whole number"),
        ("constant(0.1))", "constant(0.1), clip=-1.0)", "the clip of phase train is -1.0; it must be above 0"),
        ("student, teacher, targets:", "student, targets:", "the loss of phase train must take three arguments: loss("),
        ("student.logits.mean()", "student.logits.mean().detach()", "loss of phase train does not depend on the"),
        ("]", ", Phase('train', print, 1, constant(0.1))]", "two phases of mine are called train"),
        (
            "0.1))",
            "0.1), images=lambda pool: pool.targets + 9999)",
            "phase train chooses images 9999 to 10001; the task has 0 to",
        ),
        ("0.1))", "0.1), parameters=lambda network: [FOREIGN])", "trains a parameter that the network does not have"),
        ("0.1))", "0.1), penalty=lambda *given: {})", "the penalty of phase train returned no term, not named terms"),
        (
            END,
            f"{END}{AFTER_TASK}return {{'a': torch.ones(3).to_sparse()}}",
            "a in the state of mine is a sparse tensor",
        ),
        (
            END,
            f"{END}{AFTER_TASK}network.more = FOREIGN; return {{}}",
            "has changed in more, which rebuild does not make",
        ),
        (
            END,
            f"{END}{AFTER_TASK}return {{'a': FOREIGN}}\n    def class_means(self, state): return torch.ones(2, 3)",
            "class_means of mine returned the shape (2, 3); it must be (3, 64)",
        ),
        (
            END,
            f"{END}\n    def classifier(self, dim): return torch.nn.Linear(dim, 2)",
            "the classifier of mine is a Linear",
        ),
        (
            END,
            f"{END}\n    def grow(self, network, new, features, seed): pass",
            "after grow of mine the classifier has 0 classes instead of 3",
        ),
        ("return [Phase", "return Phase", "return a list of Phase"),
        ("return [Phase", "state['importance']; return [Phase", "mine.py, line 11, in phases: KeyError: 'importance'."),
        (
            "student.logits.mean()",
            "(student.logits @ student.logits).mean()",
            "mine.py, line 11, in <lambda>: RuntimeError: mat1",
        ),
    ],
)
def test_what_a_method_gives_is_looked_at(good, bad, words, tmp_path, capsys):
    """What only shows in the run: a sentence instead of torch's complaint about something further on."""
    text = f"{GOOD}\nimport torch\nFOREIGN = torch.nn.Parameter(torch.ones(2))\n".replace(good, bad)
    (tmp_path / "mine.py").write_text(text.replace("]\n", "\n") if bad == "return Phase" else text)
    assert main(["run", "--method", f"{tmp_path}/mine.py:Mine", "--output", str(tmp_path / "run"), *QUICK]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert words in error
    assert "Traceback" not in error


def test_the_example_in_closed_form_is_ridge_regression_on_all_images_ever_seen():
    """scikit-learn gets the features of all images at once; the method saw two classes, then one, then one."""
    digits = load("digits", None)
    tasks = class_incremental(digits, range(4), 2, 1, images_per_class=20)
    method = configured(load_method(f"{EXAMPLES}/my_ridge.py:RidgeHead"), "digits", {"epochs": 2, "strength": 0.3})
    learner = Learner(method, 1, digits.transform, ExemplarMemory(0))
    for task in tasks:
        for _ in learner.learn(task):
            pass
    features = torch.nn.functional.normalize(torch.cat([learner.features(task.train_images) for task in tasks]))
    labels = torch.nn.functional.one_hot(torch.cat([task.train_targets for task in tasks]))
    solved = Ridge(alpha=0.3, fit_intercept=False, solver="svd").fit(features.double().numpy(), labels.numpy())
    found = torch.cat(list(learner.network.classifier.weights)).detach()
    np.testing.assert_allclose(found[:, :-1].numpy(), solved.coef_, atol=1e-3)
    assert not found[:, -1].any()
