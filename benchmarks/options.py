"""The command line of a script, with its docstring as help."""

import argparse


def described(about: str | None) -> argparse.ArgumentParser:
    """A parser that shows the docstring as it is, line by line."""
    return argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
