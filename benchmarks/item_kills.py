"""Kill `eqr reproduce ITEM` over and over, give it again, and compare its tables with those never disturbed.

    python benchmarks/item_kills.py [ITEM] [--kills 20] [--seed 0]

Everything runs at the size of `--smoke`. The command and its workers are killed together (SIGKILL), at
moments uniform over the time that an undisturbed command takes: some kills strike imports, most strike runs
and looks, and some commands come through. Whatever comes through must have written what the undisturbed one
wrote, but for times; then the next one begins with nothing.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from eqr.progress import progress

COMPARED = ("table.csv", "values.csv", "table.md", "verdicts.json")


class Reproduction:
    """An item in a folder of its own."""

    def __init__(self, item: str, folder: Path) -> None:
        self.item, self.folder = item, folder

    def attempt(self, patience: float) -> bool:
        """Give the command; kill it after `patience` seconds. Return whether it came to its end before."""
        words = ["reproduce", self.item, "--smoke", "--seeds", "1"]
        places = ["--store", str(self.folder / "store"), "--out", str(self.folder / "out")]
        with (self.folder.parent / "log").open("a") as log:
            running = subprocess.Popen(
                [sys.executable, "-m", "eqr", *words, *places],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = running.wait(patience)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
                return False
        if code:
            raise SystemExit(f"the command ended with {code}:\n{Path(log.name).read_text()[-2000:]}")
        return True

    def told(self) -> dict[str, bytes]:
        """Return what the finished item says, by file."""
        return {name: (self.folder / "out" / self.item / name).read_bytes() for name in COMPARED}


def main() -> None:
    """Run once in peace, then disturb."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("item", nargs="?", default="T3")
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    moments = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        peaceful = Reproduction(asked.item, Path(place) / "peaceful")
        began = time.monotonic()
        peaceful.attempt(float("inf"))
        seconds, told = time.monotonic() - began, peaceful.told()
        disturbed = Reproduction(asked.item, Path(place) / "disturbed")
        kills = ended = 0
        with progress("kills", asked.kills) as shown:
            while kills < asked.kills or ended == 0:
                patience = moments.uniform(0, seconds) if kills < asked.kills else float("inf")
                if disturbed.attempt(patience):
                    if disturbed.told() != told:
                        raise SystemExit(f"after {kills} kills the tables differ")
                    ended += 1
                    shutil.rmtree(disturbed.folder)
                else:
                    kills += 1
                    shown.advance(1)
    print(f"{kills} kills, {ended} times to the end, the same tables each time ({seconds:.0f} s undisturbed)")


if __name__ == "__main__":
    main()
