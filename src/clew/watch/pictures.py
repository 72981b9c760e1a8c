"""The picture of a step: the task's rendering, an observed image, or numbers as a strip."""

import numpy as np
from PIL import Image

from clew.envs.canvas import BLUE, FAINT, INK, ORANGE, PAPER, QUIET, Canvas, rgb
from clew.errors import UserError
from clew.interact.episodes import Picture, Recording, in_one_axis
from clew.watch.panels import MARGIN, WIDTH
from clew.watch.scores import format_number

INNER = WIDTH - 2 * MARGIN
_TALLEST, _ENLARGED = 420, 320
_NUMBERED = 18


def picture_of(recording: Recording, step: int) -> Picture:
    """The picture of a step, at its own size.

    It is the task's rendering, or an observation that is an image, uint8 [height, width, 1, 3 or
    4], or the numbers of any other observation as a strip of colours.

    Raises:
        UserError: for an array that is not a picture.
    """
    if recording.pictures is not None:
        return as_picture(recording.pictures[step])
    every = recording.observations
    if isinstance(every, dict):
        every = in_one_axis(every, 1)
    seen = np.asarray(every[step])
    if seen.ndim == 3 and seen.dtype == np.uint8:
        return as_picture(seen)
    return strip(seen.reshape(-1).astype(float), float(np.abs(every).max()))


def as_picture(given: np.ndarray) -> Picture:
    """A picture in RGB; grey ones are converted, and transparency is dropped.

    Raises:
        UserError: if it is not a uint8 array [height, width] or [height, width, 1, 3 or 4].
    """
    given = np.asarray(given)
    if given.ndim == 2:
        given = given[..., None]
    if given.ndim != 3 or given.shape[2] not in (1, 3, 4) or given.dtype != np.uint8:
        raise UserError(
            "a picture must be uint8 [height, width] or [height, width, 1, 3 or 4], got "
            f"{given.dtype} {list(given.shape)}"
        )
    return np.repeat(given, 3, axis=2) if given.shape[2] == 1 else given[..., :3]


def fitted(picture: Picture, room: tuple[int, int] | None = None) -> Picture:
    """A picture scaled for display: small ones by a whole factor, large ones down.

    Args:
        picture: of any size.
        room: height and width to fit it into; None chooses them.
    """
    high, wide = picture.shape[:2]
    if room is None:
        times = max(1, min(INNER // wide, _ENLARGED // high))
        shrink = min(1.0, INNER / wide, _TALLEST / high)
        room = (round(high * times * shrink), round(wide * times * shrink))
    if room == (high, wide):
        return picture
    way = Image.Resampling.NEAREST if room[0] >= high else Image.Resampling.LANCZOS
    return np.asarray(Image.fromarray(picture).resize((room[1], room[0]), way))


def strip(numbers: np.ndarray, largest: float) -> Picture:
    """Numbers as a strip of colours: blue above 0, orange below, white at 0.

    Args:
        numbers: [n].
        largest: absolute value that is drawn darkest.
    """
    canvas = Canvas(INNER, 84)
    canvas.text((0, 10), "the agent sees", 13, QUIET)
    legend = f"blue: above 0, orange: below; darkest {format_number(largest)}"
    canvas.text((INNER, 10), legend, 13, QUIET, "rm")
    share = np.clip(np.nan_to_num(numbers / (largest or 1.0)), -1, 1)
    full = np.where(share[:, None] > 0, rgb(BLUE), rgb(ORANGE)).astype(float)
    colours = np.abs(share)[:, None] * full + (1 - np.abs(share)[:, None]) * 255
    if len(numbers) > _NUMBERED:
        canvas.box((0, 26, INNER, 76), PAPER, FAINT)
        made = canvas.pixels().copy()
        cells = np.arange(INNER - 2) * len(numbers) // (INNER - 2)
        made[27:75, 1:-1] = colours[cells].astype(np.uint8)
        return made
    cell = min(72.0, INNER / len(numbers))
    left = (INNER - cell * len(numbers)) / 2
    for index, number in enumerate(numbers):
        red, green, blue = (int(value) for value in colours[index])
        box = (left + index * cell, 26, left + (index + 1) * cell, 76)
        canvas.box(box, f"#{red:02X}{green:02X}{blue:02X}", FAINT)
        ink = PAPER if abs(share[index]) > 0.55 else INK
        canvas.text(((box[0] + box[2]) / 2, 51), format_number(float(number)), 13, ink, "mm")
    return canvas.pixels()
