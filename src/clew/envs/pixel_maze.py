"""A first-person maze: find the ball of the requested colour, again and again."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from clew.envs.base import Environment, Transition, as_array
from clew.envs.canvas import HAZE, INK, Canvas
from clew.envs.popgym.labyrinth import FREE, carve
from clew.envs.raycast import PIXELS, WALLS, view
from clew.errors import LONGEST_EPISODE, UserError, require_at_least

SIZES = {9: (3, 1000), 11: (4, 2000), 13: (5, 3000), 15: (6, 4000)}
"""Balls and steps by side length, as in Memory Maze."""
COLOURS = np.array(
    [[225, 45, 45], [45, 200, 70], [60, 90, 240], [235, 215, 50], [215, 70, 220], [60, 215, 220]],
    np.float32,
)
"""Colours of the balls."""
BORDER, BORDER_LIGHT = 2, 0.7
STRIDE, TURN = 0.5, np.pi / 6
"""The length of a step forward, in squares, and the angle of a turn."""
BODY, REACH = 0.2, 0.6
"""The smallest distance to a wall, and the distance at which a ball is touched."""
LOOPS = 0.25
"""Share of the inner walls between two corridors that are removed."""
MOVES = np.array([(0, 0), (1, 0), (0, -1), (0, 1), (1, -1), (1, 1)], np.float32)
"""Strides and turns to the right of every action."""


class PixelMazeState(NamedTuple):
    """The state of an episode; positions are (x, y), x along a row and y down."""

    walls: Bool[Array, "side side"]
    kinds: Int[Array, "side side"]
    balls: Float[Array, "balls 2"]
    place: Float[Array, " 2"]
    heading: Float[Array, ""]
    """An angle from x towards y."""
    target: Int[Array, ""]
    time: Int[Array, ""]


class PixelMaze(Environment):
    """Find the ball of the colour of the picture's border; then another colour is requested.

    The maze and the balls' positions are drawn for every episode and then stay: an agent that
    remembers where a ball was walks there, any other has to search. The observation is a
    first-person view, 64 x 64 x 3 in uint8, with a border of 2 pixels in the requested ball's
    colour (at 0.7 of its brightness). Touching that ball, from 0.6 squares away, gives 1, and one
    of the others, each equally likely, is requested next. All other rewards are 0. An episode is
    truncated after its last step and never terminated. The return is the number of balls.

    Actions: 0 nothing, 1 forward (half a square), 2 left, 3 right (30 degrees), 4 forward and left,
    5 forward and right; turns come first. Walls block movement along each axis separately. Other
    integers act as the nearest of these.

    It resembles Memory Maze (Pasukonis et al., 2022), without physics and with its own mazes,
    speeds and pictures: as far as is known, scores in one say nothing about the other.

    Args:
        size: side length in squares, an odd number from 5 to 31.
        num_balls: from 2 to 6, in size 5 to 3; None for Memory Maze's number, where it has this
            size: 3 in 9, 4 in 11, 5 in 13, 6 in 15.
        max_steps: steps of an episode; None for Memory Maze's, 1,000 in 9 to 4,000 in 15.

    Raises:
        UserError: an impossible size, or None where Memory Maze does not have this size.
    """

    size: int = eqx.field(static=True)
    num_balls: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    observation_size = PIXELS * PIXELS * 3
    num_actions = len(MOVES)
    metric_names = ()
    action_names = ("nothing", "forward", "left", "right", "forward left", "forward right")
    opening_is_costly = True

    def __init__(self, size: int = 9, num_balls: int | None = None, max_steps: int | None = None):
        require_at_least("size", size, 5, 31)
        if size % 2 == 0:
            raise UserError(f"size must be odd, got {size}")
        usual = SIZES.get(size)
        if usual is None and (num_balls is None or max_steps is None):
            raise UserError(
                f"give num_balls and max_steps: only sizes {', '.join(map(str, SIZES))} have "
                f"defaults, got {size}"
            )
        balls, steps = usual or (0, 0)
        self.size = size
        self.num_balls = balls if num_balls is None else num_balls
        self.max_steps = steps if max_steps is None else max_steps
        # Each lies at a crossing, and the agent starts at another one.
        most = min(len(COLOURS), (size // 2) ** 2 - 1)
        require_at_least("num_balls", self.num_balls, 2, most)
        require_at_least("max_steps", self.max_steps, 1, LONGEST_EPISODE)

    @property
    def shortest(self) -> int:
        return self.max_steps

    @property
    def observation_space(self) -> Box:
        return Box(0, 255, (PIXELS, PIXELS, 3), np.uint8)

    def reset(self, key: Key[Array, ""]) -> tuple[PixelMazeState, UInt8[Array, "64 64 3"]]:
        of_maze, of_loops, of_kinds, of_squares, of_heading, of_target = jax.random.split(key, 6)
        side = self.size
        walls = carve(of_maze, side) != FREE
        odd = np.arange(side) % 2
        between = (odd[:, None] != odd[None, :]) & _inner(side, 1)
        walls = walls & ~(between & jax.random.bernoulli(of_loops, LOOPS, walls.shape))
        kinds = jax.random.randint(of_kinds, walls.shape, 0, len(WALLS))
        # Balls and the agent stand on different crossings of the corridors, which are free.
        half = side // 2
        chosen = jax.random.permutation(of_squares, half * half)[: self.num_balls + 1]
        squares = jnp.stack([chosen % half, chosen // half], axis=-1) * 2 + 1
        middles = squares.astype(jnp.float32) + 0.5
        walls = walls.at[squares[:, 1], squares[:, 0]].set(False)
        heading = jax.random.randint(of_heading, (), 0, 12)
        target = jax.random.randint(of_target, (), 0, self.num_balls)
        angle = heading.astype(jnp.float32) * np.float32(TURN)
        return self.reset_to(walls, kinds, middles[1:], middles[0], angle, target)

    def reset_to(
        self,
        walls: Bool[Array, "side side"] | np.ndarray,
        kinds: Int[Array, "side side"] | np.ndarray,
        balls: Float[Array, "balls 2"] | np.ndarray,
        place: Float[Array, " 2"] | np.ndarray,
        heading: Float[Array, ""] | float,
        target: Int[Array, ""] | int,
    ) -> tuple[PixelMazeState, UInt8[Array, "64 64 3"]]:
        """Opens an episode in this maze, with these balls, from this place; angles in radians."""
        state = PixelMazeState(
            jnp.asarray(walls, bool),
            jnp.asarray(kinds, jnp.int32),
            jnp.asarray(balls, jnp.float32),
            jnp.asarray(place, jnp.float32),
            jnp.asarray(heading, jnp.float32),
            jnp.asarray(target, jnp.int32),
            jnp.zeros((), jnp.int32),
        )
        return state, self._observe(state)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        state, _ = _opened(self, jax.random.key(rng.integers(2**32, dtype=np.uint32)))
        return {
            name: np.asarray(value) for name, value in state._asdict().items() if name != "time"
        }

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        ends = {"walls": 2, "kinds": len(WALLS), "target": self.num_balls}
        ends |= {"balls": self.size, "place": self.size}
        forced = {}
        for name, value in given.items():
            usual, array = np.asarray(drawn[name]), as_array(value)
            low, end = (0, ends[name]) if name in ends else (-100, 100)  # radians
            fits = array.shape == usual.shape and array.dtype.kind in "biuf"
            if not fits or not ((low <= array) & (array < end)).all():
                raise UserError(
                    f"{name} must be of shape {list(usual.shape)}, with numbers from {low} to "
                    f"below {end}, got {value!r}"
                )
            forced[name] = array.astype(usual.dtype)
        return drawn | forced

    def step(
        self, state: PixelMazeState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[PixelMazeState, Transition]:
        stride, turn = jnp.asarray(MOVES)[jnp.clip(action, 0, self.num_actions - 1)]
        heading = (state.heading + turn * np.float32(TURN)) % np.float32(2 * np.pi)
        way = stride * STRIDE * jnp.stack([jnp.cos(heading), jnp.sin(heading)])
        place = _walked(state.walls, state.place, way)
        away = jnp.linalg.norm(state.balls[state.target] - place)
        touched = away < REACH
        others = jax.random.randint(key, (), 1, self.num_balls)
        another = (state.target + others) % self.num_balls
        after = state._replace(
            place=place,
            heading=heading,
            target=jnp.where(touched, another, state.target),
            time=state.time + 1,
        )
        return after, Transition(
            observation=self._observe(after),
            reward=touched.astype(jnp.float32),
            terminated=jnp.zeros((), jnp.bool_),
            truncated=after.time >= self.max_steps,
            metrics={},
        )

    def remembered(self, state: PixelMazeState) -> dict[str, Int[Array, ""]]:
        square = jnp.floor(state.balls[0]).astype(jnp.int32) // 2
        return {"place of the first ball": square[1] * (self.size // 2) + square[0]}

    def render_image(
        self, state: PixelMazeState, observation: np.ndarray
    ) -> UInt8[np.ndarray, "256 512 3"]:
        """The agent's view, with the maze from above beside it."""
        return np.concatenate([observation.repeat(4, 0).repeat(4, 1), _map(state)], axis=1)

    def _observe(self, state: PixelMazeState) -> UInt8[Array, "64 64 3"]:
        colours = jnp.asarray(COLOURS)
        # Missing balls lie where the eye is, unseen: with fewer than six, XLA's program takes more
        # than twice the time.
        missing = jnp.tile(state.place, (len(COLOURS) - self.num_balls, 1))
        balls = jnp.concatenate([state.balls, missing])
        seen = view(state.walls, state.kinds, state.place, state.heading, balls, colours)
        frame = jnp.asarray(~_inner(PIXELS, BORDER))[..., None]
        border = jnp.round(colours[state.target] * BORDER_LIGHT).astype(jnp.uint8)
        return jnp.where(frame, border[None, None], seen)


@eqx.filter_jit
def _opened(maze: PixelMaze, key: Key[Array, ""]) -> tuple[PixelMazeState, Array]:
    return maze.reset(key)


def _inner(side: int, margin: int) -> Bool[np.ndarray, "side side"]:
    """The squares that are not within a margin of the edge."""
    return np.pad(np.ones((side - 2 * margin,) * 2, bool), margin)


def _walked(
    walls: Bool[Array, "side side"], place: Float[Array, " 2"], way: Float[Array, " 2"]
) -> Float[Array, " 2"]:
    """The position after a move: along x, then along y, each if no wall is nearer than `BODY`."""
    for axis in (0, 1):
        there = place.at[axis].add(way[axis])
        corners = there[None] + BODY * jnp.asarray(
            [(-1, -1), (-1, 1), (1, -1), (1, 1)], jnp.float32
        )
        x, y = jnp.floor(corners).astype(jnp.int32).T
        place = jnp.where(jnp.any(walls[y, x]), place, there)
    return place


def _map(state: PixelMazeState) -> UInt8[np.ndarray, "256 256 3"]:
    """The maze from above: the balls, and the agent as a wedge."""
    walls, side = np.asarray(state.walls), len(state.walls)
    unit = 256 / side
    canvas = Canvas(256, 256, HAZE)
    for y, x in np.argwhere(walls):
        box = (x * unit, y * unit, (x + 1) * unit, (y + 1) * unit)
        canvas.box(box, _hexadecimal(WALLS[int(state.kinds[y, x])]))
    for number, (x, y) in enumerate(np.asarray(state.balls) * unit):
        radius = unit * (0.4 if number == int(state.target) else 0.25)
        canvas.disc((float(x), float(y)), radius, _hexadecimal(COLOURS[number]))
    x, y = (float(n) for n in np.asarray(state.place) * unit)
    angle = float(state.heading)
    turns = [(angle + turn, length) for turn, length in ((0.0, 0.45), (2.5, 0.3), (-2.5, 0.3))]
    points = [(x + unit * r * np.cos(a), y + unit * r * np.sin(a)) for a, r in turns]
    canvas.shape(points, INK)
    return canvas.pixels()


def _hexadecimal(colour: Float[np.ndarray, " 3"]) -> str:
    """A colour in Pillow's form."""
    return "#{:02x}{:02x}{:02x}".format(*colour.astype(int))
