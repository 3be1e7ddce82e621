"""How near one segment comes to the machine's matmul limit, forward and in training.

Run: python benchmarks/model.py
"""

from eqr.measure.bench_model import HEADER, line, measure


def main() -> None:
    """Print the table line by line."""
    print(HEADER)
    for share in measure():
        print(line(share), flush=True)


if __name__ == "__main__":
    main()
