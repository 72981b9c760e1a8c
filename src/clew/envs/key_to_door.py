"""Key-to-Door: take a key, pick apples for a while, and open a door with the key."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from clew.envs.base import Environment, Transition, as_array
from clew.envs.canvas import INK, Canvas
from clew.errors import LONGEST_EPISODE, UserError, require_at_least

ROOMS = (
    """
  #######
  #kkkkk#
  #kkkkk#
  ##   ##
  #+++++#
  #+++++#
  #######
""",
    """
###########
#a a a a a#
# a a a a #
#a a a a a#
# a a a a #
#a a + a a#
###########
""",
    """

   ##d##
   #   #
   # + #
   #   #
   #####

""",
)
"""The rooms of the three phases; a key, the agent or an apple can start at each k, + and a."""
ROWS, COLUMNS, SEEN = 7, 11, 5
GRID = np.array([[list(row.ljust(COLUMNS)) for row in room.split("\n")[1:8]] for room in ROOMS])
KEYS, STARTS, TREES = (np.argwhere(GRID[n] == c) for n, c in ((0, "k"), (0, "+"), (1, "a")))
NUM_APPLES = 10
ENTRANCES = np.array([(0, 0), *(np.argwhere(GRID[n] == "+")[0] for n in (1, 2))], np.int32)
"""Where the agent is placed when the second and the third phase begin."""
DOOR, LAMP = (1, 5), (0, 5)
"""Positions of the door, and of the lamp that is lit in the first phase when the key is taken."""
FIRST, LAST = 15, 10
"""Steps of the first and the last phase."""
REGROWS = 20
"""Steps until an apple grows back after it was picked."""
APPLE_REWARD, DOOR_REWARD = 1.0, 5.0
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)], np.int32)
FLOOR, WALL, LATCHKEY, APPLE, CLOSED, LIGHT, AGENT = range(7)
COLOURS = np.array(
    [
        (204, 204, 204),
        (25, 25, 25),
        (159, 81, 44),
        (140, 178, 0),
        (134, 206, 235),
        (255, 255, 255),
        (228, 148, 109),
    ],
    np.float32,
)
"""Red, green and blue of every kind of square."""
SIGNS = " #kad*+"
BARE = np.where(GRID == "#", WALL, np.where(GRID == "d", CLOSED, FLOOR)).astype(np.int32)
"""The rooms without the things that come and go."""


class KeyToDoorState(NamedTuple):
    """The state of an episode; positions are rows and columns."""

    key: Int[Array, " 2"]
    trees: Bool[Array, "7 11"]
    """Where apples grow."""
    picked: Int[Array, "7 11"]
    """The step of the phase after which each was last picked, -1 if it was not."""
    place: Int[Array, " 2"]
    has_key: Bool[Array, ""]
    """Whether the key was taken; it is kept when the door is opened."""
    opened: Bool[Array, ""]
    num_picked: Int[Array, ""]
    """Number of apples picked."""
    time: Int[Array, ""]


class KeyToDoor(Environment):
    """Take a key, pick apples for a while, and open a door with the key.

    There are three rooms, one after another, each for a fixed number of steps. The first has a key,
    and a lamp is lit for one step when it is taken. The second has 10 apples; each gives 1 and
    grows back after 20 steps. The third has a door, closed without the key; its first opening gives
    5. The agent sees the 5 x 5 squares around itself, and never whether it has the key.

    The key earns nothing for `distractor` steps, amid other rewards: credit has a long way to go,
    but there is little to remember, since trying the door costs nothing.

    The observation is a picture of the 5 x 5 squares, with three colours from 0 to 1 each: red of
    all squares, then green, then blue, row by row. Actions: 0 up, 1 down, 2 left, 3 right; walls
    block. Any other integer stays. An episode terminates after 15 + `distractor` + 10 steps.

    Metrics: "success" (the door was opened) and "has_key" (the key was taken), 0 or 1; "picked",
    the number of apples.

    Args:
        distractor: steps among the apples, at least 1.

    Raises:
        UserError: an impossible number of steps.

    Source: Raposo et al. (2021, arXiv 2102.12425), with the settings and the code of Ni et al.
    (2023, arXiv 2307.03864), whose credit lengths are `distractor` = 60, 120, 250 and 500.
    Deviation: colours from 0 to 1 instead of 0 to 255.
    """

    distractor: int = eqx.field(static=True)
    observation_size = 3 * SEEN * SEEN
    num_actions = len(MOVES)
    metric_names = ("success", "has_key", "picked")
    boolean_metrics = ("success", "has_key")
    action_names = ("up", "down", "left", "right")

    def __init__(self, distractor: int = 60):
        require_at_least("distractor", distractor, 1, LONGEST_EPISODE - FIRST - LAST)
        self.distractor = distractor

    @property
    def shortest(self) -> int:
        return FIRST + self.distractor + LAST

    @property
    def observation_space(self) -> Box:
        return Box(0.0, 1.0, (self.observation_size,), np.float32)

    def reset(self, key: Key[Array, ""]) -> tuple[KeyToDoorState, Float[Array, " 75"]]:
        of_key, of_place, of_apples = jax.random.split(key, 3)
        lies = jax.random.randint(of_key, (), 0, len(KEYS))
        starts = jax.random.randint(of_place, (), 0, len(STARTS))
        chosen = jax.random.permutation(of_apples, len(TREES))[:NUM_APPLES]
        places = jnp.asarray(KEYS)[lies], jnp.asarray(STARTS)[starts], jnp.asarray(TREES)[chosen]
        return self.reset_to(*places)

    def reset_to(
        self,
        key: Int[Array, " 2"] | np.ndarray,
        place: Int[Array, " 2"] | np.ndarray,
        apples: Int[Array, "apples 2"] | np.ndarray,
    ) -> tuple[KeyToDoorState, Float[Array, " 75"]]:
        """Opens an episode with the key, the agent and the apples at these rows and columns."""
        key, place, apples = (jnp.asarray(x, jnp.int32) for x in (key, place, apples))
        no, zero, grid = jnp.zeros((), jnp.bool_), jnp.zeros((), jnp.int32), (ROWS, COLUMNS)
        state = KeyToDoorState(
            key=key,
            trees=jnp.zeros(grid, jnp.bool_).at[apples[:, 0], apples[:, 1]].set(True),
            picked=jnp.full(grid, -1, jnp.int32),
            place=place,
            has_key=no,
            opened=no,
            num_picked=zero,
            time=zero,
        )
        return state, self._observe(state, no)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {
            "key": rng.choice(KEYS).astype(np.int32),
            "place": rng.choice(STARTS).astype(np.int32),
            "apples": rng.choice(TREES, NUM_APPLES, replace=False).astype(np.int32),
        }

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        possible = {"key": KEYS, "place": STARTS, "apples": TREES}
        for name, value in given.items():
            array = as_array(value)
            among = possible.get(name, KEYS).tolist()
            fits = array.shape == drawn[name].shape and array.dtype.kind in "iu"
            pairs = array.reshape(-1, 2).tolist() if fits else []
            different = {tuple(pair) for pair in pairs}
            if not pairs or len(different) < len(pairs) or any(p not in among for p in pairs):
                many = f"{NUM_APPLES} different places" if name == "apples" else "a place"
                raise UserError(f"{name} must be {many} of {among}, got {value!r}")
        return drawn | {name: np.asarray(value, np.int32) for name, value in given.items()}

    def step(
        self, state: KeyToDoorState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[KeyToDoorState, Transition]:
        phase, passed = self._phase(state.time)
        place = _walked(state, phase, action)
        at = place[0], place[1]
        takes = (phase == 0) & jnp.all(place == state.key) & ~state.has_key
        picks = (phase == 1) & _grown(state, passed)[at]
        opens = (phase == 2) & jnp.all(place == np.array(DOOR)) & ~state.opened

        time = state.time + 1
        then, _ = self._phase(time)
        after = KeyToDoorState(
            key=state.key,
            trees=state.trees,
            picked=jnp.where(picks, state.picked.at[at].set(passed + 1), state.picked),
            place=jnp.where(then == phase, place, jnp.asarray(ENTRANCES)[then]),
            has_key=state.has_key | takes,
            opened=state.opened | opens,
            num_picked=state.num_picked + picks.astype(jnp.int32),
            time=time,
        )
        paid = jnp.where(picks, APPLE_REWARD, 0.0) + jnp.where(opens, DOOR_REWARD, 0.0)
        metrics = {"success": after.opened, "has_key": after.has_key, "picked": after.num_picked}
        return after, Transition(
            observation=self._observe(after, takes),
            reward=paid.astype(jnp.float32),
            terminated=time >= self.shortest,
            truncated=jnp.zeros((), jnp.bool_),
            metrics={name: value.astype(jnp.float32) for name, value in metrics.items()},
        )

    def render_image(
        self, state: KeyToDoorState, observation: np.ndarray
    ) -> UInt8[np.ndarray, "350 550 3"]:
        """The whole room, and a frame around what the agent sees."""
        from PIL import Image  # start: Pillow takes 0.03 s

        unit, colours = 50, COLOURS.astype(np.uint8)
        room = self._drawn(state)
        picture = np.repeat(np.repeat(colours[room], unit, axis=0), unit, axis=1)
        row, column = (int(n) - SEEN // 2 for n in state.place)
        canvas = Canvas.onto(Image.fromarray(picture))
        box = (column * unit, row * unit, (column + SEEN) * unit, (row + SEEN) * unit)
        canvas.box(box, line=INK, width=3)
        return canvas.pixels()

    def render_text(self, state: KeyToDoorState, observation: np.ndarray) -> str:
        """The whole room: + the agent, k the key, a an apple, d the door."""
        room = self._drawn(state)
        rows = ["".join(SIGNS[kind] for kind in row).rstrip() for row in room]
        has = "has the key" if state.has_key else "has no key"
        return (
            "\n".join(rows) + f"\nstep {int(state.time)}, {has}, {int(state.num_picked)} apples\n"
        )

    def _drawn(self, state: KeyToDoorState) -> Int[np.ndarray, "7 11"]:
        """The room of a state in NumPy, for people; the lamp is out."""
        arrays = jax.tree.map(jnp.asarray, state)
        return np.asarray(self._room(arrays, jnp.zeros((), jnp.bool_)))

    def _phase(self, time: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The phase before a step, from 0, and the number of steps taken in it."""
        begins = np.array([0, FIRST, FIRST + self.distractor], np.int32)
        phase = jnp.sum(time >= begins[1:]).astype(jnp.int32)
        return phase, time - jnp.asarray(begins)[phase]

    def _room(self, state: KeyToDoorState, lit: Bool[Array, ""]) -> Int[Array, "7 11"]:
        """The kind of every square of the room that the agent is in."""
        phase, passed = self._phase(state.time)
        room = bare = jnp.asarray(BARE)[phase]
        here = (phase == 0) & ~state.has_key
        room = jnp.where(here, room.at[state.key[0], state.key[1]].set(LATCHKEY), room)
        room = jnp.where((phase == 1) & _grown(state, passed), APPLE, room)
        room = jnp.where((phase == 0) & lit, room.at[LAMP].set(LIGHT), room)
        room = room.at[state.place[0], state.place[1]].set(AGENT)
        # The door is drawn over the agent.
        return jnp.where(bare == CLOSED, CLOSED, room)

    def _observe(self, state: KeyToDoorState, lit: Bool[Array, ""]) -> Float[Array, " 75"]:
        room = jnp.pad(self._room(state, lit), SEEN // 2, constant_values=FLOOR)
        seen = jax.lax.dynamic_slice(room, state.place, (SEEN, SEEN))
        return jnp.moveaxis(jnp.asarray(COLOURS / 255.0)[seen], -1, 0).ravel()


def _walked(
    state: KeyToDoorState, phase: Int[Array, ""], action: Int[Array, ""]
) -> Int[Array, " 2"]:
    """The position after a move."""
    known = (action >= 0) & (action < len(MOVES))
    move = jnp.where(known, jnp.asarray(MOVES)[action], 0)
    there = jnp.clip(state.place + move, 0, np.array([ROWS - 1, COLUMNS - 1]))
    kind = jnp.asarray(BARE)[phase, there[0], there[1]]
    blocked = (kind == WALL) | ((kind == CLOSED) & ~state.has_key)
    return jnp.where(blocked, state.place, there)


def _grown(state: KeyToDoorState, passed: Int[Array, ""]) -> Bool[Array, "7 11"]:
    """Where apples are after this many steps of their phase."""
    return state.trees & ((state.picked < 0) | (passed > state.picked + REGROWS))
