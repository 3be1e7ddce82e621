"""`eqr`, and `python -m eqr`: takes charge of signals before anything large is loaded."""

from eqr.signals import stoppable


def main() -> None:
    """Run the command line; it ends the process."""
    with stoppable():
        from eqr.cli import main

        main()


if __name__ == "__main__":
    main()
