"""The command line as a person uses it: what it prints, how it ends, and that mistakes cost nothing."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml

from podnet.cli import main
from podnet.data import load
from podnet.errors import ConfigError
from podnet.runs.config import as_it_ran, resolve
from podnet.runs.folder import Run

QUICK = ["--classes", "4", "--base", "3", "--epochs", "1", "--finetune-epochs", "1", "--threads", "1"]


def podnet(capsys, *arguments):
    """Exit code, standard output and standard error of one call."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, *arguments):
    """The sentence of a call that must fail."""
    code, out, err = podnet(capsys, *arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert "Traceback" not in out + err
    assert err.count("\n") == 1
    assert "method:" not in out
    return err


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(["run", "--output", str(folder), *QUICK]) == 0
    return folder


def test_a_run_leaves_what_the_readme_promises(finished):
    record = Run(finished)
    results = record.results()
    assert [line["task"] for line in results] == [0, 1]
    assert [line["seen"] for line in results] == [3, 4]
    assert [line["memory"] for line in results] == [60, 80]
    for line in results:
        for measure in ("accuracy", "average_incremental_accuracy"):
            assert set(line[measure]) == {"cnn", "nme"}
            assert all(0 <= value <= 100 for value in line[measure].values())
        assert {"grow", "train", "herd", "means", "evaluate"} <= set(line["seconds"])
    for inference in ("cnn", "nme"):
        accuracies = [line["accuracy"][inference] for line in results]
        assert results[1]["average_incremental_accuracy"][inference] == pytest.approx(sum(accuracies) / 2)
    environment = json.loads((finished / "environment.json").read_text())
    assert environment[0]["packages"]["torch"]
    for name, start in {"curve.png": b"\x89PNG", "curve.svg": b"<?xml", "confusion.png": b"\x89PNG"}.items():
        assert (finished / name).read_bytes().startswith(start)
    page = (finished / "report.html").read_text()
    assert f"{results[-1]['accuracy']['nme']:.2f}" in page
    assert "http" not in page.replace("http-equiv", ""), "the page must open without a network"
    assert {line["phase"] for line in record.epochs()} == {"train", "finetune"}


def test_the_final_table_and_summary_are_printed(finished, capsys):
    code, out, _ = podnet(capsys, "run", "--resume", finished)
    assert code == 0
    assert "average incremental accuracy: CNN" in out
    assert f"{Run(finished).results()[-1]['accuracy']['nme']:.2f}" in out


def test_the_same_command_gives_the_same_results(finished, tmp_path, capsys):
    assert podnet(capsys, "run", "--output", tmp_path / "again", *QUICK)[0] == 0
    again, first = ([line["accuracy"] for line in Run(f).results()] for f in (tmp_path / "again", finished))
    assert again == first


def test_an_existing_run_is_not_touched_unless_told(finished, capsys):
    before = (finished / "results.jsonl").read_bytes()
    assert "--overwrite" in refused(capsys, "run", "--output", finished, *QUICK)
    assert (finished / "results.jsonl").read_bytes() == before


def test_files_that_are_no_run_of_ours_are_not_cleared(capsys, tmp_path):
    (tmp_path / "results.jsonl").write_text("mine\n")
    assert "--overwrite" in refused(capsys, "run", "--output", tmp_path, *QUICK)
    assert (tmp_path / "results.jsonl").read_text() == "mine\n"


def test_an_output_that_cannot_be_a_folder_gets_one_sentence(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "file" in refused(capsys, "run", "--output", tmp_path / "file" / "run", *QUICK)


def test_a_damaged_record_gets_one_sentence(finished, capsys, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "results.jsonl").unlink()
    assert "results.jsonl lacks" in refused(capsys, "run", "--resume", copy)
    (copy / "config.yaml").write_text("{[")
    assert "damaged" in refused(capsys, "run", "--resume", copy)


def test_results_without_any_checkpoint_are_not_overwritten(finished, capsys, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    shutil.rmtree(copy / "checkpoints")
    assert "missing; the results so far are unchanged" in refused(capsys, "run", "--resume", copy)
    assert (copy / "results.jsonl").read_bytes() == (finished / "results.jsonl").read_bytes()


def test_an_order_file_is_recorded_as_its_list(capsys, tmp_path):
    (tmp_path / "order.txt").write_text("3\n1\n2\n")
    (tmp_path / "config.yaml").write_text("order: [3, 1, 2]\n")
    for arguments in (["--order", tmp_path / "order.txt"], ["--config", tmp_path / "config.yaml"]):
        _, printed, _ = podnet(capsys, "run", *arguments, "--classes", "3", "--print-config")
        assert yaml.safe_load(printed)["order"] == "3,1,2"


def test_resume_refuses_another_configuration(finished, capsys):
    assert "epochs" in refused(capsys, "run", "--resume", finished, "--epochs", "7")
    assert "no run" in refused(capsys, "run", "--resume", finished / "nothing")


@pytest.mark.parametrize("where", [["--output", "queued"], []])
def test_a_command_with_resume_begins_the_run_and_given_again_goes_on(where, finished, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = podnet(capsys, "run", *where, *QUICK, "--resume")
    assert code == 0, err
    assert "nothing to resume in" in out
    (config,) = tmp_path.rglob("config.yaml")
    before = {path: path.read_bytes() for path in config.parent.glob("*.jsonl")}
    assert [line["accuracy"] for line in Run(config.parent).results()] == [
        line["accuracy"] for line in Run(finished).results()
    ]
    code, out, err = podnet(capsys, "run", *where, *QUICK, "--resume")
    assert code == 0, err
    assert "nothing to resume" not in out
    assert {path: path.read_bytes() for path in config.parent.glob("*.jsonl")} == before
    assert "was started with epochs 1" in refused(capsys, "run", "--output", config.parent, "--resume", "--epochs", "7")


def test_resume_without_a_folder_does_not_clear_files_that_are_no_run(capsys, tmp_path):
    (tmp_path / "results.jsonl").write_text("mine\n")
    assert "no config.yaml" in refused(capsys, "run", "--output", tmp_path, *QUICK, "--resume")
    assert "give only one" in refused(capsys, "run", "--output", tmp_path, "--resume", tmp_path / "other")
    assert (tmp_path / "results.jsonl").read_text() == "mine\n"


def test_print_config_can_be_given_back_as_config(tmp_path, capsys):
    arguments = [
        "run",
        "--method",
        "ucir",
        "--epochs",
        "3",
        "--lambda-base",
        "4.5",
        "--order",
        "3,1,2,0",
        "--classes",
        "4",
        "--base",
        "2",
    ]
    _, printed, _ = podnet(capsys, *arguments, "--print-config")
    (tmp_path / "config.yaml").write_text(printed)
    _, again, _ = podnet(capsys, "run", "--config", tmp_path / "config.yaml", "--print-config")
    assert printed == again
    config = yaml.safe_load(printed)
    assert (config["method"], config["epochs"], config["lambda_base"], config["base"]) == ("ucir", 3, 4.5, 2)


def test_the_command_line_wins_over_the_file(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("epochs: 3\nlambda-c: 7\n")
    _, printed, _ = podnet(capsys, "run", "--config", tmp_path / "config.yaml", "--epochs", "5", "--print-config")
    config = yaml.safe_load(printed)
    assert (config["epochs"], config["lambda_c"]) == (5, 7.0)


def test_the_form_is_the_released_one_unless_asked_for_the_papers(capsys):
    printed = [podnet(capsys, "run", *given, "--print-config")[1] for given in ([], ["--fidelity", "paper"])]
    options = [yaml.safe_load(text) for text in printed]
    wanted = [("released", "scale", "moving"), ("paper", "shift", "fixed")]  # on the digits
    assert [(o["fidelity"], o["intensity"], o["finetune_batchnorm"]) for o in options] == wanted


def test_a_run_of_an_older_version_goes_on_without_the_options_that_are_newer(tmp_path, capsys):
    run = ["--output", tmp_path / "run", "--epochs", "1", "--finetune-epochs", "1", "--classes", "3", "--base", "2"]
    assert podnet(capsys, "run", *run)[0] == 0
    config = tmp_path / "run" / "config.yaml"
    config.write_text(re.sub(r"adaptive_c: .*\n", "", config.read_text()))
    assert podnet(capsys, "run", "--resume", tmp_path / "run")[0] == 0
    assert "adaptive_c" in refused(capsys, "run", "--resume", tmp_path / "run", "--adaptive-c", "false")


@pytest.mark.parametrize(
    ("method", "option", "then"), [("podnet", "finetune_batchnorm", "moving"), ("bic", "bias_penalty", 0.0)]
)
def test_a_run_of_an_older_version_goes_on_as_it_did(method, option, then):
    """These options came later, and their defaults are not what earlier versions did."""
    recorded = resolve({"method": method, "dataset": "cifar100"}).options()
    assert recorded.pop(option) != then
    assert resolve(as_it_ran(recorded)).options()[option] == then


def test_a_run_of_an_older_version_with_a_short_order_goes_on(tmp_path, capsys):
    """Such a run learned the classes listed, and wrote no number of them down."""
    folder = tmp_path / "run"
    short = ["--order", "3,1,2", "--base", "2", "--epochs", "1", "--finetune-epochs", "1", "--threads", "1"]
    assert podnet(capsys, "run", "--output", folder, *short, "--classes", "3")[0] == 0
    whole = [line["accuracy"] for line in Run(folder).results()]
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("classes: 3\n", "classes: null\n", 1))
    for path in Run(folder).checkpoint_files():
        if not path.name.startswith("0000"):
            path.unlink()
    assert podnet(capsys, "run", "--resume", folder, *short)[0] == 0
    assert [line["accuracy"] for line in Run(folder).results()] == whole
    assert "classes 3, not 2" in refused(capsys, "run", "--resume", folder, "--classes", "2")


@pytest.mark.parametrize(
    ("arguments", "total"),
    [([], 10), (["--classes", "6"], 6), (["--order", "3,1,2,0", "--classes", "4"], 4), (["--total-classes", "7"], 7)],
)
def test_icarl_averages_its_loss_over_all_classes_of_the_run(arguments, total, capsys):
    _, printed, _ = podnet(capsys, "run", "--method", "icarl", *arguments, "--print-config")
    assert yaml.safe_load(printed)["total_classes"] == total


def test_icarl_counts_the_classes_of_data_of_ones_own(tmp_path):
    images = np.zeros((6, 8, 8), np.uint8), np.arange(6) % 3
    np.savez(tmp_path / "mine.npz", x_train=images[0], y_train=images[1], x_test=images[0], y_test=images[1])
    experiment = resolve({"method": "icarl", "dataset": "npz", "data_path": str(tmp_path / "mine.npz")})
    assert experiment.learner(experiment.load_dataset()).method.total_classes == 3
    first = resolve({"method": "icarl", "dataset": "npz", "classes": 3, "base": 2}).first_task()
    assert (first.classes, first.method.total_classes) == (2, 3)


@pytest.mark.parametrize("print_config", [False, True])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epohcs", "3"], "Did you mean 'epochs'"),
        (["--overwrit"], "Did you mean '--overwrite'"),
        (["--method", "podnot"], "Did you mean 'podnet'"),
        (["--dataset", "cifar1000"], "Did you mean 'cifar100'"),
        (["--epochs", "many"], "whole number"),
        (["--epochs", "0"], "above 0"),
        (["--lr=-1"], "above 0"),
        (["--threads", "-1"], "0 or more"),
        (["--exemplar-megabytes", "inf"], "0 or more"),
        (["--overwrite", "--resume", "x"], "give only one of them"),
        (["--data-path", "~nobody-has-this-name/x", "--dataset", "cifar100"], "~nobody-has-this-name"),
        (["--ouput", "x"], "Did you mean '--output'"),
        (["--learn-eta", "perhaps"], "true or false"),
        (["--distillation", "depth"], "spatial"),
        (["--fidelity", "text"], "paper or released|released or paper"),
        (["--lambda-c=-1"], "0 or more"),
        (["--step-epochs", "0"], "above 0"),
        (["--finetune-batchnorm", "frozen"], "fixed or moving"),
        (["--method", "icarl", "--variant", "mine"], "icarl or podnet"),
        (["--image-size", "16"], "does not use --image-size"),
        (["--increment", "3"], "does not divide the 5 classes left"),
        (["--base", "11"], "from 1 to 10"),
        (["--sizes", "3,0,2"], "sizes are 3,0,2; each task needs at least 1 class"),
        (["--sizes", "3,two"], "whole numbers separated by commas"),
        (["--sizes", "6,5"], "sizes 6,5 are 11 classes, but digits has 10"),
        (["--sizes", "3,2", "--base", "3"], "sizes and base are given"),
        (["--sizes", "3,2", "--increment", "2"], "sizes and increment are given"),
        (["--sizes", "3,2", "--classes", "6"], "but classes is 6"),
        (["--increment", "none"], "increment is none"),
        (["--visits", "0"], "1 or more"),
        (["--visits", "200"], "training images; lower it"),
        (["--visits", "10"], "has only 14 training images at its first visit"),
        (["--seeds", "1,x"], "whole numbers separated by commas"),
        (["--seeds", "1,1"], "each once"),
        (["--seeds", "1,01"], "each once"),
        (["--seeds", ","], "name at least one"),
        (["--seeds", "1,2", "--seed", "3"], "one of the two"),
        (["--orders", "natural,random", "--order", "natural"], "one of the two"),
        (["--orders", "natural,cat"], "'cat', which is not a class"),
        (["--orders", "natural,paper:0"], "no class order for digits"),
        (["--seeds", "1,2", "--num-nodes", "2"], "for one machine"),
        (["--seeds", "1,2", "--from-base", "x"], "--from-base is for one run"),
        (["--memory-per-class", "500"], "has only"),
        (["--memory-per-class", "0"], "podnet needs exemplars"),
        (["--memory-total", "3"], "one image per class"),
        (["--memory-per-class", "5", "--memory-total", "50"], "either memory_per_class or memory_total"),
        (["--order", "1,2,cat"], "'cat', which is not a class"),
        (["--order", "1,2,1"], "twice"),
        (["--order", "1,2,3"], "use --classes 3"),
        (["--order", "paper:0"], "no class order for digits"),
        (["--classes", "11"], "from 1 to 10"),
        (["--validation", "0.001"], "none for validation"),
        (["--device", "gpu"], "not available"),
        (["--device", "cuda:77"], "not available"),
        (["--backbone", "resnet3"], "resnet32"),
        (["--method", "icarl", "--fidelity", "released"], "icarl has no option 'fidelity'"),
        (["--method", "bic", "--held-out", "1"], "below 1"),
        (["--method", "bic", "--memory-per-class", "1"], "at least 2 per class"),
        (["--method", "bic", "--memory-total", "12"], "at least 2 per class"),
        (["--dataset", "cifar100"], "needs --data-path"),
        (["--dataset", "cifar100", "--data-path", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--data-path", "x"], "embedded"),
        (["--config", "/nowhere.yaml"], "cannot read"),
        (["--num-nodes", "2"], "needs --address"),
        (["digits"], "unrecognized|does not take 'digits'"),
    ],
)
def test_a_mistake_gets_one_sentence_and_leaves_nothing(arguments, words, print_config, capsys, tmp_path):
    sentence = refused(capsys, "run", "--output", tmp_path / "run", *arguments, *["--print-config"] * print_config)
    assert any(word in sentence for word in words.split("|")), sentence
    assert not (tmp_path / "run").exists()


def write_npz(path, **changes):
    generator = np.random.default_rng(0)
    arrays = {
        "x_train": generator.integers(0, 256, (60, 8, 8, 3), dtype=np.uint8),
        "y_train": np.arange(60) % 3,
        "x_test": generator.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8),
        "y_test": np.arange(9) % 3,
    }
    np.savez(path, **arrays | changes)
    return path


def nan_pixels():
    pixels = np.zeros((60, 8, 8, 3))
    pixels[3, 2, 2, 0] = np.nan
    return pixels


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_train": np.r_[np.zeros(59, int), 1], "y_test": np.arange(9) % 2}, "has only 1 training images"),
        ({"y_train": np.arange(60) % 2 * 2}, "no training images of 1"),
        ({"x_train": nan_pixels()}, "NaN"),
        ({"x_train": np.full((60, 8, 8, 3), 0.5)}, "multiply images"),
        ({"y_train": np.arange(61) % 3}, "60 training images but 61 labels"),
        ({"y_train": np.arange(60) / 7}, "whole numbers"),
        ({"x_train": np.array([object()] * 60)}, "plain arrays"),
        ({"class_names": np.array(["a", "b"])}, "2 classes"),
    ],
)
def test_bad_arrays_get_one_sentence(changes, words, tmp_path, capsys):
    path = write_npz(tmp_path / "mine.npz", **changes)
    options = ["--dataset", "npz", "--data-path", path, "--classes", "2", "--base", "1", "--memory-per-class", "5"]
    assert words in refused(capsys, "run", "--output", tmp_path / "run", *options)
    assert not (tmp_path / "run").exists()


def test_a_truncated_npz_gets_one_sentence(tmp_path, capsys):
    path = write_npz(tmp_path / "mine.npz")
    path.write_bytes(path.read_bytes()[:1000])
    assert "or is damaged" in refused(capsys, "run", "--dataset", "npz", "--data-path", path)


def test_own_arrays_run_with_every_option_of_the_protocol(tmp_path, capsys):
    path = write_npz(tmp_path / "mine.npz", class_names=np.array(["ant", "bee", "cow"]))
    options = ["--dataset", "npz", "--data-path", path, "--order", "cow,ant,bee", "--base", "1", "--increment", "2"]
    quick = [
        "--epochs",
        "1",
        "--finetune-epochs",
        "1",
        "--memory-total",
        "12",
        "--validation",
        "0.25",
        "--threads",
        "1",
    ]
    code, out, _ = podnet(capsys, "run", "--output", tmp_path / "run", *options, *quick)
    assert code == 0, out
    assert [line["memory"] for line in Run(tmp_path / "run").results()] == [12, 12]
    assert Run(tmp_path / "run").results()[0]["new_classes"] == ["cow"]


@pytest.mark.parametrize("method", ["joint", "bic"])
def test_a_method_without_nme_says_so(method, tmp_path, capsys):
    quick = ["--classes", "4", "--base", "2", "--increment", "2", "--epochs", "1", "--threads", "1"]
    code, out, _ = podnet(capsys, "run", "--method", method, "--output", tmp_path / "run", *quick)
    assert code == 0
    assert "no NME:" in out
    assert all(line["accuracy"]["nme"] is None for line in Run(tmp_path / "run").results())


def test_methods_and_datasets_are_listed(capsys):
    _, methods, _ = podnet(capsys, "methods")
    assert all(name in methods for name in ("podnet", "ucir", "icarl", "bic", "replay", "joint"))
    _, own, _ = podnet(capsys, "methods", "ucir")
    assert "--lambda-base" in own
    assert "Did you mean 'podnet'" in refused(capsys, "methods", "podet")
    _, datasets, _ = podnet(capsys, "datasets")
    assert all(name in datasets for name in ("digits", "cifar100", "npz"))


def test_help_is_printed_without_a_command(capsys):
    code, out, _ = podnet(capsys)
    assert code == 0
    assert "run" in out


def test_a_misspelt_command_gets_a_suggestion(capsys):
    assert refused(capsys, "lern") == (
        "error: podnet has no command 'lern'. Did you mean 'learn'? See 'podnet --help'.\n"
    )
    assert refused(capsys, "xyz", "--help") == "error: podnet has no command 'xyz'. See 'podnet --help'.\n"


def test_compiling_without_a_compiler_is_refused_before_any_training(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["run", "--compile", "--output", str(tmp_path / "run")]) == 2
    assert "compile needs a C++ compiler" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_reader_that_has_enough_is_no_error():
    command = f"{sys.executable} -m podnet methods podnet | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "1", "141")  # everything was written; rich noticed; we did


def test_a_dataset_of_ones_own_classes_has_half_of_them_first(tmp_path):
    (tmp_path / "mine").write_text("n01\nn02\n")
    assert resolve({"dataset": "imagenet100", "data_path": "x", "subset": str(tmp_path / "mine")}).base is None
    assert resolve({"dataset": "imagenet100", "data_path": "x"}).base == 50
    with pytest.raises(ConfigError, match="Did you mean 'cifar100'"):
        load("cifar1000", None)
