"""How near one segment comes to the machine's matmul limit, forward and in training.

Run: python benchmarks/model.py (the same as `eqr bench model`), on an otherwise idle machine: every figure is
relative to a product measured beside it, yet a busy neighbour moves both.

Notes, from a two-core Xeon (AVX-512, 2 MiB of second-level cache and about 180 GFLOP/s a core). On the
machine to itself, `eqr bench model --rounds 2` gave, forward (with noise / still) and training: 0.75 / 0.76
and 0.65 at d=512, 0.61 / 0.62 and 0.50 at d=128, 0.43 / 0.49 and 0.39 at d=96, each ahead of the
straightforward one (1.04 to 1.63 times). So the targets of d=128 are met, those of d=512 (0.80, 0.70) are
not: products take 87 % of a forward segment there and run at about 0.8 of the limit next to everything
else. The notes below were taken while other work ran, so their shares are good to about +-0.1.

- Helped: cutting the batch into rows, a single-threaded core each. At d=128, forward, still, pieces of 2 to
  16 rows ran 2.6 to 3.1 times as fast as 128 rows with every product on all cores; 32 and 64 rows 1.9
  times.
- Helped: in-place gate and normalisation without a graph, and a hand-written gradient for the gated MLP. On
  one core, d=512, 4 rows, medians of 4 interleaved runs: forward 0.69 to 0.74, training 0.61 to 0.67.
- Products of these shapes, alone and in cache, mostly reach 0.8 to 1.2 of the limit in every size (the
  limit itself moved), so what is missing is mostly the work between them: silu takes 0.42 ns and the
  product with u 0.26 ns per hidden value. In a profile of training, products take 81 % of the time at d=512
  and 65 % at d=128.
- Not told apart by the noise: the size of a piece between 2 and 8 rows at d=512, 4 and 16 at d=128, 8 and
  32 at d=96, hence one rule for all (4 MiB for the widest intermediate). In training 4 against 8 rows at
  d=512 gave 0.67 and 0.70, 12 against 48 at d=128 0.49 and 0.47; twice the forward size is a guess in
  between.
- Did not help: weights stored transposed, (in, out) instead of (out, in): within the noise.
- Did not help: `F.rms_norm` (0.35 ns a value) and PyTorch's fused RMS norm (0.38) instead of square, mean,
  rsqrt and multiply (0.37). `linalg.vector_norm` is quicker along rows (0.13 against 0.18 ns for square and
  sum) but thirteen times slower along columns, where the token mixer needs it.
- Allocation costs nothing at these sizes: a warm segment takes no page fault at d=128 and d=96.
- Helped: the norm of a row by `linalg.vector_norm`, one pass and no square in memory (67 against 159
  microseconds for 648 x 512), and choosing the noise of a whole segment at once.
- Path noise, before that: its own time is about 1 % of that of the products at d=512 and 4 % at d=96, half
  of it the small calls that hash indices.
- Not tried: one kernel for gate and normalisation (numba or C++), and adding weight gradients of successive
  applications inside the product (beta = 1) instead of after it.
"""

from eqr.measure.bench_model import HEADER, line, measure


def main() -> None:
    """Print the table line by line."""
    print(HEADER)
    for share in measure():
        print(line(share), flush=True)


if __name__ == "__main__":
    main()
