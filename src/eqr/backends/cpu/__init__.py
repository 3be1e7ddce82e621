"""What makes a plain model fast on a cpu: kernels, and an executor for the pieces of a batch."""
