"""Being here puts `tests/` on the import path, where the small tasks and models that tests share live."""
