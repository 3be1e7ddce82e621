"""What lies around the package: the site builds, the notebooks run, the wheel works, versions agree."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

import eqr
from docs_pages import ROOT
from eqr.tasks.registry import TASKS

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TINY = {
    "dynamics": {"SAMPLES": 2, "DEPTH": 8, "CLUES": 40},
    "first_look": {"PUZZLES": 2},
    "landscape": {"STARTS": 4, "PUZZLES": 3, "DEPTH": 4},
    "your_own_task": {"STEPS": 2, "PUZZLES": 20, "RUN": "run"},
}
"""What stands instead of a notebook's cell tagged `parameters`, so that it takes seconds."""
PUZZLE = "53..7.... 6..195... .98....6. 8...6...3 4..8.3..1 7...2...6 .6....28. ...419..5 ....8..79"


def test_the_site_builds_without_a_warning(tmp_path):
    words = ["build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "site" / "reference" / "index.html").read_text(encoding="utf-8")
    assert "Take a reasoner, a model folder or a run folder" in reference
    guide = (tmp_path / "site" / "custom-tasks" / "index.html").read_text(encoding="utf-8")
    assert "https://github.com/eqr-project/eqr/blob/main/examples/custom_task.py" in guide


def test_the_reference_has_every_public_name_with_an_example():
    """`tests/test_docs.py` runs the examples."""
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    entries = re.split(r"^::: (\S+)$", page, flags=re.MULTILINE)[1:]
    examples: dict[str, str] = {}
    for path, text in zip(entries[::2], entries[1::2], strict=True):
        name = path.rpartition(".")[2]
        examples[name] = examples.get(name, "") + text
    for name in {*eqr._HOME, *eqr._MODULES}:
        found = re.search(rf"```python\n[^`]*\beqr\.{name}\b", examples.get(name, ""))
        assert found, f"no example of eqr.{name}"


def run_notebook(path: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """Run the code cells in order; what a cell ends in must have something to show."""
    names: dict[str, Any] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs"), "notebooks are kept without outputs"
        if cell["cell_type"] != "code":
            continue
        lines = [line for line in cell["source"] if not line.startswith("%pip ")]  # eqr is there already
        tree = ast.parse("".join(lines), str(path))
        if not tree.body:
            continue
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(path), "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            assert changes.keys() <= names.keys()
            names.update(changes)
        if isinstance(last, ast.Expr):
            assert repr(eval(compile(ast.Expression(last.value), str(path), "eval"), names))
    return names


def test_there_are_four_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["dynamics", "first_look", "landscape", "your_own_task"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TASKS, "_known", dict(TASKS._known))
    names = run_notebook(path, TINY[path.stem])
    if path.stem == "first_look":  # in Colab too: it installs eqr itself, and ran in an empty folder
        assert "%pip install" in path.read_text(encoding="utf-8")
        assert names["answer"].valid
        assert "solved after" in capsys.readouterr().out


def test_versions_agree():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'version = "{eqr.__version__}"' in project
    assert f"version: {eqr.__version__}\n" in citation
    assert f"## {eqr.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_constraints_pin_what_each_extra_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M))
    for extra in (project["dependencies"], *project["optional-dependencies"].values()):
        asked = {re.match(r"[\w-]+", one)[0] for one in extra}
        assert asked - {"eqr"} <= pinned


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_demo_installs_what_it_needs_and_the_tests_all():
    def planned(*words: str) -> str:
        made = subprocess.run(
            ["make", "--dry-run", "VENV=nowhere", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return made.stdout

    assert '-e ".[plots]"' in planned("demo")
    assert "whl/cpu" in planned("demo", "TORCH=cpu")
    assert "whl/cpu" not in planned("demo")
    assert '-e ".[dev]"' in planned("test")


def test_continuous_integration_runs_what_the_readme_says():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    supported = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert matrix["python"] == supported
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert any(step.get("run", "").startswith("make test") for step in jobs["test"]["steps"])
    for path in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8")), path


@pytest.mark.slow
def test_wheel_and_sdist_solve_a_puzzle_in_an_environment_of_their_own(tmp_path):
    tree, home = tmp_path / "tree", tmp_path / "home"
    tree.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)

    def run(*words: str | Path, **more: str) -> str:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            list(map(str, words)),
            cwd=tmp_path,
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # both: the sdist of the tree, and the wheel of the sdist, as pip makes it when it installs an sdist
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, tree)
    (sdist,) = tmp_path.glob("eqr-*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/eqr/weights/sudoku-9x9/model.safetensors",
    } <= inside
    assert not [name for name in inside if "__pycache__" in name]
    run(sys.executable, "-m", "venv", "--without-pip", home)
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    (wheel,) = tmp_path.glob("eqr-*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    # what eqr needs comes from the environment of the tests; eqr itself must not (paths given this way do
    # not run the .pth file by which a checkout is installed)
    others = sysconfig.get_path("purelib")
    where = run(python, "-c", "import eqr; print(eqr.__file__)", PYTHONPATH=others)
    assert Path(where.strip()).is_relative_to(home)
    said = json.loads(run(python, "-m", "eqr", "solve", "sudoku-9x9", PUZZLE, "--json", PYTHONPATH=others))
    assert said["valid"] is True
