"""How Hypothesis is used here: a few reproducible examples; JSON values."""

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

few = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""For most properties: quick, and the same examples wherever the same modules are imported."""
fewer = settings(few, max_examples=15)
"""For a property whose examples take a twentieth of a second each."""

AWKWARD = st.sampled_from(
    ["", "\n", "\r\n", "\x1c\x85\u2028", '"}', ', "crc32": "00000000"}', "é\\", "😀{[", "nan"]
)
TEXTS = st.text(max_size=8) | AWKWARD
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
JSON: st.SearchStrategy[Any] = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
"""Any JSON value, often one that is easily mistaken for another."""


def text_of(value: Any) -> str:
    """The value as a text, in which True is not 1."""
    return json.dumps(value, sort_keys=True)


def replaced(draw: st.DrawFn, holder: Any, values: st.SearchStrategy[Any] = JSON) -> list[Any]:
    """Replaces a value at some depth of a JSON object; returns its path, and the new value."""
    way: list[Any] = [draw(st.sampled_from(list(holder)))]
    while isinstance(holder[way[-1]], dict | list) and holder[way[-1]] and draw(st.booleans()):
        holder = holder[way[-1]]
        inside = list(holder) if isinstance(holder, dict) else range(len(holder))
        way.append(draw(st.sampled_from(inside)))
    holder[way[-1]] = draw(values)
    return [*way, holder[way[-1]]]
