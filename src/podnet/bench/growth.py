"""How time and memory change when one thing is doubled and the rest stays the same."""

from __future__ import annotations

from dataclasses import replace

from podnet.bench.measure import Figure, alone, ratio, seconds
from podnet.bench.scene import before_a_step
from podnet.methods import PODNet

USUAL = {"images": 250, "classes": 20, "image_side": 32, "memory_per_class": 20, "tasks": 2}


def growth(quick: bool) -> dict[str, Figure]:
    """Some tasks of one class each, as usual and with one setting doubled, each in a separate process."""
    rounds = 1 if quick else 3
    usual: list[tuple[float, float]] = []
    doubled: dict[str, list[tuple[float, float]]] = {name: [] for name in USUAL}
    for _ in range(rounds):
        usual.append(alone(_learn, USUAL, keeps=True))
        for name in USUAL:
            doubled[name].append(alone(_learn, USUAL | {name: 2 * USUAL[name]}, keeps=True))
    figures = {}
    for name, measured in doubled.items():
        words = name.replace("_", " ")
        for side, what in enumerate(("time", "memory")):
            values = ([pair[side] for pair in measured], [pair[side] for pair in usual])
            figures[f"growth_of_{what}_with_{name}"] = ratio(*values, f"{what} with twice the {words}")
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
