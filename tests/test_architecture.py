"""Laws of the source tree: imports point one way, the command line loads fast, files stay readable."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import eqr

SOURCE = Path(eqr.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "value", "registry", "files", "progress", "signals", "behaviour", "result"),
    ("tasks",),
    ("data",),
    ("puzzles",),
    ("model",),
    ("backends",),
    ("dynamics",),
    ("runs",),
    ("solve",),
    ("train",),
    ("results",),
    ("diagnostics",),
    ("figures",),
    ("recipes",),
    ("report",),
    ("paper", "notebook", "cpmpy_solver"),
    ("client",),
    ("serve",),
    ("cluster",),
    ("cli", "__main__"),
)
"""A module imports its own layer's part and the layers before; parts of one layer do not know each other."""

LAYER = {part: number for number, parts in enumerate(LAYERS) for part in parts}
GROUND = set(LAYERS[0])
HEAVY = ("torch", "numba", "matplotlib", "rich.progress", "huggingface_hub", "numpy", "scipy", "ray")


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """Top-level parts of eqr that a module imports anywhere in it, functions and type checking included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            names = [node.module or ""]
            if node.module == "eqr":
                names = [f"eqr.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("eqr.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    if part == "__init__":
        return
    for other in imported_parts(path) - {part, "__version__"}:
        assert other in LAYER, f"{path}: eqr.{other} is not in the table of layers"
        before = LAYER[other] < LAYER[part]
        assert before or {part, other} <= GROUND or part == "__main__", (
            f"eqr.{part} must not import eqr.{other}"
        )


def test_every_part_has_its_layer():
    assert {part_of(path) for path in MODULES} - {"__init__"} <= set(LAYER)


def test_a_folder_holds_at_least_three_files():
    folders = {path.parent for path in MODULES}
    few = [str(folder) for folder in folders if len(list(folder.glob("*.py"))) < 3]
    assert not few


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_says_what_it_is_and_catches_nothing_blindly(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module docstring says what it is and why"
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            assert caught not in ("everything", "Exception", "BaseException")


def test_loading_the_command_line_is_light():
    code = f"import sys, eqr.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_help_of_every_verb_is_light():
    code = (
        "import importlib, sys; from eqr.cli import COMMANDS\n"
        "for module, _ in COMMANDS.values(): importlib.import_module(module)\n"
        "heavy = ('torch', 'numba', 'matplotlib', 'huggingface_hub', 'ray')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
