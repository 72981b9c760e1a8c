"""The stable Hadamard memory."""

from functools import partial
from typing import ClassVar, NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.errors import LARGEST_SIZE, require_at_least, require_rate
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, wide
from clew.memory.parts.layer import Mixer
from clew.memory.parts.linear_recurrence import ScanBackend, advance, advance_states
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.positions import count_positions


class SHMState(NamedTuple):
    """One layer's state: M, and the position in the episode modulo the period of the addresses."""

    matrix: Float[Array, "value key"]
    position: Int[Array, ""]


class SHMInputs(NamedTuple):
    """The inputs of the recurrence's steps, with or without a leading time axis."""

    query: Float[Array, "*time key"]
    key: Float[Array, "*time key"]
    value: Float[Array, "*time value"]
    """eta v"""
    column: Float[Array, "*time key"]
    """v_c, which calibrates the keys"""
    row: Float[Array, "*time value"]
    """theta, which calibrates the values"""


class SHMMixer(Mixer):
    """The recurrence of an `SHM`, see there.

    `inputs` holds [q | k | v | v_c], each [memory], and `skip` W_s.
    """

    norm: LayerNorm
    inputs: Linear
    rate: Linear
    skip: Linear
    output: Linear
    theta: Float[Array, "addresses memory"]
    sequence: Int[Array, " period"]
    epsilon: float = eqx.field(static=True)
    backend: ScanBackend = eqx.field(static=True)
    states_at_once: ClassVar[int] = 64

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        memory_size: int,
        addresses: int,
        period: int,
        epsilon: float,
        backend: ScanBackend,
    ):
        require_at_least("memory_size", memory_size, 1, LARGEST_SIZE)
        require_at_least("addresses", addresses, 1, LARGEST_SIZE)
        require_at_least("period", period, 1, LARGEST_SIZE)
        require_rate("epsilon", epsilon, positive=True)
        keys = jax.random.split(key, 6)
        inputs = partial(Linear, init=init, bias=False)
        self.norm = LayerNorm(size)
        self.inputs = inputs(size, 4 * memory_size, key=keys[0], blocks=4)
        self.rate = inputs(size, 1, key=keys[1])
        self.skip = Linear(size, memory_size, key=keys[2], init=init)
        self.output = Linear(memory_size, size, key=keys[3], init=init)
        bound = (6.0 / (addresses + memory_size)) ** 0.5
        self.theta = initial.uniform(keys[4], (addresses, memory_size), bound)
        self.sequence = jax.random.randint(keys[5], (period,), 0, addresses, jnp.int32)
        self.epsilon = epsilon
        self.backend = backend

    def init_state(self) -> SHMState:
        memory = self.theta.shape[1]
        matrix = jnp.zeros((memory, memory), self.theta.dtype)
        return SHMState(matrix, jnp.array(0, jnp.int32))

    def decay(self, inputs: SHMInputs) -> tuple[Array, Array]:
        """C_t and U_t."""
        calibration = 1.0 + jnp.tanh(inputs.row[:, None] * inputs.column[None, :])
        return calibration, inputs.value[:, None] * inputs.key[None, :]

    def read(self, state: Float[Array, "value key"], inputs: SHMInputs) -> Float[Array, " value"]:
        """M_t q_t."""
        return jnp.sum(state * inputs.query[None, :], axis=1)

    def step(
        self, state: SHMState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[SHMState, Float[Array, " n"]]:
        x = self.norm(x)
        position = jnp.where(start, 0, state.position)
        matrix, y = advance(self, state.matrix, self._inputs(x, position), start)
        return SHMState(matrix, self._modulo(position + 1)), self.output(y + self.skip(x))

    def unroll(
        self, state: SHMState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[SHMState, Float[Array, "time n"]]:
        xs = self.norm(xs)
        positions, position = count_positions(state.position, starts)
        inputs = self._inputs(xs, self._modulo(positions))
        matrix, ys = advance_states(self, self.backend, state.matrix, inputs, starts)
        return SHMState(matrix, self._modulo(position)), self.output(ys + self.skip(xs))

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """How much is written, eta, and the mean of C, above 1 where the content grows."""
        xs = self.norm(xs)
        inputs = self._inputs(xs, self._modulo(jnp.arange(len(xs), dtype=jnp.int32)))
        calibration = jnp.mean(jax.vmap(self.decay)(inputs)[0], axis=(1, 2))[:, None]
        rate = jax.nn.sigmoid(self.rate(xs))
        return {"eta": MemoryMap(rate, "gate"), "C": MemoryMap(calibration, "gate")}

    def _modulo(self, position: Int[Array, "*lead"]) -> Int[Array, "*lead"]:
        return position % len(self.sequence)

    def _inputs(self, x: Float[Array, "*lead n"], position: Int[Array, "*lead"]) -> SHMInputs:
        query, key, value, column = jnp.split(self.inputs(x), 4, axis=-1)
        rate = jnp.broadcast_to(jax.nn.sigmoid(self.rate(x)), value.shape)
        row = jnp.asarray(self.theta)[jnp.asarray(self.sequence)[position]]
        return SHMInputs(self._shares(query), self._shares(key), rate * value, column, row)

    def _shares(self, x: Float[Array, "*lead key"]) -> Float[Array, "*lead key"]:
        """Non-negative shares with sum 1."""
        positive = wide(jax.nn.relu(x))  # epsilon is 0 in half precision
        shares = positive / (jnp.sum(positive, axis=-1, keepdims=True) + self.epsilon)
        return shares.astype(x.dtype)


class SHM(MixerStack):
    """The stable Hadamard memory: a matrix whose entries grow or fade independently.

        M_t = M_{t-1} * C_t + U_t
        C_t = 1 + tanh(theta_t (x) v_c),       v_c = W_c x_t
        U_t = eta_t v_t (x) k_t,               eta_t = sigmoid(w x_t),   v_t = W_v x_t
        y_t = W_o (M_t q_t + W_s x_t)

    in the layers of `mixer_stack`, with k and q the positive parts of products of x, divided by
    their sum and `epsilon`. Row t of theta is one of `addresses` rows, drawn at random for every
    step, so that the factors C of many steps are independent and their product stays near 1.

    A memory draws no random numbers while it runs. So the addresses are drawn once, with the
    weights, for the positions of an episode, and repeat after `period` steps: an agent has its own
    sequence, which training does not change, and an episode that is read again gives the same
    result.

    Nothing else bounds M: while an observation stays the same, the entries whose C is above 1 on
    average over the addresses grow exponentially. More addresses make that slower at the start.

    The state is memory_size^2 numbers and the position, per layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        memory_size: height and width of M.
        addresses: rows of theta.
        period: steps after which the sequence of addresses repeats.
        epsilon: keeps the sum of a key or a query above 0.
        backend: how a chunk is computed: "xla" or "associative"; see `ScanBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size, an `epsilon` of 0 or less, or an unknown choice.

    Source: Le et al. (2024), "Stable Hadamard Memory"; keys, queries, the skip and how theta starts
    are those of the authors' code for POPGym. Deviations: the fixed sequence; and the cell stands
    in a residual layer. That code intends to draw an address for every step, but rounds a number
    between 0 and 1 down and so always uses row 0, which is `addresses=1`. Their code for
    meta-reinforcement learning does draw one, and clips M to between -100 and 100 after every step,
    which is nonlinear and not done here.
    """

    @stacks(SHMMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        memory_size: int = 32,
        addresses: int = 128,
        period: int = 1024,
        epsilon: float = 1e-5,
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
