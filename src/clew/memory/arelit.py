"""AReLiT, the approximate recurrent linear transformer."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.errors import require_at_least, require_choice, require_rate
from clew.memory.blocks import Init, LayerNorm, Linear
from clew.memory.decay_scan import checkpointed_scan
from clew.memory.features import Features, GatedAttention, GatedFeatures, outer
from clew.memory.layer import Layer
from clew.memory.oscillators import Frequencies, Oscillators, Scale, oscillators
from clew.memory.stack import LayerStack

Tick = Literal["episode", "carried"]


class AReLiTState(NamedTuple):
    """One layer's state.

    `keys[0]` is the normaliser s; where the first frequency is 0 it is also its key vector.
    """

    keys: Float[Array, "rows heads eta head"]
    values: Float[Array, "vectors heads head"]
    tick: Int[Array, ""]


class ApproximateLinearAttention(GatedAttention):
    """Gated linear attention whose matrix state is approximated by a few vectors.

        g_t = gamma_t * k_t
        k~_t^k = (1 - gamma_t) * k~_{t-1}^k + cos(omega_k t) g_t             (Eq. 4.21)
        v~_t^k = (1 - beta_t)  * v~_{t-1}^k + cos(omega_k t) beta_t * v_t    (Eq. 4.20)
        s_t    = (1 - gamma_t) * s_{t-1} + g_t
        a_t    = sum_k w_k v~_t^k (k~_t^k . q_t) / (s_t . q_t / scale + epsilon)   (Eq. 4.22)

    per head, then the heads side by side through one product. Since 0 <= g and |cos| <= 1,
    |k~| <= s, so that no entry of a_t exceeds scale sum_k w_k max |v|.

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

    def init_state(self) -> AReLiTState:
        """Zero vectors; the published code's carried tick starts at 1, ours at 0."""
        f = self.features
        vectors = self._waves().table.shape[1]
        rows = vectors + self._extra_rows()
        first = 1 if self.tick == "carried" else 0
        return AReLiTState(
            jnp.zeros((rows, f.num_heads, f.eta, f.head_size), jnp.float32),
            jnp.zeros((vectors, f.num_heads, f.head_size), jnp.float32),
            jnp.array(first % len(self._waves().table), jnp.int32),
        )

    def step(
        self, state: AReLiTState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[AReLiTState, Float[Array, " n"]]:
        """One observation."""
        tick = self._tick(state.tick, start)
        cosines = self._cosines(tick)
        carry, attended = self._recur(
            (state.keys, state.values), (self._features(x), cosines, start)
        )
        return AReLiTState(*carry, tick), self.output(attended.reshape(-1))

    def unroll(
        self, state: AReLiTState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[AReLiTState, Float[Array, "time n"]]:
        """A chunk: products all at once, then the recurrence with its readout."""

        def count(tick: Array, start: Array) -> tuple[Array, Array]:
            tick = self._tick(tick, start)
            return tick, tick

        tick, ticks = jax.lax.scan(count, state.tick, starts)
        inputs = (self._features(xs), self._cosines(ticks), starts)
        carry, attended = checkpointed_scan(self._recur, (state.keys, state.values), inputs)
        return AReLiTState(*carry, tick), self.output(attended.reshape(len(xs), -1))

    def _recur(
        self, carry: tuple[Array, Array], inputs: tuple[Features, Array, Array]
    ) -> tuple[tuple[Array, Array], Float[Array, "heads head"]]:
        keys, values = carry
        f, cosines, start = inputs
        gamma = outer(f.gamma_map, f.gamma)
        key = gamma * outer(f.key_map, f.key)
        keys = _decay(keys, 1.0 - gamma, key, cosines, start)
        skip = self._extra_rows()
        values = _decay(values, 1.0 - f.beta, f.beta * f.value, cosines[skip:], start)
        query = outer(f.query_map, f.query)
        read = jnp.sum(keys * query[None], axis=(2, 3))
        waves = self._waves()
        weights = jnp.asarray(waves.weights, jnp.float32)
        mixed = jnp.sum(values * (weights[:, None] * read[skip:])[:, :, None], axis=0)
        below = read[0] / waves.scale + self.epsilon
        return (keys, values), mixed / below[:, None]

    def _features(self, x: Float[Array, "*lead n"]) -> Features:
        return self.features(self.norm(x))

    def _waves(self) -> Oscillators:
        return oscillators(self.frequencies, self.r, self.scale)

    def _extra_rows(self) -> int:
        # `thesis` and `half_wave` have omega_0 = 0, whose key vector is the normaliser already.
        return 1 if self.frequencies == "code" else 0

    def _tick(self, tick: Int[Array, ""], start: Bool[Array, ""]) -> Int[Array, ""]:
        before = jnp.where(start, 0, tick) if self.tick == "episode" else tick
        return (before + 1) % len(self._waves().table)

    def _cosines(self, tick: Int[Array, "*lead"]) -> Float[Array, "*lead rows"]:
        table = self._waves().table
        if self._extra_rows():
            table = np.concatenate([np.ones((len(table), 1)), table], axis=1)
        return jnp.asarray(table, jnp.float32)[tick]


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
        frequencies: "half_wave", "thesis" or "code"; see `oscillators`.
        scale: "derived", "thesis" or "code"; see `oscillators`.
        tick: "episode" counts from 1 in every episode; "carried" is never reset and starts one
            later, as in the authors' published code, so that outputs depend on what came before
            an episode (unless all frequencies are multiples of pi).
        epsilon: added to the denominator; the published code has 1e-5, the thesis none.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".

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
    layers: tuple[Layer, ...]
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
    ):
        require_at_least("input_size", input_size, 1)
        require_at_least("hidden_size", hidden_size, 1)
        require_at_least("num_layers", num_layers, 1)
        require_choice("tick", tick, ("episode", "carried"))
        require_rate("epsilon", epsilon)
        oscillators(frequencies, r, scale)
        keys = jax.random.split(key, 1 + num_layers)

        def layer(key: PRNGKeyArray) -> Layer:
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
                ),
                output=Linear(num_heads * head_size, hidden_size, key=output_key, init=init),
                frequencies=frequencies,
                r=r,
                scale=scale,
                tick=tick,
                epsilon=epsilon,
            )
            return Layer(hidden_size, ffn_size, attention, key=layer_key, init=init)

        self.embedding = Linear(input_size, hidden_size, key=keys[0], init=init)
        self.embedding_relu = True
        self.layers = tuple(layer(k) for k in keys[1:])
        self.input_size = input_size
        self.output_size = hidden_size
