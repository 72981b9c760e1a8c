"""The command line of a script, with its docstring as help."""

import argparse


def described(about: str | None, *, draws: bool = False) -> argparse.ArgumentParser:
    """A parser that shows the docstring as it is, line by line.

    `draws` adds --redraw, for scripts that write tables or pictures of what they measure.
    """
    found = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if draws:
        found.add_argument(
            "--redraw",
            action="store_true",
            help="measure nothing: write the folder's tables and pictures from its data again",
        )
    return found
