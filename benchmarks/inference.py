"""How fast inference is, and with a trained model what halting and racing save.

Run: python benchmarks/inference.py [RUN DATA]
"""

import sys
from pathlib import Path

from eqr.data import load_split
from eqr.measure.bench_inference import default_model, savings, speed, table
from eqr.solve import load_reasoner


def main() -> None:
    """Print every figure beside what it should be."""
    if len(sys.argv) == 1:
        print(table(speed(default_model())))
        return
    run, data = sys.argv[1:]
    reasoner = load_reasoner(run)
    print(table([*speed(reasoner), *savings(reasoner, load_split(Path(data), "test"))]))


if __name__ == "__main__":
    main()
