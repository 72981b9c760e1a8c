"""Pendulum in which only the position is seen."""

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

GRAVITY, MASS, LENGTH, INTERVAL = 10.0, 1.0, 1.0, 0.05
STRONGEST, FASTEST = 2.0, 8.0
"""Limits of the torque and of the angular velocity."""
WORST = 16.2736044
"""The largest cost of a step."""


class PendulumState(NamedTuple):
    """The state of an episode."""

    angle: Float[Array, ""]
    """In radians, 0 upright; not limited to one turn."""
    turning: Float[Array, ""]
    """Angular velocity."""
    time: Int[Array, ""]
    """Number of actions taken."""


def swing(
    angle: Float[Array, ""], turning: Float[Array, ""], torque: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Angle and angular velocity after 0.05 seconds, and the cost.

    Source: Gymnasium's Pendulum-v1.
    """
    torque = jnp.clip(torque, -STRONGEST, STRONGEST)
    upright = (angle + math.pi) % (2 * math.pi) - math.pi
    cost = upright**2 + 0.1 * turning**2 + 0.001 * torque**2
    pull = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
    turning = jnp.clip(turning + pull * INTERVAL, -FASTEST, FASTEST)
    return angle + turning * INTERVAL, turning, cost


class PositionOnlyPendulum(Environment):
    """Swing a pendulum up and keep it there, without seeing how fast it turns.

    The observation is the cosine and the sine of the angle; the agent has to infer the angular
    velocity from earlier observations. Every step gives (1 - 2 c / 16.27) / n with the cost c of
    Gymnasium's Pendulum, so returns are between -1 and 1; the episode is truncated after n steps.

    Args:
        difficulty: easy, medium or hard: 200, 150 or 100 steps.
        max_steps: n; overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, PositionOnlyPendulum. Computed in single instead of double precision.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"max_steps": 200},
        "medium": {"max_steps": 150},
        "hard": {"max_steps": 100},
    }
    max_steps: int = eqx.field(static=True)
    observation_size = 2
    num_actions = 0
    opening_is_costly = True
    metric_names = ()

    def __init__(self, difficulty: str = "easy", max_steps: int | None = None):
        (self.max_steps,) = sized(self.SIZES, difficulty, max_steps=max_steps)
        require_at_least("max_steps", self.max_steps, 1, LONGEST_EPISODE)

    @property
    def observation_space(self) -> Box:
        """The cosine and the sine of the angle."""
        return Box(-1.0, 1.0, (2,), np.float32)

    @property
    def action_space(self) -> Box:
        """The torque."""
        return Box(-STRONGEST, STRONGEST, (1,), np.float32)

    @property
    def shortest(self) -> int:
        return self.max_steps

    def reset(self, key: Key[Array, ""]) -> tuple[PendulumState, Float[Array, " 2"]]:
        angle, turning = jax.random.uniform(key, (2,), minval=-1.0)
        return self.reset_to(jnp.stack([math.pi * angle, turning]))

    def reset_to(
        self, numbers: Float[Array, " 2"] | np.ndarray
    ) -> tuple[PendulumState, Float[Array, " 2"]]:
        """Opens an episode with this angle and this angular velocity."""
        angle, turning = jnp.asarray(numbers, jnp.float32)
        return PendulumState(angle, turning, jnp.zeros((), jnp.int32)), _seen(angle)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {"numbers": rng.uniform([-math.pi, -1.0], [math.pi, 1.0]).astype(np.float32)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        return drawn | {n: forced_numbers(n, x, drawn[n].shape) for n, x in given.items()}

    def step(
        self, state: PendulumState, action: Float[Array, " 1"], key: Key[Array, ""]
    ) -> tuple[PendulumState, Transition]:
        torque = jnp.asarray(action, jnp.float32)[0]
        angle, turning, cost = swing(state.angle, state.turning, torque)
        after = PendulumState(angle, turning, state.time + 1)
        return after, Transition(
            observation=_seen(angle),
            reward=(1.0 - 2.0 * cost / WORST) / self.max_steps,
            terminated=jnp.zeros((), jnp.bool_),
            truncated=after.time >= self.max_steps,
            metrics={},
        )

    def render_text(self, state: Any, observation: Any) -> str:
        return f"angle {float(state.angle):+.2f}, turning {float(state.turning):+.2f}\n"


class NoisyPositionOnlyPendulum(Noisy, PositionOnlyPendulum):
    """Swing a pendulum up and keep it there, seeing its position with noise.

    Like `PositionOnlyPendulum` with 200 steps. Noise of standard deviation sigma is added to cosine
    and sine, which are then clipped to -1 and 1.

    Args:
        difficulty: easy, medium or hard: sigma 0.1, 0.2 or 0.3.
        sigma: overrides the difficulty.
        max_steps: n; 200 by default.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, NoisyPositionOnlyPendulum. Computed in single instead of double precision.
    """


def _seen(angle: Float[Array, ""]) -> Float[Array, " 2"]:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])
