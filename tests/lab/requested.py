"""The study that a line of `clew study` asks for."""

import shlex

from clew.cli.study import make_study, parse_request
from clew.lab.grid import Study


def requested(line: str) -> Study:
    """The grid of `clew study LINE`; nothing runs."""
    return make_study(parse_request(shlex.split(line)))
