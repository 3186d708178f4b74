"""The options of the commands for your own model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from podnet.cli.commands import add_command
from podnet.errors import PodnetError, printable
from podnet.io.files import expanded
from podnet.metrics import INFERENCES, REJECT
from podnet.processes import FEW_PHOTOS, MOST_WORKERS, decoding_workers

PHOTOS = "a folder with one subfolder per class, or a CSV table path,label"
LEARN_EXAMPLES = """\
examples:
  podnet learn shop.podnet photos/          photos/CLASS/*.jpg: the first call creates the model
  podnet learn shop.podnet more-photos/     next month: the new classes it finds there are added
  podnet learn shop.podnet photos.csv       a table: path,label"""

PREDICT_EXAMPLES = """\
examples:
  podnet predict shop.podnet photo.jpg folder/ 'album/*.png'
  find . -name '*.jpg' | podnet predict shop.podnet - --format csv
  podnet predict shop.podnet - < photo.jpg"""


def add_model_commands(commands: Any) -> None:
    _add_learn(commands)
    _add_predict(commands)
    evaluate = _command(commands, "evaluate", "measure a model on photos whose classes are known")
    add = evaluate.add_argument
    add("photos", metavar="PHOTOS", help=PHOTOS)
    add("--confusion", metavar="FILE", help="draw the confusion matrix into this file, for example confusion.png")
    _add_reject(evaluate)
    _add_machine(evaluate)
    _command(commands, "info", "show what a model knows")
    _add_export(commands)
    forget = _command(commands, "forget", "remove classes from a model for good")
    forget.add_argument("classes", metavar="CLASS", nargs="+", help="names of classes")
    _command(commands, "undo", "go back to the model before its last lesson")
    card = _command(commands, "card", "describe a model in Markdown, as a model card")
    card.add_argument("--output", metavar="FILE", help="output file (default: MODEL with the suffix .md)")


def _command(commands: Any, name: str, words: str, file: str = "a model file", **more: Any) -> argparse.ArgumentParser:
    """The parser of a command whose first argument is a model."""
    parser = add_command(commands, name, words, **more)
    parser.add_argument("model", metavar="MODEL", help=file)
    return parser


def _add_learn(commands: Any) -> None:
    learn = _command(
        commands,
        "learn",
        "teach a model of your own the classes of a folder of photos",
        file="the model file; created if it does not exist",
        description="Teach a model the classes of a folder of photos. The first call creates it, later ones add to it.",
        epilog=LEARN_EXAMPLES,
    )
    add = learn.add_argument
    add("photos", metavar="PHOTOS", help=PHOTOS)
    add("--include-known", action="store_true", help="also learn the photos of classes that the model knows")
    add("--dry-run", action="store_true", help="show what would be learned and stop")
    add("--no-exemplars", action="store_true", help="save a smaller file that can predict but not learn more")
    add(
        "--train",
        choices=("auto", "never", "always"),
        help="train the network on the photos: if that is better in a trial (auto, default), never, or always",
    )
    add("--minutes", metavar="N", type=float, help="how long --train auto may take (default: 1)")
    add(
        "--keep",
        choices=("features", "photos", "sums"),
        help="what to keep from the photos: their features (default), some photos too, or only sums of features",
    )
    add("--image-size", metavar="PIXELS", type=int, help="side of the network's input (default: by the network)")
    add("--backbone", metavar="NAME", help="lite0 (default), lite1, lite2, resnet18, resnet32 or timm:NAME")
    add(
        "--weights",
        metavar="FILE",
        help="initial weights: a .safetensors or .pth file, 'package' (lite), 'hub' (timm), or 'none' for random ones",
    )
    _add_training(learn)
    _add_machine(learn)


def _add_training(learn: argparse.ArgumentParser) -> None:
    add = learn.add_argument_group("options for training the network").add_argument
    add("--mirror", action=argparse.BooleanOptionalAction, help="a mirror image shows the same class (default: yes)")
    add("--exemplars", metavar="N", type=int, help="photos kept of each class, if photos are kept (default: 20)")
    add("--seed", metavar="N", type=int, help="random seed (default: 1)")
    add("--epochs", metavar="N", type=int, help="epochs of training (default: by the number of photos)")
    add("--finetune-epochs", metavar="N", type=int, help="epochs of balanced fine-tuning (default: 20)")
    add("--batch-size", metavar="N", type=int, help="photos per update (default: by the number of photos)")
    add("--lr", metavar="RATE", type=float, help="learning rate (default: 0.0005; from random weights 0.05)")
    add("--held-out", metavar="SHARE", type=float, help="share of the photos held out from training (default: 0.15)")


def _add_predict(commands: Any) -> None:
    predict = _command(commands, "predict", "predict the classes of photos", epilog=PREDICT_EXAMPLES)
    add = predict.add_argument
    words = "files, folders or patterns; - reads an image, or file names, one per line, from standard input"
    add("images", metavar="IMAGE", nargs="+", help=words)
    add("--top", metavar="K", type=int, default=3, help="classes per photo (default: 3)")
    add("--format", choices=("table", "jsonl", "csv"), default="table", help="output format (default: table)")
    add("--inference", choices=INFERENCES, help="cnn or nme (default: the one that measured better)")
    _add_reject(predict)
    _add_machine(predict)


def _add_export(commands: Any) -> None:
    export = _command(commands, "export", "write a model for other programs")
    add = export.add_argument
    add(
        "--format",
        choices=("onnx", "torch", "podnet"),
        default="onnx",
        help="onnx (default), torch (a .pt2 program) or podnet: a model file without photos, which only predicts",
    )
    add(
        "--input",
        choices=("photo", "square"),
        help="photo: upright photos of any size (default for onnx); square: of the network's size (always for torch)",
    )
    _add_reject(export)
    add(
        "--output",
        metavar="FILE",
        help="output file (default: MODEL with another suffix, or with -small before it)",
    )


def _add_reject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reject",
        metavar="RATE",
        type=float,
        default=REJECT,
        help=f"share of photos of known classes that may be called unknown (default: {REJECT}; 0: never say unknown)",
    )


def reject_rate(known: argparse.Namespace) -> float:
    """The share of photos of known classes that may be called unknown."""
    rate: float = known.reject
    if not 0 <= rate < 1:
        raise PodnetError(f"--reject is {rate}; give a share from 0 (never unknown) to below 1.")
    return rate


def output_of(known: argparse.Namespace, default: Path) -> Path:
    """Where to write what is made of a model; never over the model."""
    output = Path(known.output or default)
    if output.exists() and output.samefile(expanded(known.model)):
        raise PodnetError(f"{printable(output)} is the model itself; choose another --output.")
    return output


def _add_machine(parser: argparse.ArgumentParser) -> None:
    default = f"one per core, at most {MOST_WORKERS}; none up to {FEW_PHOTOS} photos"
    parser.add_argument("--workers", metavar="N", type=int, help=f"decoding processes (default: {default})")
    parser.add_argument("--threads", metavar="N", type=int, help="CPU threads (default: one per core)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 ... (default: a GPU if there is one)")


def workers(known: argparse.Namespace, photos: int) -> int:
    given: int | None = known.workers
    return decoding_workers(photos=photos) if given is None else given
