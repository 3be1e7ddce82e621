"""The pages tell the truth: their commands and Python run, and what they mention exists.

Commands run in order, page by page, in a folder of their own and at a tiny scale: `TINY` says what is added
to a command so that it takes a second instead of minutes (the last of two equal options wins).
"""

import importlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.testing import CliRunner

from docs_pages import PAGES, ROOT, anchors, blocks, eqr_words, figures, links, prose, spans
from eqr.cli import COMMANDS, app
from eqr.data.hub import HUB
from eqr.errors import UserError
from eqr.recipes import RECIPES, recipe_named
from eqr.tasks import task_named
from eqr.tasks.registry import TASKS
from serve_running import running
from test_architecture import LAYERS, SOURCE

ROWS = "--set rows=8 --set evaluation.puzzles=4 --set evaluation.test_puzzles=4 --set evaluation.depths=[1,2]"
GENERATED = "--set data.train=40 --set data.validation=8 --set data.test=8"
REPORT = "--puzzles 4 --starts 2 --depth 4 --landscapes 1 --landscape-starts 4 --landscape-depth 3"
REPORT += " --landscape-puzzles 2 --stability 1"
TINY = (
    (r"sweep .*--dry-run", ""),
    (r"sweep ", f"--set steps=2 {ROWS} {GENERATED} --workers 1"),
    (r"train paper/", "--show"),
    (r"train --list|train .*--show", ""),
    (r"train .*data\.kind=folder", f"--steps 2 {ROWS}"),
    (r"train ", f"--steps 2 {ROWS} {GENERATED}"),
    (r"data build ", "--count 40 --validation 4 --test 4 --quiet"),
    (r"evaluate ", "--limit 4"),
    (r"compare |report .* runs/", "--puzzles 4 --starts 2 --depth 2"),
    (r"report ", REPORT),
    (r"reproduce T19$", "--smoke --workers 1"),
)
"""Pattern of a command: what is added to it; the first that fits counts."""

NOT_RUN = (
    (r"--on ray", "needs a cluster; tests/cluster runs one of three nodes"),
    (
        r"^torchrun ",
        "tests/train/test_distributed.py and tests/results/test_evaluate.py run several processes",
    ),
    (r"data import sudoku-extreme", "needs the network"),
    (r"data import FILE|^eqr train sudoku-(9x9-hard|extreme)$", "needs the reader's own puzzles"),
    (r"^eqr serve", "runs until it is stopped; tests/serve/ asks it everything"),
    (r"^eqr export", "takes ten seconds; tests/model/test_export.py exports"),
    (r"^eqr push (?!.*--dry-run)", "needs the Hub; tests/cli/test_push.py uploads to a folder"),
    (r"^eqr convert ", "needs a published checkpoint; tests/model/test_convert.py converts one"),
)
FAMILY = {"input": [[0, 1, 2, 3, 4]] * 5, "output": [[4, 3, 2, 1, 0]] * 5}
WORD_FOR_WORD = re.compile(
    r"<!-- \w+ of (examples/[\w/]+\.py), word for word -->\n```python\n(.*?)^```$", re.M | re.S
)
FILE = r"([a-z_]+/)*\w+\.py|docs/[\w-]+\.md"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """Tasks and recipes that a page registers are forgotten after it."""
    monkeypatch.setattr(TASKS, "_known", dict(TASKS._known))
    monkeypatch.setattr(RECIPES, "_known", dict(RECIPES._known))


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with what a reader has: examples, results, and for Mini-ARC its public files."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copytree(ROOT / "results", tmp_path / "results")
    (tmp_path / "MiniARC").mkdir()
    pairs = {"train": [FAMILY, FAMILY], "test": [FAMILY]}
    (tmp_path / "MiniARC" / "mirror.json").write_text(json.dumps(pairs))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: list[str]) -> None:
    words = eqr_words(command)
    line = shlex.join(command)
    if words is None or any(re.search(pattern, line) for pattern, _ in NOT_RUN):
        return
    more = next((added for pattern, added in TINY if re.search(pattern, line)), "")
    expanded = [path for word in words for path in (map(str, Path().glob(word)) if "*" in word else [word])]
    for task in [task for task in TASKS._known if task.startswith(("latin", "takuzu"))]:
        del TASKS._known[task]  # as in a fresh process, so that --load can register it again
    done = CliRunner().invoke(app, [*expanded, *shlex.split(more)])
    if isinstance(done.exception, UserError):
        pytest.fail(f"{line}\n{done.exception}")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    may = (0, 1) if "solve" in words else (0,)  # a barely trained model need not solve its puzzle
    assert done.exit_code in may, f"{line}\n{done.output}"


@contextmanager
def answered(text: str) -> Iterator[str]:
    """Put a real server where a block expects one."""
    if "http://localhost:8000" not in text:
        yield text
        return
    with running() as (url, _):
        yield text.replace("http://localhost:8000", url)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_commands_and_python_run(page, place):
    shown = [text for _, text in WORD_FOR_WORD.findall(page.read_text(encoding="utf-8"))]  # parts of files
    names: dict[str, Any] = {}
    for block in blocks(page):
        for command in block.commands():
            run(command)
        if block.language == "python" and block.text not in shown:
            with answered(block.text) as text:
                exec(compile(text, name(page), "exec"), names)


def test_a_page_that_shows_an_example_shows_it_word_for_word():
    shown = []
    for page in PAGES:
        for path, text in WORD_FOR_WORD.findall(page.read_text(encoding="utf-8")):
            assert text in (ROOT / path).read_text(encoding="utf-8"), f"{page} differs from {path}"
            shown.append(path)
    assert shown, "no page shows an example word for word"


def test_the_readme_fits_on_two_screens_and_keeps_its_order():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    first = text[: text.index("## ")]
    assert "99.7% of Sudoku-Extreme" in first
    assert "D<=4,096 | 99.70 [" in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert "18,857 of 18,857" in first
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["Install", "Solve a puzzle", "Results", "Train your own", "From a clone", "Links"]
    table = text[text.index("| | eqr | published |") : text.index("<!-- headline: end -->")]
    assert len(table.strip().splitlines()) == 2 + 6


def verb_options() -> dict[str, set[str]]:
    """Every command by its words (`data build`), and the options it takes."""
    root = typer.main.get_command(app)
    found: dict[str, set[str]] = {"": {word for option in root.params for word in option.opts}}
    context = click.Context(root)

    def walk(words: str, command: Any) -> None:
        found[words] = {word for option in command.params for word in option.opts} | {"--help"}
        for inner in getattr(command, "commands", {}):
            walk(f"{words} {inner}", command.commands[inner])

    for verb in COMMANDS:
        walk(verb, root.get_command(context, verb))
    return found


OPTIONS = verb_options()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_verb_and_option_exists(page):
    commands = [command for block in blocks(page) for command in block.commands()]
    for words in filter(None, map(eqr_words, commands)):
        loaded = words[2:] if words[0] == "--load" else words
        verb = " ".join(loaded[:2]) if " ".join(loaded[:2]) in OPTIONS else loaded[0]
        assert verb in OPTIONS, f"no command: eqr {verb}"
        options = {word.split("=")[0] for word in loaded if re.match(r"--?[a-z]", word)}
        assert options <= OPTIONS[verb], f"eqr {verb} has no {options - OPTIONS[verb]}"
    anywhere = set().union(*OPTIONS.values())
    for span in spans(page):
        for verb, inner in re.findall(r"^eqr ([a-z]+)(?: ([a-z]+)(?![-\w]))?", span):
            assert verb in COMMANDS, f"no command: eqr {verb}"
            group = any(words.startswith(f"{verb} ") for words in OPTIONS)
            assert not group or not inner or f"{verb} {inner}" in OPTIONS, f"no command: eqr {verb} {inner}"
        if span.startswith(("pip ", "uv ", "docker ")):
            continue
        script = re.match(r"python (benchmarks/\w+\.py)", span)
        known = (ROOT / script[1]).read_text(encoding="utf-8") if script else anywhere
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span):
            assert option in known, f"no command has {option}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_recipe_and_task_exists(page):
    text = page.read_text(encoding="utf-8")
    for recipe in re.findall(r"\bpaper/[a-z]+-[a-z-]+", text):
        assert recipe in RECIPES
    hub = {name.split("/")[1] for name in HUB}
    for span in spans(page):
        if re.fullmatch(r"(sudoku|maze|mini)-[a-z0-9-]+", span) and span not in hub:
            assert span in RECIPES or task_named(span)
        if re.fullmatch(r"(sudoku|maze|mini)-[a-z0-9-]+(/[a-z0-9-]+)+", span):
            assert recipe_named(span)


def test_every_setting_is_accepted():
    tried = 0
    for span in (span for page in PAGES for span in spans(page)):
        words = shlex.split(span) if span.startswith(("--set", "eqr train")) else []
        settings = [value for option, value in pairwise(words) if option == "--set"]
        settings = [one for one in settings if not one.endswith("...")]
        recipe_named("sudoku-6x6").with_settings(settings)
        tried += len(settings)
    assert tried > 10, "settings are no longer found in the pages"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_name_and_file_exists(page):
    for span in spans(page):
        if re.fullmatch(r"eqr(\.\w+)+", span):
            module, _, last = span.rpartition(".")
            assert hasattr(importlib.import_module(module), last) or importlib.import_module(span)
        if re.fullmatch(FILE, span):
            assert (ROOT / span).is_file() or (SOURCE / span).is_file() or list(SOURCE.rglob(span)), span


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target} leads nowhere"
        assert not anchor or anchor in anchors(there), f"{target}: no such heading"


def test_no_page_holds_the_marks_of_a_merge():
    for page in PAGES:
        assert not re.search(r"^(<{7} |={7}$|>{7} )", page.read_text(encoding="utf-8"), re.MULTILINE), page


def test_figures_exist():
    assert [figure for page in PAGES for figure in figures(page) if not figure.is_file()] == []


def test_pages_that_the_code_mentions_exist():
    for module in SOURCE.rglob("*.py"):
        for page in re.findall(r"docs/[\w-]+\.md", module.read_text(encoding="utf-8")):
            assert (ROOT / page).is_file(), f"{module} mentions {page}"


def test_the_architecture_page_lists_every_folder_and_module():
    page = ROOT / "docs" / "architecture.md"
    table = prose(page)
    for folder in {module.parent for module in SOURCE.rglob("*.py")} - {SOURCE}:
        assert f"| `{folder.relative_to(SOURCE)}/` |" in table
    for module in SOURCE.glob("[a-z]*.py"):
        assert f"`{module.stem}`" in table


def test_the_architecture_page_has_the_layers_that_are_enforced():
    drawn = next(block.text for block in blocks(ROOT / "docs" / "architecture.md") if "->" in block.text)
    layers = [{part.strip() for part in layer.split(",")} for layer in drawn.split("->")]
    there = {path.stem for path in SOURCE.iterdir() if not path.name.startswith("__")}
    enforced = [set(parts) & there for parts in LAYERS]
    assert layers == [parts for parts in enforced if parts]
