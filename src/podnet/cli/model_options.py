"""The options of the commands for your own model."""

from __future__ import annotations

import argparse
from typing import Any

from podnet.metrics import INFERENCES
from podnet.processes import FEW_PHOTOS, MOST_WORKERS, decoding_workers

LEARN_EXAMPLES = """\
examples:
  podnet learn shop.podnet photos/          photos/CLASS/*.jpg: the first call makes the model
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
    evaluate = commands.add_parser(
        "evaluate", help="measure a model on photos whose classes are known", allow_abbrev=False
    )
    evaluate.add_argument("model", metavar="MODEL", help="a model file")
    evaluate.add_argument(
        "photos", metavar="PHOTOS", help="a folder with one subfolder per class, or a CSV table path,label"
    )
    evaluate.add_argument(
        "--output", metavar="FILE", help="file for the confusion matrix (default: MODEL-confusion.png)"
    )
    _add_machine(evaluate)
    info = commands.add_parser("info", help="show what a model knows", allow_abbrev=False)
    info.add_argument("model", metavar="MODEL", help="a model file")
    export = commands.add_parser("export", help="write a model for other programs", allow_abbrev=False)
    export.add_argument("model", metavar="MODEL", help="a model file")
    export.add_argument(
        "--format",
        choices=("onnx", "torch", "podnet"),
        default="onnx",
        help="onnx (default), torch (a .pt2 program) or podnet: a model file without photos, which only predicts",
    )
    export.add_argument("--output", metavar="FILE", help="output file (default: MODEL with another suffix)")
    forget = commands.add_parser("forget", help="remove classes from a model for good", allow_abbrev=False)
    forget.add_argument("model", metavar="MODEL", help="a model file")
    forget.add_argument("classes", metavar="CLASS", nargs="+", help="names of classes")


def _add_learn(commands: Any) -> None:
    learn = commands.add_parser(
        "learn",
        help="teach a model of your own the classes of a folder of photos",
        description="Teach a model the classes of a folder of photos. The first call makes it, later ones add to it.",
        epilog=LEARN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = learn.add_argument
    add("model", metavar="MODEL", help="the model file; created if it does not exist")
    add("photos", metavar="PHOTOS", help="a folder with one subfolder per class, or a CSV table path,label")
    add("--include-known", action="store_true", help="refresh known classes with their photos")
    add("--dry-run", action="store_true", help="show what would be learned and stop")
    add("--no-exemplars", action="store_true", help="save a smaller file that can predict but not learn more")
    add(
        "--image-size",
        metavar="PIXELS",
        type=int,
        help="side of the network's input in pixels (default: by the photos)",
    )
    add("--backbone", metavar="NAME", help="resnet18, resnet32 or timm:NAME (default: by the photos)")
    add(
        "--weights",
        metavar="FILE",
        help="initial weights of a timm backbone: a .safetensors file, 'none' or 'hub' (default: hub)",
    )
    add("--mirror", action=argparse.BooleanOptionalAction, help="a mirror image shows the same class (default: yes)")
    add("--exemplars", metavar="N", type=int, help="photos of each class to keep (default: 20)")
    add("--seed", metavar="N", type=int, help="random seed (default: 1)")
    add("--epochs", metavar="N", type=int, help="epochs of training (default: by the number of photos)")
    add("--finetune-epochs", metavar="N", type=int, help="epochs of balanced fine-tuning (default: 20)")
    add("--batch-size", metavar="N", type=int, help="photos per update (default: by the number of photos)")
    add("--lr", metavar="RATE", type=float, help="the learning rate (default: 0.05)")
    add("--held-out", metavar="SHARE", type=float, help="share of the photos held out to measure with (default: 0.15)")
    _add_machine(learn)


def _add_predict(commands: Any) -> None:
    predict = commands.add_parser(
        "predict",
        help="predict the classes of photos",
        epilog=PREDICT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = predict.add_argument
    add("model", metavar="MODEL", help="a model file")
    add("images", metavar="IMAGE", nargs="+", help="files, folders, patterns; - reads an image, or names, one per line")
    add("--top", metavar="K", type=int, default=3, help="classes per photo (default: 3)")
    add("--format", choices=("table", "jsonl", "csv"), default="table", help="output format (default: table)")
    add("--inference", choices=INFERENCES, help="cnn or nme (default: the better one on the held-out photos)")
    _add_machine(predict)


def _add_machine(parser: argparse.ArgumentParser) -> None:
    default = f"one a core, at most {MOST_WORKERS}; none up to {FEW_PHOTOS} photos"
    parser.add_argument("--workers", metavar="N", type=int, help=f"decoding processes (default: {default})")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 ... (default: a GPU if there is one)")


def workers(known: argparse.Namespace, photos: int) -> int:
    """The number of decoding processes."""
    given: int | None = known.workers
    return decoding_workers(photos=photos) if given is None else given
