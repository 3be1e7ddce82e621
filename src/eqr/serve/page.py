"""What the page is given: the card of each model, with examples; and the page as a static site.

The page draws Sudoku and mazes in their own way and any other task by its symbols; it knows their rules well
enough to say at once what is wrong with a puzzle, and asks the server for those of other tasks. As a site it
is the same files with exported models and onnxruntime-web, which `make site` fetches by npm.
"""

import shutil
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqr.errors import UserError
from eqr.files import write_json
from eqr.model.export import export_onnx, noise_scales
from eqr.model.reasoner import Reasoner
from eqr.serve.messages import Limits
from eqr.solve.solver import USUAL_DEPTH, SolveOptions
from eqr.tasks.base import Instance, Task

if TYPE_CHECKING:
    from eqr.serve.app import Served

STATIC = Path(__file__).parent / "static"
SHOWN_SETTINGS = ("depth", "breadth", "halt", "select", "race", "noise", "seed", "identity")
DRAWN = 24
"""Puzzles generated to choose examples from."""
LEVELS = ("Easy", "Medium", "Hard", "Hardest")
FAMOUS = {
    "sudoku-9x9": (
        ("17 clues", "000000010400000000020000000000050407008000300001090000300400200050100000000806000"),
        ("Inkala 2012", "800000000003600000070090200050007000000045700000100030001000068008500010090000400"),
        (
            "Golden Nugget",
            "000000039000001005003050800008090006070002000100400000009080050020000600400700000",
        ),
    )
}
"""Puzzles that people know, from hard to among the hardest known."""
TITLES = {"mini-arc": "Mini-ARC"}
"""Names that are written in a way of their own."""
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""What of onnxruntime-web's `dist` the page loads: no WebGPU, no WebGL."""
LIMITS = Limits(depth=256, breadth=16, segments=4096)
"""What a browser tab does in seconds."""
BY_SERVER, BY_BROWSER = (
    f'<meta name="eqr-backend" content="{kind}">'.encode() for kind in ("server", "browser")
)


def model_card(name: str, reasoner: Reasoner, task: Task, limits: Limits) -> dict[str, Any]:
    """Describe a model: task, size, what was measured, what may be asked, and examples."""
    noise = noise_scales(reasoner)[0]
    deepest = min(limits.depth, reasoner.config.greatest_depth or limits.depth)
    defaults = SolveOptions(depth=min(USUAL_DEPTH, deepest)).to_json()
    return {
        "name": name,
        "title": _title(name, task),
        "said": _said(reasoner),
        "task": task_card(task),
        "parameters": reasoner.parameter_count(),
        "identities": reasoner.config.identities,
        "config": reasoner.config.to_json(),
        "measured": [number.to_json() for number in reasoner.measured],
        "noise": noise,
        "noisy": True,
        "defaults": {field: defaults[field] for field in SHOWN_SETTINGS},
        "limits": {"depth": deepest, **limits.model_dump(include={"breadth", "segments", "puzzles"})},
        "examples": examples(task),
    }


def _title(name: str, task: Task) -> str:
    """Return a model's title: its puzzles, and its own name as far as that says more."""
    if name in task.name:
        return title(task)
    own = name.removeprefix(task.name).removeprefix(task.name.partition("-")[0])
    return f"{title(task)}, {own.strip('-')}" if own != name else f"{title(task)} ({name})"


def _said(reasoner: Reasoner) -> str:
    """Return the best result known of a model as a sentence."""
    found = [number for number in reasoner.measured if number.metric == "exact"]
    if not found:
        return ""
    best = max(found, key=lambda number: number.value)
    return (
        f"It solves {100 * best.value:.1f} % of {best.n:,} held-out puzzles "
        f"at depth {best.depth}, breadth {best.breadth}."
    )


def task_card(task: Task) -> dict[str, Any]:
    """Describe a task to the page."""
    seen, symbols = task.look(), task.symbols
    fixed = seen.fixed
    if fixed is None:
        fixed = symbols.replace(".", "") if "." in symbols else ""
    return {
        "name": task.name,
        "title": title(task),
        "summary": task.summary,
        "rows": task.shape[0],
        "columns": task.shape[1],
        "symbols": symbols,
        "kind": seen.editor,
        "boxes": seen.box,
        "drawn": seen.drawn,
        "places": seen.places,
        "areas": seen.areas,
        "shaded": seen.shaded,
        "cages": seen.cages,
        "links": seen.links,
        "empty": seen.empty or ("." if "." in symbols else symbols[0]),
        "fixed": fixed,
        "words": seen.words,
        "hint": seen.hint or f"A character a cell: {' '.join(symbols)}.",
        "judged": not task.identities,
    }


def title(task: Task) -> str:
    """Return a task's name for people: `sudoku-9x9` is Sudoku 9 × 9."""
    if task.name in TITLES:
        return TITLES[task.name]
    word, _, rest = task.name.partition("-")
    return f"{word.capitalize()} {rest.replace('x', ' × ') if rest[:1].isdigit() else rest}".strip()


def examples(task: Task, *, seed: int = 0) -> list[dict[str, str]]:
    """Return puzzles from easy to hard: generated ones by their rating, then famous ones."""

    def difficulty(one: Instance) -> tuple[int, int]:
        return one.rating, -int(task.clues(one.puzzle[None])[0]) if task.clues_name else 0

    drawn = sorted(islice(task.generate(np.random.default_rng(seed)), DRAWN), key=difficulty)
    famous = FAMOUS.get(task.name, ())
    levels = LEVELS[: len(LEVELS) - 1] if famous else LEVELS
    places = np.linspace(0, len(drawn) - 1, len(levels)).round().astype(int)
    made = [
        {"label": level, "puzzle": "".join(task.symbols[token - 1] for token in drawn[place].puzzle)}
        for level, place in zip(levels, places, strict=True)
    ]
    return made + [{"label": label, "puzzle": puzzle} for label, puzzle in famous]


def build_site(
    folder: Path, models: "Sequence[Served]", runtime: Path, *, done: Callable[[], object] = lambda: None
) -> None:
    """Fill a folder; `runtime` is the `dist` of onnxruntime-web. `done` is called after each graph."""
    missing = [name for name in RUNTIME if not (runtime / name).is_file()]
    if missing:
        raise UserError(f"{runtime} has no {missing[0]}; `make site` fetches onnxruntime-web by npm")
    for name in ("style.css", "icon.svg"):
        shutil.copyfile(STATIC / name, folder / name)
    page = (STATIC / "index.html").read_bytes()
    assert BY_SERVER in page
    (folder / "index.html").write_bytes(page.replace(BY_SERVER, BY_BROWSER))
    shutil.copytree(STATIC / "js", folder / "js", ignore=shutil.ignore_patterns("docs.js"))
    (folder / "ort").mkdir()
    for name in RUNTIME:
        shutil.copyfile(runtime / name, folder / "ort" / name)
    cards = []
    for model in models:
        place = f"models/{model.name}"
        export_onnx(model.reasoner, folder / place, {}, done=done)
        about = model_card(model.name, model.reasoner, model.task, LIMITS)
        noisy = model.reasoner.config.path.noise > 0  # a graph without noise cannot be given any
        cards.append({**about, "folder": place, "noisy": noisy})
    write_json(folder / "models.json", {"models": cards})
