"""Tables, figures and pages of runs, checked against numbers worked out by hand and by reading the files back."""

import base64
import csv
import io
import json
import re
import shutil
import subprocess
from argparse import Namespace
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.image import imread
from rich.console import Console
from safetensors.numpy import save_file

from podnet.cli.report import compare_command, report_command
from podnet.errors import PodnetError
from podnet.methods import METHODS
from podnet.report import averages, compare, plots, results
from podnet.report.grid import Cell, Grid, csv_text, html, latex, markdown, rich_tables
from podnet.report.page import write_page
from podnet.report.plots import (
    COLOURS,
    FURTHER_COLOURS,
    Line,
    Panel,
    colour_of,
    confusion,
    draw_run,
    figure_of,
    save_figure,
    write_figure,
)
from podnet.report.results import spread
from podnet.runs.folder import Run

CONFIG = {
    "method": "podnet",
    "dataset": "digits",
    "data_path": None,
    "classes": 4,
    "base": 2,
    "increment": 1,
    "order": "random",
    "memory_per_class": 20,
    "seed": 1,
    "device": "auto",
    "threads": 0,
    "lr": 0.1,
    "epochs": 3,
    "lambda_c": 3.0,
}
ENVIRONMENT = {"command": "podnet run <here>", "commit": "abc123", "processor": "AMD", "packages": {"torch": "2.13"}}
# accuracy on the classes of each task after each task; task 0 has two classes
MATRIX = [[90.0], [80.0, 70.0], [60.0, 75.0, 50.0]]
ACCURACY = [90.0, 77.0, 61.0]


def make_run(folder, tasks=3, offset=0.0, nme=True, environment=None, **changes):
    """A run folder as `podnet run` leaves it, without the training; NME is one point above CNN."""
    config = CONFIG | changes
    (folder / "predictions").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (folder / "environment.json").write_text(json.dumps(environment or [ENVIRONMENT]))
    lines = []
    for task in range(tasks):
        values = {
            "accuracy": ACCURACY[task] + offset,
            "average_incremental_accuracy": sum(ACCURACY[: task + 1]) / (task + 1) + offset,
            "forgetting": [0.0, 10.0, 12.5][task],
            "old_accuracy": [None, 80.0, 65.0][task],
            "new_accuracy": [90.0, 70.0, 50.0][task],
        }
        line = {
            "task": task,
            "tasks": 3,
            "seen": 2 + task,
            "new_classes": ["a<b", "c"] if task == 0 else [f"new{task}"],
        }
        line |= {m: {"cnn": v, "nme": None if v is None or not nme else v + 1} for m, v in values.items()}
        line["accuracy_per_task"] = {"cnn": MATRIX[task], "nme": MATRIX[task] if nme else None}
        line |= {"memory": 20 * (2 + task), "seconds": {"train": 3.0, "evaluate": 1.0}}
        lines.append(json.dumps(line))
        targets = np.repeat(np.arange(2 + task), 2)
        predictions = {"targets": targets, "cnn": np.zeros_like(targets)} | ({"nme": targets} if nme else {})
        save_file(predictions, str(folder / "predictions" / f"task-{task:04d}.safetensors"))
    (folder / "results.jsonl").write_text("".join(line + "\n" for line in lines))
    return Run(folder)


class Page(HTMLParser):
    """Reads a page: its tags must nest; keeps tables as lists of rows of text, images, and all text."""

    VOID = {"meta", "img", "br"}

    def __init__(self, source):
        super().__init__()
        self.open, self.rows, self.images, self.text, self.bold = [], [], [], [], []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "img":
            self.images.append(dict(attributes))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if "b" in self.open:
            self.bold.append(data)


def pixels(image):
    """The colours of an image of a page, 0 to 255."""
    kind, data = image["src"].split(",", 1)
    assert kind == "data:image/png;base64"
    return np.round(255 * imread(io.BytesIO(base64.b64decode(data)))).astype(int)


def printed(*tables, width=100):
    """What a terminal of this width shows of tables, without colours."""
    console = Console(width=width, file=io.StringIO())
    console.print(*tables)
    return console.file.getvalue()


# 60, 61, 62: mean 61, deviations -1, 0, 1, sample variance 2 / 2 = 1
GRID = Grid(
    "Table 1 & more",
    "method",
    ("50 steps", "λ_c|5 %"),
    (
        ("podnet (CNN)", (Cell((60.0, 61.0, 62.0), 57.98, 0.46), Cell((70.0,), 63.19))),
        ("ucir", (Cell((50.0,), 49.3), Cell((80.0,)))),
        ("not run <yet>", (Cell(paper=44.2), Cell())),
    ),
    ours="ours, small",
    notes=("20 classes only.",),
)
SHOWN = [
    ["podnet (CNN)", "57.98 ± 0.46", "61.00 ± 1.00", "63.19", "70.00"],
    ["ucir", "49.30", "50.00", "—", "80.00"],
    ["not run <yet>", "44.20", "—", "—", "—"],
]


def test_spread_is_the_sample_deviation():
    assert spread((60.0, 61.0, 62.0)) == "61.00 ± 1.00"
    assert spread((1.0, 2.0)) == "1.50 ± 0.71"  # square root of 0.5, not of 0.25
    assert (spread((5.0,)), spread(())) == ("5.00", "—")


def test_an_upper_bound_and_accuracy_on_new_classes_are_never_the_best(tmp_path):
    """Joint training has all data; who answers only new classes is always right about them."""
    names = {"podnet": 0.0, "replay": -5.0, "joint": 20.0}
    groups = {name: [make_run(tmp_path / name, method=name, nme=False, offset=at)] for name, at in names.items()}
    grid = averages.comparison_grid(groups, "t")
    text = markdown(grid)
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in text.splitlines()[4:7]}
    assert rows["podnet (CNN)"][:2] == ["**76.00**", "**61.00**"]
    assert rows["joint (CNN)"][:2] == ["96.00", "81.00"]
    assert not any("**" in values[-1] for values in rows.values())
    assert "and not ranked: joint." in text
    assert "n of m" not in text
    assert {name for name, method in METHODS.items() if method.sees_all_data} == set(averages.UPPER_BOUNDS)


def test_markdown_has_the_numbers_with_the_best_in_bold():
    text = markdown(GRID)
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows]
    assert rows[0] == [
        "method",
        "50 steps, paper",
        "50 steps, ours, small",
        r"λ_c\|5 %, paper",
        r"λ_c\|5 %, ours, small",
    ]
    assert {len(row) for row in rows} == {5}
    assert rows[2] == ["podnet (CNN)", "57.98 ± 0.46", "**61.00 ± 1.00**", "63.19", "70.00"]
    assert rows[3] == ["ucir", "49.30", "50.00", "—", "**80.00**"]
    assert rows[4] == [r"not run \<yet>", "44.20", "—", "—", "—"]
    assert text.startswith("**Table 1 & more**\n\n")
    assert text.endswith("\n\n20 classes only.\n")


def test_latex_rows_have_as_many_cells_as_the_columns_and_escape_everything():
    text = latex(GRID)
    assert text.startswith("% needs \\usepackage{booktabs,graphicx}\n")
    assert re.search(r"\\begin\{tabular\}\{(\w+)\}", text).group(1) == "lrrrr"
    assert r"\caption{Table 1 \& more}" in text
    assert r"\multicolumn{2}{c}{$\lambda$\_c\textbar{}5 \%}" in text
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}" in text
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0]
    rows = [line.removesuffix(r" \\").split(" & ") for line in body.splitlines()]
    assert rows[0] == ["podnet (CNN)", r"57.98 $\pm$ 0.46", r"\textbf{61.00 $\pm$ 1.00}", "63.19", "70.00"]
    assert rows[1] == ["ucir", "49.30", "50.00", "---", r"\textbf{80.00}"]
    assert rows[2] == [r"not run \textless{}yet\textgreater{}", "44.20", "---", "---", "---"]
    assert text.count("{") == text.count("}")
    assert sorted(re.findall(r"\\begin\{(\w+)\}", text)) == sorted(re.findall(r"\\end\{(\w+)\}", text))
    assert "20 classes only." in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_makes_a_page_that_even_a_wide_table_fits_on(tmp_path):
    wide = replace(GRID, columns=GRID.columns * 6, rows=tuple((label, cells * 6) for label, cells in GRID.rows))
    head = r"\documentclass{article} \usepackage{booktabs,graphicx} \begin{document}"
    (tmp_path / "page.tex").write_text("\n".join([head, latex(GRID), latex(wide), r"\end{document}"]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout


def test_csv_reads_back_to_the_cells():
    lines = list(csv.DictReader(io.StringIO(csv_text(GRID))))
    cells = [(label, column, cell) for label, own in GRID.rows for column, cell in zip(GRID.columns, own, strict=True)]
    assert len(lines) == len(cells) == 6
    for line, (label, column, cell) in zip(lines, cells, strict=True):
        assert (line["row"], line["column"], line["notes"]) == (label, column, "20 classes only.")
        assert tuple(map(float, line["values"].split())) == cell.ours
        assert int(line["count"]) == len(cell.ours)
        assert line["paper"] == ("" if cell.paper is None else str(cell.paper))
    assert [float(lines[0][name]) for name in ("mean", "std", "paper_std")] == [61.0, 1.0, 0.46]
    assert [lines[1]["mean"], lines[1]["std"], lines[3]["paper"]] == ["70.0", "", ""]
    assert [lines[5]["mean"], lines[5]["count"]] == ["", "0"]


def test_html_shows_the_same_numbers_escaped():
    page = Page(html(GRID))
    assert page.rows[0] == ["method", "50 steps", "λ_c|5 %"]
    assert page.rows[1] == ["", "paper", "ours, small", "paper", "ours, small"]
    assert page.rows[2:] == SHOWN
    assert page.bold == ["61.00 ± 1.00", "80.00"]
    assert "Table 1 & more" in page.text
    assert "20 classes only." in page.text


def test_terminal_table_shows_every_number():
    text = printed(*rich_tables(GRID))
    for label, *numbers in SHOWN:
        line = next(line for line in text.splitlines() if line.startswith(label))
        assert re.split(r" {2,}", line.strip()) == [label, *numbers]
    assert "20 classes only." in text


@pytest.mark.parametrize("width", [100, 80])
def test_the_papers_table_fits_the_terminal(width):
    cell = Cell((60.11, 61.22, 59.33), 57.98, 0.46)  # mean 60.22, std 0.95
    names = ("PODNet (CNN)", "PODNet (NME)", "UCIR (CNN)", "UCIR (NME)", "iCaRL", "BiC")
    grid = Grid("t", "method", ("50 steps", "25 steps", "10 steps", "5 steps"), tuple((n, (cell,) * 4) for n in names))
    lines = printed(*rich_tables(grid, width), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    means = [line for line in lines if "57.98" in line]
    assert [re.findall(r"[\d.]+", line.split(")")[-1]) for line in means] == [["57.98", "60.22"] * 4] * 6
    deviations = [line for line in lines if "±" in line]
    assert [re.findall(r"± ([\d.]+)", line) for line in deviations] == [["0.46", "0.95"] * 4] * 6


@pytest.mark.parametrize("width", range(44, 70))
def test_no_number_is_cut_in_a_terminal_of_any_width(width):
    grid = Grid("t", "method", tuple("abcdef"), (("podnet-plus", (Cell((22.09,)),) * 6),))
    lines = printed(*rich_tables(grid, width), width=width).splitlines()
    assert sum(line.count("22.09") for line in lines) == 6
    assert max(map(len, lines)) <= width


def test_a_table_of_many_columns_is_shared_out_and_no_number_is_cut():
    columns = tuple(str(k) for k in range(1, 13))
    grid = Grid("t", "proxies", columns, (("PODNet (CNN)", tuple(Cell((50.0 + k,), 60.0 + k) for k in range(12))),))
    text = printed(*rich_tables(grid, 80), width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    shown = [float(n) for n in re.findall(r"\d\d\.\d\d", text)]
    assert sorted(shown) == sorted([50.0 + k for k in range(12)] + [60.0 + k for k in range(12)])


def test_without_paper_numbers_there_are_no_paper_columns():
    grid = Grid("t", "method", ("a", "b"), (("x", (Cell((1.0,)), Cell((2.0,)))),))
    assert Page(html(grid)).rows == [["method", "a", "b"], ["x", "1.00", "2.00"]]
    assert "| method | a | b |" in markdown(grid)
    assert r"\begin{tabular}{lrr}" in latex(grid)
    assert "paper" not in printed(*rich_tables(grid)) + markdown(grid) + latex(grid) + html(grid)


def test_the_best_is_the_lowest_where_told_and_ties_and_bystanders_are_respected():
    rows = (
        ("x", (Cell((5.0,)), Cell((7.001,)))),
        ("y", (Cell((3.0,)), Cell((7.0,)))),
        ("z", (Cell((1.0,), competes=False), Cell((9.0,), competes=False))),
    )
    grid = Grid("t", "method", ("lost", "won"), rows, lowest=("lost",))
    assert Page(html(grid)).bold == ["7.00", "3.00", "7.00"]
    alone = Grid("t", "method", ("won",), (("x", (Cell((5.0,)),)), ("y", (Cell(),))))
    assert Page(html(alone)).bold == []


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="'x' has 1 cells for 2 columns"):
        Grid("t", "method", ("a", "b"), (("x", (Cell(),)),))


def test_colours_are_fixed_distinct_and_stable():
    assert len({*COLOURS.values(), *FURTHER_COLOURS}) == len(COLOURS) + len(FURTHER_COLOURS)
    names = ["podnet", "mine", "ucir", "yours", "theirs"]
    chosen = [colour_of(name, names) for name in names]
    assert len(set(chosen)) == 5
    assert (chosen[0], chosen[2]) == (COLOURS["podnet"], COLOURS["ucir"])
    assert colour_of("mine") == colour_of("mine") in FURTHER_COLOURS


LINES = (
    Line("podnet (NME): 71.00 ± 1.41", (2, 3, 4), ((80, 70, 60), (82, 72, 62)), "#0072b2"),
    Line("the paper", (2, 3, 4), ((75, 70, 65),), "#000000", dashed=True),
)


def test_a_figure_draws_mean_band_and_dashes():
    (axes,) = figure_of([Panel("title", "x", "y", LINES)]).axes
    mean, paper = axes.lines
    assert mean.get_ydata().tolist() == [81, 71, 61]
    assert (mean.get_linestyle(), paper.get_linestyle()) == ("-", "--")
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices
    assert heights[heights[:, 0] == 2][:, 1].min() == pytest.approx(81 - 2**0.5)
    assert heights[heights[:, 0] == 2][:, 1].max() == pytest.approx(81 + 2**0.5)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [line.label for line in LINES]
    assert not axes.spines["top"].get_visible()


@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 2), (5, 2, 3)])
def test_panels_wrap(count, rows, columns):
    figure = figure_of([Panel("", "", "", LINES)] * count)
    grid = figure.axes[0].get_gridspec()
    assert (len(figure.axes), grid.nrows, grid.ncols) == (count, rows, columns)


def test_the_legend_covers_no_curve():
    many = tuple(Line(f"method {i} (CNN): 62.31 ± 0.45", (2, 3), ((50, 40),), "#000000") for i in range(12))
    figure = figure_of([Panel("", "classes seen", "accuracy (%)", many)])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    legend = axes.get_legend().get_window_extent()
    label = axes.xaxis.label.get_window_extent()
    assert legend.y1 <= label.y0
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1
    assert legend.y0 >= 0


def test_saved_figures_are_the_same_bytes_each_time_with_text_as_text(tmp_path):
    for name in ("a.b", "again"):
        paths = save_figure(figure_of([Panel("title", "x", "y", LINES)]), tmp_path / name)
        assert [path.name for path in paths] == [f"{name}.png", f"{name}.svg", f"{name}.pdf"]
    for ending, start in {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}.items():
        first = (tmp_path / f"a.b.{ending}").read_bytes()
        assert first.startswith(start)
        assert first == (tmp_path / f"again.{ending}").read_bytes()
    assert "podnet (NME): 71.00 ± 1.41</text>" in (tmp_path / "again.svg").read_text()
    pdf = (tmp_path / "again.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # a TrueType font, which journals ask for, and no Type 3
    assert b"/Type3" not in pdf


def test_names_in_a_script_that_the_font_lacks_are_drawn_without_a_word(tmp_path):
    write_figure(confusion({"cnn": np.eye(2)}, ["猫", "$dog$ 犬"], "t"), tmp_path / "confusion.png")
    assert imread(tmp_path / "confusion.png").shape[2] == 4


def test_labels_name_only_what_differs(tmp_path):
    runs = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", seed=2, order="3,1,2,0", threads=7, data_path="/x"),
        make_run(tmp_path / "c", lambda_c=0.0),
        make_run(tmp_path / "d", method="ucir", lr=0.2),  # another method has its own rate by nature
    ]
    labels = [label for label, _ in compare.described(runs)]
    assert labels == ["podnet, lambda_c 3.0", "podnet, lambda_c 3.0", "podnet, lambda_c 0.0", "ucir"]
    assert [len(members) for members in compare.grouped(runs).values()] == [2, 1, 1]
    runs.append(make_run(tmp_path / "e", method="ucir", lr=0.2, increment=2))  # but a protocol is everyone's
    assert [label for label, _ in compare.described(runs)][3:] == ["ucir, increment 1", "ucir, increment 2"]
    assert compare.described(runs)[0][0] == "podnet, increment 1, lambda_c 3.0"


def test_data_and_methods_of_ones_own_are_told_apart(tmp_path):
    runs = [
        make_run(tmp_path / "a", dataset="npz", data_path="cats.npz"),
        make_run(tmp_path / "b", dataset="npz", data_path="cars.npz", seed=2),
        make_run(tmp_path / "c", dataset="npz", data_path=str(Path("cars.npz").resolve()), seed=3),
    ]
    assert [len(members) for members in compare.grouped(runs).values()] == [1, 2]
    assert compare.described(runs)[0][0] == f"podnet, data_path {Path('cats.npz').resolve()}"
    runs = [make_run(tmp_path / name, method=f"/{name}.py:Mine") for name in ("d", "e")]
    assert [label for label, _ in compare.described(runs)] == ["/d.py:Mine", "/e.py:Mine"]
    assert compare.described(runs[:1])[0][0] == "Mine"


def test_what_an_earlier_version_did_not_record_still_distinguishes(tmp_path):
    """Then BatchNorm moved in the fine-tuning; a missing option is not any value."""
    runs = [make_run(tmp_path / name, fidelity="released") for name in "ab"]
    config = yaml.safe_load(runs[1].config_file.read_text())
    for run, more in zip(runs, ({}, {"finetune_batchnorm": "fixed", "visits": 1}), strict=True):
        own = {key: value for key, value in config.items() if key not in ("finetune_batchnorm", "visits")}
        run.config_file.write_text(yaml.safe_dump(own | more))
    labels = [label for label, _ in compare.described(runs)]
    assert labels == ["podnet, finetune_batchnorm moving", "podnet, finetune_batchnorm fixed"]


def test_a_figure_of_many_rows_has_as_many_colours():
    names = [f"row {number}" for number in range(9)]
    assert len({plots.colour_of(name, names) for name in names}) == 9


def test_a_method_edited_between_two_runs_is_two_methods(tmp_path):
    runs = [make_run(tmp_path / name, method="/mine.py:Mine") for name in "abc"]
    for run, code in zip(runs, ("x = 1", "x = 2", "x = 1"), strict=True):
        run.method_file.write_text(code)
    assert [len(members) for members in compare.grouped(runs).values()] == [2, 1]


def test_first_tasks_alone_and_damaged_runs_in_a_folder_are_left_out_with_a_note(tmp_path, capsys):
    make_run(tmp_path / "whole")
    first = make_run(tmp_path / "first", tasks=1, classes=2)
    other = make_run(tmp_path / "other", tasks=1, classes=2, method="joint")  # has one task and is all there is of it
    for short in (first, other):
        short.results_file.write_text(short.results_file.read_text().replace('"tasks": 3', '"tasks": 1'))
    damaged = make_run(tmp_path / "damaged")
    damaged.results_file.write_text("no JSON\n")
    assert compare_command(Namespace(runs=[str(tmp_path)])) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "skipped 1 run in" in out
    assert "damaged, which cannot be read (" in out
    assert "podnet, classes 4 (CNN)" in out
    assert "joint, classes 2 (CNN)" in out
    assert "podnet, classes 2" not in out
    assert compare_command(Namespace(runs=[str(first.folder)])) == 0  # asked for by its name
    with pytest.raises(PodnetError, match="is damaged"):
        compare_command(Namespace(runs=[str(damaged.folder)]))


def test_an_unfinished_run_stands_beside_the_finished_ones_of_its_kind(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", offset=2.0, seed=2)
    make_run(tmp_path / "c", tasks=2, seed=3)
    groups = compare.grouped([Run(tmp_path / name) for name in "abc"])
    grid = averages.comparison_grid(groups, "t")
    rows = dict(grid.rows)
    assert list(rows) == [
        "podnet (CNN)",
        "podnet (NME)",
        "podnet, 2 of 3 tasks (CNN)",
        "podnet, 2 of 3 tasks (NME)",
    ]
    # after two tasks: (90 + 77) / 2 = 83.5
    assert [cell.ours for cell in rows["podnet, 2 of 3 tasks (CNN)"]] == [(83.5,), (77.0,), (10.0,), (80.0,), (70.0,)]
    assert len(rows["podnet (CNN)"][0].ours) == 2
    assert [label for label, cells in grid.rows if not cells[0].competes] == list(rows)[2:]
    finished, _, unfinished, _ = compare.comparison_panel(groups, "t").lines
    assert (finished.x, unfinished.x) == ((2, 3, 4), (2, 3))
    assert unfinished.ys == ((90.0, 77.0),)
    assert unfinished.label == "podnet, 2 of 3 tasks (CNN): 83.50"


def test_runs_of_a_group_that_saw_other_numbers_of_classes_share_no_task(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=2)]
    changed = [line | {"seen": line["seen"] + 5} for line in runs[1].results()]
    runs[1].results_file.write_text("".join(json.dumps(line) + "\n" for line in changed))
    groups = compare.grouped(runs)
    assert {cell.ours for _, cells in averages.comparison_grid(groups, "t").rows for cell in cells} == {()}
    assert compare.comparison_panel(groups, "t").lines == ()


def test_a_method_without_nme_has_one_row_and_one_line(tmp_path):
    groups = compare.grouped([make_run(tmp_path / "a", nme=False, method="bic")])
    assert [label for label, _ in averages.comparison_grid(groups, "t").rows] == ["bic (CNN)"]
    assert len(compare.comparison_panel(groups, "t").lines) == 1


def test_variants_of_a_method_have_different_colours(tmp_path):
    runs = [make_run(tmp_path / str(i), lambda_c=float(i)) for i in range(3)] + [
        make_run(tmp_path / "u", method="ucir")
    ]
    colours = [line.colour for line in compare.comparison_panel(compare.grouped(runs), "t").lines]
    assert len(set(colours)) == 4
    assert colours[-1] == COLOURS["ucir"]


def test_the_report_of_a_folder_of_runs(tmp_path, capsys):
    make_run(tmp_path / "runs" / "a", lambda_c="<script>")
    make_run(tmp_path / "runs" / "b", lambda_c="<script>", seed=2, offset=2.0, environment=ENVIRONMENT)
    make_run(tmp_path / "runs" / "below" / "c", tasks=2, method="bic", nme=False)
    make_run(tmp_path / "runs" / "just started", tasks=0)
    assert report_command(Namespace(runs=[str(tmp_path / "runs")], output=str(tmp_path / "out"))) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "just started, which has no finished task." in out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "accuracy-on-all-classes-seen.pdf",
        "accuracy-on-all-classes-seen.png",
        "accuracy-on-all-classes-seen.svg",
        "averages.csv",
        "averages.md",
        "averages.tex",
        "learning-and-transfer.csv",
        "learning-and-transfer.md",
        "learning-and-transfer.tex",
        "report.html",
    ]
    source = (tmp_path / "out" / "report.html").read_text()
    page = Page(source)
    assert "http" not in source, "the page must open without a network"
    assert "<script" not in source
    assert source.count("<details>") == 3
    assert "2 of 3 tasks" in source
    # averages 76 and 78 of the two seeds: mean 77, std 1.41
    assert ["podnet (CNN)", "77.00 ± 1.41", "62.00 ± 1.41", "12.50 ± 0.00", "65.00 ± 0.00", "50.00 ± 0.00"] in page.rows
    assert [row[1:] for row in page.rows if row[0] == "train"] == [
        ["6.0", "3.00", "75.0 %"],  # runs are in the order of what they are called
        *[["9.0", "3.00", "75.0 %"]] * 2,
    ]
    assert [row for row in page.rows if row[0] == "command"] == [["command", "podnet run <here>"]] * 3
    assert all(image["alt"] for image in page.images)
    (chart,) = [image for image in page.images if image["class"] == "chart"]
    assert (
        base64.b64decode(chart["src"].split(",")[1])
        == (tmp_path / "out" / "accuracy-on-all-classes-seen.png").read_bytes()
    )


DARKEST, BRIGHTEST = [68, 1, 84, 255], [253, 231, 36, 255]  # the ends of viridis


def test_matrices_have_one_pixel_a_cell(tmp_path):
    run = make_run(tmp_path / "a")
    source = compare.write_report(tmp_path / "out", "t", "", [], [("podnet", run)]).read_text()
    matrices = [pixels(image) for image in Page(source).images if image["class"] == "matrix"]
    accuracies, confusion_cnn, confusion_nme = matrices[0], matrices[2], matrices[3]
    assert accuracies.shape == (3, 3, 4)
    assert (accuracies[..., 3] > 0).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert accuracies[0, 0, 0] > accuracies[2, 2, 0]  # 90 is yellower than 50
    assert np.array_equal(confusion_cnn, np.array([[BRIGHTEST, DARKEST, DARKEST, DARKEST]] * 4))  # all the first class
    assert np.array_equal(confusion_nme, np.where(np.eye(4)[..., None] == 1, BRIGHTEST, DARKEST))  # all right
    scale = next(pixels(image) for image in Page(source).images if image["class"] == "scale")
    assert (scale[0, 0].tolist(), scale[0, -1].tolist()) == (DARKEST, BRIGHTEST)


def test_a_report_without_predictions_and_environment_says_so(tmp_path):
    run = make_run(tmp_path / "a")
    (tmp_path / "a" / "environment.json").unlink()
    (tmp_path / "a" / "predictions" / "task-0002.safetensors").write_bytes(b"cut")
    page = Page(compare.write_report(tmp_path / "out", "t", "", [], [("podnet", run)]).read_text())
    assert "The predictions of this run cannot be read." in page.text
    assert "The environment of this run was not recorded." in page.text


def test_titles_that_name_no_file_or_the_same_file_do_not_overwrite_each_other(tmp_path):
    titles = ["Table 1: a/b", "Table 1, a b", "±", "Table 1 a b"]
    grids = [Grid(title, "m", ("c",), ((str(i), (Cell((float(i),)),)),)) for i, title in enumerate(titles)]
    compare.write_report(tmp_path, "t", "one\n\ntwo", grids, [])
    names = ["table-1-a-b", "table-1-a-b-2", "table", "table-1-a-b-3"]
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == sorted(f"{name}.csv" for name in names)
    values = [next(csv.DictReader(io.StringIO((tmp_path / f"{name}.csv").read_text())))["mean"] for name in names]
    assert values == ["0.0", "1.0", "2.0", "3.0"]


def test_compare_puts_runs_side_by_side(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=2, tasks=2)
    make_run(tmp_path / "c", method="bic", nme=False, lr=0.5, bias_epochs=7)
    assert compare_command(Namespace(runs=[str(tmp_path / name) for name in "abc"])) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["seed", "1", "2", "1"] in lines
    assert ["lr", "0.1", "0.1", "0.5"] in lines
    assert not any(line[:1] == ["epochs"] for line in lines)  # the same in all
    assert not any(line[:1] == ["bias_epochs"] for line in lines)  # only one has it
    assert ["2", "90.00", "91.00", "90.00", "91.00", "90.00"] in lines
    assert ["4", "61.00", "62.00", "—", "—", "61.00"] in lines
    assert ["average", "76.00", "77.00", "83.50", "84.50", "76.00"] in lines
    assert ["forgetting", "12.50", "13.50", "10.00", "11.00", "12.50"] in lines


def test_many_runs_are_compared_in_blocks_that_fit(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for seed in range(9):
        make_run(tmp_path / f"run{seed}", seed=seed, offset=float(seed))
    assert compare_command(Namespace(runs=[str(tmp_path)])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [number for line in lines if re.match(r"4 ", line) for number in line.split()[1:]]
    assert shown == [f"{61 + seed + nme:.2f}" for seed in range(9) for nme in (0, 1)]


@pytest.mark.parametrize("command", [compare_command, report_command])
def test_folders_without_results_get_one_sentence(command, tmp_path):
    make_run(tmp_path / "started", tasks=0)
    (tmp_path / "empty").mkdir()
    for name, words in {
        "started": "no task is finished",
        "empty": "contains no run",
        "absent": "there is no folder",
    }.items():
        with pytest.raises(PodnetError, match=f"{name}.*{words}|{words}.*{name}"):
            command(Namespace(runs=[str(tmp_path / name)], output="/nowhere"))


def test_a_run_named_twice_counts_once(tmp_path):
    make_run(tmp_path / "a")
    report_command(Namespace(runs=[str(tmp_path / "a"), str(tmp_path)], output=str(tmp_path / "out")))
    assert {line["count"] for line in csv.DictReader(io.StringIO((tmp_path / "out" / "averages.csv").read_text()))} == {
        "1"
    }


def test_the_page_of_a_single_run(tmp_path):
    run = make_run(tmp_path / "a")
    draw_run(run, "podnet on <digits>")
    path = write_page(run, "podnet on <digits>")
    page = Page(path.read_text())
    assert "podnet on <digits>" in page.text
    assert ["after 1", "80.00", "70.00", ""] in page.rows
    assert ["all", "12.0", "4.00", "100.0 %"] in page.rows
    # task 0 went from 90 to 60, task 1 from 70 to 75; they and task 2 were learned at 90, 70 and 50
    assert ["2", "4", "61.00", "65.00", "50.00", "76.00", "12.50", "-12.50", "70.00"] in page.rows
    assert ["2", "4", "62.00", "66.00", "51.00", "77.00", "13.50", "-12.50", "70.00"] in page.rows
    assert ["2", "80", "4"] in page.rows  # an earlier version did not record sizes
    charts = [image for image in page.images if image["class"] == "chart"]
    for image, name in zip(charts, ("curve.png", "confusion.png"), strict=True):
        assert base64.b64decode(image["src"].split(",")[1]) == (Path(run.folder) / name).read_bytes()
    assert "podnet (CNN): 76.00</text>" in (run.folder / "curve.svg").read_text()


SIZE = {
    "parameters": 1_234_567,
    "multiply_adds": 68_925_952,
    "bytes": {"network": 5_000_000, "exemplars": 250_000, "method_state": 0, "class_means": 25_600},
}


def with_sizes(run, **changes):
    """The same run as a version recorded it that knows sizes and transfer."""
    lines = [line | SIZE | changes for line in run.results()]
    run.results_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_the_page_shows_sizes_where_they_were_recorded(tmp_path):
    run = with_sizes(make_run(tmp_path / "a"))
    lines = run.results()
    del lines[0]["bytes"], lines[0]["parameters"], lines[0]["multiply_adds"]  # that task is older
    run.results_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw_run(run, "t")
    rows = Page(write_page(run, "t").read_text()).rows
    assert ["2", "80", "1,234,567", "68.93", "5.00", "0.25", "0.00", "0.03", "5.28", "4"] in rows
    assert ["0", "40", *["—"] * 7, "4"] in rows


def test_what_was_recorded_goes_before_what_can_be_computed(tmp_path):
    run = make_run(tmp_path / "a")
    assert results.measured(run.results(), "backward_transfer", "cnn") == -12.5
    assert results.measured(run.results()[:2], "learning_accuracy", "cnn") == 80.0
    recorded = with_sizes(run, backward_transfer={"cnn": 1.0, "nme": None})
    assert results.measured(recorded.results(), "backward_transfer", "cnn") == 1.0


def test_intransigence_needs_joint_training_on_the_same_classes(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", method="finetuning", nme=False, image_size=8)]
    assert averages.transfer_grid(compare.grouped(runs), "t").columns == ("learning accuracy", "backward transfer")
    for seed, better in ((1, 10.0), (2, 20.0)):
        joint = make_run(tmp_path / f"joint{seed}", method="joint", nme=False, seed=seed, memory_per_class=1)
        lines = joint.results()
        for line in lines:
            line["accuracy_per_task"]["cnn"] = [value + better for value in line["accuracy_per_task"]["cnn"]]
        joint.results_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        runs.append(joint)
    grid = averages.transfer_grid(compare.grouped(runs), "t")
    assert grid.columns[2] == "intransigence"
    found = {label.partition(",")[0].partition(" ")[0]: [cell.ours for cell in cells] for label, cells in grid.rows}
    assert found["podnet"] == [(70.0,), (-12.5,), (15.0,)]  # of both joint runs; NME has the same
    assert found["finetuning"][2] == ()  # other images
    assert found["joint"] == [(80.0, 90.0), (-12.5, -12.5), ()]
    assert any(note.startswith("Intransigence: ") for note in grid.notes)
    lines = [line | {"new_classes": ["other"]} for line in runs[0].results()]
    runs[0].results_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    grid = averages.transfer_grid(compare.grouped(runs), "t")
    assert all(cells[2].ours == () for _, cells in grid.rows)


def test_sizes_side_by_side(tmp_path):
    runs = [with_sizes(make_run(tmp_path / f"{seed}", seed=seed)) for seed in (1, 2)]
    runs.append(make_run(tmp_path / "older", method="ucir"))
    grid = averages.size_grid(compare.grouped(runs), "Size")
    assert [label for label, _ in grid.rows] == ["podnet", "ucir"]
    values = [value for cell in grid.rows[0][1] for value in cell.ours]
    assert values == pytest.approx([1.234567, 68.925952, 5.0, 0.25, 0.0, 0.0256, 5.2756])
    assert all(cell.ours == () for cell in grid.rows[1][1])
    assert averages.size_grid(compare.grouped(runs[2:]), "Size") is None
    text = "\n".join(map(str, [markdown(grid), html(grid)]))
    assert "68.93" in text
    assert "±" not in text  # both have the same


def test_a_count_that_is_not_known_is_a_dash(tmp_path):
    run = with_sizes(make_run(tmp_path / "a"), multiply_adds=None)
    (row,) = averages.size_grid(compare.grouped([run]), "Size").rows
    assert [bool(cell.ours) for cell in row[1]] == [True, False, True, True, True, True, True]
    draw_run(run, "t")
    rows = Page(write_page(run, "t").read_text()).rows
    assert ["2", "80", "1,234,567", "—", "5.00", "0.25", "0.00", "0.03", "5.28", "4"] in rows
