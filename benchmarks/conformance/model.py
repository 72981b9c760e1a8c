"""One model of another library: its origin, how it is built, and which code handles its starts."""

from collections.abc import Callable
from typing import NamedTuple

from clew.memory.base import AbstractMemory

SIZE = 8
"""Size of an observation and, as far as a model lets one choose, of its state and output."""

OWN = "its own"
BY_CALLER = "the caller's"


class Model(NamedTuple):
    """A row of the table, before anything is measured."""

    library: str
    """The distribution whose version is quoted."""
    what: str
    """The class or function, as it is imported."""
    make: Callable[[], AbstractMemory]
    """Imports the library, and wraps the model with its random weights."""
    chunk: str
    """How the library reads a chunk."""
    step: str
    """How it reads one observation when it acts."""
    starts: str = OWN
    """Whose code resets at a start within a chunk: `OWN`, or `BY_CALLER` for a library whose chunk
    has no starts. Then the adapter cuts the chunk at each start, and `reset` says nothing about the
    library."""
    lengths: tuple[int, ...] = (1, 7, 64)
    """Lengths of the chunks that are read."""
