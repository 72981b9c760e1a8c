"""Breaches as the libraries' own functions show them, without clew and without an adapter."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Confirmation(NamedTuple):
    """One breach."""

    file: str
    """Of the library, from the folder that holds its package."""
    number: int
    """The line that does it."""
    text: str
    """What that line has, so that the two are never apart."""
    says: str
    """What it does, in a sentence."""
    measure: Callable[[], float]
    """How far two ways are apart that should agree, relative to the largest number."""

    def line(self) -> str:
        """File and line, after a look whether it still says so.

        Raises:
            AssertionError: if it does not.
        """
        package = __import__(self.file.split("/")[0])
        root = Path(next(iter(package.__path__))).parent
        found = (root / self.file).read_text().splitlines()[self.number - 1]
        assert self.text in found, f"{self.file}:{self.number} is {found!r}, not {self.text!r}"
        return f"{self.file}:{self.number}"


CONFIRMATIONS: dict[str, tuple[Confirmation, ...]] = {}
"""By model."""
