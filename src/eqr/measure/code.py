"""Which code made a result: a digest of the sources that decide what a model answers.

A table of candidates kept from before a repair must not be scored as if it were new. Comments, docstrings and
layout do not count, so that only a change of the code itself makes old results old.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

import eqr

DECIDING = ("tasks", "cpu", "model", "solve")
"""Parts of the package that decide it."""


@cache
def code_digest() -> str:
    """Return a digest of the code that turns puzzles and weights into candidates."""
    root = Path(eqr.__file__).parent
    digest = hashlib.sha256()
    for part in DECIDING:
        for path in sorted((root / part).rglob("*.py")):
            digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
            digest.update(essence(path.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:16]


def essence(source: str) -> str:
    """Return what a source says to the machine, without what it says to people."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(line: ast.stmt) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )
