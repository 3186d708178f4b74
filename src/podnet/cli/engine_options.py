"""Where `podnet reproduce` performs its runs: the options and their interpretation."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from podnet.errors import ConfigError

FITS = {"address": ("ray",), "slurm": ("slurm",), "gpus_per_run": ("ray", "slurm")}  # the engines of each option


def add_engine_options(reproduce: argparse.ArgumentParser) -> None:
    group = reproduce.add_argument_group("where the runs are performed (docs/reproduce.md, On a cluster)")
    add = group.add_argument
    add("--engine", choices=("local", "ray", "slurm"), default="local", help="this machine (default) or a cluster")
    add(
        "--gpus-per-run",
        metavar="X",
        type=float,
        help="GPUs per run on a cluster; with ray, 0.5 lets two runs share one",
    )
    add("--address", metavar="HOST:PORT", help="address of the Ray cluster's head node (default: auto, this machine)")
    add("--slurm", metavar="KEY=VALUE,...", help="options for sbatch, such as partition=gpu,time=24:00:00")


def require_fitting(known: argparse.Namespace) -> None:
    """Refuse options that the chosen engine does not use, and impossible numbers."""
    for name, engines in FITS.items():
        if getattr(known, name) is not None and known.engine not in engines:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option} works only with --engine {' or '.join(engines)}, not --engine {known.engine}.")
    if known.jobs is not None and known.jobs < 1:
        raise ConfigError(f"--jobs is {known.jobs}; it must be at least 1.")
    gpus = known.gpus_per_run or 0
    if not 0 <= gpus < float("inf") or (gpus != int(gpus) and (gpus > 1 or known.engine == "slurm")):
        shares = (
            ", or a share of one, such as 0.5" if known.engine == "ray" else "; Slurm cannot share a GPU between runs"
        )
        raise ConfigError(f"--gpus-per-run is {gpus:g}; it must be a whole number{shares}.")
    if known.engine != "local" and known.device.startswith("cuda") and not gpus:
        raise ConfigError(f"--device {known.device} on a cluster needs --gpus-per-run, so that each run gets GPUs.")


def device(known: argparse.Namespace) -> str:
    """The device of the runs; on a cluster, a run without an assigned GPU uses none."""
    on_cpu = known.engine != "local" and known.device == "auto" and not known.gpus_per_run
    return "cpu" if on_cpu else str(known.device)


def sbatch_options(given: str | None) -> Mapping[str, str]:
    """ "partition=gpu,exclude=a,b" as options for sbatch; a word without = belongs to the value before it."""
    options: dict[str, str] = {}
    key = ""
    for word in given.split(",") if given else []:
        name, equals, value = (part.strip() for part in word.partition("="))
        if equals and name:
            key = name
            options[key] = value
        elif key and not equals:
            options[key] += f",{name}"
        else:
            raise ConfigError(f"--slurm is {given!r}; it must be KEY=VALUE,..., such as partition=gpu,time=24:00:00.")
    return options
