"""AReLiT, the approximate recurrent linear transformer."""

from functools import partial
from typing import ClassVar, Literal, NamedTuple, Unpack

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.errors import require_choice
from clew.memory.kernels import RecurrenceBackend, choose_form
from clew.memory.kernels.linear_recurrence import AReLiTConstants, AReLiTInputs, arelit_recurrence
from clew.memory.parts import chunkwise
from clew.memory.parts.blocks import LayerNorm, Linear
from clew.memory.parts.features import (
    Features,
    GatedFeatures,
    GatedOptions,
    gate_maps,
    gated_stack,
    outer,
)
from clew.memory.parts.layer import Mixer
from clew.memory.parts.linear_recurrence import Chunk, advance, advance_chunk
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.oscillators import WAVES, Waves
from clew.memory.parts.positions import count_positions
from clew.memory.parts.stack import LayerStack

Frequencies = Literal["half_wave", "full_wave", "odd_wave"]


class AReLiTState(NamedTuple):
    """One layer's state.

    `keys[0]` is the normaliser s; where the first frequency is 0 it is also its key vector.
    """

    keys: Float[Array, "rows heads eta head"]
    values: Float[Array, "vectors heads head"]
    tick: Int[Array, ""]


class Vectors(NamedTuple):
    """The state without its counter."""

    keys: Float[Array, "rows heads eta head"]
    values: Float[Array, "vectors heads head"]


class WaveInputs(NamedTuple):
    """The inputs of a step: its features, and the cosines of the rows of k~ at its time."""

    features: Features
    cosines: Float[Array, "*time rows"]


class ApproximateLinearAttention(Mixer):
    """Gated linear attention whose matrix state is approximated by a few vectors.

        g_t = gamma_t * k_t
        k~_t^k = (1 - gamma_t) * k~_{t-1}^k + cos(omega_k t) g_t             (Eq. 4.21)
        v~_t^k = (1 - beta_t)  * v~_{t-1}^k + cos(omega_k t) beta_t * v_t    (Eq. 4.20)
        s_t    = (1 - gamma_t) * s_{t-1} + g_t
        a_t    = sum_k w_k v~_t^k (k~_t^k . q_t) / (s_t . q_t / scale + epsilon)   (Eq. 4.22)

    per head; the heads are then concatenated and go through one product. Since $0 <= g$ and
    $|cos| <= 1$, $|k~| <= s$, so no entry of $a_t$ exceeds $scale sum_k w_k max |v|$. `full_wave`
    and `odd_wave` have a second vector for each omega, with its sine; then no entry of $a_t$
    exceeds $max |v|$.

    Shapes: x [size] to y [size]. Source: Pramanik (2023), Algorithm 6. Deviations: `epsilon`, and
    the time step, which is an integer modulo the cosines' period. With `carried_time` no episode
    resets it, and it starts one step later, as in the authors' published code: outputs then depend
    on what came before an episode, unless the frequencies are multiples of pi or have both cosine
    and sine.
    """

    norm: LayerNorm
    features: GatedFeatures
    output: Linear
    waves: Waves = eqx.field(static=True)
    r: int = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    carried_time: bool = eqx.field(static=True, default=False)
    backend: RecurrenceBackend = eqx.field(static=True, default="auto")
    states_at_once: ClassVar[int] = 256

    def init_state(self) -> AReLiTState:
        f, waves = self.features, self.waves(self.r)
        vectors, dtype = len(waves.weights), f.inputs.weight.dtype
        rows = vectors + (0 if waves.constant else 1)
        return AReLiTState(
            jnp.zeros((rows, f.num_heads, f.eta, f.head_size), dtype),
            jnp.zeros((vectors, f.num_heads, f.head_size), dtype),
            jnp.array(int(self.carried_time) % len(waves.table), jnp.int32),
        )

    def decay(self, inputs: WaveInputs) -> tuple[Vectors, Vectors]:
        """The factors by which a step keeps k~ and v~, the same for all rows, and what it adds."""
        f, cosines = inputs
        gamma = outer(f.gamma_map, f.gamma)
        g = gamma * outer(f.key_map, f.key)
        of_values = cosines[-len(self.waves(self.r).weights) :]
        return Vectors((1.0 - gamma)[None], (1.0 - f.beta)[None]), Vectors(
            cosines[:, None, None, None] * g[None],
            of_values[:, None, None] * (f.beta * f.value)[None],
        )

    def read(self, state: Vectors, inputs: WaveInputs) -> Float[Array, "heads head"]:
        """a_t of all heads."""
        f, waves = inputs.features, self.waves(self.r)
        q = outer(f.query_map, f.query)
        kq = jnp.sum(state.keys * q[None], axis=(2, 3))
        w = jnp.asarray(waves.weights, kq.dtype)
        wkq = w[:, None] * kq[-len(w) :]
        above = jnp.sum(state.values * wkq[:, :, None], axis=0)
        below = kq[0] / waves.scale + self.epsilon  # the first row of k~ is s
        return above / below[:, None]

    def step(
        self, state: AReLiTState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[AReLiTState, Float[Array, " n"]]:
        tick = self._ticks(state.tick, jnp.asarray(start)[None])[0]
        inputs = WaveInputs(self.features(self.norm(x)), self._cosines(tick))
        (keys, values), a = advance(self, Vectors(*state[:2]), inputs, start)
        return AReLiTState(keys, values, tick), self.output(a.reshape(-1))

    def unroll(
        self, state: AReLiTState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[AReLiTState, Float[Array, "time n"]]:
        """A chunk: products all at once, then the recurrence with its readout."""
        ticks = self._ticks(state.tick, starts)
        cosines, vectors = self._cosines(ticks), Vectors(*state[:2])
        form = choose_form(self.backend, self.features, xs, state)
        if form == "kernel":
            products = self.features.products(self.norm(xs))
            inputs = AReLiTInputs(*products, cosines, starts, *vectors)
            a, keys, values = arelit_recurrence(self._constants(), inputs)
        else:
            inputs = WaveInputs(self.features(self.norm(xs)), cosines)
            (keys, values), a = advance_chunk(self, form, vectors, inputs, starts)
        return AReLiTState(keys, values, ticks[-1]), self.output(a.reshape(len(xs), -1))

    def read_chunks(
        self, state: Vectors, inputs: WaveInputs, starts: Bool[Array, " time"]
    ) -> Chunk:
        """Several steps by matrix products."""
        vectors = (state.keys, state.values)
        last, a = chunkwise.read_vectors(vectors, *inputs, starts, self._constants())
        return Vectors(*last), a

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The factors that are kept at every step."""
        return gate_maps(self.features, self.norm(xs), joint=False)

    def _constants(self) -> AReLiTConstants:
        waves = self.waves(self.r)
        return AReLiTConstants(tuple(waves.weights.tolist()), waves.scale, self.epsilon)

    def _ticks(self, tick: Int[Array, ""], starts: Bool[Array, " time"]) -> Int[Array, " time"]:
        """The times of all steps, counted from 1, modulo the period."""
        resets = jnp.zeros_like(starts) if self.carried_time else starts
        return (count_positions(tick, resets)[0] + 1) % len(self.waves(self.r).table)

    def _cosines(self, tick: Int[Array, "*time"]) -> Float[Array, "*time rows"]:
        """The cosines of the rows of k~; the normaliser is an extra row if no wave is constant."""
        waves = self.waves(self.r)
        first = np.ones((len(waves.table), 0 if waves.constant else 1))
        table = np.concatenate([first, waves.table], axis=1)
        return jnp.asarray(table, self.features.inputs.weight.dtype)[tick]


class AReLiT(LayerStack):
    """The approximate recurrent linear transformer: AReLiT attention inside the GTrXL layer.

        e = relu(x W + b)
        y = gate_1(x, relu(attention(norm(x))))        in each layer
        out = gate_2(y, relu(mlp(norm(y))))

    with `ApproximateLinearAttention` and the GRU gate. The cost of a step and the state size do not
    grow with the length of an episode: a layer holds (r + 1)(eta + 1) heads head_size numbers, and
    eta heads head_size more with `odd_wave`, none of whose waves is the normaliser.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        r: number of intervals of the approximation, which uses r + 1 vectors.
        frequencies: "half_wave", "full_wave" or "odd_wave"; see `clew.memory.parts.oscillators`.
        options: passed to `gated_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Pramanik (2023), Algorithm 6 and section 4.2; Parisotto et al. (2020) for the layer;
    Tallec and Ollivier (2018) for `chrono`.

    Deviations: the thesis's frequencies contain every cosine twice and alias with period r (at r =
    1 the layer is an average of gated values, whatever the keys and queries), so the default is
    `half_wave`, which has the same number of vectors, all distinct, and twice the period. The scale
    is the one that follows from Eq. 4.6; Eq. 4.22 has a fourth of it. The relus before each gate
    and after the embedding follow the published code, and so does the initialisation of all
    products for keys, queries, values and gates as one orthogonal matrix; the thesis says nothing
    about either. `clew.lab.studies.tmaze.models.PublishedAReLiT` has the other differences of that
    code.
    """

    @takes_options_of(gated_stack, chrono=256)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        r: int = 3,
        frequencies: Frequencies = "half_wave",
        **options: Unpack[GatedOptions],
    ):
        require_choice("frequencies", frequencies, tuple(WAVES))
        waves = WAVES[frequencies]
        waves(r)
        attention = partial(ApproximateLinearAttention, waves=waves, r=r)
        made = gated_stack(input_size, key, attention, init_per="product", **options)
        self.set_layers(input_size, *made, embedding_relu=True)
