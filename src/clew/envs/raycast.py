"""A first-person view of a maze of squares with balls in it, one ray for every column of pixels."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

PIXELS = 64
"""Side length of the view in pixels."""
HALF_ANGLE = math.radians(40.0)
"""The angle between the view's middle and its edge."""
FOCAL = PIXELS / 2 / math.tan(HALF_ANGLE)
"""The length in pixels of a length of 1 at a distance of 1."""
OFFSETS = ((np.arange(PIXELS) + 0.5 - PIXELS / 2) / FOCAL).astype(np.float32)
"""Offsets of pixel centres from the picture's centre, in units of the focal length."""
EYE, BALL_HEIGHT, BALL_RADIUS = 0.5, 0.35, 0.25
"""Heights above the floor, and the balls' radius, in squares; walls are 1 high."""
NEAR = 0.05
"""Nearer things are not drawn."""
FOG = 0.12
"""The brightness at a distance t is 1 / (1 + FOG t)."""
SKY = np.array([120.0, 160.0, 205.0], np.float32)
FLOORS = np.array([[96.0, 88.0, 78.0], [70.0, 64.0, 58.0]], np.float32)
WALLS = np.array([[150, 145, 140], [158, 122, 92], [112, 132, 152], [128, 146, 112]], np.float32)
"""Colours of the kinds of wall, by which places can be recognised."""
SIDE = 0.8
"""Brightness of walls that run north to south, relative to those that run east to west."""


class Hits(NamedTuple):
    """Where the ray of each column meets a wall."""

    distance: Float[Array, " columns"]
    """Along the viewing direction, not along the ray, so that walls are straight in the picture."""
    kind: Int[Array, " columns"]
    """Of the wall."""
    crossing_x: Bool[Array, " columns"]
    """Whether the wall runs north to south."""


def rays(heading: Float[Array, ""]) -> Float[Array, "columns 2"]:
    """Directions (x, y) of the columns' rays, each with a length of 1 along the view.

    d(u) = (cos a, sin a) + u (-sin a, cos a),  u = OFFSETS[c]
    """
    u = jnp.asarray(OFFSETS)
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    return jnp.stack([cos - u * sin, sin + u * cos], axis=-1)


def cast(
    walls: Bool[Array, "rows columns"],
    kinds: Int[Array, "rows columns"],
    place: Float[Array, " 2"],
    directions: Float[Array, "rays 2"],
) -> Hits:
    """The nearest wall on every ray: the first line between squares with a wall behind it.

        t = (i - p) / d  for every line i

    Args:
        walls: which squares are walls, [y, x]; those at the edge are.
        kinds: kind of every square's wall.
        place: (x, y), in a square without a wall.
        directions: of the rays.
    """
    side = walls.shape[0]
    lines = jnp.arange(side + 1)[None, :]

    def crossings(axis: int) -> tuple[Array, Array]:
        """Distances [ray, line] to the lines of an axis, infinite without a wall, and kinds."""
        ahead, across = directions[:, axis, None], directions[:, 1 - axis, None]
        ahead = jnp.where(jnp.abs(ahead) < 1e-6, 1e-6, ahead)
        t = (lines.astype(jnp.float32) - place[axis]) / ahead
        other = jnp.floor(place[1 - axis] + t * across).astype(jnp.int32)
        behind = jnp.where(ahead > 0, lines, lines - 1)
        inside = (t > 0) & (other >= 0) & (other < side) & (behind >= 0) & (behind < side)
        other, behind = jnp.clip(other, 0, side - 1), jnp.clip(behind, 0, side - 1)
        at = (other, behind) if axis == 0 else (behind, other)
        t = jnp.where(inside & walls[at], t, jnp.inf)
        first = jnp.argmin(t, axis=1)[:, None]
        pick = [jnp.take_along_axis(x, first, axis=1)[:, 0] for x in (t, kinds[at])]
        return pick[0], pick[1]

    (x, kind_x), (y, kind_y) = crossings(0), crossings(1)
    vertical = x < y
    distance = jnp.maximum(jnp.minimum(x, y), NEAR)
    return Hits(distance, jnp.where(vertical, kind_x, kind_y), vertical)


def view(
    walls: Bool[Array, "rows columns"],
    kinds: Int[Array, "rows columns"],
    place: Float[Array, " 2"],
    heading: Float[Array, ""],
    balls: Float[Array, "balls 2"],
    colours: Float[Array, "balls 3"],
) -> UInt8[Array, "64 64 3"]:
    """The view from a position; rows of the picture count from the top, columns from the left.

    A pixel at (u, v), in units of the focal length from the picture's middle, shows a ball at depth
    z, u_b to the side and v_b below the eye, where

        (u - u_b)^2 + (v - v_b)^2 <= (BALL_RADIUS / z)^2  and  z < wall's distance

    and otherwise the wall where |v| < EYE / t, the floor below it and the sky above. The floor has
    squares of two tones.

    Args:
        walls: which squares are walls, [y, x].
        kinds: kind of every square's wall.
        place: (x, y), in a square without a wall.
        heading: an angle, from x towards y, which is to the right in the picture.
        balls: their positions (x, y).
        colours: the balls' colours, from 0 to 255.
    """
    directions = rays(heading)
    hits = cast(walls, kinds, place, directions)
    u, v = jnp.asarray(OFFSETS)[None, :], jnp.asarray(OFFSETS)[:, None]
    t = hits.distance[None, :]

    light = jnp.where(hits.crossing_x, SIDE, 1.0) / (1 + FOG * hits.distance)
    wall = jnp.asarray(WALLS)[hits.kind] * light[:, None]
    depth = EYE / jnp.maximum(v, 1e-3)
    floor_x, floor_y = (place[k] + depth * directions[None, :, k] for k in (0, 1))
    tone = (jnp.floor(floor_x) + jnp.floor(floor_y)).astype(jnp.int32) % 2
    floor = jnp.asarray(FLOORS)[tone] / (1 + FOG * depth)[..., None]
    picture = jnp.where((v > 0)[..., None], floor, jnp.asarray(SKY)[None, None])
    picture = jnp.where((jnp.abs(v) < EYE / t)[..., None], wall[None], picture)

    nearest = jnp.broadcast_to(t, (PIXELS, PIXELS))
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    for number in range(balls.shape[0]):
        x, y = balls[number] - place
        z, aside = x * cos + y * sin, y * cos - x * sin
        safe = jnp.maximum(z, NEAR)
        reach = (u - aside / safe) ** 2 + (v - (EYE - BALL_HEIGHT) / safe) ** 2
        size = (BALL_RADIUS / safe) ** 2
        seen = (z > NEAR) & (z < nearest) & (reach <= size)
        shade = (1 - 0.5 * reach / size) / (1 + FOG * safe)
        picture = jnp.where(
            seen[..., None], colours[number][None, None] * shade[..., None], picture
        )
        nearest = jnp.where(seen, z, nearest)
    return jnp.round(picture).astype(jnp.uint8)
