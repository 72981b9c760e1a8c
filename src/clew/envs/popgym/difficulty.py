"""How the sizes of a task follow from its difficulty."""

from collections.abc import Mapping
from typing import Any

from clew.errors import require_choice

DIFFICULTIES = ("easy", "medium", "hard")

Sizes = Mapping[str, Mapping[str, Any]]
"""By difficulty, then by name."""


def sized(sizes: Sizes, difficulty: str, **given: Any) -> list[Any]:
    """The sizes by the order of their names: what was given, or what the difficulty says for None.

    Raises:
        UserError: an unknown difficulty.
    """
    require_choice("difficulty", difficulty, sizes)
    default = sizes[difficulty]
    return [default[name] if value is None else value for name, value in given.items()]
