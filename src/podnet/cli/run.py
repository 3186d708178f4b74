"""`podnet run`: one experiment, from options to its report."""

from __future__ import annotations

import argparse
import difflib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml
from rich.console import Console

from podnet.cli.display import show
from podnet.cli.parser import CALL_OPTIONS, Parser
from podnet.engine.device import choose_device
from podnet.engine.launch import launch
from podnet.engine.team import joined
from podnet.errors import ConfigError, nearest
from podnet.processes import is_member
from podnet.report.page import write_page
from podnet.report.plots import draw_run
from podnet.report.tables import results_table, summary
from podnet.runs.config import resolve
from podnet.runs.experiment import Existing, Experiment, Record, run
from podnet.runs.folder import CHANGEABLE, Run, folder_name
from podnet.runs.tensorboard import logged


def run_command(known: argparse.Namespace, words: list[str], parser: Parser, arguments: list[str]) -> int:
    """`words` are the arguments that the parser left over: hyper-parameters of the method."""
    given = {key: value for key, value in vars(known).items() if key not in CALL_OPTIONS and value is not None}
    given |= _hyper_parameters(words, parser)
    existing: Existing = "replace" if known.overwrite else "refuse"
    if known.resume is not None:
        record, experiment = _run_to_resume(known, given)
        existing = "resume"
    else:
        experiment = resolve(_read_yaml(known.config) | given)
        record = Run(known.output or Path("runs") / folder_name(experiment.options()))
    if known.print_config:
        print(yaml.safe_dump(experiment.options(), sort_keys=False), end="")
        return 0
    if experiment.devices * experiment.num_nodes > 1 and not is_member():
        if experiment.num_nodes > 1 and known.address is None:
            raise ConfigError("--num-nodes needs --address HOST:PORT, of one of the machines, where all of them meet.")
        launch(arguments, record.folder, experiment.devices, experiment.num_nodes, known.address)
        return 0
    with joined(choose_device(experiment.device)) as team:
        records = run(experiment, record, existing, team=team)
        if team.is_main:
            _show(records, record, experiment, known.tensorboard)
        else:
            deque(records, maxlen=0)
    return 0


def _show(records: Iterator[Record], record: Run, experiment: Experiment, tensorboard: bool) -> None:
    """Follow a run to its end; then the table and the page."""
    console = Console()
    title = f"{experiment.method.name} on {experiment.dataset}"
    console.print(f"{title}, into {record.folder}", markup=False, highlight=False, soft_wrap=True)
    show(logged(records, record) if tensorboard else records, console)
    results = record.results()
    console.print(results_table(results, title))
    for text in filter(None, (experiment.method.no_inference, summary(results), _draw(record, title))):
        console.print(text, markup=False, highlight=False, soft_wrap=True)


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


def _draw(record: Run, title: str) -> str:
    draw_run(record, title)
    return f"report: {write_page(record, title)} (curve: {record.folder / 'curve.png'}, .svg)"


def _run_to_resume(known: argparse.Namespace, given: dict[str, Any]) -> tuple[Run, Experiment]:
    """The run to go on with and its experiment; options that would change its numbers are refused."""
    folder = known.resume or known.output
    if not folder or (known.resume and known.output and known.resume != known.output):
        raise ConfigError("--resume needs the folder of the run: 'podnet run --resume FOLDER'.")
    record = Run(folder)
    recorded = record.config()
    wanted = _read_yaml(known.config) | given
    experiment = resolve(recorded | wanted)
    config = experiment.options()
    known_then = config | dict.fromkeys(wanted) | recorded  # an option that is newer than the run has its default
    changed = [key for key in config if key not in CHANGEABLE and config[key] != known_then[key]]
    if changed:
        raise ConfigError(
            f"{folder} was started with {changed[0]} {recorded.get(changed[0])!r}, not {config[changed[0]]!r}; "
            "resume it without that option, or start another run."
        )
    return record, experiment


def _read_yaml(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        loaded = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"--config {path} should hold options, one 'name: value' a line.")
    return {str(key).replace("-", "_"): value for key, value in loaded.items()}
