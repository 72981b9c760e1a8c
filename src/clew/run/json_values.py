"""Values as JSON has them, which knows neither tuples nor numbers that are not finite."""

import math
from typing import Any


def with_lists(value: Any) -> Any:
    """The value with lists in place of tuples, which JSON does not know."""
    if isinstance(value, dict):
        return {k: with_lists(v) for k, v in value.items()}
    return [with_lists(v) for v in value] if isinstance(value, tuple) else value


def with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """The values with tuples, which JSON does not know, in place of lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def finite(value: Any) -> Any:
    """A value for `json.dumps`: named tuples as objects, and null for what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if hasattr(value, "_asdict"):  # foreign: a NamedTuple
        return finite(value._asdict())
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value
