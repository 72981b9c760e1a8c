"""Options as text, KEY=VALUE, as the command line takes them."""

import json
from collections.abc import Sequence
from typing import Any

_WORDS = {"true": True, "false": False}


def parse_value(text: str) -> Any:
    """A value given as text: JSON, None, true or false in any case, or else the text itself.

    "none" is text, since memories have choices of that name.
    """
    if text == "None":
        return None
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def written(value: Any) -> str:
    """The text that `parse_value` reads as this value, in quotes where it needs them."""
    return value if isinstance(value, str) and parse_value(value) == value else json.dumps(value)


def parse_pairs(words: Sequence[str]) -> dict[str, Any]:
    """Options given as KEY=VALUE.

    Raises:
        ValueError: for a word without "=" or a key given twice.
    """
    pairs: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ValueError(f"expected KEY=VALUE, got {word!r}")
        key = key.replace("-", "_")
        if key in pairs:
            raise ValueError(f"{key} is given twice")
        pairs[key] = parse_value(value)
    return pairs
