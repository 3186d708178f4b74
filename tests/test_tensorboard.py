"""Event files, read back by TensorBoard's own reader and compared with the run's lines."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from podnet.cli import main
from podnet.runs.folder import Run

OPTIONS = ["--classes", "4", "--images-per-class", "40", "--epochs", "2", "--finetune-epochs", "1"]
OPTIONS += ["--checkpoint-seconds", "0", "--threads", "1"]


def scalars(run):
    """Tag -> (step, value) of each event."""
    read = EventAccumulator(str(run.events))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def check(run):
    found, results, epochs = scalars(run), run.results(), run.epochs()
    for measure in ("accuracy", "average_incremental_accuracy", "forgetting"):
        for inference in ("cnn", "nme"):
            expected = [(line["seen"], pytest.approx(line[measure][inference], rel=1e-6)) for line in results]
            assert found[f"{measure}/{inference}"] == expected
    for phase in ("train", "finetune"):
        own = [line for line in epochs if line["phase"] == phase]
        assert own
        values = [(i, pytest.approx(line["losses"]["nca"], rel=1e-6)) for i, line in enumerate(own)]
        assert found[f"loss {phase}/nca"] == values
    assert [step for step, _ in found["old_accuracy/cnn"]] == [line["seen"] for line in results[1:]]


def test_a_run_and_one_that_goes_on(tmp_path, capsys):
    run = Run(tmp_path / "run")
    assert main(["run", *OPTIONS, "--tensorboard", "--output", str(run.folder)]) == 0
    check(run)
    for checkpoint in run.checkpoint_files()[:1]:  # as if it had been stopped within the last task
        checkpoint.unlink()
    assert main(["run", "--resume", str(run.folder), "--tensorboard"]) == 0
    check(run)
    assert len(list(run.events.iterdir())) == 1
    assert main(["run", *OPTIONS, "--overwrite", "--output", str(run.folder)]) == 0
    assert not run.events.exists()  # those of the run that was replaced
