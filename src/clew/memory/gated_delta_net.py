"""The gated delta network."""

from typing import Literal, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import MOST_PARTS, require_at_least, require_choice
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, RMSNorm, check_heads, unit
from clew.memory.parts.convolution import ShortConvolution
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.matrix_mixer import GatedOutput, MatrixMixer, in_heads
from clew.memory.parts.matrix_recurrence import MatrixBackend, MatrixInputs, choose_matrix_form
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.repeated import like

Decay = Literal["learned", "none"]

EPSILON = 1e-6
"""Epsilon in the lengths of keys and queries, as in the authors' code."""


class GatedDeltaMixer(MatrixMixer):
    """The recurrence of a `GatedDeltaNet` or a `DeltaProduct`, see there.

    `inputs` holds [q | k | v], each [heads, head], and `rates` [a | b], each [heads]; there are
    `num_householder` of each of k, v and b, side by side.
    """

    norm: LayerNorm
    inputs: Linear
    convolution: ShortConvolution | None
    rates: Linear
    log_rate: Float[Array, " heads"]
    output: GatedOutput
    num_heads: int = eqx.field(static=True)
    head_size: int = eqx.field(static=True)
    num_householder: int = eqx.field(static=True)
    negative_eigenvalues: bool = eqx.field(static=True)
    decay: Decay = eqx.field(static=True)
    backend: MatrixBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        num_heads: int,
        head_size: int,
        num_householder: int = 1,
        negative_eigenvalues: bool,
        conv: int,
        decay: Decay,
        backend: MatrixBackend,
    ):
        check_heads(num_heads, head_size)
        require_at_least("num_householder", num_householder, 1, MOST_PARTS)
        require_choice("decay", decay, ("learned", "none"))
        choose_matrix_form(backend)
        keys, wide, several = jax.random.split(key, 7), num_heads * head_size, num_householder
        blocks = 1 + 2 * several
        self.norm = LayerNorm(size)
        read = blocks * wide
        self.inputs = Linear(size, read, key=keys[0], init=init, bias=False, blocks=blocks)
        rates = Linear(size, (1 + several) * num_heads, key=keys[1], init=init)
        # As in Mamba-2.
        bias = [initial.time_steps(keys[2], num_heads), initial.constant(several * num_heads)]
        self.rates = eqx.tree_at(lambda made: made.bias, rates, jnp.concatenate(bias))
        self.log_rate = initial.log_rates(keys[3], num_heads)
        norm = RMSNorm(head_size)
        self.output = GatedOutput(size, num_heads, norm, keys=(keys[4], keys[5]), init=init)
        self.convolution = ShortConvolution(read, conv, key=keys[6]) if conv else None
        self.num_heads, self.head_size, self.num_householder = num_heads, head_size, several
        self.negative_eigenvalues = negative_eigenvalues
        self.decay, self.backend = decay, backend

    @property
    def steps_per_input(self) -> int:
        return self.num_householder

    def terms(self, x: Float[Array, "*lead n"], read: Float[Array, "*lead wide"]) -> MatrixInputs:
        """q, k, v, log a and b; with several steps, only the first one decays."""
        parts = jnp.split(jax.nn.silu(read), 1 + 2 * self.num_householder, axis=-1)
        query, *others = (in_heads(part, self.num_heads) for part in parts)
        log_keep, *rates = self._rates(x)
        if self.num_householder == 1:
            (key, value), (rate,) = others, rates
            return MatrixInputs(unit(query, EPSILON), unit(key, EPSILON), value, log_keep, rate)
        steps = self.num_householder
        keys, values, rates = (
            jnp.stack(each, axis=axis)
            for each, axis in ((others[:steps], -3), (others[steps:], -3), (rates, -2))
        )
        queries = jnp.broadcast_to(jnp.expand_dims(unit(query, EPSILON), -3), keys.shape)
        decays = jnp.stack([log_keep] + [jnp.zeros_like(log_keep)] * (steps - 1), axis=-2)
        return MatrixInputs(queries, unit(keys, EPSILON), values, decays, rates)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """a and b of every head and step."""
        log_keep, *rates = self._rates(self.norm(xs))
        rate = jnp.concatenate(rates, axis=-1)
        return {"a": MemoryMap(jnp.exp(log_keep), "keep"), "b": MemoryMap(rate, "gate")}

    def _rates(self, x: Float[Array, "*lead n"]) -> list[Array]:
        """log a, and every b."""
        of_a, *of_b = jnp.split(self.rates(x), 1 + self.num_householder, axis=-1)
        log_keep = -jnp.exp(like(self.log_rate, of_a)) * jax.nn.softplus(of_a)
        if self.decay == "none":
            log_keep = jnp.zeros_like(log_keep)
        largest = 2.0 if self.negative_eigenvalues else 1.0
        return [log_keep, *(largest * jax.nn.sigmoid(b) for b in of_b)]


class GatedDeltaNet(MixerStack):
    """The gated delta network: a matrix of values by keys whose old values are replaced by new
    ones.

        q, k, v = silu(conv(x W))                   q, k of length 1, per head
        a_t = exp(-A softplus(x_t W_a + c))         b_t = sigmoid(x_t W_b + b)
        C_t = a_t C_{t-1} (I - b_t k_t k_t') + b_t v_t k_t'
        y_t = (rmsnorm(C_t q_t) * silu(x_t G)) W_o

    in the layers of `mixer_stack`. With b = 1 the new value fully replaces a key's old one, which a
    sum cannot do. The state of a layer is heads head_size^2 numbers, and the inputs that the
    convolution still sees, 3 (conv - 1) heads head_size.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        num_heads: number of heads in a layer.
        head_size: width of a key, a query and a value.
        negative_eigenvalues: b from 0 to 2 instead of 1, so that a key's content can change its
            sign; alternating states, as in parity, need it (Grazzi et al., 2024).
        conv: width of the short convolution in steps; 0 for none.
        decay: "learned", or "none" for a = 1, which is DeltaNet (Yang et al., 2024a).
        backend: how a chunk is computed: "kernel", "chunkwise", "xla" or "auto"; see
            `MatrixBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Yang et al. (2024b), "Gated Delta Networks", section 3.1 and Figure 1; Yang et al.
    (2024a), "Parallelizing linear transformers with the delta rule", for the chunks; Dao and Gu
    (2024) for the initial A and c. Deviations: A starts uniform from 1 to 16, as in Dao and Gu,
    where the authors' code has 0 to 16; values are as wide as keys, where that code has them twice
    as wide; and weights start orthogonal.
    """

    @stacks(GatedDeltaMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        head_size: int = 32,
        negative_eigenvalues: bool = False,
        conv: int = 4,
        decay: Decay = "learned",
        backend: MatrixBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
