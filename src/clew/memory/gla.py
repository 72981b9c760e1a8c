"""Gated linear attention."""

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
from clew.memory.parts.matrix_mixer import GatedOutput, MatrixMixer, in_heads
from clew.memory.parts.matrix_recurrence import MatrixBackend, MatrixInputs, choose_matrix_form
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks

ROOT = 16
"""tau, the root that is taken of the gate, as in the paper."""


class GLAMixer(MatrixMixer):
    """The recurrence of a `GLA`, see there.

    `inputs` holds [q | k | v] of all heads, as wide as keys, keys and values; `narrow` and `keep`
    are the two products of the gate.
    """

    norm: LayerNorm
    inputs: Linear
    convolution: ShortConvolution | None
    narrow: Linear
    keep: Linear
    output: GatedOutput
    num_heads: int = eqx.field(static=True)
    head_size: int = eqx.field(static=True)
    key_size: int = eqx.field(static=True)
    backend: MatrixBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        num_heads: int,
        head_size: int,
        key_size: int,
        rank: int,
        chrono: int,
        backend: MatrixBackend,
    ):
        check_heads(num_heads, head_size)
        require_at_least("key_size", key_size, 1, LARGEST_SIZE)
        require_at_least("rank", rank, 1, LARGEST_SIZE)
        require_at_least("chrono", chrono, 0)
        choose_matrix_form(backend)
        keys, wide, keyed = jax.random.split(key, 6), num_heads * head_size, num_heads * key_size
        self.norm = LayerNorm(size)
        self.inputs = Linear(size, 2 * keyed + wide, key=keys[0], init=init, bias=False)
        self.convolution = None
        self.narrow = Linear(size, rank, key=keys[1], init=init, bias=False)
        self.keep = Linear(rank, keyed, key=keys[2], init=init)
        if chrono:
            bias = _bias_that_keeps(keys[3], keyed, chrono)
            self.keep = eqx.tree_at(lambda made: made.bias, self.keep, bias)
        norm = RMSNorm(head_size)
        self.output = GatedOutput(size, num_heads, norm, keys=(keys[4], keys[5]), init=init)
        self.num_heads, self.head_size, self.key_size = num_heads, head_size, key_size
        self.backend = backend

    @property
    def width_of_keys(self) -> int:
        return self.key_size

    def terms(self, x: Float[Array, "*lead n"], read: Float[Array, "*lead wide"]) -> MatrixInputs:
        """q, k, v and log a."""
        keyed = self.num_heads * self.key_size
        parts = (*jnp.split(read, [keyed, 2 * keyed], axis=-1), self._log_keep(x))
        query, key, value, log_keep = (in_heads(part, self.num_heads) for part in parts)
        return MatrixInputs(query, key, value, log_keep)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """a of every key and step."""
        return {"a": MemoryMap(jnp.exp(self._log_keep(self.norm(xs))), "keep")}

    def _log_keep(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead keys"]:
        return jax.nn.log_sigmoid(self.keep(self.narrow(x))) / ROOT


def _bias_that_keeps(key: PRNGKeyArray, size: int, longest: int) -> Float[Array, " size"]:
    """Biases b for which 1 - sigmoid(b)^(1/ROOT) is what `initial.lasting` says."""
    require_at_least("chrono", longest, 2)
    log_gate = ROOT * jax.nn.log_sigmoid(-initial.lasting(key, size, longest))
    return log_gate - jnp.log(-jnp.expm1(log_gate))


class GLA(MixerStack):
    """Gated linear attention: a matrix of values by keys with a decay for every key.

        q, k, v = x W
        a_t = sigmoid(x_t W_1 W_2 + b)^{1/16}
        C_t = C_{t-1} diag(a_t) + v_t k_t'
        y_t = (rmsnorm(C_t q_t) * silu(x_t G)) W_o

    per head, in the layers of `mixer_stack`. The state is heads head_size key_size numbers per
    layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        num_heads: number of heads in a layer.
        head_size: width of a value.
        key_size: width of a key and a query; in the paper, half the width of a value.
        rank: width between W_1 and W_2.
        chrono: steps that the longest memories last at the start, see `initial.lasting`; with 0 the
            biases of a start like all others, and a key decays to 1 / e in about 23 steps.
        backend: how a chunk is computed: "kernel", "chunkwise", "xla" or "auto"; see
            `MatrixBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Yang et al. (2023), "Gated linear attention transformers", Eq. 3 and section 4.4; its
    chunks divide products of gates, ours do not, see `clew.memory.parts.chunkwise`. The authors'
    code has an RMS norm where the paper has a layer norm, no bias in the output gate, and queries
    divided by sqrt(key_size), which the norm undoes; here the first two follow the code. Deviation:
    one scale of the norm serves all heads, and weights start orthogonal.
    """

    @stacks(GLAMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        head_size: int = 32,
        key_size: int = 16,
        rank: int = 16,
        chrono: int = 0,
        backend: MatrixBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
