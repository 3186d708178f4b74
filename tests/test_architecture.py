"""The house of docs/architecture.md: a folder imports only from folders above it, and says so."""

import ast
import subprocess
import sys
from pathlib import Path

import podnet

SOURCE = Path(podnet.__file__).parent

# From the top of the map down; a folder may import from earlier rows.
LAYERS = [
    ["errors", "fidelity", "grouping", "metrics", "randomness", "ridge", "processes"],
    ["io"],
    ["losses", "data"],
    ["nets"],
    ["scenario", "memory"],
    ["methods"],
    ["engine"],
    ["runs"],
    ["report"],
    ["model"],
    ["paper", "bench"],
    ["studio"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported_modules(path):
    """Names below `podnet` that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "podnet":
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else [alias.name for alias in node.names if alias.name in LEVEL]


def test_no_arrow_points_back():
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).with_suffix("").parts[0]
        if own == "__init__":
            continue
        assert own in LEVEL, f"{own} has no place in the architecture"
        for other in imported_modules(path):
            assert other == own or LEVEL[other] < LEVEL[own], f"{own} imports {other}"


def test_the_first_look_is_a_map():
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert len(modules) <= 8
    for folder in {path.parent for path in SOURCE.glob("*/*.py")}:
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        assert "May import" in docstring, f"{folder.name}/ does not say what it may import"


def test_the_epoch_loop_exists_once():
    found = {str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py") if ".backward()" in p.read_text()}
    assert found == {"engine/training.py", "bench/plain.py"}  # the second is what the first is measured against


def test_modules_stay_small():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 300, path


MOST_LINES, MOST_PARAMETERS = 40, 7


def functions():
    """FILE:NAME and the syntax tree of each function."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(SOURCE).as_posix()}:{node.name}", node


def parameters(node):
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return [each.arg for each in arguments if each.arg not in ("self", "cls")]


def test_functions_stay_short_and_take_few_parameters():
    found = list(functions())
    assert not [name for name, node in found if node.end_lineno - node.lineno >= MOST_LINES]
    assert not [name for name, node in found if len(parameters(node)) > MOST_PARAMETERS]


def test_no_class_is_changed_under_an_object():
    for path in SOURCE.rglob("*.py"):
        assert ".__class__ =" not in path.read_text(), f"{path}: make another object instead"


def test_public_names_are_sorted_and_exist():
    assert set(podnet.__all__) - {"__version__"} == set(podnet._HOMES)
    for name in podnet.__all__:
        assert getattr(podnet, name) is not None
    assert list(podnet._HOMES.values()) == sorted(podnet._HOMES.values())


def test_import_and_help_do_not_import_torch():
    for statement in (
        "import podnet",
        "import podnet.studio.server",
        "import podnet.report.plots",
        "from podnet.cli import main; main([])",
    ):
        code = f"{statement}\nimport sys; sys.exit('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{statement} imports torch {done.stderr}"
