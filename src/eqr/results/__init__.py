"""Results: the candidates table on disk, metrics from it, and their intervals."""
