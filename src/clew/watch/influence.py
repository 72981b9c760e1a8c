"""The observations that each decision of a recording rests on."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from clew.agents.network import Agent
from clew.errors import require_choice
from clew.inspect import lengths
from clew.inspect.influence import gradient_influence, occlusion_influence
from clew.interact.episodes import Recording, reads_one_axis

WAYS = ("occlusion", "gradient")
Way = Literal["occlusion", "gradient"]
ROUNDED = 32
"""Episodes are padded to a multiple of this many steps, so that they share compiled programs."""


def influences(
    agent: Agent, way: Way = "occlusion"
) -> Callable[[Recording, Int[np.ndarray, " some"]], Float[np.ndarray, "time time"]]:
    """Finds the share of each observation s in the influence on the policy at each step t.

        share[t, s] = I[t, s] / (I[t, 0] + ... + I[t, t])

    with I the influence on the logits less their mean, either by replacing x_s by zeros or by
    gradients: see `clew.inspect.occlusion_influence` and `gradient_influence`.

    Args:
        agent: the network that played; for gradients it must not stop any
            (`clew.inspect.run.with_whole_gradient`).
        way: "occlusion" costs T passes over an episode of T steps, "gradient" one backward pass for
            each action and each requested step.

    Returns:
        A function of a recording of a whole episode and of the requested steps t. It returns shares
        [T, T]; rows that were not requested are 0, as are entries with s > t.

    Raises:
        UserError: for an unknown way.
    """
    require_choice("influence", way, WAYS)

    def shares(recording: Recording, at: Int[np.ndarray, " some"]) -> np.ndarray:
        time, seen = recording.length, recording.observations
        room = -(-time // ROUNDED) * ROUNDED
        filled = np.pad(seen, [(0, room - time)] + [(0, 0)] * (seen.ndim - 1))
        wanted = np.full(room, -1, np.int32)
        wanted[: len(at)] = at
        rows = np.asarray(_influence(agent, way, filled, wanted))[: len(at), :time].astype(float)
        found = np.zeros((time, time))
        found[at] = np.nan_to_num(lengths.shares(rows))
        return found

    return shares


@eqx.filter_jit
def _influence(agent: Agent, way: str, observations: Any, at: Any) -> Any:
    # The influence on the policy does not depend on the actions.
    kept = agent.distribution
    actions = jnp.zeros((len(observations), *kept.action_shape), kept.action_dtype)
    starts = jnp.arange(len(observations)) == 0
    if way == "gradient":
        agent = reads_one_axis(agent, observations[0])
        numbers = observations.reshape(len(observations), -1).astype(jnp.float32)
        return gradient_influence(agent, numbers, starts, actions, at).policy
    nothing = jnp.zeros_like(observations[0])
    return occlusion_influence(agent, observations, starts, actions, at, nothing).policy
