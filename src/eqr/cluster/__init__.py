"""The same commands on a Ray cluster; nothing else in eqr knows of Ray, which loads when `--on ray` asks."""
