"""The options of every command. Nothing heavy is imported here, so `podnet --help` answers at once."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from podnet import __version__
from podnet.cli.commands import SWITCH, Flags, Table, add_command, add_options
from podnet.cli.engine_options import add_engine_options
from podnet.cli.model_options import add_model_commands
from podnet.cli.run_options import add_run_commands
from podnet.errors import ConfigError

REPRODUCE_EXAMPLES = """\
examples:
  podnet reproduce --list
  podnet reproduce cifar100 --data-path cifar-100-python.tar.gz            table 1 as in the paper
  podnet reproduce cifar100 --scale small --data-path cifar-100-python.tar.gz --jobs 2
  podnet reproduce memory --scale small --data-path ... --only PODNet,UCIR --columns 5,20,50
  podnet reproduce cifar100 --data-path ... --add my_method.py:MyMethod --set MyMethod:lr=0.05
  podnet reproduce all --scale smoke                                       everything, tiny, on embedded data
  podnet reproduce cifar100 --data-path ... --engine ray --gpus-per-run 0.5
  podnet reproduce cifar100 --data-path ... --engine slurm --gpus-per-run 1 --slurm partition=gpu,time=24:00:00"""


REPRODUCE: Table = (
    ("--list", None, "list the names"),
    ("--scale", None, "scale of the runs (default: full, the paper's)"),
    ("--data-path", "PATH", "where the dataset is (smoke uses the embedded digits)"),
    ("--output", "FOLDER", "folder for runs and reports (default: reproduction)"),
    ("--only", "ROW,...", "only these rows of the table"),
    (
        "--add",
        "METHOD",
        "a further row: your own method, FILE.py:CLASS, or one of 'podnet methods'; may be given several times",
    ),
    ("--columns", "COLUMN,...", "only these columns of the table"),
    ("--orders", "N or ORDER,...", "class orders: number or list (default: the paper's at full scale)"),
    ("--fidelity", None, "form of PODNet, and of other methods that have two (default: released)"),
    ("--recipe", "NAME", "a named set of hyper-parameters: fast has fewer epochs in later tasks"),
    (
        "--set",
        "ROW:OPTION=VALUE,...",
        "other hyper-parameters for a row, such as GradCam:lambda_c=0.03; may be given several times",
    ),
    (
        "--jobs",
        "N",
        "runs at the same time (default: one per core, at most 8; with a GPU 1; on a cluster as many as fit)",
    ),
    ("--imagenet-path", "PATH", "where ImageNet is, when --data-path is CIFAR-100 (for all)"),
    ("--subset", None, "classes of imagenet100: released (default), ucir or a file with one synset per line"),
    ("--unreadable", "error|skip", "for photos that cannot be read: stop the run (default) or skip them"),
    ("--workers", "N", "decoding processes per run (default: its share of the cores)"),
    ("--threads", "N", "CPU threads per run (default: its share of the cores; cluster: 1)"),
    ("--device", None, "cpu, cuda, cuda:1 ... (default: auto, a GPU if there is one)"),
    ("--resume", None, "continue existing runs (default)"),
    ("--dry-run", None, "list the runs, their settings and estimated times"),
)
REPRODUCE_FLAGS: Flags = {
    "--list": SWITCH,
    "--scale": {"choices": ("full", "small", "smoke"), "default": "full"},
    "--output": {"default": "reproduction"},
    "--add": {"action": "append", "default": []},
    "--fidelity": {"choices": ("released", "paper"), "default": "released"},
    "--set": {"action": "append", "default": []},
    "--jobs": {"type": int},
    "--workers": {"type": int},
    "--threads": {"type": int},
    "--device": {"default": "auto"},
    "--resume": {"action": argparse.BooleanOptionalAction, "default": True},
    "--dry-run": SWITCH,
}


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
    demo = add_command(commands, "demo", "see forgetting, and what helps, on the embedded digits")
    demo.add_argument("--output", metavar="FOLDER", default="runs/demo", help="where to write (default: runs/demo)")
    demo.add_argument("--seed", metavar="N", type=int, default=1, help="random seed (default: 1)")
    add_run_commands(commands)
    _add_reproduce(commands)
    report = add_command(commands, "report", "write tables, figures and a page about runs")
    report.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that contain some")
    report.add_argument("--output", metavar="FOLDER", default="report", help="where to write (default: report)")
    compare = add_command(commands, "compare", "print runs side by side")
    compare.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that contain some")
    _add_studio(commands)
    methods = add_command(commands, "methods", "list the methods, or the options of one")
    methods.add_argument("name", metavar="NAME", nargs="?", help="a method, or your own: FILE.py:CLASS")
    bench = add_command(commands, "bench", "measure the speed on this machine")
    bench.add_argument("groups", nargs="*", metavar="GROUP", help="only these measurements, such as iteration or step")
    bench.add_argument("--quick", action="store_true", help="fewer rounds, and only the quick groups")
    bench.add_argument("--output", metavar="FILE", default="bench.json", help="where to write (default: bench.json)")
    bench.add_argument("--threads", metavar="N", type=int, default=1, help="CPU threads (default: 1, as in reproduce)")
    add_command(commands, "datasets", "list the datasets")
    _add_checks(commands)
    return parser, dict(commands.choices)


def _add_checks(commands: Any) -> None:
    check = add_command(
        commands,
        "check",
        "look for damage in a model file or a run folder",
        description="Verify the checksums and the structure of a model file or a run folder, and say what can be "
        "recovered. Nothing is changed. Exit code 0: whole, 1: damaged.",
    )
    check.add_argument("path", metavar="FILE|RUN", help="a model file or a run folder")
    add_command(
        commands,
        "doctor",
        "show what this installation has, what is broken, and how to fix it",
        description="Show what this installation has, what is broken, and the command that fixes it. Nothing is "
        "downloaded. Exit code 0: nothing is broken, 1: something is.",
    )


def _add_studio(commands: Any) -> None:
    studio = add_command(
        commands,
        "studio",
        "open a page to watch runs, compare them, and teach a model",
        description="Serve a page to watch runs, compare them, inspect a model and teach it.",
    )
    add = studio.add_argument
    add("folder", nargs="?", default="runs", metavar="FOLDER", help="where the runs are (default: runs)")
    add("--model", metavar="MODEL", help="a model file to inspect, try and teach; created if it does not exist")
    add("--host", default="127.0.0.1", help="address to listen on (default: this machine only); others require a token")
    add("--port", metavar="N", type=int, help="port (default: 8137, or the next free one)")
    add("--no-browser", action="store_true", help="only print the address")
    add("--certificate", metavar="FILE", help="encrypt (TLS) with this certificate, a PEM file; needs --key")
    add("--key", metavar="FILE", help="the private key of the certificate, a PEM file without a password")


def _add_reproduce(commands: Any) -> None:
    reproduce = add_command(
        commands,
        "reproduce",
        "run a table or figure of the paper",
        description="Run a table or figure of the paper; finished runs are not repeated.",
        epilog=REPRODUCE_EXAMPLES,
    )
    reproduce.add_argument("name", nargs="?", metavar="NAME", help="a table or figure, see --list; or all")
    add_options(reproduce, REPRODUCE, REPRODUCE_FLAGS)
    add_engine_options(reproduce)
