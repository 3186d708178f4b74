"""The steps after the training of a task, and a whole step, compared with the order of the released code."""

import numpy as np
from PIL import Image

from podnet.bench import plain
from podnet.bench.measure import Figure, alone, figure, in_turns, ratio, seconds
from podnet.bench.scene import IMAGES, TRANSFORM, Untrained, before_a_step, noise, stages
from podnet.bench.training import BATCH, BATCHES, Epochs, both_sides
from podnet.engine.timing import timed

KEPT = 20  # exemplars per class
TESTED, TIMED = 100, 4  # test images per class; only some are timed, and the time is scaled up
PASSES = 4  # of the released code over all training images of all classes seen, after each task
EPOCHS, FINETUNE_EPOCHS = 160, 20  # the paper's, for CIFAR-100
SAMPLE = 256  # images that Pillow augments; the time is scaled up


def after_task(quick: bool) -> dict[str, Figure]:
    """Herding, class means and evaluation with 10, 50 and 100 classes seen."""
    counts = (10, 50, 100)
    stages(*before_a_step(9, Untrained(), images=BATCH))  # warm-up
    rounds = [_after_tasks(counts) for _ in range(1 if quick else 5)]
    touched = {seen: IMAGES + 2 * KEPT * seen for seen in counts}  # new images; exemplars and their mirror images
    spent = {seen: [taken[seen]["herd"] + taken[seen]["means"] for taken, _ in rounds] for seen in counts}
    each = {seen: [took / touched[seen] for took in spent[seen]] for seen in counts}
    released = [PASSES * 100 * IMAGES * took for _, took in rounds]
    evaluated = {seen: [taken[seen]["evaluate"] for taken, _ in rounds] for seen in counts}
    figures = {}
    for seen in (50, 100):
        what = f"herding and class means with {seen} classes, per image read"
        figures[f"after_task_per_image_{seen}_vs_10_classes"] = ratio(each[seen], each[10], what)
        what = f"both inferences with {seen} classes, per test image"
        figures[f"evaluation_per_image_{seen}_vs_10_classes"] = ratio(evaluated[seen], evaluated[10], what)
    what = "herding and class means with 100 classes (released order: scaled up from a sample)"
    figures["after_task_vs_released_order"] = ratio(released, spent[100], what)
    words_of = {"grow": "imprinting", "herd": "herding", "means": "class means"}
    for stage, words in words_of.items():
        shares = [taken[100][stage] / sum(taken[100][each_stage] for each_stage in words_of) for taken, _ in rounds]
        figures[f"share_of_{stage}"] = figure(
            shares, "share", f"{words}: share of imprinting, herding and class means with 100 classes"
        )
    return figures


def _after_tasks(counts: tuple[int, ...]) -> tuple[dict[int, dict[str, float]], float]:
    """One round: the seconds of each stage for each number of classes, and of a plain pass per image."""
    taken = {}
    for seen in counts:
        learner, task = before_a_step(seen - 1, Untrained())
        taken[seen] = stages(learner, task)
        with timed(taken[seen], "evaluate"):
            learner.rank(noise(BATCH), 5)
    return taken, seconds(Epochs().plain_pass()) / (BATCHES * BATCH)


def step(quick: bool) -> dict[str, Figure]:
    """A whole step of one class (imprint, train, fine-tune, herd, evaluate) with the paper's epochs, from its parts.

    The training time per image does not depend on the number of classes, so it is measured once for both steps.
    """
    with both_sides() as sides:
        works = {part: sides(part, 99) for part in ("ours", "finetune", "plain", "plain pass")}
        taken = in_turns(works, 3 if quick else 12)
    image = {part: [took / (BATCHES * BATCH) for took in values] for part, values in taken.items()}
    augmentation = _pillow_augmentation()
    figures = {}
    for name, seen in {"step_50_classes_vs_released_order": 50, "step_vs_released_order": 100}.items():
        around = alone(_around_training, seen, keeps=True)[0]
        training, tuning = EPOCHS * (IMAGES + KEPT * (seen - 1)), FINETUNE_EPOCHS * KEPT * seen
        ours = [training * a + tuning * b + around for a, b in zip(image["ours"], image["finetune"], strict=True)]
        # The released fine-tuning also runs the teacher and the whole backward pass; Pillow augments for both.
        reading = IMAGES + PASSES * seen * IMAGES + TESTED * seen  # to imprint, after training, to evaluate
        pairs = zip(image["plain"], image["plain pass"], strict=True)
        theirs = [(training + tuning) * (a + augmentation) + reading * b for a, b in pairs]
        figures[name] = ratio(theirs, ours, f"a whole step, from {seen - 1} to {seen} classes")
    return figures


def _around_training(seen: int) -> float:
    """Our seconds to imprint, herd, compute class means and evaluate."""
    learner, task = before_a_step(seen - 1, Untrained(), tested=TIMED)
    learner.predict(noise(BATCH))  # warm-up
    taken = stages(learner, task)
    return sum(taken.values()) + seconds(lambda: learner.predict(task.test_images)) * TESTED / TIMED


def _pillow_augmentation() -> float:
    """Seconds per image."""
    picture, draws = Image.fromarray(noise(1)[0].permute(1, 2, 0).numpy()), np.random.default_rng(0)
    return seconds(lambda: [plain.augment(picture, TRANSFORM.pad, draws) for _ in range(SAMPLE)]) / SAMPLE
