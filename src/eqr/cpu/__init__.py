"""What makes a small model fast on a CPU: kernels compiled for this machine. The model itself is plain."""
