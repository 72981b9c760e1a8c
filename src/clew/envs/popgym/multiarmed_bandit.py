"""A bandit whose arms pay or cost; one episode is many pulls."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Discrete
from jaxtyping import Array, Float, Int, Key

from clew.envs.bandit import forced_probabilities
from clew.envs.base import Environment, Transition
from clew.envs.popgym.difficulty import Sizes, sized
from clew.errors import LONGEST_EPISODE, require_at_least


class MultiarmedBanditState(NamedTuple):
    """The state of an episode."""

    probabilities: Float[Array, " arms"]
    """How often each arm pays."""
    time: Int[Array, ""]
    """Number of pulls so far."""


class MultiarmedBandit(Environment):
    """Find out which of k arms pays most often, in one episode of n pulls.

    Arm i pays 1 / n with probability p_i and otherwise costs as much; p_i is uniform between 0 and
    1. The observation is whether the last pull paid, but not which arm it was: the agent needs its
    previous action (`previous_action` of `clew.WrapperConfig`). The episode is truncated after n
    pulls. Pulling at random has the expected return 0, always pulling the best of k arms (k - 1) /
    (k + 1). An action outside the range pulls the nearest arm. `bandit` is the same game in trials.

    Args:
        difficulty: easy, medium or hard: 10, 20 or 30 arms, 200, 400 or 600 pulls.
        arms: k; overrides the difficulty.
        pulls: n; overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, MultiarmedBandit.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"arms": 10, "pulls": 200},
        "medium": {"arms": 20, "pulls": 400},
        "hard": {"arms": 30, "pulls": 600},
    }
    num_actions: int = eqx.field(static=True)
    pulls: int = eqx.field(static=True)
    observation_size = 1
    opening_is_costly = True
    metric_names = ()

    def __init__(self, difficulty: str = "easy", arms: int | None = None, pulls: int | None = None):
        self.num_actions, self.pulls = sized(self.SIZES, difficulty, arms=arms, pulls=pulls)
        require_at_least("arms", self.num_actions, 2)
        require_at_least("pulls", self.pulls, 1, LONGEST_EPISODE)

    @property
    def observation_space(self) -> Discrete:
        """Whether the last pull paid."""
        return Discrete(2)

    @property
    def shortest(self) -> int:
        return self.pulls

    def reset(self, key: Key[Array, ""]) -> tuple[MultiarmedBanditState, Int[Array, ""]]:
        return self.reset_to(jax.random.uniform(key, (self.num_actions,)))

    def reset_to(
        self, probabilities: Float[Array, " arms"] | np.ndarray
    ) -> tuple[MultiarmedBanditState, Int[Array, ""]]:
        zero = jnp.zeros((), jnp.int32)
        return MultiarmedBanditState(jnp.asarray(probabilities, jnp.float32), zero), zero

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {"probabilities": rng.random(self.num_actions, np.float32)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        return forced_probabilities(drawn["probabilities"], given)

    def step(
        self, state: MultiarmedBanditState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[MultiarmedBanditState, Transition]:
        return self.pull(state, action, jax.random.uniform(key))

    def pull(
        self, state: MultiarmedBanditState, action: Int[Array, ""], chance: Float[Array, ""]
    ) -> tuple[MultiarmedBanditState, Transition]:
        """A step that pays where `chance`, uniform between 0 and 1, is below the arm's p."""
        arm = jnp.clip(jnp.asarray(action), 0, self.num_actions - 1)
        paid = chance < state.probabilities[arm]
        time = state.time + 1
        return state._replace(time=time), Transition(
            observation=paid.astype(jnp.int32),
            reward=jnp.where(paid, 1.0, -1.0).astype(jnp.float32) * (1.0 / self.pulls),
            terminated=jnp.zeros((), jnp.bool_),
            truncated=time >= self.pulls,
            metrics={},
        )

    def remembered(self, state: MultiarmedBanditState) -> dict[str, Int[Array, ""]]:
        return {"best arm": jnp.argmax(state.probabilities)}

    def render_text(self, state: Any, observation: Any) -> str:
        said = "paid" if int(observation) else "did not pay"
        return f"pull {int(state.time)} of {self.pulls}: the last one {said}\n"
