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
from podnet.engine.team import Team, joined
from podnet.errors import ConfigError, nearest
from podnet.processes import is_member, keep_freed_memory
from podnet.report.page import write_page
from podnet.report.plots import draw_run
from podnet.report.tables import results_table, size_summary, summary
from podnet.runs.config import as_it_ran, resolve
from podnet.runs.experiment import Experiment
from podnet.runs.folder import CHANGEABLE, Run, folder_name
from podnet.runs.loggers import logged, logger_names, loggers
from podnet.runs.loop import Existing, Record, run


def run_command(known: argparse.Namespace, words: list[str], parser: Parser, arguments: list[str]) -> int:
    """`words` are the arguments that the parser did not recognise: hyper-parameters of the method."""
    given = {key: value for key, value in vars(known).items() if key not in CALL_OPTIONS and value is not None}
    given |= _hyper_parameters(words, parser)
    record, experiment, existing = _chosen_run(known, _read_yaml(known.config) | given)
    by = loggers(logger_names(known.logger), record)
    if experiment.num_nodes > 1 and known.address is None and not is_member():
        raise ConfigError("--num-nodes needs --address HOST:PORT, of one of the machines, where all of them meet.")
    if known.print_config:
        experiment.prepared(Team(size=experiment.devices * experiment.num_nodes, local_size=experiment.devices))
        print(yaml.safe_dump(experiment.options(), sort_keys=False), end="")
        return 0
    if experiment.devices * experiment.num_nodes > 1 and not is_member():
        launch(arguments, record.folder, experiment.devices, experiment.num_nodes, known.address)
        return 0
    keep_freed_memory()
    with joined(choose_device(experiment.device)) as team:
        records = run(experiment, record, existing, team=team, allow_changed_method=known.allow_changed_method)
        if team.is_main:
            if existing == "resume" and not record.exists():
                print(f"nothing to resume in {record.folder}: the run begins.")
            _show(logged(records, record, by), record, experiment)
        else:
            deque(records, maxlen=0)
    return 0


def _show(records: Iterator[Record], record: Run, experiment: Experiment) -> None:
    """Show a run to its end, then write its table and page."""
    console = Console()
    title = f"{experiment.method.name} on {experiment.dataset}"
    console.print(f"{title}, into {record.folder}", markup=False, highlight=False, soft_wrap=True)
    show(records, console)
    results = record.results()
    console.print(results_table(results, title))
    lines = (experiment.method.no_inference, summary(results), size_summary(results), _draw(record, title))
    for text in filter(None, lines):
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _hyper_parameters(words: list[str], run_parser: Parser) -> dict[str, str]:
    """`--lambda-c 5` or `--lambda-c=5` -> {"lambda_c": "5"}; whether the method has the option is checked later."""
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


def _chosen_run(known: argparse.Namespace, wanted: dict[str, Any]) -> tuple[Run, Experiment, Existing]:
    """The run folder, the experiment, and what to do with an existing run.

    `--resume FOLDER` needs a run there. `--resume` alone continues the run in --output, or begins it.
    """
    if known.resume and known.output and known.resume != known.output:
        raise ConfigError(f"--resume names {known.resume}, --output names {known.output}; give one of the two.")
    folder = known.resume or known.output or Path("runs") / folder_name(resolve(wanted).options())
    record = Run(folder)
    if known.resume or (known.resume is not None and record.exists()):
        return record, _resumed(record, wanted), "resume"
    return record, resolve(wanted), "resume" if known.resume is not None else "replace" if known.overwrite else "refuse"


def _resumed(record: Run, wanted: dict[str, Any]) -> Experiment:
    """The experiment of a run to continue; options that would change its results are refused."""
    recorded = as_it_ran(record.config())
    experiment = resolve(recorded | wanted)
    config = experiment.options()
    known_then = config | dict.fromkeys(wanted) | recorded  # options newer than the run have their defaults
    changed = [key for key in config if key not in CHANGEABLE and config[key] != known_then[key]]
    if changed:
        raise ConfigError(
            f"{record.folder} was started with {changed[0]} {recorded.get(changed[0])!r}, not {config[changed[0]]!r}; "
            "resume it without that option, or start another run."
        )
    return experiment


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
