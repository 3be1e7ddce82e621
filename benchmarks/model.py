"""How near one segment comes to the machine's matmul limit, forward and in training.

Run: python benchmarks/model.py (the same as `eqr bench model`), on an otherwise idle machine: every figure is
relative to a product measured beside it, yet a busy neighbour moves both.

Notes, from a two-core Xeon (AVX-512, 2 MiB of second-level cache and about 180 GFLOP/s a core). On the
machine to itself, `eqr bench model` gave, forward (with noise / still) and training: 0.88 / 0.87 and 0.76 at
d=512, 0.73 / 0.75 and 0.56 at d=128, 0.49 / 0.56 and 0.46 at d=96, each ahead of the straightforward one
(1.23 to 1.72 times). Runs differ by about +-0.04. Wanted are 0.80 and 0.70 at d=512, 0.60 and 0.50 at
d=128. Notes marked "earlier" were taken before the kernels below, while other work ran: good to +-0.1.

- Helped most: one compiled sweep for each of gate, normalisation and their gradients instead of several
  operations. Per hidden value, one core: gate 0.45 against 0.85 ns, its gradient 0.67 against 2.1 ns; per
  value of the state: normalisation 0.12 to 0.16 against 0.25 to 0.30 ns, its gradient 0.22 to 0.41 against
  0.5 to 0.9 ns. Alone they took d=512 from 0.75 to about 0.80 forward and from 0.65 to 0.75 in training.
- Helped: weights above 1 MiB packed once a segment for MKL (`eqr.cpu.packing`). The products of a segment
  alone, interleaved, medians of 6: 0.84 to 0.90 of the limit; with everything else, of 8: 0.80 to 0.87. At
  d=128 the same gained 0.66 to 0.69, within the noise, so small weights are left as they are.
- Helped small models: a batch whose pieces are not worth a thread stays on one (4x4 training 13 to 7 ms a
  step). Two threads pay from 40 to 90 million operations a piece and application; below, they lose more
  than they share, most likely by passing Python's lock at every operation.
- Did not help: the hidden layer of the channel mixer in two or four slices, each kept in cache (0.73 to
  0.77 against 0.76 to 0.78); oneDNN's packed products with the gate fused into them (0.71 to 0.77 for the
  products of a segment, against 0.83 without any gate and packing).
- Left alone: calling BLAS from the compiled kernels, a whole mixer in one call. Results are bit for bit the
  same, 64 rows at 6x6 took 14 instead of 20 ms on two threads, but it needs symbols that PyTorch does not
  promise to export.
- Helped (earlier): cutting the batch into rows, a single-threaded core each. At d=128, forward, still,
  pieces of 2 to 16 rows ran 2.6 to 3.1 times as fast as 128 rows with every product on all cores; 32 and 64
  rows 1.9 times.
- Helped (earlier): in-place gate and normalisation without a graph, and a hand-written gradient for the
  gated MLP. On one core, d=512, 4 rows, medians of 4 interleaved runs: forward 0.69 to 0.74, training 0.61
  to 0.67.
- Earlier: products of these shapes, alone and in cache, mostly reach 0.8 to 1.2 of the limit in every size
  (the limit itself moved), so what is missing is mostly the work between them: silu takes 0.42 ns and the
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
- Not tried: adding weight gradients of successive applications inside the product (beta = 1) instead of
  after it; 512-bit vectors in the kernels (the compiler prefers 256).
"""

from eqr.measure.bench_model import HEADER, line, measure


def main() -> None:
    """Print the table line by line."""
    print(HEADER)
    for share in measure():
        print(line(share), flush=True)


if __name__ == "__main__":
    main()
