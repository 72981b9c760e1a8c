"""Mamba-2."""

from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, require_at_least
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, RMSNorm, check_heads
from clew.memory.parts.convolution import ShortConvolution
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.matrix_mixer import MatrixMixer, in_heads
from clew.memory.parts.matrix_recurrence import MatrixBackend, MatrixInputs, choose_matrix_form
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.repeated import like


class Mamba2Mixer(MatrixMixer):
    """The recurrence of a `Mamba2`, see there.

    `inputs` holds [x | B | C]: x of every head, B and C shared by all heads.
    """

    norm: LayerNorm
    inputs: Linear
    convolution: ShortConvolution | None
    rates: Linear
    log_rate: Float[Array, " heads"]
    skip: Float[Array, " heads"]
    gate: Linear
    output_norm: RMSNorm
    output: Linear
    num_heads: int = eqx.field(static=True)
    head_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    backend: MatrixBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        num_heads: int,
        head_size: int,
        state_size: int,
        conv: int,
        backend: MatrixBackend,
    ):
        check_heads(num_heads, head_size)
        require_at_least("state_size", state_size, 1, LARGEST_SIZE)
        choose_matrix_form(backend)
        keys, wide = jax.random.split(key, 7), num_heads * head_size
        read = wide + 2 * state_size
        self.norm = LayerNorm(size)
        self.inputs = Linear(size, read, key=keys[0], init=init, bias=False)
        self.convolution = ShortConvolution(read, conv, key=keys[1]) if conv else None
        rates = Linear(size, num_heads, key=keys[2], init=init)
        steps = initial.time_steps(keys[3], num_heads)
        self.rates = eqx.tree_at(lambda made: made.bias, rates, steps)
        self.log_rate = initial.log_rates(keys[4], num_heads)
        self.skip = initial.constant(num_heads, 1.0)
        self.gate = Linear(size, wide, key=keys[5], init=init, bias=False)
        self.output_norm = RMSNorm(wide)
        self.output = Linear(wide, size, key=keys[6], init=init, bias=False)
        self.num_heads, self.head_size, self.state_size = num_heads, head_size, state_size
        self.backend = backend

    @property
    def width_of_keys(self) -> int:
        return self.state_size

    def terms(self, x: Float[Array, "*lead n"], read: Float[Array, "*lead wide"]) -> MatrixInputs:
        """C, B, dt x and dt A, as a query, a key, a value and the logarithm of the decay."""
        values, b, c = self._parts(read)
        dt = jax.nn.softplus(self.rates(x))
        shape = (*dt.shape, self.state_size)
        query, key = (jnp.broadcast_to(part[..., None, :], shape) for part in (c, b))
        log_keep = -jnp.exp(like(self.log_rate, dt)) * dt
        return MatrixInputs(query, key, dt[..., None] * values, log_keep)

    def finish(
        self,
        y: Float[Array, "*lead heads head"],
        x: Float[Array, "*lead n"],
        read: Float[Array, "*lead wide"],
    ) -> Float[Array, "*lead n"]:
        """D x, the gate, the norm and the last product."""
        skip = jnp.broadcast_to(self.skip[:, None], y.shape)
        y = (y + skip * self._parts(read)[0]).reshape(*x.shape[:-1], -1)
        return self.output(self.output_norm(y * jax.nn.silu(self.gate(x))))

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """exp(dt A) and dt of every head and step."""
        dt = jax.nn.softplus(self.rates(self.norm(xs)))
        rate = jnp.exp(like(self.log_rate, dt))
        return {"exp(dt A)": MemoryMap(jnp.exp(-rate * dt), "keep"), "dt": MemoryMap(dt, "gate")}

    def _parts(self, read: Float[Array, "*lead wide"]) -> tuple[Array, Array, Array]:
        """x of every head, B and C."""
        wide = self.num_heads * self.head_size
        x, b, c = jnp.split(jax.nn.silu(read), [wide, wide + self.state_size], axis=-1)
        return in_heads(x, self.num_heads), b, c


class Mamba2(MixerStack):
    """Mamba-2: a state-space model whose step length depends on the observation.

        [x | B | C] = silu(conv(u_t W))
        dt = softplus(u_t W_d + c)
        H_t = exp(dt A) H_{t-1} + dt x_t B_t'
        y_t = H_t C_t + D x_t
        out = rmsnorm(y_t * silu(u_t Z)) W_o

    for every head, with its own x, dt, A < 0 and D, in the layers of `mixer_stack`; all heads share
    B and C, and u is the layer's input. The state of a layer is heads head_size state_size numbers,
    and the inputs that the convolution still sees, (conv - 1) (heads head_size + 2 state_size).

    Shapes: u [input_size] to out [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        num_heads: number of heads in a layer.
        head_size: width of x of a head, P in the paper.
        state_size: width of B and C, N in the paper.
        conv: width of the short convolution in steps; 0 for none.
        backend: how a chunk is computed: "kernel", "chunkwise", "xla" or "auto"; see
            `MatrixBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Dao and Gu (2024), "Transformers are SSMs", Eq. 2 with the scalar A of section 2.4, and
    section 7.1 with Figure 6 for the block; dt and A start as in their code: dt from 0.001 to 0.1,
    A from -1 to -16, D at 1. The paper discretises B by dt as the code does, which is Euler's rule.
    Deviations: one group of B and C, heads that are not twice as wide in total as the layer, a
    feed-forward net after each block, and weights start orthogonal.
    """

    @stacks(Mamba2Mixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        head_size: int = 32,
        state_size: int = 32,
        conv: int = 4,
        backend: MatrixBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
