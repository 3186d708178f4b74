"""The options of an experiment as given: in a YAML file, on the command line, in the folder of an earlier run."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from podnet.cli.run_options import EXPERIMENT_OPTIONS
from podnet.errors import ConfigError, nearest, printable
from podnet.io.options import read_options
from podnet.runs.config import as_it_ran, resolve
from podnet.runs.experiment import Experiment
from podnet.runs.folder import CHANGEABLE, Run
from podnet.runs.loop import Existing


class Chosen(NamedTuple):
    """A run folder, its experiment, and what to do if it holds a run."""

    record: Run
    experiment: Experiment
    existing: Existing


def given_options(known: argparse.Namespace, words: list[str], parser: argparse.ArgumentParser) -> dict[str, Any]:
    """All options of the experiment; `words` are what the parser did not recognise: hyper-parameters of the method."""
    if getattr(known, "resume", None) and known.output and known.resume != known.output:
        raise ConfigError(f"--resume is {known.resume}, but --output is {known.output}; give only one of them.")
    given = {key: value for key in EXPERIMENT_OPTIONS if (value := getattr(known, key)) is not None}
    return _read_yaml(known.config) | given | _hyper_parameters(words, parser)


def resumed(record: Run, wanted: dict[str, Any]) -> Experiment:
    """The experiment of a run to continue; options that would change its results are refused."""
    recorded = as_it_ran(record.config())
    experiment = resolve(recorded | wanted)
    config = experiment.options()
    known_then = config | dict.fromkeys(wanted) | recorded  # options newer than the run have their defaults
    changed = [key for key in config if key not in CHANGEABLE and config[key] != known_then[key]]
    if changed:
        raise ConfigError(
            f"{record.folder} was started with {changed[0]} {recorded.get(changed[0])!r}, not {config[changed[0]]!r}; "
            "resume it without that option, or start a new run."
        )
    return experiment


def base_of(folder: str | None, experiment: Experiment) -> Run | None:
    """The run to take the first task from; it must have learned it in the same way."""
    if folder is None:
        return None
    base = Run(folder)
    if base.trained_first_task() is None:
        raise ConfigError(f"--from-base names {folder}, which has no trained first task; give a run that is past it.")
    if experiment.visits > 1:
        raise ConfigError("with --visits the first task has only some of its images; start without --from-base.")
    wanted, given = (each.first_task().options() for each in (experiment, resolve(as_it_ran(base.config()))))
    for option in wanted:
        if option not in CHANGEABLE and wanted[option] != given.get(option):
            raise ConfigError(
                f"the first task of {folder} was learned with {option} {given.get(option)!r}, "
                f"not {wanted[option]!r}; start without --from-base, or with that value."
            )
    file = wanted["method"].rpartition(":")[0]
    if file and base.method_file.exists() and base.method_file.read_bytes() != Path(file).read_bytes():
        raise ConfigError(f"{file} was changed after {folder} began; start without --from-base.")
    return base


def _hyper_parameters(words: list[str], parser: argparse.ArgumentParser) -> dict[str, str]:
    """`--lambda-c 5` or `--lambda-c=5` -> {"lambda_c": "5"}; whether the method has the option is checked later."""
    of_the_call = [action.dest.replace("_", "-") for action in parser._actions if action.dest not in EXPERIMENT_OPTIONS]
    given = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            raise ConfigError(f"{parser.prog!r} does not take {word!r}; options start with --.")
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            value = next(rest, "")
            if not value or value.startswith("--"):
                _unknown_option(word, parser)
        if difflib.get_close_matches(name, of_the_call, cutoff=0.75):
            _unknown_option(f"--{name}", parser)
        given[name.replace("-", "_")] = value
    return given


def _unknown_option(word: str, parser: argparse.ArgumentParser) -> NoReturn:
    known = [option for action in parser._actions for option in action.option_strings]
    raise ConfigError(f"{word} needs a value, or is not an option of {parser.prog!r}.{nearest(word, known)}")


def _read_yaml(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        loaded = read_options(Path(path))
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"--config {path} is not YAML with options: {printable(str(error))}.") from error
    return {str(key).replace("-", "_"): value for key, value in loaded.items()}
