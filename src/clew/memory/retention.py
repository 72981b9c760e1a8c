"""Retention: linear attention with a fixed decay."""

import math
from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import UserError, require_at_least
from clew.memory.parts.blocks import Init, LayerNorm, Linear, check_heads
from clew.memory.parts.convolution import ShortConvolution
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.matrix_mixer import GatedOutput, MatrixMixer, in_heads
from clew.memory.parts.matrix_recurrence import MatrixBackend, MatrixInputs, choose_matrix_form
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks


class RetentionMixer(MatrixMixer):
    """The recurrence of a `Retention`, see there.

    `inputs` holds [q | k | v], each [heads, head].
    """

    norm: LayerNorm
    inputs: Linear
    convolution: ShortConvolution | None
    output: GatedOutput
    num_heads: int = eqx.field(static=True)
    head_size: int = eqx.field(static=True)
    shortest: int = eqx.field(static=True)
    rotation: bool = eqx.field(static=True)
    backend: MatrixBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        num_heads: int,
        head_size: int,
        shortest: int,
        rotation: bool,
        backend: MatrixBackend,
    ):
        check_heads(num_heads, head_size)
        require_at_least("shortest", shortest, 1)
        choose_matrix_form(backend)
        if rotation and head_size % 2:
            raise UserError(f"rotation turns pairs and needs an even head_size, got {head_size}")
        keys, wide = jax.random.split(key, 3), num_heads * head_size
        self.norm = LayerNorm(size)
        self.inputs = Linear(size, 3 * wide, key=keys[0], init=init, bias=False, blocks=3)
        self.convolution = None
        norm = LayerNorm(head_size)
        self.output = GatedOutput(size, num_heads, norm, keys=(keys[1], keys[2]), init=init)
        self.num_heads, self.head_size = num_heads, head_size
        self.shortest, self.rotation, self.backend = shortest, rotation, backend

    def terms(self, x: Float[Array, "*lead n"], read: Float[Array, "*lead wide"]) -> MatrixInputs:
        """q, k, v, log a, and theta."""
        query, key, value = (in_heads(part, self.num_heads) for part in jnp.split(read, 3, axis=-1))
        lead, dtype = query.shape[:-1], jnp.promote_types(query.dtype, jnp.float32)
        log_keep = jnp.broadcast_to(jnp.asarray(self._log_keep(), dtype), lead)
        turn = None
        if self.rotation:
            half = self.head_size // 2
            theta = jnp.asarray(10_000.0 ** (-np.arange(half) / half), dtype)
            turn = jnp.broadcast_to(theta, (*lead, half))
        return MatrixInputs(query, key / math.sqrt(self.head_size), value, log_keep, turn=turn)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """a of every head, the same at all steps."""
        keep = jnp.asarray(np.exp(self._log_keep()), xs.dtype)
        return {"a": MemoryMap(jnp.broadcast_to(keep, (len(xs), self.num_heads)), "keep")}

    def _log_keep(self) -> Float[np.ndarray, " heads"]:
        """log a of every head; -inf for a head that lasts one step."""
        with np.errstate(divide="ignore"):
            return np.log1p(-np.exp2(-np.arange(self.num_heads)) / self.shortest)


class Retention(MixerStack):
    """Multi-scale retention: decaying sums of outer products, each head with its own fixed rate.

        q, k, v = x W
        C_t = a C_{t-1} R + v_t k_t' / sqrt(d)
        y_t = (norm(C_t q_t) * silu(x_t G)) W_o

    per head, with a = 1 - 2^{-h} / shortest for head h = 0, 1, ..., in the layers of `mixer_stack`.
    R rotates pairs i of keys by fixed angles 10000^{-2 i / d}, so that a score also depends on
    distance. The state is heads head_size^2 numbers per layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        num_heads: number of heads in a layer.
        head_size: width of a key, a query and a value.
        shortest: steps in which the first head's content decays to 1 / e; every further head lasts
            twice as long. The paper has 32: a = 1 - 2^{-5-h}.
        rotation: whether keys are rotated; needs an even head_size.
        backend: how a chunk is computed: "kernel", "chunkwise", "xla" or "auto"; see
            `MatrixBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Sun et al. (2023), "Retentive network", Eq. 3-6 and 8. Of xPos only the rotation is
    used, since its growth is the decay. The state is rotated, instead of queries and keys by their
    positions, which is equivalent and counts no steps. Deviations: of the three ways in which
    section 2.2 keeps scores small, only 1 / sqrt(d) above is used: the others divide by sums, which
    the norm undoes. The authors' code has an RMS norm without a scale where the paper has a group
    norm, which is used here; one scale serves all heads. Values are as wide as keys, and weights
    start orthogonal.
    """

    @stacks(RetentionMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        head_size: int = 32,
        shortest: int = 32,
        rotation: bool = True,
        backend: MatrixBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
