"""The real-gated linear recurrent unit, in the recurrent block of Griffin."""

from typing import NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, MOST_PARTS, UserError, require_at_least, require_fraction
from clew.memory.base import select
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, as_precise
from clew.memory.parts.convolution import ShortConvolution
from clew.memory.parts.layer import Mixer
from clew.memory.parts.linear_recurrence import ScanBackend, states_of
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.repeated import like

SHARPNESS = 8.0
"""c, the exponent of the decay where the gate is open."""


class GriffinState(NamedTuple):
    """One layer's state: h, and the inputs that the short convolution still sees."""

    hidden: Float[Array, " inner"]
    convolved: Float[Array, "before inner"]


class BlockGates(eqx.Module):
    """[x W_r + b_r | x W_i + b_i] with block-diagonal W: every part of x has its own gates.

    Shapes: weight [blocks, part, r and i], bias [out]; x [..., blocks part] to [..., out].
    """

    weight: Float[Array, "blocks part both"]
    bias: Float[Array, " out"]

    def __init__(self, size: int, blocks: int, *, key: PRNGKeyArray, init: Init):
        part, keys = size // blocks, jax.random.split(key, blocks)
        made = [Linear(part, 2 * part, key=k, init=init, blocks=2) for k in keys]
        self.weight = jnp.stack([block.weight for block in made])
        self.bias = initial.bias(init, initial.beside(key), 2 * size, bound=part**-0.5)

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead out"]:
        lead, (blocks, part, _) = x.shape[:-1], self.weight.shape
        parts = x.reshape(*lead, blocks, part)
        both = jnp.einsum("...bn,bng->...bg", parts, self.weight)
        gates = [gate.reshape(*lead, -1) for gate in jnp.split(both, 2, axis=-1)]
        y = jnp.concatenate(gates, axis=-1)
        return y + like(self.bias, y)


class GriffinMixer(Mixer):
    """The recurrent block of a `RGLRU`, see there.

    `inputs` holds [u | v], the input of the recurrence and its output gate; `gates` [r | i].
    """

    norm: LayerNorm
    inputs: Linear
    convolution: ShortConvolution | None
    gates: Linear | BlockGates
    decay: Float[Array, " inner"]
    output: Linear
    backend: ScanBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        inner_size: int | None,
        num_blocks: int,
        conv: int,
        r_min: float,
        r_max: float,
        chrono: int,
        backend: ScanBackend,
    ):
        inner = size if inner_size is None else inner_size
        require_at_least("inner_size", inner, 1, LARGEST_SIZE)
        require_at_least("num_blocks", num_blocks, 1, MOST_PARTS)
        if inner % num_blocks:
            raise UserError(
                f"num_blocks must divide inner_size, got num_blocks {num_blocks} and inner_size "
                f"{inner}"
            )
        require_at_least("conv", conv, 0)
        keys = jax.random.split(key, 5)
        self.norm = LayerNorm(size)
        self.inputs = Linear(size, 2 * inner, key=keys[0], init=init, blocks=2)
        self.convolution = ShortConvolution(inner, conv, key=keys[1]) if conv else None
        if num_blocks == 1:
            self.gates = Linear(inner, 2 * inner, key=keys[2], init=init, blocks=2)
        else:
            self.gates = BlockGates(inner, num_blocks, key=keys[2], init=init)
        self.decay = _initial_decay(keys[3], inner, r_min, r_max, chrono)
        self.output = Linear(inner, size, key=keys[4], init=init)
        self.backend = backend

    def init_state(self) -> GriffinState:
        """Zeros, h of single precision at least."""
        inner, dtype = len(self.decay), self.decay.dtype
        if self.convolution is None:
            before = jnp.zeros((0, inner), dtype)
        else:
            before = self.convolution.init_state()
        return GriffinState(jnp.zeros(inner, jnp.promote_types(dtype, jnp.float32)), before)

    def step(
        self, state: GriffinState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[GriffinState, Float[Array, " n"]]:
        (u, v), before = self._branches(self.norm(x)), state.convolved
        if self.convolution is not None:
            before, u = self.convolution.step(before, u, start)
        (keep, add), dtype = self._terms(u, state.hidden.dtype)
        hidden = keep * select(start, jnp.zeros_like(state.hidden), state.hidden) + add
        return GriffinState(hidden, before), self.output(hidden.astype(dtype) * jax.nn.gelu(v))

    def unroll(
        self, state: GriffinState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[GriffinState, Float[Array, "time n"]]:
        """A chunk: products and convolution all at once, then the recurrence."""
        (u, v), before = self._branches(self.norm(xs)), state.convolved
        if self.convolution is not None:
            before, u = self.convolution.unroll(before, u, starts)
        terms, dtype = self._terms(u, state.hidden.dtype)
        hidden = states_of(*terms, state.hidden, starts, self.backend)
        return GriffinState(hidden[-1], before), self.output(hidden.astype(dtype) * jax.nn.gelu(v))

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The decay at every step, and how far the input gate is open."""
        u, _ = self._branches(self.norm(xs))
        if self.convolution is not None:
            start = jnp.zeros(len(xs), bool)
            _, u = self.convolution.unroll(self.convolution.init_state(), u, start)
        log_keep, opened = self._rates(u)
        return {"a": MemoryMap(jnp.exp(log_keep), "keep"), "i": MemoryMap(opened, "gate")}

    def _branches(self, x: Float[Array, "*lead n"]) -> list[Float[Array, "*lead inner"]]:
        return jnp.split(self.inputs(x), 2, axis=-1)

    def _rates(self, u: Float[Array, "*lead inner"]) -> tuple[Array, Array]:
        """log a_t, and i_t."""
        r, i = (jax.nn.sigmoid(gate) for gate in jnp.split(self.gates(u), 2, axis=-1))
        return -SHARPNESS * r * like(jax.nn.softplus(-self.decay), r), i

    def _terms(
        self, u: Float[Array, "*lead inner"], dtype: jnp.dtype
    ) -> tuple[tuple[Array, Array], jnp.dtype]:
        """a_t and sqrt(1 - a_t^2) * (i_t * u_t) in the dtype of h, and the dtype of the outputs."""
        (u, log_keep, opened), of_outputs = as_precise(dtype, u.dtype, (u, *self._rates(u)))
        square = -jnp.expm1(2.0 * log_keep)
        # Where the gate is closed to the last digit nothing is written, and the root has no
        # gradient.
        some = square > jnp.finfo(square.dtype).tiny
        root = jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)
        return (jnp.exp(log_keep), root * opened * u), of_outputs


def _initial_decay(
    key: PRNGKeyArray, size: int, r_min: float, r_max: float, chrono: int
) -> Float[Array, " size"]:
    """Lambda, with a = sigmoid(Lambda): a^c uniform, or a^(c/2) = 1 - 1/u as `initial.lasting`."""
    require_at_least("chrono", chrono, 0)
    for name, radius in {"r_min": r_min, "r_max": r_max}.items():
        require_fraction(name, radius)
        if radius in (0, 1):
            raise UserError(f"{name} must be between 0 and 1, both excluded, got {radius!r}")
    if not r_min < r_max:
        raise UserError(f"r_min must be below r_max, got r_min {r_min!r} and r_max {r_max!r}")
    if chrono:
        require_at_least("chrono", chrono, 2)
        log_decay = -2.0 * jax.nn.softplus(initial.lasting(key, size, chrono)) / SHARPNESS
    else:
        middle, span = (r_max + r_min) / 2, (r_max - r_min) / 2
        log_decay = jnp.log(middle + initial.uniform(key, (size,), span)) / SHARPNESS
    return log_decay - jnp.log(-jnp.expm1(log_decay))


class RGLRU(MixerStack):
    """The RG-LRU of Griffin: real numbers that decay at rates chosen by input-dependent gates.

        u = conv(x W_u + b_u)       v = gelu(x W_v + b_v)
        r_t = sigmoid(u_t W_r + b_r)       i_t = sigmoid(u_t W_i + b_i)
        a_t = sigmoid(Lambda)^(c r_t)
        h_t = a_t * h_{t-1} + sqrt(1 - a_t^2) * (i_t * u_t)
        y_t = (h_t * v_t) W_y + b_y

    in the layers of `mixer_stack`, with c = 8: Hawk, or Griffin without attention. The root keeps
    the scale of h, however long it lasts. The state of a layer is inner_size numbers, and the
    inputs that the convolution still sees, (conv - 1) inner_size.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        inner_size: size of h; `hidden_size` if None. The paper has a third more.
        num_blocks: number of blocks of W_r and W_i, each of which reads its own part of u; 1 for
            full matrices.
        conv: width of the short convolution in steps; 0 for none.
        r_min: lower end of the uniform distribution of sigmoid(Lambda)^c, the factor that is kept
            where r is 1, at the start.
        r_max: its upper end.
        chrono: steps that the longest memories last at the start, where r is 1/2, instead of r_min
            and r_max; see `initial.lasting`. 0 to use r_min and r_max.
        backend: how a chunk is computed: "xla" or "associative"; see `ScanBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or radius, or an unknown choice.

    Source: De et al. (2024), "Griffin: mixing gated linear recurrences with local attention for
    efficient language models", section 2.4, Eq. 1-4, and its recurrent block; `num_blocks` is that
    of the authors' code (google-deepmind/recurrentgemma), which has as many as heads. Their code
    differs: an episode's first input is written with 1 instead of the root; the root's derivative
    is at most 1000; and at the start sigmoid(Lambda)^2, not sigmoid(Lambda)^c, is uniform, from
    0.9^2 to 0.999^2, so that its memories are c times as short: about r_min=0.43 and r_max=0.992
    here. Deviations: the library's norms and feed-forward net, where the paper has RMSNorm and a
    gated net; gelu is the tanh approximation, as in the code.
    """

    @stacks(GriffinMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        inner_size: int | None = None,
        num_blocks: int = 1,
        conv: int = 4,
        r_min: float = 0.9,
        r_max: float = 0.999,
        chrono: int = 0,
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
