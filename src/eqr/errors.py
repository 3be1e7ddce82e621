"""The one exception a user's mistake raises, and the "did you mean" that goes with it.

Every layer raises `UserError` for what a person can mend (a bad file, a mistyped key); the command line
prints it without a traceback. Anything else that escapes is a bug in eqr.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr


class UserError(Exception):
    """What went wrong, in words that name the field, the value and the fix."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the closest known word, else the list of known words."""
    known = sorted(known)
    close = get_close_matches(word[:80], known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def with_extra(name: str) -> str:
    """Return the command that installs eqr with an extra; on PyPI its name belongs to another project."""
    return f"pip install 'eqr[{name}] @ git+https://github.com/eqr-project/eqr'"


_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80
_REPR.maxlevel = 3


def brief(value: object) -> str:
    """Return a value as an error message shows it: however large or deep it is, in a line."""
    try:
        text = _REPR.repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 160 else f"{text[:150]}..."
