"""`python -m eqr` is the `eqr` command."""

from eqr.cli import main

if __name__ == "__main__":
    main()
