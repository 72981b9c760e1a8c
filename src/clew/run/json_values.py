"""Settings as JSON has them, which knows no tuples."""

from typing import Any


def with_lists(value: Any) -> Any:
    """The value with lists in place of tuples, which JSON does not know."""
    if isinstance(value, dict):
        return {k: with_lists(v) for k, v in value.items()}
    return [with_lists(v) for v in value] if isinstance(value, tuple) else value


def with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """The values with tuples, which JSON does not know, in place of lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
