"""Bernoulli bandits: find out which of k arms pays most often by pulling them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import Environment, Transition, as_array
from clew.errors import UserError, require_at_least

BAR = 20
"""Width in characters of an arm that always pays, in a line of text."""


class BanditState(NamedTuple):
    """The draw of the episode."""

    probabilities: Float[Array, " arms"]
    """How often each arm pays."""


class Bandit(Environment):
    """Find out which of k arms pays most often; an episode is one pull.

    Arm i pays 1 with probability p_i, otherwise 0, and p_i is uniform between 0 and 1. Nothing is
    observed: the observation is a single 0. One pull says nothing about other arms, so the task
    makes sense in trials (`trial_episodes` of `clew.WrapperConfig`): within a trial the arms stay
    the same, and an agent that remembers its pulls and their payoffs earns more and more. An action
    outside the range pulls the nearest arm, because a compiled program cannot refuse it.

    Metrics: "best" (0 or 1, whether the arm was one of those that pay most often) and "regret",
    max_j p_j - p_i.

    Args:
        arms: k, at least 2.

    Raises:
        UserError: fewer than 2 arms.

    Source: Duan et al. (2016), RL^2, section 3.1, which plays trials of 10, 100 and 500 pulls with
    5, 10 and 50 arms. `benchmarks/bandit_policies.py` computes what other policies earn.
    """

    arms: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    observation_size = 1
    metric_names = ("best", "regret")
    boolean_metrics = ("best",)

    def __init__(self, arms: int = 5):
        require_at_least("arms", arms, 2)
        self.arms = self.num_actions = arms

    def reset(self, key: Key[Array, ""]) -> tuple[BanditState, Float[Array, " 1"]]:
        return self.reset_to(jax.random.uniform(key, (self.arms,)))

    def reset_to(
        self, probabilities: Float[Array, " arms"] | np.ndarray
    ) -> tuple[BanditState, Float[Array, " 1"]]:
        state = BanditState(jnp.asarray(probabilities, jnp.float32))
        return state, jnp.zeros(1, jnp.float32)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {"probabilities": rng.random(self.arms, np.float32)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        return forced_probabilities(drawn["probabilities"], given)

    def step(
        self, state: BanditState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[BanditState, Transition]:
        probability = state.probabilities[jnp.clip(action, 0, self.arms - 1)]
        most = jnp.max(state.probabilities)
        transition = Transition(
            observation=jnp.zeros(1, jnp.float32),
            reward=(jax.random.uniform(key) < probability).astype(jnp.float32),
            terminated=jnp.ones((), jnp.bool_),
            truncated=jnp.zeros((), jnp.bool_),
            metrics={
                "best": (probability == most).astype(jnp.float32),
                "regret": most - probability,
            },
        )
        return state, transition

    def remembered(self, state: BanditState) -> dict[str, Int[Array, ""]]:
        return {"best arm": jnp.argmax(state.probabilities)}

    def render_text(self, state: BanditState, observation: np.ndarray) -> str:
        bars = [
            f"arm {i}: {'#' * round(BAR * float(p)):<{BAR}} {float(p):.2f}"
            for i, p in enumerate(state.probabilities)
        ]
        return "\n".join(bars) + "\n"


def forced_probabilities(drawn: np.ndarray, given: dict[str, Any]) -> dict[str, Any]:
    """The given probabilities; raises `UserError` unless there is one from 0 to 1 for every arm."""
    wanted = as_array(given.get("probabilities", drawn))
    fits = wanted.shape == drawn.shape and wanted.dtype.kind in "biuf"
    if not fits or not ((wanted >= 0) & (wanted <= 1)).all():
        raise UserError(
            f"probabilities must be {len(drawn)} numbers from 0 to 1, got "
            f"{given['probabilities']!r}"
        )
    return {"probabilities": wanted.astype(np.float32)}
