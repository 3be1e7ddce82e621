"""Is the model slower than it was? This tree beside another commit, in turns of a fraction of a second.

    python benchmarks/beside.py f3566d8                # sizes that both commits have
    python benchmarks/beside.py HEAD~3 --rounds 40

Shared machines change from second to second, so two runs one after the other cannot be compared. Here each
commit has a process of its own that waits while the other works; a ratio is the median over rounds of the
other's seconds by ours, above 1 where this tree is faster, with the quarter of rounds below and above it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parents[1]
LEAST_SECONDS = 0.3
"""Of each turn; the work before leaves threads that spin on for a while."""


def work() -> None:
    """Wait for the place and name of some work, time it, say so; in the tree that PYTHONPATH names."""
    try:
        from eqr.measure import bench_model  # a checkout of 0.1.0 has its own
    except ModuleNotFoundError:
        import speed_model as bench_model

    benches = {size.name: size for size in bench_model.SIZES}
    print(json.dumps(list(benches)), flush=True)
    made: tuple[str, bench_model._Bench] | None = None
    for line in sys.stdin:
        name, what = json.loads(line)
        if made is None or made[0] != name:
            made = name, bench_model._Bench(benches[name])
        bench = made[1]
        still = partial(bench.forward, bench_model.STILL)
        run = {"forward": bench.forward, "still": still, "training": bench.training}[what]
        run()
        began, times = time.perf_counter(), 0
        while (seconds := time.perf_counter() - began) < LEAST_SECONDS:
            run()
            times += 1
        print(seconds / times, flush=True)


class Tree:
    """A process that works in one checkout."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._asks: TextIO = process.stdin
        self._says: TextIO = process.stdout
        self.sizes: list[str] = json.loads(self._says.readline())

    def seconds(self, size: str, what: str) -> float:
        print(json.dumps([size, what]), file=self._asks, flush=True)
        return float(self._says.readline())


@contextmanager
def tree(root: Path) -> Iterator[Tree]:
    command = [sys.executable, __file__, "--work"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Tree(process)
        process.kill()


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A commit's files in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(["git", "archive", commit, "src"], cwd=HERE, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], input=made.stdout, check=True)
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size", default="", help="only sizes whose name holds this, such as d=128")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work()
        return
    with ExitStack() as stack:
        then = stack.enter_context(tree(stack.enter_context(checkout(given.commit))))
        now = stack.enter_context(tree(HERE))
        for size in (size for size in now.sizes if size in then.sizes and given.size in size):
            for what in ("forward", "still", "training"):
                pairs = [
                    (then.seconds(size, what), now.seconds(size, what)) for _ in range(given.rounds + 1)
                ][1:]
                ratios = [before / after for before, after in pairs]
                low, middle, high = statistics.quantiles(ratios, n=4)
                print(f"{size:20s} {what:9s} {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)


if __name__ == "__main__":
    main()
