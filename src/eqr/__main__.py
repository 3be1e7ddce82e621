"""`eqr`, and `python -m eqr`: in charge of signals and standard streams before anything large is loaded."""

import atexit
import gc
import os
import sys

from eqr.signals import stoppable


def main() -> None:
    """Run the command line; it ends the process."""
    atexit.register(gc.freeze)  # looking for garbage among all that was loaded takes half a second at the end
    with stoppable():
        _open_standard_streams()
        from eqr.cli import main

        main()


def _open_standard_streams() -> None:
    """Open to nowhere those that were closed (`eqr ... >&-`): the next file would take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


if __name__ == "__main__":
    main()
