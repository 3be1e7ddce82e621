"""The model: small parts that assemble every system of the paper (see `Reasoner` and `systems`)."""
