"""What a user waits for: the start of the command line, and predictions."""

import resource
import subprocess
import sys

from podnet.bench.measure import Figure, Work, figure, in_turns, ratio
from podnet.bench.scene import before_a_step, noise
from podnet.methods import PODNet

FIRST_PREDICTION = """
from podnet.methods import PODNet
from podnet.bench.scene import before_a_step, noise
learner, _ = before_a_step(10, PODNet())
learner.predict(noise(1))
"""


def prediction(quick: bool) -> dict[str, Figure]:
    """Both inferences of a learner with 100 classes: a single image, and batches."""
    learner, _ = before_a_step(100, PODNet())
    learner.means = learner.network.classifier.weights[0][:, 0].detach()
    one, many = noise(1), noise(512)
    works: dict[str, Work] = {
        "one": lambda: [learner.predict(one) for _ in range(16)],
        "many": lambda: learner.predict(many),
    }
    taken = in_turns(works, 2 if quick else 9)
    alone = [16 / took for took in taken["one"]]
    together = [len(many) / took for took in taken["many"]]
    return {
        "prediction_single_images_per_second": figure(alone, "images/s", "one image at a time, 32 x 32"),
        "prediction_batched_images_per_second": figure(together, "images/s", "in batches, 32 x 32"),
        "prediction_batched_vs_single": ratio(together, alone, "batches compared with one image at a time"),
    }


def start(quick: bool) -> dict[str, Figure]:
    """CPU seconds of a new process: to import podnet, to print the help, to make its first prediction."""
    commands = {
        "import_podnet": (["-c", "import podnet"], "import podnet"),
        "help": (["-m", "podnet", "--help"], "podnet --help"),
        "first_prediction": (["-c", FIRST_PREDICTION], "start a process and predict one image"),
    }
    rounds = 1 if quick else 9
    return {
        f"start_{name}_seconds": figure([_cpu_seconds(arguments) for _ in range(rounds + 1)][1:], "s of CPU", what)
        for name, (arguments, what) in commands.items()
    }


def _cpu_seconds(arguments: list[str]) -> float:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return used() - before
