"""Throw damaged files, odd settings and odd calls at eqr: each is taken, or refused in words.

    python benchmarks/fuzz.py --seconds 300 --seed 1

Every kind of file that eqr reads is made once, changed at random and read again; every field of a recipe is
set to odd values, as `eqr train --set` does; puzzles and arrays of any form are given to the tasks. It prints
how many calls were taken and refused, and the first that raised anything but a `UserError`.
`tests/test_hostile.py` runs a short, seeded part of it.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typer.testing import CliRunner

from eqr.cli import app
from eqr.data import Splits
from eqr.data.arc_json import read_arc_folder
from eqr.data.arrays import read_archive
from eqr.data.csv_source import read_csv
from eqr.data.folders import read_folder, write_folder
from eqr.data.generated import generate
from eqr.dynamics.halting import parse_halting
from eqr.errors import UserError
from eqr.model.convert import convert, read_checkpoint
from eqr.model.lookup import local_device
from eqr.model.reasoner import Reasoner
from eqr.model.systems import eqr as eqr_system
from eqr.paper.sweep import Axis
from eqr.recipes import recipe_named
from eqr.runs import RunFolder
from eqr.solve.budget import Budget
from eqr.solve.selection import parse_selection
from eqr.tasks import task_named
from eqr.train.checkpoint import Checkpoint, Checkpoints
from eqr.train.checkpoint import read as read_training
from eqr.train.recipe import Recipe, flatten

TASK = "sudoku-4x4"
SETTINGS = {"H_cycles": 2, "L_cycles": 2, "seq_len": 16, "num_heads": 4}
ODD = (
    *(None, True, 0, -1, 1, 7, 10**9, 10**30, 0.5, -0.5, 1e308, 1e-320, float("nan"), float("inf")),
    *("", "x", "../../x", "nan", "9" * 5000, "\ud800", "\0", "é" * 300),
    *([], [1], {}, {"kind": "x"}, {"a": [[[]]]}),
)
"""Values that no field expects, or hardly."""


@dataclass
class Tally:
    """What became of the calls."""

    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    escaped: list[tuple[str, str]] = field(default_factory=list)

    def call(self, kind: str, action: Callable[[], object], told: str) -> None:
        """Count one call; anything but a `UserError` has escaped."""
        try:
            action()
        except UserError:
            self.refused[kind] += 1
        except Exception:
            self.escaped.append((kind, f"{told}\n{traceback.format_exc(limit=-4)}"))
        else:
            self.taken[kind] += 1

    def lines(self) -> list[str]:
        """Return the counts as a table."""
        kinds = sorted({*self.taken, *self.refused, *(kind for kind, _ in self.escaped)})
        escaped = Counter(kind for kind, _ in self.escaped)
        rows = [f"{'calls':<12} {'taken':>8} {'refused':>8} {'escaped':>8}"]
        rows += [
            f"{kind:<12} {self.taken[kind]:>8,} {self.refused[kind]:>8,} {escaped[kind]:>8,}"
            for kind in kinds
        ]
        total = (self.taken.total(), self.refused.total(), len(self.escaped))
        return [*rows, f"{'all':<12} {total[0]:>8,} {total[1]:>8,} {total[2]:>8,}"]


Readers = dict[str, Callable[[], object]]


def make_files(root: Path) -> Readers:
    """Write one of every kind of file that eqr reads; return what reads each folder, by its name."""
    task = task_named(TASK)
    splits = generate(task, {"train": 8, "test": 4}, seed=0, quiet=True)
    model = Reasoner(eqr_system(task, width=16, heads=2, blocks=1, round_hidden_to=16))
    for name in ("csv", "arc", "original", "convert", "checkpoint", "run", "archive"):
        (root / name).mkdir()
    splits.save(root / "dataset")
    write_folder(splits, task, root / "folder")
    text = ["".join(task.symbols[token - 1] for token in grid) for grid in splits["train"].inputs]
    answers = ["".join(task.symbols[token - 1] for token in grid) for grid in splits["train"].labels]
    rows = [f"{puzzle},{answer}\n" for puzzle, answer in zip(text, answers, strict=True)]
    (root / "csv" / "a.csv").write_text("question,answer\n" + "".join(rows))
    pair = {"input": [[0] * 5] * 5, "output": [[1] * 5] * 5}
    (root / "arc" / "flip.json").write_text(json.dumps({"train": [pair, pair], "test": [pair]}))
    model.save_pretrained(root / "model")
    weights = {"embed_tokens.embedding_weight": torch.zeros(6, 16), "L_level.layers.0.a": torch.zeros(3)}
    for name in ("original", "convert"):
        torch.save({"model": weights, "config": SETTINGS}, root / name / "w.pth")
    config = "\n".join(f"{key}: {value}" for key, value in SETTINGS.items())
    (root / "convert" / "c.yaml").write_text(config)
    record = {"seconds": 1.0, "best": {"exact": 0.5}, "meter": {}, "stream": {}}
    Checkpoints(root / "checkpoint", 1).save(Checkpoint(3, {"weights": torch.ones(4)}, record))
    run = RunFolder(root / "run")
    run.recipe.write_text(json.dumps(recipe_named("sudoku-6x6").to_json()))
    run.metrics.write_text('{"kind": "train", "step": 1, "loss": 1.0}\n{"kind": "test", "step": 2}\n')
    summary = {"recipe_digest": "a", "parameters": 1, "steps": 2, "seconds": 1.0, "best": {}}
    run.summary_file.write_text(json.dumps(summary))
    np.savez(root / "archive" / "a.npz", points=np.ones((3, 2), np.float32), words=np.array("{}"))
    return {
        "dataset": lambda: Splits.load(root / "dataset"),
        "folder": lambda: read_folder(root / "folder"),
        "csv": lambda: read_csv(root / "csv" / "a.csv"),
        "arc": lambda: read_arc_folder(root / "arc", variants=1),
        "model": lambda: Reasoner.from_pretrained(root / "model"),
        "original": lambda: read_checkpoint(root / "original" / "w.pth"),
        "convert": lambda: convert(root / "convert" / "w.pth", root / "convert" / "c.yaml"),
        "checkpoint": lambda: read_training(next((root / "checkpoint").iterdir())),
        "run": lambda: (run.summary(), run.records(), Recipe.of_run(run)),
        "archive": lambda: read_archive(root / "archive" / "a.npz"),
    }


def damaged(rng: random.Random, content: bytes, *, is_json: bool) -> bytes:
    """Change a file a little: bytes overwritten, inserted, doubled or cut off; JSON also value by value."""
    if is_json and rng.random() < 0.7:
        return json.dumps(_swapped(rng, json.loads(content))).encode("utf-8", "surrogatepass")
    for _ in range(rng.randint(1, 4)):
        at, new = rng.randrange(len(content) + 1), rng.randbytes(rng.randint(0, 6))
        rest = rng.choice((content[at + len(new) :], content[at:], b"", content[at:] * 2))
        content = content[:at] + new + rest
    return content


def _swapped(rng: random.Random, data: Any) -> Any:
    """Replace one value somewhere by an odd one."""
    places = (
        list(data) if isinstance(data, dict) else list(range(len(data))) if isinstance(data, list) else []
    )
    if not places or rng.random() < 0.15:
        return rng.choice(ODD)
    place = rng.choice(places)
    data[place] = _swapped(rng, data[place])
    return data


def fuzz_files(rng: random.Random, tally: Tally, root: Path, readers: Readers) -> None:
    """Damage one file, read its folder, and put the file back."""
    kind = rng.choice(sorted(readers))
    file = rng.choice(sorted(path for path in (root / kind).rglob("*") if path.is_file()))
    whole = file.read_bytes()
    changed = damaged(rng, whole, is_json=file.suffix == ".json")
    file.write_bytes(changed)
    try:
        tally.call(kind, readers[kind], f"{file.relative_to(root)} = {changed[:200]!r}")
    finally:
        file.write_bytes(whole)


def fuzz_settings(rng: random.Random, tally: Tally, fields: list[str]) -> None:
    """Set one or two fields of a recipe, or of a budget, to odd values."""
    odd = [rng.choice(ODD) for _ in range(2)]
    texts = [value if isinstance(value, str) else json.dumps(value) for value in odd]
    settings = [f"{rng.choice(fields)}={text}" for text in texts[: rng.randint(1, 2)]]
    tally.call("--set", lambda: recipe_named("sudoku-6x6").with_settings(settings), str(settings)[:300])
    budget = {rng.choice(sorted(Budget.model_fields)): odd[0]}
    tally.call("budget", lambda: Budget.from_json(budget), str(budget)[:300])


def fuzz_words(rng: random.Random, tally: Tally) -> None:
    """Give random text to whatever parses words: task names, rules, puzzles."""
    letters = "sudokumaze-x0123456789 .:+/#SGo[]{},\n\0é\ud800"
    word = "".join(rng.choices(letters, k=rng.choice((1, 5, 12, 16, 81, 400))))
    word = rng.choice((word, word, word, *(odd for odd in ODD if isinstance(odd, str))))
    named = f"{rng.choice(('sudoku', 'maze', 'maze-1k', 'mini-arc'))}-{word[:9]}"
    rule = rng.choice(("head", "residual:", "stable:", "never", "a")) + rng.choice(("", "+", "/")) + word[:6]
    task = task_named(rng.choice(("sudoku-4x4", "sudoku-9x9", "maze-5x5", "mini-arc")))
    tally.call("task", lambda: task_named(named), repr(named))
    tally.call("halting", lambda: parse_halting(rule), repr(rule))
    tally.call("selection", lambda: parse_selection(rule), repr(rule))
    tally.call("puzzle", lambda: task.check_puzzle(task.parse(word)), repr((task.name, word))[:300])
    tally.call("device", lambda: local_device(word), repr(word)[:300])
    tally.call("sweep", lambda: Axis.parse(f"seed={rng.choice(('', '0..', '9..'))}{word}"), repr(word)[:300])
    dtype = rng.choice((np.uint8, np.int64, np.float32))
    cells = rng.choice((0, 1, 16, 81))
    grid = np.random.default_rng(rng.randrange(2**32)).integers(0, 300, cells).astype(dtype)
    tally.call("grid", lambda: task.require_tokens(grid), repr((task.name, grid))[:300])


COMMANDS = {
    ("solve", TASK, "1..4........2..3"): (
        *("--halt", "--select", "--start", "--identity", "--device", "--task", "--noise", "--damping"),
        *("--seed", "--file"),
    ),
    ("train", TASK, "--show"): ("--set", "--steps", "--time-limit"),
    ("sweep", TASK, "--dry-run"): ("--set", "--time-limit", "--store", "--workers"),
}
"""Commands that take a moment, and their options that take text."""


def fuzz_commands(rng: random.Random, tally: Tally) -> None:
    """Give an option of a command odd text, as a shell would."""
    command = rng.choice(list(COMMANDS))
    option = rng.choice(COMMANDS[command])
    odd = rng.choice([value if isinstance(value, str) else json.dumps(value) for value in ODD])
    words = [*command, option, rng.choice(("", "name=", "seed=", "seed=0..")) * (option == "--set") + odd]

    tally.call(f"eqr {command[0]}", lambda: run_command(words), repr(words)[:300])


def run_command(words: list[str]) -> None:
    """Run `eqr` in this process; what the command line says in a line is a `UserError`, all else raises."""
    try:
        done = CliRunner().invoke(app, words, catch_exceptions=False)
    except OSError as error:
        if error.filename is None:
            raise
        raise UserError(str(error)) from None  # as `eqr.cli.main` has it
    if done.exit_code == 2:
        raise UserError(done.stderr)


def fuzz(seconds: float, seed: int, rounds: int | None = None) -> Tally:
    """Fuzz for some seconds, or exactly so many rounds."""
    rng, tally = random.Random(seed), Tally()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        readers = make_files(root)
        fields = sorted(flatten(recipe_named("sudoku-6x6").to_json()))
        number = 0
        while (rounds is None and time.monotonic() < end) or (rounds is not None and number < rounds):
            fuzz_files(rng, tally, root, readers)
            fuzz_settings(rng, tally, fields)
            fuzz_words(rng, tally)
            fuzz_commands(rng, tally)
            number += 1
    return tally


def main() -> None:
    """Run from the command line; exit code 1 if anything escaped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    tally = fuzz(asked.seconds, asked.seed)
    print("\n".join(tally.lines()))
    for kind, told in tally.escaped[:10]:
        print(f"\n{kind}: {told}", file=sys.stderr)
    sys.exit(1 if tally.escaped else 0)


if __name__ == "__main__":
    main()
