"""AReLiT, the approximate recurrent linear transformer.

The model, its attention, and below them the cosines that approximate the Kronecker delta.
"""

import math
from typing import Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.errors import require_at_least, require_choice, require_rate
from clew.memory.base import State, check_step_input, check_unroll_input
from clew.memory.kernels import Backend, uses_kernel
from clew.memory.kernels.arelit import AReLiTInputs, Readout, arelit_recurrence
from clew.memory.parts.blocks import Init, LayerNorm, Linear
from clew.memory.parts.features import Features, GatedFeatures, InitPer, gate_maps, outer
from clew.memory.parts.layer import Layer
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.scans import checkpointed_scan
from clew.memory.parts.stack import LayerStack, check_sizes, step_layers, unroll_layers

Frequencies = Literal["half_wave", "full_wave", "odd_wave", "printed", "code"]
Scale = Literal["derived", "printed", "code"]
Tick = Literal["episode", "carried"]


class AReLiTState(NamedTuple):
    """One layer's state.

    `keys[0]` is the normaliser s; where the first frequency is 0 it is also its key vector.
    """

    keys: Float[Array, "rows heads eta head"]
    values: Float[Array, "vectors heads head"]
    tick: Int[Array, ""]


class ApproximateLinearAttention(eqx.Module):
    """Gated linear attention whose matrix state is approximated by a few vectors.

        g_t = gamma_t * k_t
        k~_t^k = (1 - gamma_t) * k~_{t-1}^k + cos(omega_k t) g_t             (Eq. 4.21)
        v~_t^k = (1 - beta_t)  * v~_{t-1}^k + cos(omega_k t) beta_t * v_t    (Eq. 4.20)
        s_t    = (1 - gamma_t) * s_{t-1} + g_t
        a_t    = sum_k w_k v~_t^k (k~_t^k . q_t) / (s_t . q_t / scale + epsilon)   (Eq. 4.22)

    per head, then the heads side by side through one product. Since 0 <= g and |cos| <= 1,
    |k~| <= s, so that no entry of a_t exceeds scale sum_k w_k max |v|. `full_wave` and `odd_wave`
    have a second vector for each omega, with its sine; then no entry of a_t exceeds max |v|.

    Shapes: x [size] to y [size]. Source: Pramanik (2023), Algorithm 6. Deviations: `epsilon`, and
    the time step, which is an integer modulo the cosines' period.
    """

    norm: LayerNorm
    features: GatedFeatures
    output: Linear
    frequencies: Frequencies = eqx.field(static=True)
    r: int = eqx.field(static=True)
    scale: Scale = eqx.field(static=True)
    tick: Tick = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    backend: Backend = eqx.field(static=True, default="auto")

    def init_state(self) -> AReLiTState:
        """Zero vectors; a carried tick starts at 1 as in the published code, else at 0."""
        f = self.features
        vectors = self._waves().table.shape[1]
        rows, dtype = vectors + self._extra_rows(), f.inputs.weight.dtype
        first = 1 if self.tick == "carried" else 0
        return AReLiTState(
            jnp.zeros((rows, f.num_heads, f.eta, f.head_size), dtype),
            jnp.zeros((vectors, f.num_heads, f.head_size), dtype),
            jnp.array(first % len(self._waves().table), jnp.int32),
        )

    def step(
        self, state: AReLiTState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[AReLiTState, Float[Array, " n"]]:
        """One observation."""
        tick = self._tick(state.tick, start)
        cosines = self._cosines(tick)
        inputs = (self.features(self.norm(x)), cosines, start)
        (k, v), a = self._recur((state.keys, state.values), inputs)
        return AReLiTState(k, v, tick), self.output(a.reshape(-1))

    def _recur(
        self, carry: tuple[Array, Array], inputs: tuple[Features, Array, Array]
    ) -> tuple[tuple[Array, Array], Float[Array, "heads head"]]:
        """k~_t, v~_t and a_t of all heads; `cosines` are those of the rows of k~ at time t."""
        k, v = carry
        f, cosines, start = inputs
        gamma = outer(f.gamma_map, f.gamma)
        g = gamma * outer(f.key_map, f.key)
        k = _decay(k, 1.0 - gamma, g, cosines, start)
        skip = self._extra_rows()
        v = _decay(v, 1.0 - f.beta, f.beta * f.value, cosines[skip:], start)
        q = outer(f.query_map, f.query)
        kq = jnp.sum(k * q[None], axis=(2, 3))
        waves = self._waves()
        w = jnp.asarray(waves.weights, k.dtype)
        above = jnp.sum(v * (w[:, None] * kq[skip:])[:, :, None], axis=0)
        below = kq[0] / waves.scale + self.epsilon  # the first row of k~ is s
        return (k, v), above / below[:, None]

    def unroll(
        self, state: AReLiTState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[AReLiTState, Float[Array, "time n"]]:
        """A chunk: products all at once, then the recurrence with its readout."""

        def count(tick: Array, start: Array) -> tuple[Array, Array]:
            tick = self._tick(tick, start)
            return tick, tick

        tick, ticks = jax.lax.scan(count, state.tick, starts)
        cosines = self._cosines(ticks)
        if uses_kernel(self.backend, self.features, xs, state):
            products = self.features.products(self.norm(xs))
            inputs = AReLiTInputs(*products, cosines, starts, state.keys, state.values)
            attended, keys, values = arelit_recurrence(self._readout(), inputs)
        else:
            inputs = (self.features(self.norm(xs)), cosines, starts)
            (keys, values), attended = checkpointed_scan(
                self._recur, (state.keys, state.values), inputs
            )
        return AReLiTState(keys, values, tick), self.output(attended.reshape(len(xs), -1))

    def refresh(self, state: State) -> State:
        """The state as it is: nothing in it was derived from the parameters."""
        return state

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """What is kept at every step."""
        return gate_maps(self.features, self.norm(xs), joint=False)

    def _waves(self) -> "Oscillators":
        return oscillators(self.frequencies, self.r, self.scale)

    def _readout(self) -> Readout:
        waves = self._waves()
        return Readout(tuple(waves.weights.tolist()), waves.scale, self.epsilon)

    def _extra_rows(self) -> int:
        # The others have omega_0 = 0, whose key vector is the normaliser already.
        return 1 if self.frequencies in ("code", "odd_wave") else 0

    def _tick(self, tick: Int[Array, ""], start: Bool[Array, ""]) -> Int[Array, ""]:
        before = jnp.where(start, 0, tick) if self.tick == "episode" else tick
        return (before + 1) % len(self._waves().table)

    def _cosines(self, tick: Int[Array, "*lead"]) -> Float[Array, "*lead rows"]:
        table = self._waves().table
        if self._extra_rows():
            table = np.concatenate([np.ones((len(table), 1)), table], axis=1)
        return jnp.asarray(table, self.features.inputs.weight.dtype)[tick]


def _decay(
    state: Float[Array, "rows *shape"],
    keep: Float[Array, "*shape"],
    add: Float[Array, "*shape"],
    cosines: Float[Array, " rows"],
    start: Bool[Array, ""],
) -> Float[Array, "rows *shape"]:
    waves = cosines.reshape(-1, *[1] * keep.ndim)
    kept = jnp.where(start, 0.0, state)
    return keep[None] * kept + waves * add[None]


class AReLiT(LayerStack):
    """The approximate recurrent linear transformer: AReLiT attention inside the GTrXL layer.

        e = relu(x W + b)
        layer: y = gate_1(x, relu(attention(norm(x))));  out = gate_2(y, relu(mlp(norm(y))))

    with `ApproximateLinearAttention` and the GRU gate. The cost of a step and the state do not
    grow with the length of an episode: (r + 1)(eta + 1) heads head_size numbers a layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        hidden_size: width d of the residual stream, and of the output.
        num_layers: layers L.
        num_heads: heads per layer.
        head_size: width d_h of a head.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        eta: size of the feature maps' learned factor.
        r: number of intervals of the approximation; r + 1 vectors (`code`: r vectors).
        frequencies: "half_wave", "full_wave", "odd_wave", "printed", "code"; see `oscillators`.
        scale: "derived", "printed" or "code"; see `oscillators`.
        tick: "episode" counts from 1 in every episode; "carried" is never reset and starts one
            later, as in the authors' published code, so that outputs depend on what came before
            an episode (unless frequencies are multiples of pi, or have cosine and sine).
        epsilon: added to the denominator; the published code has 1e-5, the thesis none.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        init_per: what of the products for keys, queries, values and gates starts as one orthogonal
            matrix: the whole "product", each "role" (K, Q, V, beta, gamma, p1, p2, p3), or each
            role of each "head". The published code has "product". Smaller matrices have
            larger weights.
        backend: what computes a chunk: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Pramanik (2023), Algorithm 6 and section 4.2; Parisotto et al. (2020) for the layer.

    Deviations: the thesis's frequencies hold every cosine twice and alias with period r (at r = 1
    the layer is an average of gated values, whatever keys and queries are), so the default is
    `half_wave`, which has the same number of vectors, all distinct, and twice the period. The
    scale is the one that follows from Eq. 4.6; Eq. 4.22 is a fourth of it. Relu before each gate
    and after the embedding follow the published code; the thesis is silent.
    """

    embedding: Linear | None
    layers: tuple[Layer[ApproximateLinearAttention], ...]
    embedding_relu: bool = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        hidden_size: int = 128,
        num_layers: int = 2,
        num_heads: int = 4,
        head_size: int = 32,
        ffn_size: int | None = None,
        eta: int = 4,
        r: int = 3,
        frequencies: Frequencies = "half_wave",
        scale: Scale = "derived",
        tick: Tick = "episode",
        epsilon: float = 1e-5,
        init: Init = "orthogonal",
        init_per: InitPer = "product",
        backend: Backend = "auto",
    ):
        check_sizes(input_size, hidden_size, num_layers)
        require_choice("tick", tick, ("episode", "carried"))
        require_rate("epsilon", epsilon)
        oscillators(frequencies, r, scale)
        uses_kernel(backend)
        keys = jax.random.split(key, 1 + num_layers)

        def layer(key: PRNGKeyArray) -> Layer[ApproximateLinearAttention]:
            feature_key, output_key, layer_key = jax.random.split(key, 3)
            attention = ApproximateLinearAttention(
                norm=LayerNorm(hidden_size),
                features=GatedFeatures(
                    hidden_size,
                    key=feature_key,
                    num_heads=num_heads,
                    head_size=head_size,
                    eta=eta,
                    query="single",
                    init=init,
                    init_per=init_per,
                ),
                output=Linear(num_heads * head_size, hidden_size, key=output_key, init=init),
                frequencies=frequencies,
                r=r,
                scale=scale,
                tick=tick,
                epsilon=epsilon,
                backend=backend,
            )
            return Layer(hidden_size, ffn_size, attention, key=layer_key, init=init)

        self.embedding = Linear(input_size, hidden_size, key=keys[0], init=init)
        self.embedding_relu = True
        self.layers = tuple(layer(k) for k in keys[1:])
        self.input_size = input_size
        self.output_size = hidden_size

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        """One observation: e, then y and out of every layer."""
        x = check_step_input(self, x, start, state)
        return step_layers(self.layers, state, self.embed(x), start)

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        """A chunk, layer by layer."""
        xs = check_unroll_input(self, xs, starts, state)
        return unroll_layers(self.layers, state, self.embed(xs), starts)


class Oscillators(NamedTuple):
    """The waves of AReLiT as a table over one period, exact for any number of steps.

    Every set of frequencies in use is a rational multiple of pi, so that cos(omega_k t) repeats
    with an integer period, and a time step can be held modulo that period: no phase is ever lost.
    """

    table: np.ndarray  # [period, vectors], cos(omega_k t), or for a second vector sin(omega_k t)
    weights: np.ndarray  # [vectors], each vector's weight in the readout
    scale: float  # what the readout is multiplied by


def oscillators(frequencies: Frequencies, r: int, scale: Scale) -> Oscillators:
    """The frequencies, their weights in the readout and its scale.

    The approximate delta is delta(m, n) = scale sum_k weight_k wave_k(m) wave_k(n). Cosines alone:

    - `half_wave`: omega_k = pi k / r, k = 0..r, the two ends weighing one half; with the derived
      scale delta(m, n) = [m = n mod 2r] + [m = -n mod 2r].
    - `printed`: omega_k = 2 pi k / r, k = 0..r (Pramanik, 2023, Algorithm 6, line 11); with the
      derived scale delta(m, n) = [m = n mod r] + [m = -n mod r] + 2 / r.
    - `code`: r values evenly from -pi to pi, as in the authors' published code.

    Cosine and sine of each frequency, and so no step's mirror image, in R = r + 1 vectors:

    - `full_wave`: omega_k = 2 pi k / R, 0 <= omega_k <= pi; delta(m, n) = [m = n mod R].
    - `odd_wave`: omega_k = pi (2k + 1) / R, 0 < omega_k <= pi; the same, and negative where
      (m - n) / R is odd.

    A frequency of 0 or pi has no sine and weighs one half. In mean square over time no R vectors
    of any kind do better than these two, see the documentation's page on the approximation.

    Scales: `derived` 2 / r (Eq. 4.6), which for the others is 2 over their own number of
    intervals: `code` r - 1, `full_wave` and `odd_wave` R; `printed` 1 / (2 r) (Eq. 4.22); `code`
    1 / (2 vectors).
    """
    require_at_least("r", r, 1)
    require_choice("frequencies", frequencies, get_args(Frequencies))
    require_choice("scale", scale, get_args(Scale))
    if frequencies in ("full_wave", "odd_wave"):
        intervals = r + 1
        table, weights = _cosines_and_sines(intervals, odd=frequencies == "odd_wave")
    else:
        intervals = max(1, r - 1) if frequencies == "code" else r
        table, weights = _cosines(frequencies, r)
    factor = {"derived": 2 / intervals, "printed": 1 / (2 * r), "code": 1 / (2 * len(weights))}
    return Oscillators(table, weights, factor[scale])


def _cosines(frequencies: Frequencies, r: int) -> tuple[np.ndarray, np.ndarray]:
    if frequencies == "half_wave":
        period, multiples = 2 * r, np.arange(r + 1)
    elif frequencies == "printed":
        period, multiples = r, np.arange(r + 1)
    else:
        # omega_k = pi (2k - (r - 1)) / (r - 1) repeats after 2 (r - 1) steps; r = 1 is omega = -pi.
        period = max(2, 2 * (r - 1))
        multiples = 2 * np.arange(r) - (r - 1) if r > 1 else np.array([-1])
    weights = np.ones(len(multiples))
    if frequencies == "half_wave":
        weights[[0, -1]] = 0.5
    return np.cos(_phases(period, multiples)), weights


def _cosines_and_sines(vectors: int, odd: bool) -> tuple[np.ndarray, np.ndarray]:
    # In units of pi / vectors the frequencies are even numbers, or odd ones, up to pi.
    period = 2 * vectors if odd else vectors
    steps = np.arange(1 if odd else 0, vectors + 1, 2)
    phases = _phases(period, steps if odd else steps // 2)
    alone = (steps == 0) | (steps == vectors)
    table = np.concatenate([np.cos(phases), np.sin(phases)[:, ~alone]], axis=1)
    return table, np.concatenate([np.where(alone, 0.5, 1.0), np.ones(np.sum(~alone))])


def _phases(period: int, multiples: np.ndarray) -> np.ndarray:
    """The angles [period, multiples] of whole multiples of 2 pi / period, reduced exactly."""
    return 2 * math.pi * (np.outer(np.arange(period), multiples) % period) / period
