"""How time and memory change when one thing is doubled and the rest stays the same."""

from dataclasses import replace

from podnet.bench.measure import Figure, alone, ratio, seconds
from podnet.bench.scene import before_a_step
from podnet.methods import PODNet

USUAL = {"images": 250, "classes": 20, "image_side": 32, "memory_per_class": 20, "tasks": 2}


def growth(quick: bool) -> dict[str, Figure]:
    """Some tasks of one class each, as usual and with one setting doubled, each in a separate process."""
    settings = {"usual": USUAL} | {name: USUAL | {name: 2 * USUAL[name]} for name in USUAL}
    rounds = [
        {name: alone(_learn, own, keeps=True) for name, own in settings.items()} for _ in range(1 if quick else 3)
    ]
    figures = {}
    for name in USUAL:
        for side, what in enumerate(("time", "memory")):
            doubled, usual = ([taken[which][side] for taken in rounds] for which in (name, "usual"))
            words = f"{what} with twice the {name.replace('_', ' ')}"
            figures[f"growth_of_{what}_with_{name}"] = ratio(doubled, usual, words)
    return figures


def _learn(settings: dict[str, int]) -> float:
    """Seconds to learn tasks of one class each, and to predict after each."""
    learner, task = before_a_step(
        settings["classes"],
        PODNet(epochs=1, finetune_epochs=1),
        settings["images"],
        tested=10,
        side=settings["image_side"],
        per_class=settings["memory_per_class"],
    )

    def tasks() -> None:
        following = task
        for _ in range(settings["tasks"]):
            for _ in learner.learn(following):
                pass
            learner.predict(task.test_images)
            following = replace(
                following, index=following.index + 1, old=following.old + 1, train_targets=following.train_targets + 1
            )

    return seconds(tasks)
