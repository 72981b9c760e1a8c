"""The sizes of a task by its difficulty."""

from collections.abc import Mapping
from typing import Any

from clew.errors import require_choice

DIFFICULTIES = ("easy", "medium", "hard")

Sizes = Mapping[str, Mapping[str, Any]]
"""By difficulty, then by name."""


def sized(sizes: Sizes, difficulty: str, **given: Any) -> list[Any]:
    """The sizes in the order of their names: as given, or the difficulty's where None.

    Raises:
        UserError: an unknown difficulty.
    """
    require_choice("difficulty", difficulty, sizes)
    default = sizes[difficulty]
    return [default[name] if value is None else value for name, value in given.items()]
