"""Fast and forgetful memory."""

import math
from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, MOST_PARTS, require_at_least
from clew.memory.parts.blocks import Init, LayerNorm, Linear, standardise, wide
from clew.memory.parts.diagonal import DiagonalMixer
from clew.memory.parts.linear_recurrence import ScanBackend
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.state_space import polar

_FASTEST = math.log(np.finfo(np.float64).max) / 1024 - 0.02
"""The largest a at the start. In the authors' code a sum over 1,024 steps is divided by exp(-a t),
which above this leaves double precision."""


class FFMMixer(DiagonalMixer):
    """The cell of an `FFM`, see there.

    `inputs` holds [l_1 | l_2], each [traces], `skip` [l_4 | l_5], each [n], and `mix` l_3.
    """

    norm: LayerNorm
    inputs: Linear
    skip: Linear
    mix: Linear
    decay: Float[Array, " traces"]
    frequency: Float[Array, " contexts"]
    backend: ScanBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        trace_size: int,
        context_size: int,
        longest: int,
        backend: ScanBackend,
    ):
        require_at_least("trace_size", trace_size, 1, LARGEST_SIZE)
        require_at_least("context_size", context_size, 1, MOST_PARTS)
        require_at_least("longest", longest, 2)
        keys = jax.random.split(key, 3)
        wide = 2 * trace_size * context_size
        self.norm = LayerNorm(size)
        self.inputs = Linear(size, 2 * trace_size, key=keys[0], init=init, blocks=2)
        self.skip = Linear(size, 2 * size, key=keys[1], init=init, blocks=2)
        self.mix = Linear(wide, size, key=keys[2], init=init)
        slowest = math.log(100.0) / longest
        decay = np.linspace(max(_FASTEST, slowest), slowest, trace_size)
        periods = np.linspace(1, longest, context_size)
        self.decay = jnp.array(decay, jnp.float32)
        self.frequency = jnp.array(2.0 * math.pi / periods, jnp.float32)
        self.backend = backend

    def init_state(self) -> Complex[Array, "traces contexts"]:
        return jnp.zeros_like(self._factors())

    def terms(self, x: Float[Array, "*lead n"]) -> tuple[Array, Array]:
        """g, and x~ 1'."""
        value, gate = jnp.split(self.inputs(x), 2, axis=-1)
        gated, g = value * jax.nn.sigmoid(gate), self._factors()
        return g, jnp.broadcast_to(gated[..., None], (*gated.shape, g.shape[1])).astype(g.dtype)

    def read(
        self, state: Complex[Array, "*lead traces contexts"], x: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        """l_3 of the state, and the gated skip connection."""
        lead = x.shape[:-1]
        parts = [part.reshape(*lead, -1) for part in (state.real, state.imag)]
        z = self.mix(jnp.concatenate(parts, axis=-1).astype(x.dtype))
        gate, skipped = jnp.split(self.skip(x), 2, axis=-1)
        gate = jax.nn.sigmoid(gate)
        return standardise(z, 1e-5) * gate + skipped * (1.0 - gate)  # the epsilon is PyTorch's

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The decay of every trace, exp(-|a|), and how far the two gates are open."""
        xs = self.norm(xs)
        keep = jnp.broadcast_to(jnp.exp(-jnp.abs(self.decay)), (len(xs), len(self.decay)))
        input_gate = jax.nn.sigmoid(jnp.split(self.inputs(xs), 2, axis=-1)[1])
        output_gate = jax.nn.sigmoid(jnp.split(self.skip(xs), 2, axis=-1)[0])
        return {
            "|g|": MemoryMap(keep, "keep"),
            "input": MemoryMap(input_gate, "gate"),
            "output": MemoryMap(output_gate, "gate"),
        }

    def _factors(self) -> Complex[Array, "traces contexts"]:
        """g, the factor by which a step multiplies the state."""
        return polar(-jnp.abs(wide(self.decay))[:, None], wide(self.frequency)[None, :])


class FFM(MixerStack):
    """Fast and forgetful memory: fading traces of the past, each in several phases.

        x~_t = l_1(x_t) * sigmoid(l_2(x_t))
        S_t = g * S_{t-1} + x~_t 1',   g_{jk} = exp(-|a_j| + i omega_k)
        z_t = l_3([Re S_t | Im S_t])
        y_t = norm(z_t) * sigmoid(l_4(x_t)) + l_5(x_t) * (1 - sigmoid(l_4(x_t)))

    in the layers of `mixer_stack`, where each l is a product with a bias. How fast a trace fades
    and its phases turn does not depend on the observations, so S is a sum over the past by age: its
    magnitude says what was seen, its phases say when. The state is trace_size context_size complex
    numbers per layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        trace_size: number of traces, each with its own a.
        context_size: number of phases, each with its own omega.
        longest: steps in which the slowest trace fades to a hundredth at the start, and the period
            of the slowest phase.
        backend: how a chunk is computed: "xla" or "associative"; see `ScanBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Morad et al. (2023b), "Reinforcement learning with fast and forgetful memory"; a and
    omega start evenly spaced, omega by its period, as in the authors' PyTorch code, with which they
    compare memories. Their JAX code has a from e to 1e-6 and norm(z_t * sigmoid(l_4(x_t))).
    Deviations: the cell stands in a residual layer. Unlike in the paper's sums over time, nothing
    is divided by a power of g, so a has no upper limit and a chunk no maximum length.
    """

    @stacks(FFMMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        trace_size: int = 32,
        context_size: int = 4,
        longest: int = 1024,
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
