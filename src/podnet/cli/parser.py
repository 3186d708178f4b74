"""The options of every command. Nothing heavy is imported here, so `podnet --help` answers at once."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from podnet import __version__
from podnet.cli.engine_options import add_engine_options
from podnet.cli.model_options import add_model_commands
from podnet.errors import ConfigError

RUN_HELP = """\
Every hyper-parameter of the method is an option too, for instance --lambda-c 5 or --finetune-epochs 0:
'podnet methods NAME' lists them. All of these can stand in a YAML file (--config); the command line wins."""

EXAMPLES = """\
examples:
  podnet run                                        PODNet on the embedded digits
  podnet run --method icarl --output runs/icarl     a rival on the same classes
  podnet run --dataset cifar100 --data-path cifar-100-binary.tar.gz --increment 1
  podnet run --resume runs/icarl                    go on with a run that was stopped"""

REPRODUCE_EXAMPLES = """\
examples:
  podnet reproduce --list
  podnet reproduce cifar100 --data-path cifar-100-python.tar.gz            table 1 as in the paper
  podnet reproduce cifar100 --scale small --data-path cifar-100-python.tar.gz --jobs 2
  podnet reproduce memory --scale small --data-path ... --only PODNet,UCIR --columns 5,20,50
  podnet reproduce all --scale smoke                                       everything, tiny, on embedded data
  podnet reproduce cifar100 --data-path ... --engine ray --gpus-per-run 0.5
  podnet reproduce cifar100 --data-path ... --engine slurm --gpus-per-run 1 --slurm partition=gpu,time=24:00:00"""

# Options about this call, not about the experiment; all others form the configuration.
CALL_OPTIONS = (
    "command",
    "address",
    "output",
    "overwrite",
    "resume",
    "config",
    "logger",
    "print_config",
    "allow_changed_method",
)


class Parser(argparse.ArgumentParser):
    """Mistakes end in one sentence and exit code 2, like all our errors."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}. See '{self.prog} --help'.")


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and that of each command, used to suggest options for typos."""
    parser = Parser(prog="podnet", description=sys.modules["podnet"].__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"podnet {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    add_model_commands(commands)
    demo = commands.add_parser(
        "demo", help="see forgetting, and what helps, on the embedded digits", allow_abbrev=False
    )
    demo.add_argument("--output", metavar="FOLDER", default="runs/demo", help="where to write (default: runs/demo)")
    demo.add_argument("--seed", metavar="N", type=int, default=1, help="random seed (default: 1)")
    _add_run(commands)
    _add_reproduce(commands)
    report = commands.add_parser("report", help="write tables, figures and a page about runs", allow_abbrev=False)
    report.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that contain some")
    report.add_argument("--output", metavar="FOLDER", default="report", help="where to write (default: report)")
    compare = commands.add_parser("compare", help="print runs side by side", allow_abbrev=False)
    compare.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that contain some")
    _add_studio(commands)
    methods = commands.add_parser("methods", help="list the methods, or the options of one", allow_abbrev=False)
    methods.add_argument("name", nargs="?", help="a method")
    bench = commands.add_parser("bench", help="measure the speed on this machine", allow_abbrev=False)
    bench.add_argument("groups", nargs="*", metavar="GROUP", help="only these measurements, such as iteration or step")
    bench.add_argument("--quick", action="store_true", help="fewer rounds, without compiling and growth")
    bench.add_argument("--output", metavar="FILE", default="bench.json", help="where to write (default: bench.json)")
    bench.add_argument("--threads", metavar="N", type=int, default=1, help="CPU threads (default: 1, as in reproduce)")
    commands.add_parser("datasets", help="list the datasets", allow_abbrev=False)
    return parser, dict(commands.choices)


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="learn the classes of a dataset in tasks",
        description="Learn the classes of a dataset in tasks, testing on all classes seen after each.\n" + RUN_HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = run.add_argument
    add("--method", help="podnet (default), ucir, icarl, bic, replay, finetuning, joint, or your own: FILE.py:CLASS")
    add("--dataset", help="digits (default, embedded), cifar100, imagenet100 ...: 'podnet datasets' lists them")
    add("--data-path", metavar="PATH", help="where the dataset is")
    add("--classes", metavar="N", help="only the first N classes of the order")
    add("--base", metavar="N", help="classes of the first task (default: half of them)")
    add("--increment", metavar="N", help="new classes of each later task (default: 1)")
    add("--order", help="natural, random (by the seed), paper:0, a list such as 3,1,2 or a file (default: the paper's)")
    add("--memory-per-class", metavar="N", help="exemplars kept of each class (default: 20)")
    add("--memory-total", metavar="N", help="exemplars kept of all classes together, instead")
    add("--images-per-class", metavar="N", help="only the first N training images of each class")
    add("--validation", metavar="SHARE", help="hold out this share of the training images and test on it")
    add("--epochs", metavar="N", help="epochs of the main phase of each task (default: the method's)")
    add("--step-epochs", metavar="N", help="epochs of the tasks after the first (default: the same)")
    add("--batch-size", metavar="N", help="images per update (default: the method's)")
    add("--fidelity", help="released (default) or paper: the authors' code or the paper's text, for podnet")
    add("--mirror", metavar="BOOL", help="whether a mirror image shows the same class (default: not for digits)")
    add("--subset", help="classes of imagenet100: released (default), ucir or a file with one synset per line")
    add("--image-size", metavar="N", help="side of photo crops (default: 224, tinyimagenet 64); for CIFAR 32, 16 or 8")
    add(
        "--unreadable", metavar="error|skip", help="for photos that cannot be read: stop the run (default) or skip them"
    )
    add("--workers", metavar="N", help="processes that decode photos (default: one per core, at most 8)")
    add("--seed", metavar="N", help="random seed (default: 1)")
    add("--device", help="cpu, cuda, cuda:1 ... (default: auto, a GPU if there is one)")
    add(
        "--devices", metavar="N", help="processes on this machine, each with a GPU or a share of the cores (default: 1)"
    )
    add(
        "--num-nodes",
        metavar="N",
        help="number of machines, each with --devices processes; all get the same command (default: 1)",
    )
    add("--address", metavar="HOST:PORT", help="where several machines meet: address of one of them")
    add(
        "--sync-batchnorm",
        metavar="BOOL",
        help="BatchNorm statistics over whole batches of all devices (default: true)",
    )
    add(
        "--exemplar-megabytes",
        metavar="N",
        help="megabytes of exemplar photos in memory; more stay on disk (default: 256)",
    )
    add("--precision", help="32 (default), or on GPUs that support them tf32, bf16-mixed or 16-mixed")
    add(
        "--compile",
        action="store_const",
        const="true",
        help="compile the network: takes minutes once, then updates are faster",
    )
    add("--threads", metavar="N", help="CPU threads (default: all)")
    add("--checkpoint-seconds", metavar="S", help="time between two checkpoints within a task (default: 30)")
    add("--config", metavar="FILE", help="a YAML file with any options of the experiment")
    add("--output", metavar="FOLDER", help="the run's folder (default: runs/METHOD-DATASET-...)")
    add("--overwrite", action="store_true", help="replace the run in that folder")
    add(
        "--resume",
        metavar="RUN",
        nargs="?",
        const="",
        help="continue a run; without RUN, the one in --output, or begin it there",
    )
    add("--allow-changed-method", action="store_true", help="resume even if the file of --method was edited")
    add(
        "--logger",
        metavar="NAME,...",
        action="append",
        default=[],
        help="also write the numbers for other programs: csv, tensorboard, wandb, mlflow",
    )
    add("--tensorboard", dest="logger", action="append_const", const="tensorboard", help="same as --logger tensorboard")
    add(
        "--print-config",
        action="store_true",
        help="check the options and the data, print the configuration as YAML, stop",
    )


def _add_studio(commands: Any) -> None:
    studio = commands.add_parser(
        "studio",
        help="a page to watch runs, compare them, and teach a model by hand",
        description="Serve a page to watch runs, compare them, look into a model and teach it by hand.",
        allow_abbrev=False,
    )
    add = studio.add_argument
    add("folder", nargs="?", default="runs", metavar="FOLDER", help="where the runs are (default: runs)")
    add("--model", metavar="MODEL", help="a model file to look at, try and teach; created if it does not exist")
    add("--host", default="127.0.0.1", help="address to listen on (default: only this machine); others need a token")
    add("--port", metavar="N", type=int, help="port (default: 8137, or the next free one)")
    add("--no-browser", action="store_true", help="only print the address")


def _add_reproduce(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="run a table or figure of the paper",
        description="Run a table or figure of the paper; finished runs are not repeated.",
        epilog=REPRODUCE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = reproduce.add_argument
    add("name", nargs="?", metavar="NAME", help="a table or figure, see --list; or all")
    add("--list", action="store_true", help="list the names")
    add(
        "--scale",
        choices=("full", "small", "smoke"),
        default="full",
        help="scale of the runs (default: full, the paper's)",
    )
    add("--data-path", metavar="PATH", help="where the dataset is (smoke uses the embedded digits)")
    add(
        "--output", metavar="FOLDER", default="reproduction", help="folder for runs and reports (default: reproduction)"
    )
    add("--only", metavar="ROW,...", help="only these rows of the table")
    add("--columns", metavar="COLUMN,...", help="only these columns of the table")
    add(
        "--orders",
        metavar="N or ORDER,...",
        help="class orders: number or list (default: the paper's at full scale)",
    )
    add("--fidelity", choices=("released", "paper"), default="released", help="fidelity of PODNet (default: released)")
    add(
        "--set",
        metavar="ROW:OPTION=VALUE,...",
        action="append",
        default=[],
        help="other hyper-parameters for a row, such as GradCam:lambda_c=0.03; may be given several times",
    )
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="runs at the same time (default: one a core, at most 8; with a GPU 1; on a cluster all it has room for)",
    )
    add("--imagenet-path", metavar="PATH", help="where ImageNet is, when --data-path is CIFAR-100 (for all)")
    add("--subset", help="classes of imagenet100: released (default), ucir or a file with one synset per line")
    add(
        "--unreadable", metavar="error|skip", help="for photos that cannot be read: stop the run (default) or skip them"
    )
    add("--workers", metavar="N", type=int, help="decoding processes per run (default: its share of the cores)")
    add("--threads", metavar="N", type=int, help="CPU threads per run (default: its share of the cores; cluster: 1)")
    add("--device", default="auto", help="cpu, cuda, cuda:1 ... (default: auto, a GPU if there is one)")
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="continue existing runs (default)")
    add("--dry-run", action="store_true", help="list the runs, their settings and estimated times")
    add_engine_options(reproduce)
