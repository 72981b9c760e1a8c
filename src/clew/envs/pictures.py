"""Pictures of the tasks: their state, with the agent's observation beside it.

Pictures are for humans. They also show, faintly, what the agent no longer sees, so that one can
tell a right decision from a wrong one.
"""

from functools import cache

import numpy as np
from jaxtyping import Float, Int, UInt8

from clew.envs.canvas import (
    BLUE,
    FAINT,
    GREEN,
    HAZE,
    INK,
    ORANGE,
    PAPER,
    QUIET,
    YELLOW,
    Canvas,
    mixed,
)

Picture = UInt8[np.ndarray, "height width 3"]
WIDTH = 912
"""Width of every picture here, in pixels."""
_LAMP, _GAP = 20, 5
_FLOOR, _LEFT, _RIGHT, _MIDDLE, _HALF, _ARM = "#E4E0D5", 130, 778, 92, 17, 62


def tmaze_picture(
    corridor_length: int,
    cue: int,
    position: int,
    time: int,
    observation: Float[np.ndarray, " n"],
    *,
    cue_bits: int,
    distractor_bits: int,
) -> Picture:
    """The corridor with its two arms, the agent, the cue, and the observation as lamps.

    The correct arm has a green end; the sign with the cue is bright in the step in which the agent
    sees it.

    Args:
        cue: 0 up, 1 down.
        time: steps so far.
        cue_bits: size of the cue, the first numbers of the observation.
        distractor_bits: size of the distractors, the last numbers.
    """
    canvas = _maze(corridor_length, cue).copy()
    seen = time == 0
    colour = INK if seen else FAINT
    canvas.box((22, 58, 94, 126), YELLOW if seen else HAZE, colour, 1.5, round=8)
    canvas.arrow((58, 70 if cue == 0 else 114), "up" if cue == 0 else "down", 44, colour)
    canvas.text((58, 142), "the cue" if seen else "no longer shown", 13, QUIET, "mm")
    x = _LEFT + (_RIGHT - _LEFT) * position / (corridor_length - 1)
    canvas.disc((x, _MIDDLE), 12, BLUE, PAPER, 2)
    last = len(observation) - distractor_bits
    groups = {
        "cue": observation[:cue_bits],
        "position (Gray code)": observation[cue_bits:last],
        "distractors": observation[last:],
    }
    _lamps(canvas, groups, 196)
    return canvas.pixels()


def chain_picture(
    context: Int[np.ndarray, " bits"],
    query: int,
    time: int,
    memory_length: int,
    observation: Float[np.ndarray, " n"],
) -> Picture:
    """The bits of a memory chain, bright while they are shown, with a frame around the query.

    Args:
        context: the bits, 0 or 1.
        query: which of them is asked for.
        time: of the observation.
    """
    asked, several = time == memory_length - 1, len(context) > 1
    caption = "wait"
    if asked:
        caption = f"which was bit {query}?" if several else "which was it?"
    elif time == 0:
        caption = "remember these" if several else "remember this one"
    canvas = _recall_canvas(caption, caption == "wait")
    width = min(64.0, 820 / len(context))
    left = (WIDTH - width * len(context)) / 2
    for index, bit in enumerate(context):
        box = (left + index * width, 52, left + (index + 1) * width, 52 + width)
        if asked and index == query:
            canvas.box(box, None, ORANGE, 3, round=8)
        _bit(canvas, box, int(bit), 1.0 if time == 0 else 0.22)
    below = f"filled: 1, open: 0; time {time} of {memory_length}"
    return _recall_pixels(canvas, below, observation)


def distributed_picture(
    context: Int[np.ndarray, " bits"],
    times: Int[np.ndarray, " bits"],
    time: int,
    memory_length: int,
    observation: Float[np.ndarray, " n"],
) -> Picture:
    """Every time with the bit that it shows, a frame around the current one, and the count so far.

    The arguments are those of `chain_picture` without `query`, and `times`, when each bit is shown.
    """
    past = times <= time
    ones = int(np.sum(context[past]))
    asked = time == memory_length - 1
    canvas = _recall_canvas("were most of them 1?" if asked else "count", not asked)
    width = min(64.0, 860 / memory_length)
    left, top = (WIDTH - width * memory_length) / 2, 80 - width / 2
    for slot in range(memory_length):
        box = (left + slot * width, top, left + (slot + 1) * width, top + width)
        canvas.box(box, PAPER if slot <= time else HAZE, FAINT)
        for bit in context[times == slot]:
            _bit(canvas, box, int(bit), 1.0 if slot == time else 0.35 if slot < time else 0.12)
    here = left + time * width
    canvas.box((here, top, here + width, top + width), None, ORANGE, 3, round=4)
    counted = f"so far {ones} times 1 (filled) and {int(past.sum()) - ones} times 0 (open)"
    return _recall_pixels(canvas, f"{counted}; time {time} of {memory_length}", observation)


def _recall_canvas(caption: str, quiet: bool) -> Canvas:
    canvas = Canvas(WIDTH, 222)
    canvas.text((WIDTH / 2, 24), caption, 18, QUIET if quiet else INK, "mm", bold=True)
    return canvas


def _recall_pixels(canvas: Canvas, below: str, observation: Float[np.ndarray, " n"]) -> Picture:
    canvas.text((WIDTH / 2, 134), below, 13, QUIET, "mm")
    groups = {"clock": observation[:1], "query": observation[1:2], "bits": observation[2:]}
    _lamps(canvas, groups, 186)
    return canvas.pixels()


@cache
def _maze(corridor_length: int, cue: int) -> Canvas:
    canvas = Canvas(WIDTH, 226)
    edge = mixed(INK, PAPER, 0.55)
    top, bottom = _MIDDLE - _HALF, _MIDDLE + _HALF
    arm = (_RIGHT - _HALF, _MIDDLE - _HALF - _ARM, _RIGHT + _HALF, _MIDDLE + _HALF + _ARM)
    corridor = (_LEFT - _HALF, top, _RIGHT + _HALF, bottom)
    for grown, colour in ((2.5, edge), (0.0, _FLOOR)):
        for left, high, right, low in (arm, corridor):
            canvas.box((left - grown, high - grown, right + grown, low + grown), colour, round=4)
    cell = (_RIGHT - _LEFT) / (corridor_length - 1)
    for index in range(corridor_length - 1):
        x = _LEFT + (index + 0.5) * cell
        if cell >= 9:
            canvas.path([(x, top + 3), (x, bottom - 3)], mixed(INK, _FLOOR, 0.14))
    for turn, place in ((0, arm[1]), (1, arm[3] - 26)):
        right = turn == cue
        canvas.box(
            (arm[0] + 4, place + 4, arm[2] - 4, place + 22), GREEN if right else FAINT, round=4
        )
        caption = f"{'up' if turn == 0 else 'down'}: {'correct' if right else 'wrong'}"
        canvas.text((arm[2] + 12, place + 13), caption, 13, GREEN if right else QUIET)
    canvas.text((_LEFT, bottom + 18), "0", 12, QUIET, "mm")
    canvas.text((_RIGHT - 34, bottom + 18), f"junction {corridor_length - 1}", 12, QUIET, "rm")
    return canvas


def _lamps(canvas: Canvas, groups: dict[str, Float[np.ndarray, " m"]], y: float) -> None:
    """The observation as squares: filled 1, empty 0, orange -1, and shades in between."""
    size = sum(len(numbers) for numbers in groups.values())
    room = WIDTH - 190 - 34 * len(groups)
    lamp = min(_LAMP, max(2.0, room / max(1, size) - _GAP))
    gap = min(_GAP, lamp / 4)
    canvas.text((20, y), "the agent sees", 13, QUIET)
    x = 138.0
    for name, numbers in groups.items():
        canvas.text((x, y + 21), name, 12, QUIET)
        begun = x
        for number in numbers:
            _lamp(canvas, (x, y - lamp / 2, x + lamp, y + lamp / 2), float(number))
            x += lamp + gap
        x = max(x, begun + 7.2 * len(name)) + 30
    if min(float(np.min(numbers)) for numbers in groups.values()) < 0:
        canvas.text((x, y), "orange: below 0", 12, QUIET)


def _lamp(canvas: Canvas, box: tuple[float, float, float, float], number: float) -> None:
    strength = min(1.0, abs(number))
    colour = mixed(INK if number > 0 else ORANGE, PAPER, strength)
    line = colour if strength > 0.3 else FAINT
    canvas.box(box, colour, line, 1.5, round=3)


def _bit(canvas: Canvas, box: tuple[float, float, float, float], bit: int, strength: float) -> None:
    centre = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    radius = 0.34 * (box[2] - box[0])
    colour = mixed(BLUE, PAPER, strength)
    canvas.disc(centre, radius, colour if bit else PAPER, colour, max(1.0, radius / 5))
