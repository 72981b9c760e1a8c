"""AReLiT's attention: gated linear attention whose state is a few vectors."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from clew.memory.kernels import Backend, uses_kernel
from clew.memory.kernels.arelit import AReLiTInputs, Readout, arelit_recurrence
from clew.memory.parts.blocks import LayerNorm, Linear
from clew.memory.parts.checkpointed_scan import checkpointed_scan
from clew.memory.parts.features import Features, GatedAttention, GatedFeatures, outer
from clew.memory.parts.oscillators import Frequencies, Oscillators, Scale, oscillators

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
        cosines = self._cosines(ticks)
        if uses_kernel(self.backend):
            products = self.features.products(self.norm(xs))
            cosines = cosines.astype(products[0].dtype)
            inputs = AReLiTInputs(*products, cosines, starts, state.keys, state.values)
            attended, keys, values = arelit_recurrence(self._readout(), inputs)
        else:
            inputs = (self._features(xs), cosines, starts)
            (keys, values), attended = checkpointed_scan(
                self._recur, (state.keys, state.values), inputs
            )
        return AReLiTState(keys, values, tick), self.output(attended.reshape(len(xs), -1))

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
