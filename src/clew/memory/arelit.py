"""AReLiT, the approximate recurrent linear transformer.

The model, its attention, and below them the cosines that approximate the Kronecker delta.
"""

import math
from functools import partial
from typing import Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.errors import MOST_PARTS, require_at_least, require_choice, require_rate
from clew.memory.base import State
from clew.memory.kernels import RecurrenceBackend, choose_form
from clew.memory.kernels.arelit import AReLiTInputs, Readout, arelit_recurrence
from clew.memory.parts import chunkwise
from clew.memory.parts.blocks import Init, LayerNorm, Linear
from clew.memory.parts.features import Features, GatedFeatures, InitPer, gate_maps, outer
from clew.memory.parts.layer import Layer
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.positions import count_positions
from clew.memory.parts.scans import checkpointed_scan, linear_scan, scan_pieces
from clew.memory.parts.stack import LayerStack, check_sizes

Frequencies = Literal["half_wave", "full_wave", "odd_wave", "printed", "code"]
Scale = Literal["derived", "printed", "code"]
Tick = Literal["episode", "carried"]

_STATES = 256  # steps whose states are held at once by the associative scan


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
    backend: RecurrenceBackend = eqx.field(static=True, default="auto")

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
        tick = self._ticks(state.tick, start[None])[0]
        inputs = (self.features(self.norm(x)), self._cosines(tick), start)
        vectors, a = self._recur(Vectors(state.keys, state.values), inputs)
        return AReLiTState(*vectors, tick), self.output(a.reshape(-1))

    def _recur(
        self, state: Vectors, inputs: tuple[Features, Array, Array]
    ) -> tuple[Vectors, Float[Array, "heads head"]]:
        """k~_t, v~_t and a_t of all heads; `cosines` are those of the rows of k~ at time t."""
        f, cosines, start = inputs
        keep, add = self._decay(f, cosines)
        old = jax.tree.map(lambda s: jnp.where(start, 0.0, s), state)
        state = jax.tree.map(lambda k, s, a: k * s + a, keep, old, add)
        return state, self._read(state, f)

    def _decay(self, f: Features, cosines: Float[Array, " rows"]) -> tuple[Vectors, Vectors]:
        """What a step keeps of k~ and v~, whatever the row, and what it adds to each row."""
        gamma = outer(f.gamma_map, f.gamma)
        g = gamma * outer(f.key_map, f.key)
        of_values = cosines[self._extra_rows() :]
        return Vectors((1.0 - gamma)[None], (1.0 - f.beta)[None]), Vectors(
            cosines[:, None, None, None] * g[None],
            of_values[:, None, None] * (f.beta * f.value)[None],
        )

    def _read(self, state: Vectors, f: Features) -> Float[Array, "heads head"]:
        """a_t of all heads."""
        q = outer(f.query_map, f.query)
        kq = jnp.sum(state.keys * q[None], axis=(2, 3))
        waves = self._waves()
        w = jnp.asarray(waves.weights, kq.dtype)
        above = jnp.sum(state.values * (w[:, None] * kq[self._extra_rows() :])[:, :, None], axis=0)
        below = kq[0] / waves.scale + self.epsilon  # the first row of k~ is s
        return above / below[:, None]

    def unroll(
        self, state: AReLiTState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[AReLiTState, Float[Array, "time n"]]:
        """A chunk: products all at once, then the recurrence with its readout."""
        ticks = self._ticks(state.tick, starts)
        cosines = self._cosines(ticks)
        vectors = Vectors(state.keys, state.values)
        form = choose_form(self.backend, self.features, xs, state)
        if form == "kernel":
            products = self.features.products(self.norm(xs))
            inputs = AReLiTInputs(*products, cosines, starts, *vectors)
            a, keys, values = arelit_recurrence(self._readout(), inputs)
            return AReLiTState(keys, values, ticks[-1]), self.output(a.reshape(len(xs), -1))
        inputs = (self.features(self.norm(xs)), cosines, starts)
        if form == "chunkwise":
            vectors, a = scan_pieces(self._chunks, vectors, inputs, chunkwise.PIECE)
        elif form == "associative":
            vectors, a = scan_pieces(self._all_states, vectors, inputs, _STATES)
        else:
            vectors, a = checkpointed_scan(self._recur, vectors, inputs)
        return AReLiTState(*vectors, ticks[-1]), self.output(a.reshape(len(xs), -1))

    def _all_states(
        self, state: Vectors, inputs: tuple[Features, Array, Array]
    ) -> tuple[Vectors, Float[Array, "time heads head"]]:
        """Some steps in parallel: the states of all of them."""
        f, cosines, starts = inputs
        states = linear_scan(*jax.vmap(self._decay)(f, cosines), state, starts)
        return jax.tree.map(lambda s: s[-1], states), jax.vmap(self._read)(states, f)

    def _chunks(
        self, state: Vectors, inputs: tuple[Features, Array, Array]
    ) -> tuple[Vectors, Float[Array, "time heads head"]]:
        """Some steps in parallel, by matrix products; the axes of k~ are [chunk, head, row, k]."""
        features, cosines, starts = inputs
        fine = chunkwise.without_nonfinite(state, features, starts)
        f, size, skip = fine.inputs, chunkwise.chunk_size(len(starts)), self._extra_rows()

        def wide(first: Array, second: Array) -> Array:
            return outer(first, second).reshape(*second.shape[:2], -1)

        gamma = wide(f.gamma_map, f.gamma)
        q = chunkwise.cut(wide(f.query_map, f.query), size)
        k = chunkwise.cut(gamma * wide(f.key_map, f.key), size)
        v = chunkwise.cut(f.beta * f.value, size)
        rows = jnp.broadcast_to(cosines[:, None], (len(starts), v.shape[1], cosines.shape[1]))
        rows = chunkwise.cut(rows, size)
        of_keys = chunkwise.decays(gamma, starts, size)
        of_values = chunkwise.decays(f.beta, starts, size)
        # What the chunks leave behind, and the states before them.
        late_k, late_v, early_q = k * of_keys.after, v * of_values.after, q * of_keys.before
        product = partial(jnp.einsum, precision=chunkwise.EXACT)
        keep = Vectors(of_keys.whole[:, :, None], of_values.whole[:, :, None])
        add = Vectors(
            product("chtr,chtk->chrk", rows, late_k),
            product("chtr,chtv->chrv", rows[..., skip:], late_v),
        )
        old = jax.tree.map(lambda s, a: jnp.swapaxes(s, 0, 1).reshape(a.shape[1:]), fine.state, add)
        after = linear_scan(keep, add, old)
        seen = chunkwise.previous(old, after)
        # k~ . q: of the steps of a chunk among each other, and of the state.
        kq = chunkwise.weigh(chunkwise.score(q, k, of_keys), rows)
        kq += product("chrk,chtk->chtr", seen.keys, early_q)
        waves = self._waves()
        wkq = kq[..., skip:] * jnp.asarray(waves.weights, kq.dtype)[None, None, None]
        above = chunkwise.weigh(chunkwise.score(wkq, rows[..., skip:]), v, of_values)
        above += of_values.before * product("chrv,chtr->chtv", seen.values, wkq)
        above, below = (chunkwise.join(x, len(starts)) for x in (above, kq[..., :1]))
        last = jax.tree.map(
            lambda s, like: jnp.swapaxes(s[-1], 0, 1).reshape(like.shape), after, state
        )
        return fine.spoil(above / (below / waves.scale + self.epsilon), last)

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

    def _ticks(self, tick: Int[Array, ""], starts: Bool[Array, " time"]) -> Int[Array, " time"]:
        """The ticks of all steps at once."""
        resets = starts if self.tick == "episode" else jnp.zeros_like(starts)
        return (count_positions(tick, resets)[0] + 1) % len(self._waves().table)

    def _cosines(self, tick: Int[Array, "*lead"]) -> Float[Array, "*lead rows"]:
        table = self._waves().table
        if self._extra_rows():
            table = np.concatenate([np.ones((len(table), 1)), table], axis=1)
        return jnp.asarray(table, self.features.inputs.weight.dtype)[tick]


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
        chrono: steps that the longest memories last at the start: the biases of beta and gamma are
            drawn so that what is kept lasts from 2 steps to so many; 0 leaves these biases at 0,
            where a step keeps about a half, as in the published code. With it AReLiT solves
            T-Mazes of 160 (`results/arelit-tmaze`).
        backend: what computes a chunk: "kernel", "xla", "chunkwise", "associative" or "auto"; see
            `RecurrenceBackend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Pramanik (2023), Algorithm 6 and section 4.2; Parisotto et al. (2020) for the layer;
    Tallec and Ollivier (2018) for `chrono`.

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
        chrono: int = 256,
        backend: RecurrenceBackend = "auto",
    ):
        check_sizes(input_size, hidden_size, num_layers)
        require_choice("tick", tick, ("episode", "carried"))
        require_rate("epsilon", epsilon)
        oscillators(frequencies, r, scale)
        choose_form(backend)
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
                    chrono=chrono,
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
    require_at_least("r", r, 1, MOST_PARTS)
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
