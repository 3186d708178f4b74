"""What follows the training of a task, and a whole step, against the released code's order of doing it."""

from __future__ import annotations

from podnet.methods import PODNet
from podnet.network import Network
from podnet.speed import plain
from podnet.speed.alone import alone
from podnet.speed.measure import Figure, figure, ratio, seconds
from podnet.speed.scene import IMAGES, TRANSFORM, Untrained, before_a_step, noise, stages
from podnet.speed.training import BATCH, Epochs

KEPT = 20  # exemplars a class
TESTED = 100  # test images a class
PASSES = 4  # of the released code over all training images of all classes seen, after each task
EPOCHS, FINETUNE_EPOCHS = 160, 20  # the paper's, on CIFAR-100
SAMPLE = 256  # images of a pass that is measured, to be scaled up


def after_task(quick: bool) -> dict[str, Figure]:
    """Herding and class means with 10, 50 and 100 classes seen."""
    counts = (10, 50, 100)
    stages(*before_a_step(9, Untrained()))  # warms up
    rounds = [_after_tasks(counts) for _ in range(2 if quick else 5)]
    touched = {seen: IMAGES + 2 * KEPT * seen for seen in counts}  # new images; exemplars and their mirror images
    spent = {seen: [taken[seen]["herd"] + taken[seen]["means"] for taken, _ in rounds] for seen in counts}
    each = {seen: [took / touched[seen] for took in spent[seen]] for seen in counts}
    released = [PASSES * 100 * IMAGES * took for _, took in rounds]
    figures = {
        f"after_task_per_image_{seen}_vs_10_classes": ratio(
            each[seen], each[10], f"herding and class means of {seen} classes, for each image they touch"
        )
        for seen in (50, 100)
    }
    what = "herding and class means of 100 classes; theirs is scaled up from a sample"
    figures["after_task_vs_released_order"] = ratio(released, spent[100], what)
    for stage, words in {"grow": "imprinting", "herd": "herding", "means": "class means"}.items():
        shares = [taken[100][stage] / sum(taken[100].values()) for taken, _ in rounds]
        figures[f"share_of_{stage}"] = figure(shares, "share", f"{words}, of all three at 100 classes")
    return figures


def _after_tasks(counts: tuple[int, ...]) -> tuple[dict[int, dict[str, float]], float]:
    """One round: the stages for each number of classes, and the seconds an image of a plain pass."""
    taken = {seen: stages(*before_a_step(seen - 1, Untrained())) for seen in counts}
    return taken, _plain_pass(before_a_step(1, Untrained())[0].network)


def step(quick: bool) -> dict[str, Figure]:
    """A whole step of one class: imprint, train, fine-tune, herd, evaluate. The paper's epochs, scaled up from one."""
    figures = {}
    for name, seen in {"step_50_classes_vs_released_order": 50, "step_vs_released_order": 100}.items():
        rounds = [(alone(_our_step, seen, keeps=True)[0], _released_step(seen)) for _ in range(1 if quick else 3)]
        ours, theirs = ([pair[side] for pair in rounds] for side in (0, 1))
        figures[name] = ratio(theirs, ours, f"a whole step that brings the classes seen to {seen}")
    return figures


def _our_step(seen: int) -> float:
    learner, task = before_a_step(seen - 1, PODNet(epochs=1, finetune_epochs=1), tested=SAMPLE // seen)
    taken = stages(learner, task)
    taken["train"] *= EPOCHS
    taken["finetune"] *= FINETUNE_EPOCHS
    evaluated = seconds(lambda: learner.predict(task.test_images)) / len(task.test_images)
    return sum(taken.values()) + TESTED * seen * evaluated


def _released_step(seen: int) -> float:
    epochs = Epochs(seen - 1)
    trained, finetuned = epochs.plain(), epochs.plain(distils=False)  # its fine-tuning runs the whole network backward
    trained()
    count = len(epochs.images)
    each = seconds(trained) / count, seconds(finetuned) / count, _plain_pass(epochs.teacher)
    training = EPOCHS * (IMAGES + KEPT * (seen - 1))
    reading = IMAGES + PASSES * seen * IMAGES + seen * TESTED  # to imprint, after training, to evaluate
    return training * each[0] + FINETUNE_EPOCHS * KEPT * seen * each[1] + reading * each[2]


def _plain_pass(network: Network) -> float:
    """Seconds an image to extract features plainly."""
    copied, images = plain.plain_copy(network), TRANSFORM.normalise(noise(SAMPLE))
    return seconds(lambda: plain.features(copied, images.split(BATCH))) / SAMPLE
