"""The command line. Nothing heavy is imported before it is needed: `podnet --help` answers at once."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from podnet import __version__
from podnet.errors import ConfigError, PodnetError, nearest
from podnet.runs import Run

if TYPE_CHECKING:
    from podnet.experiment import Experiment

RUN_HELP = """\
Every hyper-parameter of the method is an option too, for instance --lambda-c 5 or --finetune-epochs 0:
'podnet methods NAME' lists them. All of these can stand in a YAML file (--config); the command line wins."""

EXAMPLES = """\
examples:
  podnet run                                        PODNet on the embedded digits
  podnet run --method icarl --output runs/icarl     a rival on the same classes
  podnet run --dataset cifar100 --data-path cifar-100-binary.tar.gz --increment 1
  podnet run --resume runs/icarl                    go on with a run that was stopped"""

# Options that are about this call and not about the experiment; all others make up the configuration.
CALL_OPTIONS = ("command", "output", "overwrite", "resume", "config", "print_config")
CHANGEABLE = ("data_path", "device", "threads", "checkpoint_seconds")  # by --resume


class Parser(argparse.ArgumentParser):
    """Mistakes end in one sentence and exit code 2, like all our errors."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}. See '{self.prog} --help'.")


def build_parser() -> tuple[Parser, Parser]:
    """The parser, and that of `podnet run`, whose options a typo is compared with."""
    parser = Parser(prog="podnet", description=sys.modules["podnet"].__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"podnet {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    run = commands.add_parser(
        "run",
        help="learn the classes of a dataset in tasks",
        description="Learn the classes of a dataset in tasks, testing on all classes seen after each.\n" + RUN_HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = run.add_argument
    add("--method", help="podnet, ucir, icarl, bic, replay or joint (default: podnet)")
    add("--dataset", help="digits, cifar100 or npz (default: digits, which are embedded)")
    add("--data-path", metavar="PATH", help="where the dataset is")
    add("--classes", metavar="N", help="only the first N classes of the order")
    add("--base", metavar="N", help="classes of the first task (default: half of them)")
    add("--increment", metavar="N", help="new classes of each later task (default: 1)")
    add("--order", help="natural, random (by the seed), paper:0, a list such as 3,1,2 or a file (default: the paper's)")
    add("--memory-per-class", metavar="N", help="exemplars kept of each class (default: 20)")
    add("--memory-total", metavar="N", help="exemplars kept of all classes together, instead")
    add("--validation", metavar="SHARE", help="hold out this share of the training images and test on it")
    add("--epochs", metavar="N", help="epochs of the main phase of each task (default: the method's)")
    add("--batch-size", metavar="N", help="images of one update (default: the method's)")
    add("--fidelity", help="paper (default) or released: the paper's text or the authors' code, for podnet")
    add("--mirror", metavar="BOOL", help="whether a mirror image shows the same class (default: not for digits)")
    add("--seed", metavar="N", help="of all randomness (default: 1)")
    add("--device", help="cpu, cuda, cuda:1 ... (default: auto, a GPU where there is one)")
    add("--threads", metavar="N", help="CPU threads (default: all)")
    add("--checkpoint-seconds", metavar="S", help="time between two checkpoints within a task (default: 30)")
    add("--config", metavar="FILE", help="a YAML file with any options of the experiment")
    add("--output", metavar="FOLDER", help="the run's folder (default: runs/METHOD-DATASET-...)")
    add("--overwrite", action="store_true", help="replace the run in that folder")
    add("--resume", metavar="RUN", nargs="?", const="", help="go on with the run in that folder (or in --output)")
    add("--print-config", action="store_true", help="print the resolved configuration as YAML and stop")
    methods = commands.add_parser("methods", help="list the methods, or the options of one", allow_abbrev=False)
    methods.add_argument("name", nargs="?", help="a method")
    commands.add_parser("datasets", help="list the datasets", allow_abbrev=False)
    return parser, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `podnet` command; returns the exit code."""
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except PodnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename or 'a file'}: {error.strerror or error}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; 'podnet run --resume FOLDER' goes on from the last checkpoint.", file=sys.stderr)
        return 130


def _dispatch(arguments: list[str]) -> int:
    parser, run_parser = build_parser()
    known, unknown = parser.parse_known_args(arguments)
    if known.command is None:
        parser.print_help()
        return 0
    if known.command == "run":
        return run_command(known, _hyper_parameters(unknown, run_parser))
    if unknown:
        raise ConfigError(f"'podnet {known.command}' does not take {unknown[0]}.")
    return methods_command(known.name) if known.command == "methods" else datasets_command()


def _hyper_parameters(words: list[str], run_parser: Parser) -> dict[str, str]:
    """`--lambda-c 5` or `--lambda-c=5` -> {"lambda_c": "5"}; whether the method has such an option is seen later."""
    given = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            raise ConfigError(f"'podnet run' does not know what to do with {word!r}; options start with --.")
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            value = next(rest, "")
            if not value or value.startswith("--"):
                _unknown_option(word, run_parser)
        if difflib.get_close_matches(name, [option.replace("_", "-") for option in CALL_OPTIONS], cutoff=0.75):
            _unknown_option(f"--{name}", run_parser)
        given[name.replace("-", "_")] = value
    return given


def _unknown_option(word: str, run_parser: Parser) -> NoReturn:
    known = [option for action in run_parser._actions for option in action.option_strings]
    raise ConfigError(f"{word} needs a value, or is no option of 'podnet run'.{nearest(word, known)}")


def run_command(known: argparse.Namespace, hyper_parameters: dict[str, str]) -> int:
    from rich.console import Console

    from podnet.config import resolve
    from podnet.display import show
    from podnet.experiment import run
    from podnet.report.tables import results_table, summary

    given = {key: value for key, value in vars(known).items() if key not in CALL_OPTIONS and value is not None}
    given |= hyper_parameters
    resume = known.resume is not None
    if resume:
        record, experiment = _run_to_resume(known, given)
    else:
        experiment = resolve(_read_yaml(known.config) | given)
        record = Run(known.output or _default_folder(experiment.options()))
    if known.print_config:
        import yaml

        print(yaml.safe_dump(experiment.options(), sort_keys=False), end="")
        return 0
    console = Console()
    title = f"{experiment.method.name} on {experiment.dataset}"
    console.print(f"{title}, into {record.folder}", markup=False, highlight=False, soft_wrap=True)
    show(run(experiment, record, resume, known.overwrite), console)
    results = record.results()
    console.print(results_table(results, title))
    for text in filter(None, (experiment.method.no_inference, summary(results), _draw(record, title))):
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


def _draw(record: Run, title: str) -> str:
    from podnet.report.page import write_page
    from podnet.report.plots import draw_run

    draw_run(record, title)
    return f"report: {write_page(record, title)} (curve: {record.folder / 'curve.png'}, .svg)"


def _run_to_resume(known: argparse.Namespace, given: dict[str, Any]) -> tuple[Run, Experiment]:
    """The run to go on with and its experiment; options that would change its numbers are refused."""
    from podnet.config import resolve

    folder = known.resume or known.output
    if not folder or (known.resume and known.output and known.resume != known.output):
        raise ConfigError("--resume needs the folder of the run: 'podnet run --resume FOLDER'.")
    record = Run(folder)
    recorded = record.config()
    experiment = resolve(recorded | _read_yaml(known.config) | given)
    config = experiment.options()
    changed = [key for key in config if key not in CHANGEABLE and config[key] != recorded.get(key)]
    if changed:
        raise ConfigError(
            f"{folder} was started with {changed[0]} {recorded.get(changed[0])!r}, not {config[changed[0]]!r}; "
            "resume it without that option, or start another run."
        )
    return record, experiment


def _read_yaml(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml

    try:
        loaded = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"--config {path} should hold options, one 'name: value' a line.")
    return {str(key).replace("-", "_"): value for key, value in loaded.items()}


def _default_folder(config: dict[str, Any]) -> Path:
    order = Path(config["order"]).stem.replace(":", "").replace(",", "_")[:40]
    protocol = f"{config['base'] or 'half'}+{config['increment']}-{order}-seed{config['seed']}"
    return Path("runs") / f"{config['method']}-{config['dataset']}-{protocol}"


def methods_command(name: str | None) -> int:
    from rich.console import Console
    from rich.table import Table

    from podnet.config import describe, resolve
    from podnet.methods import METHODS

    console = Console()
    if name is None:
        table = Table("method", "what it is", "inference", box=None)
        for method in METHODS.values():
            table.add_row(method.name, method.summary, " and ".join(method.inferences).upper())
        console.print(table)
        console.print("'podnet methods NAME' lists the hyper-parameters of one.", highlight=False)
        return 0
    method_class = type(resolve({"method": name}).method)
    table = Table("option", "is", "CIFAR-100", "other data", title=method_class.summary, title_justify="left", box=None)
    for option, (kind, default) in describe(method_class).items():
        others = [f"{data}: {values[option]}" for data, values in method_class.presets.items() if option in values]
        table.add_row(f"--{option.replace('_', '-')}", kind, str(default), ", ".join(others))
    console.print(table)
    return 0


def datasets_command() -> int:
    from rich.console import Console
    from rich.table import Table

    from podnet.data import SOURCES

    table = Table("dataset", "what it is", "classes", "--data-path", box=None)
    for name, source in SOURCES.items():
        table.add_row(name, source.summary, str(source.classes or "any"), "needed" if source.needs_path else "no")
    Console().print(table)
    return 0
