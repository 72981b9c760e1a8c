"""The tasks as lines of text."""

from collections.abc import Iterable

CORRIDOR_COLUMNS = 60


def tmaze_line(corridor_length: int, position: int, time: int, cue: int) -> str:
    """The corridor: A the agent, T the junction; the cue is told while the agent sees it."""
    columns = min(corridor_length, CORRIDOR_COLUMNS)
    corridor = ["-"] * (columns - 1) + ["T"]
    corridor[position * (columns - 1) // (corridor_length - 1)] = "A"
    told = "hidden" if time else ("up", "down")[cue]
    place = f"position {position} of {corridor_length - 1}"
    return f"|{''.join(corridor)}| {place}, step {time}, cue {told}\n"


def recall_line(bits: Iterable[float], query: float, time: int, memory_length: int) -> str:
    """What is shown: + and - for bits of 1 and 0, a dot for every bit that is not shown."""
    marks = "".join("-.+"[int(bit) + 1] for bit in bits)
    return f"|{marks}| query {int(query)}, time {time} of {memory_length}\n"
