"""Puzzle sets made by a task's own generator, split so that train, validation and test share no puzzle.

Small tasks run out: 4x4 Sudoku has 288 solutions and few thousand hard puzzles. The search for distinct
puzzles is therefore bounded and says how many it found instead of looking for ever.
"""

from collections.abc import Iterator

import numpy as np

from eqr.data.puzzles import BLANK, PuzzleSet
from eqr.data.splits import Splits
from eqr.data.workers import Blocks, GeneratedBlock
from eqr.errors import UserError
from eqr.progress import progress
from eqr.tasks.base import Generate, Task

FEWEST = 16
"""Puzzles that each split must have where fewer than asked for will do."""
PATIENCE = 1000
"""Repeats in a row before the search ends; by then some 99.5% of all there are have been found."""


def generate(
    task: Task,
    sizes: dict[str, int],
    *,
    seed: int,
    options: Generate | None = None,
    workers: int = 0,
    one_stream: bool = False,
    fewer: bool = False,
    quiet: bool = False,
) -> Splits:
    """Generate distinct puzzles for each split; the result depends on (task, sizes, seed, options) alone.

    No input occurs twice, and no two splits share a puzzle up to the task's cheap symmetries. Splits grow in
    proportion; `one_stream` instead fills them one after the other, in the order of `sizes`, from one
    `default_rng(seed)`, as the builders of published sets do, and therefore without workers. Where there are
    not so many distinct puzzles, it is an error, or with `fewer` splits are smaller.
    """
    sizes = {name: count for name, count in sizes.items() if count}
    if not sizes or min(sizes.values()) < 0:
        raise UserError("ask for at least one puzzle: --count must be positive")
    if one_stream and workers:
        raise UserError("one stream cannot be shared by workers; leave out --workers")
    sorter = _Sorter(task, sizes, in_turn=one_stream, fewer=fewer)
    total = sum(sizes.values())
    label = f"generating {task.name}"
    with (
        Blocks(task, options, seed=seed, workers=workers) as blocks,
        progress(label, total, unit="puzzles", quiet=quiet) as shown,
    ):
        for block in _one_stream(task, options, seed) if one_stream else blocks:
            shown.advance(sorter.add(block))
            if sorter.done:
                break
    made = {
        "made_by": "eqr data build",
        "seed": seed,
        "options": {} if options is None else options.to_json(),
        "one_stream": one_stream,
    }
    splits = Splits({name: sorter.puzzles(name).with_metadata(**made) for name in sizes})
    for name, puzzles in splits:
        _require_solved(task, puzzles, name)
    return splits


def _require_solved(task: Task, puzzles: PuzzleSet, split: str) -> None:
    """Refuse a generator whose answers the task itself rejects: a model would learn them all the same."""
    wrong = np.flatnonzero(~task.check_many(puzzles.inputs, puzzles.labels))
    if len(wrong):
        first = int(wrong[0])
        reason = task.check(puzzles.inputs[first], puzzles.labels[first]).reason
        raise UserError(
            f"{task.name}.generate made {len(wrong):,} {split} answers that {task.name}.check rejects, the "
            f"first because {reason or 'it is invalid'}; mend generate or check"
        )


def _one_stream(task: Task, options: Generate | None, seed: int) -> Iterator[GeneratedBlock]:
    instances = task.generate(np.random.default_rng(seed), options)
    while True:
        yield GeneratedBlock.drawn(instances)


class _Sorter:
    """Puts each new puzzle where its kind (its canonical form) belongs, and gives up when none is new."""

    def __init__(self, task: Task, sizes: dict[str, int], *, in_turn: bool, fewer: bool) -> None:
        self._task, self._sizes, self._in_turn, self._fewer = task, sizes, in_turn, fewer
        self._run_out = False
        self._kept: dict[str, list[tuple[GeneratedBlock, int]]] = {name: [] for name in sizes}
        self._home: dict[bytes, str] = {}
        self._kinds = dict.fromkeys(sizes, 0)
        self._inputs: set[bytes] = set()
        self._repeats = 0

    @property
    def done(self) -> bool:
        """Whether every split is full, or no more puzzles are to be had."""
        return self._run_out or all(len(kept) == self._sizes[name] for name, kept in self._kept.items())

    def _home_of_new(self) -> str:
        """The split a new kind goes to: the first with room, or the one with fewest kinds for its size.

        Where kinds are few (4x4), counting kinds rather than puzzles gives each split several of them.
        """
        roomy = [name for name, kept in self._kept.items() if len(kept) < self._sizes[name]]
        if self._in_turn:
            return roomy[0]
        return min(roomy, key=lambda name: (self._kinds[name] / self._sizes[name], -self._sizes[name]))

    def add(self, block: GeneratedBlock) -> int:
        """Keep what is new in a block and return how many that was."""
        added = 0
        kinds = self._task.canonical(block.inputs)
        for row in range(len(block)):
            if self.done:
                break
            if self._keep(block, row, kinds[row].tobytes()):
                added += 1
                self._repeats = 0
            else:
                self._give_up_when_stuck()
        return added

    def _keep(self, block: GeneratedBlock, row: int, kind: bytes) -> bool:
        identity = block.identities[row].tobytes()
        key, kind = block.inputs[row].tobytes() + identity, kind + identity
        home = self._home.get(kind) or self._home_of_new()
        if key in self._inputs or len(self._kept[home]) >= self._sizes[home]:
            return False
        self._inputs.add(key)
        if kind not in self._home:
            self._home[kind] = home
            self._kinds[home] += 1
        self._kept[home].append((block, row))
        return True

    def _give_up_when_stuck(self) -> None:
        self._repeats += 1
        found = len(self._inputs)
        if self._repeats >= PATIENCE:
            self._run_out = self._fewer and min(map(len, self._kept.values())) >= FEWEST
            if self._run_out:
                return
            wanted = sum(self._sizes.values())
            raise UserError(
                f"found only {found:,} distinct puzzles of the {wanted:,} asked for: the last "
                f"{self._repeats:,} drawn were repeats. Lower --count, --validation or --test, or loosen the "
                "options"
            )

    def puzzles(self, name: str) -> PuzzleSet:
        """The set of one split."""
        kept = self._kept[name]
        facts = kept[0][0].facts
        families = max(int(block.identities.max()) for split in self._kept.values() for block, _ in split)
        return PuzzleSet.of(
            self._task.name,
            np.stack([block.inputs[row] for block, row in kept]),
            np.stack([block.labels[row] for block, row in kept]),
            ratings=[block.ratings[row] for block, row in kept],
            identities=[block.identities[row] for block, row in kept],
            identity_names=(BLANK, *(f"family-{number}" for number in range(1, families + 1))),
            source_names=("generated",),
            facts={fact: [block.facts[fact][row] for block, row in kept] for fact in facts},
        )
