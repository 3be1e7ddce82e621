"""What a million puzzles cost, and how a server's queue fares under a public demo's load.

    python benchmarks/capacity.py [--puzzles 200] [--requests 1000]     # the tables of docs/capacity.md

Times are processor time on one thread, so that other work on the machine counts little. The simulation is
eqr's own queue under requests that come at random: most ask for one start, some for eight that never halt,
some ask for the most there is and leave; three seconds in twenty bring four times as many. What it knows of
a turn is the fitted time for each batch, row and answer, and of a puzzle how many segments it once took. It
is checked at three loads against the real engine on the clock of its own processor time; HTTP comes on top
(`benchmarks/serve.py`).
"""

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from eqr.solve import Answer, Budget, Session, SolveOptions, Solver
from eqr.solve.queue import Puzzle, Queue

MODELS = ("sudoku-4x4", "sudoku-6x6", "maze", "sudoku-9x9", "sudoku-9x9-hard")
CHECKED = "sudoku-9x9"
USUAL = SolveOptions()
HARD = SolveOptions(halt="never", depth=64, breadth=8, select="residual")
GREEDY = SolveOptions(halt="never", depth=128, breadth=64, select="residual")
BUDGETS = {
    "one start, halting": USUAL,
    "race of 8, halting": SolveOptions(breadth=8, race=True),
    "one start, all 64 segments": SolveOptions(halt="never"),
}
SLOTS, CLIENTS = 64, 200
LOADS = (0.3, 0.6, 0.9)
"""Of the rate that leaves a core no time, greedy clients apart."""
HARD_SHARE, GREEDY_SHARE, PATIENCE = 0.02, 0.01, 0.5
"""Shares of the requests, and the seconds after which a greedy client leaves."""
BURST, EVERY, TIMES = 3.0, 20.0, 4.0
RATES, MOST = (10, 100, 1000), 1.0
"""Requests a second to be answered, 99 of 100 of them within so many seconds."""


@dataclass(frozen=True)
class Costs:
    """Processor seconds of a model: a batch of a turn, a row, an answer; segments that each puzzle took."""

    batch: float
    row: float
    answer: float
    segments: Sequence[int]

    def of(self, segments: float) -> float:
        """Seconds of a request in full batches."""
        return segments * (self.row + self.batch / SLOTS) + self.answer

    @property
    def rate(self) -> float:
        """Requests a second that take all of a core's time."""
        usual, hard = self.of(float(np.mean(self.segments))), self.of(8 * 64)
        return 1 / ((1 - HARD_SHARE - GREEDY_SHARE) * usual + HARD_SHARE * hard)


@dataclass(frozen=True)
class Request:
    """A puzzle, by its number, and when it comes; its client may leave."""

    at: float
    client: str
    puzzle: int
    options: SolveOptions
    leaves: float = math.inf


class Run:
    """A session on the clock of this process: each turn's rows, answers and seconds."""

    def __init__(self, solver: Solver, options: SolveOptions = USUAL, slots: int = SLOTS) -> None:
        self._config = solver.reasoner.config
        budget, select = options.budget(self._config), options.selection()
        self.session = Session(solver.reasoner, solver.task, budget, select=select, slots=slots)
        self.turns: list[list[float]] = []
        self.clock = 0.0
        self._entered = 0.0

    def submit(self, text: str, options: SolveOptions | None = None, client: str | None = None) -> int:
        began = time.process_time()
        own = (
            {} if options is None else {"budget": options.budget(self._config), "select": options.selection()}
        )
        number = self.session.submit(text, client=client, **own)
        self._entered += time.process_time() - began
        return number

    def turn(self) -> list[Answer]:
        usage = self.session.engine.usage
        before, began = usage.segments, time.process_time()
        found = [event for event in self.session.turn() if isinstance(event, Answer)]
        seconds = time.process_time() - began + self._entered
        self.turns.append([1.0, usage.segments - before, len(found), seconds])
        self.clock, self._entered = self.clock + seconds, 0.0
        return found

    def answers(self, texts: Sequence[str]) -> list[Answer]:
        for text in texts:
            self.submit(text)
        found = []
        while self.session.open:
            found += self.turn()
        return sorted(found, key=lambda answer: answer.index)


def measure(name: str, count: int) -> tuple[Solver, list[str], Costs]:
    """Print what budgets cost a model, and return its costs, for its own puzzles."""
    solver = Solver(name)
    drawn = islice(solver.task.generate(np.random.default_rng(0)), count)
    texts = ["".join(solver.task.symbols[token - 1] for token in one.puzzle) for one in drawn]
    Run(solver, slots=8).answers(texts[:16])  # kernels are loaded
    turns, segments = [], []
    for budget, options in BUDGETS.items():
        run = Run(solver, options)
        answers = run.answers(texts)
        if options == USUAL:
            segments, turns = [answer.nfe for answer in answers], run.turns
            for slots, share in ((1, 16), (8, 4)):
                fewer = Run(solver, slots=slots)
                fewer.answers(texts[: count // share])
                turns = turns + fewer.turns
        each = run.clock / count
        solved = np.mean([answer.valid for answer in answers])
        used = np.mean([answer.nfe for answer in answers])
        print(
            f"| {name} | {budget} | {solved:.1%} | {used:.1f} | {1e3 * each:.2f} | {1e6 * each / 3600:.1f} |",
            flush=True,
        )
    table = np.array(turns)
    fitted = np.linalg.lstsq(table[:, :3], table[:, 3], rcond=None)[0].clip(min=0)
    return solver, texts, Costs(*map(float, fitted), segments)


def demo(costs: Costs, rate: float, count: int, *, bursts: bool = True) -> list[Request]:
    """Return requests of a public demo, so many a second on average."""
    chance, now, requests = random.Random(0), 0.0, []
    calm = rate * EVERY / (EVERY - BURST + BURST * TIMES) if bursts else rate
    while len(requests) < count:
        now += chance.expovariate(calm * (TIMES if bursts and now % EVERY < BURST else 1.0))
        kind, client = chance.random(), str(chance.randrange(CLIENTS))
        puzzle = chance.randrange(len(costs.segments))
        if kind < GREEDY_SHARE:
            requests.append(Request(now, client, puzzle, GREEDY, now + PATIENCE))
        else:
            requests.append(Request(now, client, puzzle, HARD if kind < GREEDY_SHARE + HARD_SHARE else USUAL))
    return requests


def simulate(costs: Costs, requests: Sequence[Request]) -> list[float]:
    """Return how long each request that stayed waited for its answer."""
    queue, clock, coming = Queue(Budget(), kept=SLOTS // 8), 0.0, 0
    budgets = {USUAL: Budget(), HARD: Budget(depth=64, breadth=8), GREEDY: Budget(depth=128, breadth=64)}
    rows: list[list[int]] = []  # of each slot: its request, segments to come
    starts: dict[int, int] = {}
    waited = []
    while coming < len(requests) or rows or queue.starts:
        while coming < len(requests) and requests[coming].at <= clock:
            asked = requests[coming]
            budget = budgets[asked.options]
            queue.add(Puzzle(coming, np.zeros(0, np.uint8), budget=budget, client=asked.client))
            starts[coming], coming = budget.breadth, coming + 1
        for number in [number for number in starts if requests[number].leaves <= clock]:
            queue.cancel(number)
            del starts[number]
        gone = queue.leaving()
        rows = [row for row in rows if row[0] not in gone]
        for entering in queue.draw(SLOTS - len(rows), idle=not rows):
            number, asked = entering.puzzle.index, requests[entering.puzzle.index]
            length = costs.segments[asked.puzzle] if asked.options == USUAL else entering.budget.depth
            rows += [[number, length] for _ in entering.starts]
        if not rows:
            clock = max(clock, requests[coming].at) if coming < len(requests) else clock
            continue
        batches = len({requests[number].options.depth or 0 for number, _ in rows})
        clock += batches * costs.batch + len(rows) * costs.row
        for row in rows:
            row[1] -= 1
        ended = [number for number, left in rows if not left]
        rows = [row for row in rows if row[1]]
        queue.settle((), ended)
        for number in ended:
            starts[number] -= 1
            if not starts[number]:
                del starts[number]
                clock += costs.answer
                waited.append(clock - requests[number].at)
    return waited


def replay(solver: Solver, texts: Sequence[str], requests: Sequence[Request]) -> list[float]:
    """Do the same with the real engine, on the clock of its processor time."""
    run, coming, waited = Run(solver), 0, []
    numbers: dict[int, Request] = {}
    while coming < len(requests) or run.session.open:
        while coming < len(requests) and requests[coming].at <= run.clock:
            asked, coming = requests[coming], coming + 1
            numbers[run.submit(texts[asked.puzzle], asked.options, asked.client)] = asked
        for number in [number for number, asked in numbers.items() if asked.leaves <= run.clock]:
            run.session.cancel(number)
            del numbers[number]
        if not run.session.open and coming < len(requests):
            run.clock = max(run.clock, requests[coming].at)
            continue
        waited += [run.clock - numbers.pop(answer.index).at for answer in run.turn()]
    return waited


def percentiles(waited: Sequence[float]) -> str:
    return " | ".join(f"{1e3 * float(np.quantile(waited, share)):,.0f}" for share in (0.5, 0.99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--puzzles", type=int, default=200, help="of each model")
    parser.add_argument("--requests", type=int, default=1000, help="of each load")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | budget | solved | segments | core-ms each | core-hours a million |")
    measured = {name: measure(name, given.puzzles) for name in MODELS}
    solver, texts, costs = measured[CHECKED]
    of = ", ".join(
        f"{1e6 * one:.0f} us {what}" for one, what in ((costs.batch, "a batch"), (costs.row, "a row"))
    )
    print(f"\n{CHECKED}: {of}, {1e6 * costs.answer:.0f} us an answer")
    print("| load | requests/s | engine p50 ms | p99 | simulated p50 | p99 |")
    for load in LOADS:
        requests = demo(costs, load * costs.rate, given.requests)
        print(
            f"| {load} | {load * costs.rate:.0f} | {percentiles(replay(solver, texts, requests))} | "
            f"{percentiles(simulate(costs, requests))} |",
            flush=True,
        )
    print(f"\n| model | load | requests/s of a core | cores for {', '.join(map(str, RATES))} requests/s |")
    for name, (_, _, costs) in measured.items():
        load = greatest_load(costs, given.requests)
        needed = " | ".join(f"{math.ceil(wanted / (load * costs.rate)):,}" for wanted in RATES)
        print(f"| {name} | {load:.2f} | {load * costs.rate:.0f} | {needed} |", flush=True)


def greatest_load(costs: Costs, count: int) -> float:
    """Return the greatest load, in hundredths, under which a replica answers 99 of 100 in time."""
    low, high = 0.01, 1.0
    while high - low > 0.01:
        load = (low + high) / 2
        rate = load * costs.rate
        waited = simulate(costs, demo(costs, rate, max(count, min(int(3 * EVERY * rate), 6000))))
        low, high = (load, high) if float(np.quantile(waited, 0.99)) < MOST else (low, load)
    return low


if __name__ == "__main__":
    main()
