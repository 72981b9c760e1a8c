"""Numbers and lists in words, as a report writes them."""

import re


def typeset(text: str) -> str:
    """Text with real minus signs before its numbers, and none before 0.00; hyphens within words
    and dates stay."""
    plain = re.sub(r"(?<![\w)-])-(?=0\.0+(?!\d))", "", text)
    return re.sub(r"(?<![\w)-])-(?=\d)", "\u2212", plain)


def counted(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: list[str]) -> str:
    """Words as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def duration(seconds: float) -> str:
    """Seconds in the unit that one would say them in."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"
