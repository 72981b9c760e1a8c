"""How much each past observation moves a decision: by gradients, and by occlusion."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from clew.agents.heads import known_value, preferences
from clew.agents.network import Agent

TOGETHER = 16
"""Number of occluded episodes that are read side by side."""


class Influence(NamedTuple):
    """The influence of every observation s on the decision at step t, each [..., t, s]."""

    policy: Any
    """Influence on the logits less their mean: the policy as a whole, see `gradient_influence`."""
    log_prob: Any
    """Influence on the logarithm of the chosen action's probability, or of its density."""
    value: Any
    """Influence on the value."""


def gradient_influence(
    agent: Agent,
    observations: Float[Array, "time n"],
    starts: Bool[Array, " time"],
    actions: Shaped[Array, "time *action"],
    at: Int[Array, " decisions"],
) -> Influence:
    """The norms of the derivatives of decisions with respect to each observation.

        policy[t, s]   = || d (l_t - mean l_t) / d x_s ||_F      l_t the logits, [actions, n]
        log_prob[t, s] = || d log pi(a_t | x_0 .. x_t) / d x_s ||_2
        value[t, s]    = || d V_t / d x_s ||_2

    A policy does not change if all of its logits rise by the same number, so their mean is
    subtracted. Unlike the derivative of the probability, this one does not vanish where the agent
    is sure. With several discrete actions at once each has its own mean. For continuous actions
    l_t are the parameters of their distribution, such as means and log deviations. For an agent
    that learned action values l_t are these, and pi is their softmax. The memory begins at
    `init_state()`. Backward passes are made only for the steps in `at`, one for each logit and one
    for the value.

    Args:
        agent: the network.
        observations: of one chunk.
        starts: which of them open an episode.
        actions: those that were chosen.
        at: the steps of the decisions; negative ones are left out, and have zeros.

    Returns:
        Influences [decisions, time]; zero for s > t, and for s before the episode of t.

    Source: the sensitivity of outputs to inputs, as in Simonyan et al. (2014), section 3.
    Deviation: the norm over an observation's numbers, instead of the largest one.
    """

    def run(xs: Array) -> tuple[Array, Array]:
        outputs = agent.unroll(agent.init_state(), xs, starts)[1]
        return preferences(outputs), known_value(outputs)

    (logits, values), back = jax.vjp(run, observations)
    distribution = agent.distribution
    choices = logits.shape[1]
    rows = jnp.eye(choices + 1, dtype=logits.dtype)

    def pull(t: Array, row: Array) -> Array:
        of_logits = jnp.zeros_like(logits).at[t].set(row[:-1])
        return back((of_logits, jnp.zeros_like(values).at[t].set(row[-1])))[0]

    def one(t: Array) -> Influence:
        jacobian = jax.vmap(pull, in_axes=(None, 0))(t, rows)
        of_logits, of_value = jacobian[:-1], jacobian[-1]
        of_log_prob = jax.grad(distribution.log_prob)(logits[t], actions[t])
        centred = distribution.centred(jnp.moveaxis(of_logits, 0, -1))
        return Influence(
            jnp.sqrt(jnp.sum(jnp.square(centred), axis=(1, 2))),
            jnp.linalg.norm(jnp.einsum("a,atn->tn", of_log_prob, of_logits), axis=-1),
            jnp.linalg.norm(of_value, axis=-1),
        )

    def wanted(t: Array) -> Influence:
        nothing = jnp.zeros(len(observations), logits.dtype)
        return jax.lax.cond(t >= 0, one, lambda _: Influence(nothing, nothing, nothing), t)

    return jax.lax.map(wanted, at)


def occlusion_influence(
    agent: Agent,
    observations: Float[Array, "time n"],
    starts: Bool[Array, " time"],
    actions: Shaped[Array, "time *action"],
    at: Int[Array, " decisions"],
    reference: Float[Array, " n"],
) -> Influence:
    """How far decisions move when one observation is replaced by a reference.

    A prime marks results with `reference` in place of x_s and everything else unchanged:

        policy[t, s]   = || (l'_t - mean l'_t) - (l_t - mean l_t) ||_2
        log_prob[t, s] = | log pi'(a_t) - log pi(a_t) |         value[t, s] = | V'_t - V_t |

    The actions are not played again: it is the same episode with one observation replaced.

    Args:
        reference: replaces an observation: zeros, or the episode's mean. The other arguments are
            those of `gradient_influence`; rows of negative steps are meaningless.

    Returns:
        Influences [decisions, time]; zero for s > t, and for s before the episode of t.
    """

    time, chosen, distribution = len(observations), actions[at], agent.distribution
    both = observations, reference[None]
    zs, instead = map(agent.encoder, both)
    beside, instead_beside = map(agent.read_critic_only, both)

    def decisions(s: Array) -> tuple[Array, Array, Array]:
        # With s equal to the chunk's length nothing is replaced; this is the baseline.
        def replaced(x: Array, by: Array) -> Array:
            return x.at[s].set(by[0], mode="drop")

        read = None, jax.tree.map(replaced, beside, instead_beside)
        given = agent.init_state(), replaced(zs, instead), starts
        outputs = agent.unroll_encoded(*given, *read)[1]
        logits, value = preferences(outputs)[at], known_value(outputs)[at]
        return distribution.centred(logits), distribution.log_prob(logits, chosen), value

    groups = np.minimum(np.arange(-(-(time + 1) // TOGETHER) * TOGETHER), time)
    groups = jnp.asarray(groups.reshape(-1, TOGETHER), jnp.int32)
    found = jax.lax.map(jax.vmap(decisions), groups)
    logits, log_prob, value = (x.reshape(-1, *x.shape[2:])[: time + 1] for x in found)
    policy = jnp.linalg.norm(logits[:-1] - logits[-1:], axis=-1)
    others = (jnp.abs(x[:-1] - x[-1:]) for x in (log_prob, value))
    return Influence(*(x.T for x in (policy, *others)))


def episode_influence(
    agent: Agent,
    observations: Float[np.ndarray, "episodes time n"],
    actions: Shaped[np.ndarray, "episodes time *action"],
    at: Int[np.ndarray, "episodes decisions"],
    references: Float[np.ndarray, "episodes n"],
) -> tuple[Influence, Influence]:
    """Gradient and occlusion influence in whole episodes, each from its beginning.

    Observations are padded at an episode's end; the other arguments are those of
    `gradient_influence` and `occlusion_influence`, for every episode.

    Returns:
        Influences [episodes, decisions, time] by gradients, and by occlusion.
    """
    starts = jnp.arange(observations.shape[1]) == 0

    @eqx.filter_jit
    def run(agent: Agent, episodes: tuple) -> tuple[Influence, Influence]:
        def one(inputs: tuple) -> tuple[Influence, Influence]:
            *given, reference = inputs
            xs, chosen, steps = given
            episode = agent, xs, starts, chosen, steps
            return gradient_influence(*episode), occlusion_influence(*episode, reference)

        # One episode after another: a batch would save time, but need too much RAM.
        return jax.lax.map(one, episodes)

    given = (observations, actions, at.astype(np.int32), references)
    return jax.device_get(run(agent, jax.tree.map(jnp.asarray, given)))
