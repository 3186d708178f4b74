"""Values of hyper-parameters to try next, proposed by Optuna from the results of earlier trials.

The folder of a search holds one run folder per trial and nothing else. A proposal depends on the seed, its number and
the trials before it: a search that was stopped goes on with the proposals it would have made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from podnet.errors import ConfigError, importing
from podnet.methods.base import Method
from podnet.randomness import derive, generator
from podnet.runs.config import numbers_of, read_option
from podnet.runs.folder import Run

AT_RANDOM = 5  # the first trials are drawn at random, later ones near the best
ATTEMPTS = 20  # to propose what was not tried before
DIGITS = 4  # of a proposed number
WIDE = 10  # a range whose end is at least this many times its start is searched on a logarithmic scale

Values = dict[str, Any]  # option -> value


@dataclass(frozen=True)
class Listed:
    """A hyper-parameter and the values to choose from."""

    option: str
    values: tuple[Any, ...]

    def contains(self, value: Any) -> bool:
        return value in self.values

    def distribution(self, optuna: Any) -> Any:
        return optuna.distributions.CategoricalDistribution(self.values)

    def rounded(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Range:
    """A hyper-parameter and the range of its numbers, whole ones or not."""

    option: str
    low: float
    high: float
    whole: bool

    @property
    def values(self) -> tuple[float, float]:
        """Its ends: if these are possible, so are the others."""
        return self.low, self.high

    def contains(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def distribution(self, optuna: Any) -> Any:
        wide = self.low > 0 and self.high >= WIDE * self.low
        kinds = optuna.distributions
        return (kinds.IntDistribution if self.whole else kinds.FloatDistribution)(self.low, self.high, log=wide)

    def rounded(self, value: float) -> float:
        """With few digits, so that the value can be typed."""
        return int(value) if self.whole else min(self.high, max(self.low, float(f"{value:.{DIGITS}g}")))


Axis = Listed | Range


def read_axis(text: str, method: type[Method]) -> Axis:
    """A hyper-parameter of the method and its values: "lr=0.01..0.2" or "lambda_c=1,3,5"."""
    name, equals, values = (part.strip() for part in text.partition("="))
    option = name.replace("-", "_")
    if not equals or not option or not values:
        raise ConfigError(f"over is {text!r}; write OPTION=LOW..HIGH or OPTION=VALUE,VALUE, such as lr=0.01..0.2.")
    start, dots, end = values.partition("..")
    if not dots:
        listed = tuple(dict.fromkeys(read_option(method, option, value.strip()) for value in values.split(",")))
        if len(listed) < 2 or any(isinstance(value, tuple) for value in listed):
            raise ConfigError(f"over is {text!r}; give at least two values to choose from, each a single one.")
        return Listed(option, listed)
    low, high = (read_option(method, option, end) for end in (start, end))
    if (kind := numbers_of(method, option)) is None:
        raise ConfigError(f"over is {text!r}, but {option} is no number; list its values, separated by commas.")
    if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in (low, high)) or low >= high:
        raise ConfigError(f"over is {text!r}; a range goes from a number to a higher one, such as 0.01..0.2.")
    return Range(option, low, high, kind is int)


@dataclass(frozen=True)
class Trial:
    """One run of a search."""

    number: int  # from 1
    record: Run
    values: Values

    def score(self, inference: str) -> float | None:
        """The average incremental accuracy; 0 if the run failed, None if it is not over."""
        if self.record.is_finished():
            return float(self.record.results()[-1]["average_incremental_accuracy"][inference])
        return 0.0 if self.record.failure() is not None else None


def trial_folder(folder: Path, number: int) -> Run:
    return Run(folder / f"trial-{number:03d}")


def trials_in(folder: Path, axes: Sequence[Axis]) -> dict[int, Trial]:
    """The trials that have begun, by number."""
    numbers = [path.parent.name.removeprefix("trial-") for path in folder.glob("trial-*/config.yaml")]
    found = {}
    for number in sorted(int(word) for word in numbers if word.isdecimal()):
        record = trial_folder(folder, number)
        config = record.config()
        found[number] = Trial(number, record, {axis.option: config.get(axis.option) for axis in axes})
    return found


def require_optuna() -> Any:
    """Optuna, without its messages."""
    with importing("search", "podnet search needs Optuna"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def propose(
    axes: Sequence[Axis], number: int, before: Sequence[Trial], inference: str, seed: int, usual: Mapping[str, Any]
) -> Values | None:
    """The values of a trial, given those before it; None if all combinations are tried.

    The first trial has the method's `usual` values, if they are among those searched.
    """
    tried = [trial.values for trial in before]
    first = {axis.option: usual[axis.option] for axis in axes}
    if not tried and all(axis.contains(first[axis.option]) for axis in axes):
        return first
    optuna = require_optuna()
    shares = {axis.option: axis.distribution(optuna) for axis in axes}
    known = [
        optuna.trial.create_trial(params=trial.values, distributions=shares, value=score)
        for trial in before  # the call that made it may have searched among other values
        if all(axis.contains(trial.values[axis.option]) for axis in axes)
        and (score := trial.score(inference)) is not None
    ]
    for attempt in range(ATTEMPTS):
        drawn = derive(seed, "search", number, attempt) % 2**32
        study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=drawn, n_startup_trials=AT_RANDOM)
        )
        study.add_trials(known)
        asked = study.ask(shares).params
        values = {axis.option: axis.rounded(asked[axis.option]) for axis in axes}
        if values not in tried:
            return values
    return _left(axes, tried, seed, number)


def _left(axes: Sequence[Axis], tried: Sequence[Values], seed: int, number: int) -> Values | None:
    """A combination of listed values that was not tried, at random."""
    if any(isinstance(axis, Range) and not axis.whole for axis in axes):
        return None
    listed = [axis.values if isinstance(axis, Listed) else range(int(axis.low), int(axis.high) + 1) for axis in axes]
    combinations = [dict(zip((axis.option for axis in axes), values, strict=True)) for values in product(*listed)]
    left = [values for values in combinations if values not in tried]
    draw = generator(seed, "search", number, "left")
    return left[int(torch.randint(len(left), (), generator=draw))] if left else None
