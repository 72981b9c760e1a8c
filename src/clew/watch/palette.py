"""The 255 colours of a GIF, one choice for all of its frames."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Frame = UInt8[np.ndarray, "height width 3"]
COLOURS, EXACT = 255, 160
"""How many there are, and how many of them are the most frequent ones as they are."""


class Palette:
    """Colours chosen by some frames, and what stands for every other colour.

    A drawing has few colours, and its paper has to stay white; so the most frequent ones are taken
    as they are, and the rest is Pillow's median cut. One palette for all frames keeps colours from
    flickering, and lets what does not change from frame to frame cost nothing.

    Args:
        samples: frames, at least one.
    """

    def __init__(self, samples: Sequence[Frame]):
        from PIL import Image

        pixels = np.concatenate([frame.reshape(-1, 3) for frame in samples])
        codes, counts = np.unique(_codes(pixels), return_counts=True)
        frequent = codes[np.argsort(-counts, kind="stable")][:EXACT]
        exact = np.stack([frequent >> 16, frequent >> 8 & 255, frequent & 255], axis=1)
        colours = exact.astype(np.uint8)
        others = pixels[~np.isin(_codes(pixels), frequent)]
        if len(others):
            room = COLOURS - len(colours)
            cut = Image.fromarray(others[None]).quantize(room, Image.Quantize.MEDIANCUT)
            rest = np.array(cut.getpalette(), np.uint8).reshape(-1, 3)[:room]
            colours = np.concatenate([colours, rest])
        self._colours = colours.reshape(-1).tolist()
        self._table = self._nearest()
        # Pillow rounds what it compares, and would take a neighbour for white; the last entry
        # that is written for six bits of each colour is that of the most frequent one.
        self._table[_boxes(exact[::-1].astype(np.uint8))] = np.arange(len(exact))[::-1]

    def applied(self, frame: Frame) -> "Picture":
        """A frame in these colours."""
        from PIL import Image

        picture = Image.fromarray(self._table[_boxes(frame)])
        picture.putpalette(self._colours)
        return picture

    def _nearest(self) -> UInt8[np.ndarray, " boxes"]:
        """For six bits of each colour the number of the nearest one."""
        from PIL import Image

        palette = Image.new("P", (1, 1))
        palette.putpalette(self._colours)
        steps = np.arange(64, dtype=np.uint8) * 4 + 2
        grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1)
        picture = Image.fromarray(grid.reshape(64, -1, 3))
        found = picture.quantize(palette=palette, dither=Image.Dither.NONE)
        return np.asarray(found).reshape(-1).copy()


def _codes(pixels: UInt8[np.ndarray, "*lead 3"]) -> np.ndarray:
    return pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)


def _boxes(pixels: UInt8[np.ndarray, "*lead 3"]) -> np.ndarray:
    return (pixels >> 2).astype(np.uint32) @ np.array([1 << 12, 1 << 6, 1], np.uint32)
