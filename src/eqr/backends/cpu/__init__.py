"""What makes a plain model fast on a cpu: kernels, and an executor for the pieces of a batch."""

from eqr.backends.cpu import gated, operators  # noqa: F401  # each registers its kernels
