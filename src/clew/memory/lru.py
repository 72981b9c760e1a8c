"""The linear recurrent unit."""

import math
from typing import ClassVar, Unpack

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, UserError, require_at_least, require_fraction, require_rate
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, wide
from clew.memory.parts.linear_recurrence import ScanBackend
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.state_space import Activation, StateSpaceMixer, polar, to_complex


class LRUMixer(StateSpaceMixer):
    """The recurrence of an `LRU`, see there."""

    nu: Float[Array, " state"]
    theta: Float[Array, " state"]
    log_gamma: Float[Array, " state"]
    multiplicity: ClassVar[float] = 1.0

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        state_size: int | None,
        r_min: float,
        r_max: float,
        max_phase: float,
        activation: Activation,
        backend: ScanBackend,
    ):
        state = size if state_size is None else state_size
        require_at_least("state_size", state, 1, LARGEST_SIZE)
        require_fraction("r_min", r_min)
        require_fraction("r_max", r_max)
        if not r_min < r_max:
            raise UserError(f"r_min must be below r_max, got r_min {r_min!r} and r_max {r_max!r}")
        require_rate("max_phase", max_phase, positive=True)
        if max_phase > 2 * math.pi:
            raise UserError(f"max_phase must be at most 2 pi, got {max_phase!r}")
        keys = jax.random.split(key, 7)
        re_b, im_b, re_c, im_c = (initial.normal(k, (size, state)) for k in keys[:4])
        b = re_b / math.sqrt(2 * size), im_b / math.sqrt(2 * size)
        c = re_c.T / math.sqrt(state), im_c.T / math.sqrt(state)
        super().__init__(b, c, key=keys[4], init=init, activation=activation, backend=backend)
        # 1 - |lambda|^2, accurate even where |lambda| is nearly 1.
        gap = (1.0 - r_max**2) + (r_max**2 - r_min**2) * (1.0 - _between(keys[5], state))
        self.nu = jnp.log(-0.5 * jnp.log1p(-gap))
        self.theta = jnp.log(max_phase * _between(keys[6], state))
        self.log_gamma = 0.5 * jnp.log(gap)

    def transition(self) -> tuple[Complex[Array, " state"], Complex[Array, " state"]]:
        nu, theta, gamma = map(jnp.exp, map(wide, (self.nu, self.theta, self.log_gamma)))
        return polar(-nu, theta), to_complex(gamma, jnp.zeros_like(gamma))


def _between(key: PRNGKeyArray, size: int) -> Float[Array, " size"]:
    """Uniform between 0 and 1, both excluded, so that log(x) and log(1 - x) are finite."""
    return jnp.clip(0.5 + initial.uniform(key, (size,), 0.5), 1e-6, 1.0 - 1e-6)


class LRU(MixerStack):
    """The linear recurrent unit: complex numbers that decay and rotate, each at its own rate.

        lambda = exp(-exp(nu) + i exp(theta))
        h_t = lambda * h_{t-1} + exp(gamma) * (B x_t)
        y_t = Re(C h_t) + D * x_t

    in the layers of `mixer_stack`, with `activation` after y. At the start |lambda|^2 is uniform
    from r_min^2 to r_max^2, the angle of lambda uniform from 0 to max_phase, and exp(gamma) is
    sqrt(1 - |lambda|^2), which keeps h at the scale of its inputs. No rate depends on the
    observations. The state is state_size complex numbers per layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        state_size: number of complex entries of h; `hidden_size` if None.
        r_min: smallest |lambda| at the start; closer to 1 for longer memories.
        r_max: largest |lambda| at the start.
        max_phase: largest angle of lambda at the start; small for long, slowly changing memories.
        activation: what follows y: "none", "gelu", "half_glu" or "full_glu", see `Activation`.
        backend: how a chunk is computed: "xla" or "associative"; see `ScanBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size, radius or phase, or an unknown choice.

    Source: Orvieto et al. (2023), "Resurrecting recurrent neural networks for long sequences", with
    its stable exponential parametrisation, ring of eigenvalues and normalisation. B, C and D start
    normal, with variance 1 / (2 hidden_size) and 1 / state_size for each part, and 1; they, lambda,
    gamma and the defaults are as in NicolasZucchet/minimal-LRU, which reproduces the paper.
    Deviation: the paper's layers are a norm, this unit and a GLU; here a feed-forward net follows.
    """

    @stacks(LRUMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        state_size: int | None = None,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 6.28,
        activation: Activation = "full_glu",
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
