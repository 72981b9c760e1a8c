"""A drawing surface for pictures of tasks and episodes: smooth shapes, few colours, one font.

Everything is drawn larger and then downscaled, because Pillow does not antialias shapes. The font
comes with matplotlib.
"""

from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import UInt8

if TYPE_CHECKING:
    from PIL import ImageFont
    from PIL.Image import Image as Picture

Colour = str
"""In Pillow's form, "#RRGGBB"."""
Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""

PAPER, INK, QUIET, FAINT, HAZE = "#FFFFFF", "#1F2933", "#616E7C", "#CBD2D9", "#EEF1F4"
BLUE, ORANGE, GREEN, RED, YELLOW = "#0072B2", "#D55E00", "#009E73", "#B8433A", "#F0C419"


class Canvas:
    """A picture to draw on; lengths are in pixels of the finished picture.

    It is drawn twice as large, and reduced at the end.
    """

    def __init__(self, width: int, height: int, colour: Colour = PAPER):
        from PIL import Image, ImageDraw  # start: Pillow takes 0.03 s

        self.width, self.height, self._finer = width, height, 2
        self._image = Image.new("RGB", (width * self._finer, height * self._finer), colour)
        self._draw = ImageDraw.Draw(self._image)

    @classmethod
    def onto(cls, image: "Picture", finer: int = 1) -> "Canvas":
        """A canvas that draws onto a given picture."""
        from PIL import ImageDraw  # start: Pillow takes 0.03 s

        canvas = cls.__new__(cls)
        canvas.width, canvas.height = image.width // finer, image.height // finer
        canvas._finer, canvas._image, canvas._draw = finer, image, ImageDraw.Draw(image)
        return canvas

    def copy(self) -> "Canvas":
        """A copy with the picture so far."""
        return Canvas.onto(self._image.copy(), self._finer)

    def box(
        self,
        box: Box,
        fill: Colour | None = None,
        line: Colour | None = None,
        width: float = 1.0,
        round: float = 0.0,
    ) -> None:
        """A rectangle with its outline inside."""
        left, top, right, bottom = self._scaled(box)
        # Pillow's right and bottom are the last pixel, a box's are the first one beyond.
        self._draw.rounded_rectangle(
            (left, top, max(left, right - 1), max(top, bottom - 1)),
            self._finer * round,
            fill,
            line,
            max(1, int(width * self._finer)) if line else 0,
        )

    def disc(
        self,
        centre: Point,
        radius: float,
        fill: Colour | None,
        line: Colour | None = None,
        width: float = 1.0,
    ) -> None:
        """A disc."""
        (x, y), r = centre, radius
        box = self._scaled((x - r, y - r, x + r, y + r))
        self._draw.ellipse(box, fill, line, max(1, int(width * self._finer)) if line else 0)

    def path(self, points: list[Point], colour: Colour, width: float = 1.0) -> None:
        """A line through points."""
        if len(points) > 1:
            scaled = [(x * self._finer, y * self._finer) for x, y in points]
            width = max(1, round(width * self._finer))
            self._draw.line(scaled, colour, width, joint="curve")

    def shape(self, points: list[Point], fill: Colour) -> None:
        """A filled polygon."""
        self._draw.polygon([(x * self._finer, y * self._finer) for x, y in points], fill)

    def text(
        self,
        at: Point,
        text: str,
        size: float = 14.0,
        colour: Colour = INK,
        anchor: str = "lm",
        bold: bool = False,
    ) -> None:
        """A line of text; `anchor` is Pillow's: l, m, r horizontally and a, m, s, d vertically."""
        if not text:
            return
        left, top, mask = _written(text, round(size * self._finer), bold, anchor)
        place = (round(at[0] * self._finer) + left, round(at[1] * self._finer) + top)
        self._image.paste(colour, place, mask)

    def arrow(self, tip: Point, to: Literal["up", "down"], size: float, colour: Colour) -> None:
        """An arrow of height `size` with its point at `tip`."""
        (x, y), down = tip, 1.0 if to == "up" else -1.0
        head, half, stem = 0.5 * size * down, 0.42 * size, 0.15 * size
        self.shape([(x, y), (x - half, y + head), (x + half, y + head)], colour)
        top, end = sorted((y + 0.9 * head, y + size * down))
        self.box((x - stem, top, x + stem, end), colour)

    def finished(self) -> "Picture":
        """The picture at its final size."""
        return self._image.reduce(self._finer) if self._finer > 1 else self._image

    def pixels(self) -> UInt8[np.ndarray, "height width 3"]:
        """The picture as an array, at its final size."""
        return np.asarray(self.finished())

    def _scaled(self, box: Box) -> tuple[int, int, int, int]:
        left, top, right, bottom = (round(value * self._finer) for value in box)
        return left, top, right, bottom


@cache
def font(size: float, bold: bool = False) -> "ImageFont.FreeTypeFont":
    """DejaVu Sans at a size in pixels."""
    import matplotlib  # start: matplotlib takes 0.1 s
    from PIL import ImageFont  # start: Pillow takes 0.03 s

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)


@lru_cache(maxsize=2048)
def _written(text: str, size: int, bold: bool, anchor: str) -> tuple[int, int, "Picture"]:
    """A line of text as a mask, and its offset from the anchor; cached, as texts recur."""
    from PIL import Image, ImageDraw  # start: Pillow takes 0.03 s

    box = font(size, bold).getbbox(text, anchor=anchor)
    left, top, right, bottom = (round(value) for value in box)
    mask = Image.new("L", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(mask).text((-left, -top), text, 255, font(size, bold), anchor)
    return left, top, mask


def mixed(colour: Colour, other: Colour, share: float) -> Colour:
    """A mixture of two colours with the given `share` of the first, from 0 to 1."""
    one, two = (np.array(rgb(value), float) for value in (colour, other))
    red, green, blue = (round(value) for value in share * one + (1 - share) * two)
    return f"#{red:02X}{green:02X}{blue:02X}"


def rgb(colour: Colour) -> tuple[int, int, int]:
    """A colour's red, green and blue, 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
