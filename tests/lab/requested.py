"""The study that a line of `clew study` asks for."""

import shlex

from clew.cli.study import requested as parsed
from clew.lab.grid import Study


def requested(line: str) -> Study:
    """The grid of `clew study LINE`; nothing runs."""
    return parsed(shlex.split(line))[0]
