"""Compare runs: which belong together, their curves, and a report in a folder."""

import hashlib
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from podnet.io.files import expanded, write_atomically
from podnet.report.grid import Grid, csv_text, html, latex, markdown
from podnet.report.markup import Html, escaped, paragraphs, picture, write_document
from podnet.report.plots import Panel, accuracy_lines, accuracy_panel, colour_of, save_figure
from podnet.report.results import progress
from podnet.report.sections import accuracy_matrices, configuration, confusion_matrices, environment, timings
from podnet.report.tables import summary
from podnet.runs.earlier import completed
from podnet.runs.folder import CHANGEABLE, Run, method_name, tasks_in_words

REPEATED = ("order", "seed")  # runs that differ in these are repetitions of one experiment
# Options that must be equal for a fair comparison; hyper-parameters of methods differ by nature.
PROTOCOL = (
    *("dataset", "data_path", "subset", "image_size", "classes", "images_per_class", "base", "increment"),
    *("sizes", "visits", "memory_per_class", "memory_total", "validation", "mirror"),
)
OWN_DATA = ("npz", "imagenet")  # the user's own data; other datasets are the same everywhere


def described(runs: Sequence[Run], repetitions_apart: bool = False) -> list[tuple[str, Run]]:
    """Each run with a label: its method, and the options that distinguish it.

    These are protocol options that differ between any two runs, and other options that differ between runs of the same
    method. Repetitions (another order or seed) share a label unless `repetitions_apart`.
    """
    configs = [comparable(run) for run in runs]
    ignored = {"method", *CHANGEABLE, *(() if repetitions_apart else REPEATED)} - {"data_path"}
    return [(_label(config, configs, ignored), run) for config, run in zip(configs, runs, strict=True)]


def _label(config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]], ignored: Container[str]) -> str:
    method = method_name(config)
    same_method = [other for other in configs if method_name(other) == method]
    own_file = any(other.get("method") != config.get("method") for other in same_method)  # same name, several files
    parts = [str(config.get("method")) if own_file else method]
    plain = {"data_path", "sizes", *(("base", "increment") if config.get("sizes") else ())}  # not worth a word if unset
    for option, value in config.items():
        rivals = configs if option in PROTOCOL else same_method
        told = option not in ignored and not (option in plain and value is None)
        if told and any(other.get(option, value) != value for other in rivals):
            parts.append(_setting(option, value))
    return ", ".join(parts)


def comparable(run: Run) -> dict[str, Any]:
    """The configuration of a run, also of what earlier versions did not record, with its own data and code."""
    config = run.config()
    code = _code(run)
    return completed(config) | {"data_path": own_data(config)} | ({"code": code} if code else {})


def _code(run: Run) -> str | None:
    """A user-defined method by what its file said when the run began; None for ours."""
    return hashlib.sha256(run.method_file.read_bytes()).hexdigest()[:8] if run.method_file.exists() else None


def own_data(config: Mapping[str, Any]) -> str | None:
    """The resolved path of the data, if it is the user's own."""
    path = config.get("data_path")
    return str(expanded(path).resolve()) if path and config.get("dataset") in OWN_DATA else None


def _setting(option: str, value: object) -> str:
    """An option as text; a class order may list a hundred names and is truncated."""
    words = shorten(str(value).replace(",", ", "), 24, placeholder="…") if option == "order" else str(value)
    words = tasks_in_words({"sizes": value}) if option == "sizes" and isinstance(value, list) and value else words
    return f"{option} {'unset' if value is None else words}"


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Label -> runs that differ only in order and seed. Unfinished runs are marked and form their own groups."""
    groups: dict[str, list[Run]] = {}
    for label, run in described(runs):
        marked = ", ".join(filter(None, [label, progress(run.results())]))
        groups.setdefault(marked, []).append(run)
    return groups


def comparison_panel(groups: Mapping[str, Sequence[Run]], title: str) -> Panel:
    """Accuracy by number of classes seen. Each method has its colour; variants of one method get different ones."""
    methods = [label.partition(",")[0] for label in groups]
    names = [method if methods.count(method) == 1 else label for method, label in zip(methods, groups, strict=True)]
    lines = []
    for name, (label, runs) in zip(names, groups.items(), strict=True):
        lines += accuracy_lines(label, colour_of(name, names), [run.results() for run in runs])
    return accuracy_panel(title, lines)


class Captioned(NamedTuple):
    """A figure and what it shows."""

    title: str
    figure: Figure


def write_report(
    folder: Path, title: str, intro: str, contents: Sequence[Grid | Captioned], runs: Sequence[tuple[str, Run]]
) -> Path:
    """Write tables, figures and report.html, which contains all of them in this order and every run; returns its path.

    Files are named after titles and captions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[str] = [paragraphs(intro)]
    for name, content in zip(_file_names([content.title for content in contents]), contents, strict=True):
        if isinstance(content, Captioned):
            png, *_ = save_figure(content.figure, folder / name)
            parts.append(picture(png.read_bytes(), content.title))
            continue
        for ending, render in {"md": markdown, "tex": latex, "csv": csv_text}.items():
            write_atomically(folder / f"{name}.{ending}", render(content))
        parts.append(html(content))
    parts.append("<h2>Runs</h2>" if runs else "")
    parts += [_run_details(label, run) for label, run in runs]
    return write_document(folder / "report.html", title, parts)


def _run_details(label: str, run: Run) -> Html:
    results, config = run.results(), run.config()
    repetition = ", ".join(_setting(option, config.get(option)) for option in REPEATED)
    words = " · ".join(filter(None, [repetition, progress(results), summary(results), str(run.folder)]))
    parts = [
        f"<summary><b>{escaped(label)}</b> {escaped(words)}</summary>",
        "<h3>Accuracy on the classes of each task</h3>",
        accuracy_matrices(results),
        "<h3>Final confusion matrix</h3>",
        confusion_matrices(run),
        "<h3>Timings</h3>",
        timings(results),
        "<h3>Configuration</h3>",
        configuration(run),
        "<h3>Environment</h3>",
        environment(run),
    ]
    return Html(f"<details>{''.join(parts)}</details>")


def _file_names(titles: Sequence[str]) -> list[str]:
    """A file name for each title: its letters and digits, or "table" if it has none; numbered if taken."""
    names: list[str] = []
    for title in titles:
        name = re.sub(r"[^a-z0-9]+", "-", title.lower())[:60].strip("-") or "table"
        taken = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in names)
        names.append(f"{name}-{taken + 1}" if name in names else name)
    return names
