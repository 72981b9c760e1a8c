"""Returns: the targets of the values."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def lambda_returns(
    reward: Float[Array, "time *batch"],
    discount: Float[Array, "time *batch"],
    value: Float[Array, "time_and_one *batch"],
    valid: Bool[Array, "time *batch"],
    lam: float | Float[Array, ""],
) -> Float[Array, "time *batch"]:
    """Lambda-returns, from the last time backwards.

        G_T = V_T
        G_t = r_t + d_t ((1 - lam) V_{t+1} + lam G_{t+1})     where valid_t
        G_t = V_t                                             elsewhere

    A terminated episode has d_t = 0, so nothing after it counts. A truncated one has d_t = gamma
    and its final observation at t+1, where valid is False and so G_{t+1} = V_{t+1}: the return
    bootstraps from the value of that observation, and nothing of the next episode counts.

    Args:
        reward: r_t, the reward that follows the action at t.
        discount: d_t, gamma times the environment's discount (0 after a termination).
        value: V_t of all T+1 observations; no gradient is stopped here.
        valid: False for the transition that leaves the final observation of a truncated episode.
        lam: between 0 (one step) and 1 (Monte Carlo).

    Source: Sutton and Barto (2018), Eq. 12.20; Pramanik (2023), section 5.1, lam 0.95.
    """

    def back(
        later: Float[Array, "*batch"], inputs: tuple[Array, Array, Array, Array, Array]
    ) -> tuple[Array, Array]:
        r, d, v, v_next, ok = inputs
        g = jnp.where(ok, r + d * ((1 - lam) * v_next + lam * later), v)
        return g, g

    inputs = (reward, discount, value[:-1], value[1:], valid)
    return jax.lax.scan(back, value[-1], inputs, reverse=True)[1]


def n_step_returns(
    reward: Float[Array, "time *batch"],
    discount: Float[Array, "time *batch"],
    value: Float[Array, "time_and_one *batch"],
    valid: Bool[Array, "time *batch"],
    n: int,
) -> Float[Array, "time *batch"]:
    """Returns over n steps, bootstrapped from the value of the observation then.

        G^0_t = V_t
        G^n_t = r_t + d_t G^(n-1)_{t+1}     where valid_t
        G^n_t = V_t                         elsewhere

    At the last time G^n_T = V_T: the returns of the last n steps cover fewer steps, and with n
    above T all reach to the end. Terminated and truncated episodes are treated as in
    `lambda_returns`.

    Args:
        reward: r_t, the reward that follows the action at t.
        discount: d_t, gamma times the environment's discount (0 after a termination).
        value: V_t of all T+1 observations; no gradient is stopped here.
        valid: False for the transition that leaves the final observation of a truncated episode.
        n: steps, at least 1.

    Source: Sutton and Barto (2018), Eq. 7.1.
    """

    def longer(_: Int[Array, ""], returns: Array) -> Array:
        """G^(n+1) of G^n."""
        earlier = jnp.where(valid, reward + discount * returns[1:], value[:-1])
        return jnp.concatenate([earlier, value[-1:]])

    steps = min(n, len(reward))
    # A loop: hundreds of unrolled steps take long to compile, or crash the process.
    return jax.lax.fori_loop(0, steps, longer, value, unroll=min(steps, 8))[:-1]


def vtrace(
    reward: Float[Array, "time *batch"],
    discount: Float[Array, "time *batch"],
    value: Float[Array, "time_and_one *batch"],
    valid: Bool[Array, "time *batch"],
    log_ratio: Float[Array, "time *batch"],
    lam: float,
    clip: float,
) -> tuple[Float[Array, "time *batch"], Float[Array, "time *batch"]]:
    """V-trace targets and advantages, from the last time backwards.

        w_t = min(exp(log_ratio_t), clip)
        G_T = V_T
        G_t = V_t + w_t (r_t + d_t V_{t+1} - V_t) + d_t lam w_t (G_{t+1} - V_{t+1})   where valid_t
        G_t = V_t                                                                     elsewhere
        A_t = r_t + d_t ((1 - lam) V_{t+1} + lam G_{t+1}) - V_t,   0 where not valid

    For the policy that acted (log_ratio 0, clip at least 1) the targets are `lambda_returns`, and
    the advantages are G_t - V_t. A_t does not include its own importance weight, which is the ratio
    in the loss that uses it.

    Args:
        reward: r_t, the reward that follows the action at t.
        discount: d_t, gamma times the environment's discount (0 after a termination).
        value: V_t of all T+1 observations, from the current network.
        valid: False for the transition that leaves the final observation of a truncated episode.
        log_ratio: log pi(a_t | o_t) of the current policy minus that of the policy that acted.
        lam: between 0 and 1.
        clip: maximum weight, both rho-bar and c-bar of the paper.

    Returns:
        G_t and A_t.

    Source: Espeholt et al. (2018), Eq. 1 and section 4.2; with lam as in their remark 2. With lam
    below 1 the next target in A_t is mixed with the value, so that A_t is the generalised advantage
    of Schulman et al. (2016) on the policy's own experience.
    """
    weight = jnp.minimum(jnp.exp(log_ratio), clip)

    def back(
        later: Float[Array, "*batch"], inputs: tuple[Array, ...]
    ) -> tuple[Array, tuple[Array, Array]]:
        r, d, v, v_next, ok, w = inputs
        difference = r + d * v_next - v
        g = jnp.where(ok, v + w * (difference + d * lam * (later - v_next)), v)
        advantage = jnp.where(ok, difference + d * lam * (later - v_next), 0.0)
        return g, (g, advantage)

    inputs = (reward, discount, value[:-1], value[1:], valid, weight)
    return jax.lax.scan(back, value[-1], inputs, reverse=True)[1]
