"""CartPole in which only positions, or only velocities, are seen."""

import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import Environment, Transition
from clew.envs.popgym.difficulty import Sizes, sized
from clew.envs.popgym.noise import Noisy, forced_numbers
from clew.errors import LONGEST_EPISODE, require_at_least

GRAVITY, CART, POLE, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5
FORCE, INTERVAL = 10.0, 0.02
FARTHEST, STEEPEST = 2.4, 12 * 2 * math.pi / 360
"""Limits at which the episode ends: the cart's position, and the pole's angle in radians."""
WIDEST_START = 0.05
NAMES = ("place", "speed", "angle", "turning")


class CartPoleState(NamedTuple):
    """The state of an episode."""

    numbers: Float[Array, " 4"]
    """Position and velocity of the cart, angle and angular velocity of the pole."""
    time: Int[Array, ""]
    """Number of actions taken."""


def push(numbers: Float[Array, " 4"], right: Array) -> Float[Array, " 4"]:
    """The four numbers after one Euler step of 0.02 seconds.

    Args:
        numbers: as in `CartPoleState`.
        right: whether the cart is pushed to the right, else to the left.

    Source: Barto, Sutton and Anderson (1983), in the form of Gymnasium's CartPole-v1.
    """
    _, speed, angle, turning = numbers
    force = jnp.where(right, FORCE, -FORCE)
    sine, cosine, total = jnp.sin(angle), jnp.cos(angle), CART + POLE
    pushed = (force + POLE * HALF_LENGTH * turning**2 * sine) / total
    inertia = HALF_LENGTH * (4.0 / 3.0 - POLE * cosine**2 / total)
    turns = (GRAVITY * sine - cosine * pushed) / inertia
    moves = pushed - POLE * HALF_LENGTH * turns * cosine / total
    return numbers + INTERVAL * jnp.stack([speed, moves, turning, turns])


class _CartPole(Environment):
    """The common part of the three: the cart, and n steps to keep the pole upright."""

    SIZES: ClassVar[Sizes] = {
        "easy": {"max_steps": 200},
        "medium": {"max_steps": 400},
        "hard": {"max_steps": 600},
    }
    max_steps: int = eqx.field(static=True)
    seen: ClassVar[tuple[int, int]] = (0, 2)
    """The numbers that are observed after a step."""
    observation_size = 2
    num_actions = 2
    action_names = ("left", "right")
    metric_names = ()

    def __init__(self, difficulty: str = "easy", max_steps: int | None = None):
        (self.max_steps,) = sized(self.SIZES, difficulty, max_steps=max_steps)
        require_at_least("max_steps", self.max_steps, 1, LONGEST_EPISODE)

    def reset(self, key: Key[Array, ""]) -> tuple[CartPoleState, Float[Array, " 2"]]:
        return self.reset_to(jax.random.uniform(key, (4,), minval=-1.0) * WIDEST_START)

    def reset_to(
        self, numbers: Float[Array, " 4"] | np.ndarray
    ) -> tuple[CartPoleState, Float[Array, " 2"]]:
        """Opens an episode with these four numbers."""
        numbers = jnp.asarray(numbers, jnp.float32)
        return CartPoleState(numbers, jnp.zeros((), jnp.int32)), numbers[jnp.array([0, 2])]

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {"numbers": rng.uniform(-WIDEST_START, WIDEST_START, 4).astype(np.float32)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        return drawn | {n: forced_numbers(n, x, drawn[n].shape) for n, x in given.items()}

    def step(
        self, state: CartPoleState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[CartPoleState, Transition]:
        after = CartPoleState(push(state.numbers, jnp.asarray(action) == 1), state.time + 1)
        place, _, angle, _ = after.numbers
        fallen = (jnp.abs(place) > FARTHEST) | (jnp.abs(angle) > STEEPEST)
        return after, Transition(
            observation=after.numbers[jnp.array(self.seen)],
            reward=jnp.full((), 1.0 / self.max_steps, jnp.float32),
            terminated=fallen,
            truncated=after.time >= self.max_steps,
            metrics={},
        )

    def render_text(self, state: Any, observation: Any) -> str:
        numbers = zip(NAMES, np.asarray(state.numbers), strict=True)
        return ", ".join(f"{name} {x:+.2f}" for name, x in numbers) + "\n"


class PositionOnlyCartPole(_CartPole):
    """Keep a pole upright on a cart, seeing only the cart's position and the pole's angle.

    Every step gives 1 / n, so the best return is 1; the episode ends when the pole's angle exceeds
    12 degrees or the cart is beyond 2.4, and is truncated after n steps. The two velocities, which
    a policy needs, are differences of observations.

    Actions: 1 pushes to the right, anything else to the left.

    Args:
        difficulty: easy, medium or hard: 200, 400 or 600 steps.
        max_steps: n; overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, PositionOnlyCartPole. Computed in single instead of double precision.
    """

    @property
    def observation_space(self) -> Box:
        """The cart's place and the pole's angle."""
        high = np.array([2 * FARTHEST, 2 * STEEPEST], np.float32)
        return Box(-high, high, dtype=np.float32)


class VelocityOnlyCartPole(_CartPole):
    """Keep a pole upright on a cart, seeing only the velocities of the cart and of the pole.

    Everything else is as in `PositionOnlyCartPole`. The first observation of an episode has the
    position and the angle instead of the velocities, as in popgym: with them, sums of the
    observations give the cart's position.

    Args:
        difficulty: easy, medium or hard: 200, 400 or 600 steps.
        max_steps: n; overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, VelocityOnlyCartPole, which came after the paper. Computed in single
    instead of double precision.
    """

    seen = (1, 3)


class NoisyPositionOnlyCartPole(Noisy, PositionOnlyCartPole):
    """Keep a pole upright on a cart, seeing position and angle with noise.

    Like `PositionOnlyCartPole` with 200 steps. Noise of standard deviation sigma is added to both
    numbers, which are then clipped to twice the limits at which an episode ends.

    Args:
        difficulty: easy, medium or hard: sigma 0.1, 0.2 or 0.3.
        sigma: overrides the difficulty.
        max_steps: n; 200 by default.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, NoisyPositionOnlyCartPole. Computed in single instead of double precision.
    """
