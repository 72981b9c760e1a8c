"""ReLiT, the recurrent linear transformer."""

from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import UserError, require_choice, require_rate
from clew.memory.base import State
from clew.memory.kernels import Form, RecurrenceBackend, choose_form
from clew.memory.kernels.relit import Recurrence, ReLiTInputs, relit_recurrence
from clew.memory.parts import chunkwise
from clew.memory.parts.blocks import Init, LayerNorm, Linear
from clew.memory.parts.features import (
    Features,
    GatedFeatures,
    InitPer,
    QueryPath,
    gate_maps,
    outer,
)
from clew.memory.parts.layer import Layer
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.scans import checkpointed_scan, linear_scan, scan_pieces
from clew.memory.parts.stack import LayerStack, check_sizes

Decay = Literal["separate", "joint"]

_STATES = 64  # steps whose states are held at once by the associative scan


class ReLiTState(NamedTuple):
    """One layer's state: the sum of outer products C, and the sum of keys s."""

    matrix: Float[Array, "heads head eta head"]
    normaliser: Float[Array, "heads eta head"]


class GatedLinearAttention(eqx.Module):
    """Linear attention with learned feature maps and gates on keys and on values.

        C_t = D_t * C_{t-1} + (beta_t * v_t) (x) (gamma_t * k_t)      (Eq. 3.5)
        s_t = (1 - gamma_t) * s_{t-1} + gamma_t * k_t
        a_t = C_t q_t / (s_t . q_t + epsilon)

    per head, then the heads side by side through one product, with the decay
    D_t = (1 - beta_t) (x) (1 - gamma_t), or 1 - beta_t (x) gamma_t for `decay="joint"`, as in the
    authors' published code.

    Shapes: x [size] to y [size]. Source: Pramanik (2023), Algorithm 5. Deviation: `epsilon`.
    """

    norm: LayerNorm
    features: GatedFeatures
    output: Linear
    decay: Decay = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    backend: RecurrenceBackend = eqx.field(static=True, default="auto")

    def init_state(self) -> ReLiTState:
        """Zeros."""
        f = self.features
        keys, dtype = (f.eta, f.head_size), f.inputs.weight.dtype
        return ReLiTState(
            jnp.zeros((f.num_heads, f.head_size, *keys), dtype),
            jnp.zeros((f.num_heads, *keys), dtype),
        )

    def step(
        self, state: ReLiTState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[ReLiTState, Float[Array, " n"]]:
        """One observation."""
        state, a = self._recur(state, (self.features(self.norm(x)), start))
        return state, self.output(a.reshape(-1))

    def _recur(
        self, state: ReLiTState, inputs: tuple[Features, Array]
    ) -> tuple[ReLiTState, Float[Array, "heads head"]]:
        """C_t, s_t and a_t of all heads."""
        f, start = inputs
        keep, add = self._decay(f)
        old = jax.tree.map(lambda s: jnp.where(start, 0.0, s), state)
        state = jax.tree.map(lambda k, s, a: k * s + a, keep, old, add)
        return state, self._read(state, f)

    def _decay(self, f: Features) -> tuple[ReLiTState, ReLiTState]:
        """What a step keeps of C and s, and what it adds; the axes of C are [heads, v, eta, k]."""
        gamma = outer(f.gamma_map, f.gamma)
        gated_k = gamma * outer(f.key_map, f.key)
        beta = f.beta[:, :, None, None]
        if self.decay == "separate":
            d = (1.0 - beta) * (1.0 - gamma)[:, None]
        else:
            d = 1.0 - beta * gamma[:, None]
        gated_v = (f.beta * f.value)[:, :, None, None]
        return ReLiTState(d, 1.0 - gamma), ReLiTState(gated_v * gated_k[:, None], gated_k)

    def _read(self, state: ReLiTState, f: Features) -> Float[Array, "heads head"]:
        """a_t of all heads."""
        q = outer(f.query_map, f.query)
        above = jnp.einsum("hvam,ham->hv", state.matrix, q)
        below = jnp.sum(state.normaliser * q, axis=(1, 2)) + self.epsilon
        return above / below[:, None]

    def unroll(
        self, state: ReLiTState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[ReLiTState, Float[Array, "time n"]]:
        """A chunk: products all at once, then the recurrence, which keeps few of its states."""
        form = self._form(self.features, xs, state)
        if form == "kernel":
            products = self.features.products(self.norm(xs))
            recurrence = Recurrence(self.decay == "joint", self.epsilon)
            a, *after = relit_recurrence(recurrence, ReLiTInputs(*products, starts, *state))
            return ReLiTState(*after), self.output(a.reshape(len(xs), -1))
        inputs = (self.features(self.norm(xs)), starts)
        if form == "chunkwise":
            state, a = scan_pieces(self._chunks, state, inputs, chunkwise.PIECE)
        elif form == "associative":
            state, a = scan_pieces(self._all_states, state, inputs, _STATES)
        else:
            state, a = checkpointed_scan(self._recur, state, inputs)
        return state, self.output(a.reshape(len(xs), -1))

    def _form(self, *arrays: Any) -> Form:
        # The joint decay of a pair of steps is no outer product, so no matrix product has it.
        parallel = "chunkwise" if self.decay == "separate" else "associative"
        return choose_form(self.backend, *arrays, parallel=parallel)

    def _all_states(
        self, state: ReLiTState, inputs: tuple[Features, Array]
    ) -> tuple[ReLiTState, Float[Array, "time heads head"]]:
        """Some steps in parallel: the states of all of them."""
        f, starts = inputs
        states = linear_scan(*jax.vmap(self._decay)(f), state, starts)
        return jax.tree.map(lambda s: s[-1], states), jax.vmap(self._read)(states, f)

    def _chunks(
        self, state: ReLiTState, inputs: tuple[Features, Array]
    ) -> tuple[ReLiTState, Float[Array, "time heads head"]]:
        """Some steps in parallel, by matrix products; the axes of C are [chunk, head, v, k]."""
        fine = chunkwise.without_nonfinite(state, *inputs)
        f, starts, size = fine.inputs, inputs[1], chunkwise.chunk_size(len(inputs[1]))

        def wide(first: Array, second: Array) -> Array:
            return outer(first, second).reshape(*second.shape[:2], -1)

        gamma = wide(f.gamma_map, f.gamma)
        q = chunkwise.cut(wide(f.query_map, f.query), size)
        k = chunkwise.cut(gamma * wide(f.key_map, f.key), size)
        v = chunkwise.cut(f.beta * f.value, size)
        of_keys = chunkwise.decays(gamma, starts, size)
        of_values = chunkwise.decays(f.beta, starts, size)
        # What the steps of a chunk see of each other.
        pairs = chunkwise.score(q, k, of_keys)
        above = chunkwise.weigh(pairs, v, of_values)
        below = chunkwise.weigh(pairs, jnp.ones_like(v[..., :1]))
        # What the chunks leave behind, and what their steps see of the state before them.
        late_k, late_v, early_q = k * of_keys.after, v * of_values.after, q * of_keys.before
        product = partial(jnp.einsum, precision=chunkwise.EXACT)
        keep = ReLiTState(outer(of_values.whole, of_keys.whole), of_keys.whole)
        add = ReLiTState(product("chtv,chtk->chvk", late_v, late_k), jnp.sum(late_k, axis=2))
        old = jax.tree.map(lambda s, a: s.reshape(a.shape[1:]), fine.state, add)
        after = linear_scan(keep, add, old)
        seen = chunkwise.previous(old, after)
        above += of_values.before * product("chvk,chtk->chtv", seen.matrix, early_q)
        below += product("chk,chtk->cht", seen.normaliser, early_q)[..., None]
        above, below = (chunkwise.join(x, len(starts)) for x in (above, below))
        last = jax.tree.map(lambda s, like: s[-1].reshape(like.shape), after, state)
        return fine.spoil(above / (below + self.epsilon), last)

    def refresh(self, state: State) -> State:
        """The state as it is: nothing in it was derived from the parameters."""
        return state

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """What is kept at every step."""
        return gate_maps(self.features, self.norm(xs), joint=self.decay == "joint")


class ReLiT(LayerStack):
    """The recurrent linear transformer: gated linear attention inside the GTrXL layer.

        e = relu(x W + b)
        layer: y = gate_1(x, relu(attention(norm(x))));  out = gate_2(y, relu(mlp(norm(y))))

    with `GatedLinearAttention` and the GRU gate. The cost of a step and the state do not grow
    with the length of an episode: eta heads head_size (head_size + 1) numbers a layer.

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
        decay: "separate", (1 - beta) (x) (1 - gamma), or "joint", 1 - beta (x) gamma.
        query: "single", or "double" for one more product on the query's path.
        embedding_relu: whether the embedding ends in a relu.
        epsilon: added to the denominator; the published code has 1e-10, the thesis none.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        init_per: what of the products for keys, queries, values and gates starts as one orthogonal
            matrix: the whole "product", each "role" (K, Q, V, beta, gamma, p1, p2, p3), or each
            role of each "head". Smaller matrices have larger weights. The published code has
            "head", which with ten seeds has the best mean on three tasks, by less than shows
            (`results/initial-weights`).
        chrono: steps that the longest memories last at the start: the biases of beta and gamma are
            drawn so that what is kept lasts from 2 steps to so many; 0 leaves these biases at 0,
            where a step keeps about a half.
        backend: what computes a chunk: "kernel", "xla", "chunkwise" (with `decay="separate"`),
            "associative" or "auto"; see `RecurrenceBackend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Pramanik (2023), Algorithm 5 and section 3.3; Parisotto et al. (2020) for the layer;
    Tallec and Ollivier (2018) for `chrono`.

    Deviations: the products have biases; relu before each gate follows the published code. That
    code differs from the thesis in `decay="joint"`, `query="double"` and `embedding_relu=False`.
    """

    embedding: Linear | None
    layers: tuple[Layer[GatedLinearAttention], ...]
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
        decay: Decay = "separate",
        query: QueryPath = "single",
        embedding_relu: bool = True,
        epsilon: float = 1e-5,
        init: Init = "orthogonal",
        init_per: InitPer = "head",
        chrono: int = 0,
        backend: RecurrenceBackend = "auto",
    ):
        check_sizes(input_size, hidden_size, num_layers)
        require_choice("decay", decay, ("separate", "joint"))
        require_rate("epsilon", epsilon)
        choose_form(backend)
        if backend == "chunkwise" and decay == "joint":
            raise UserError(
                "backend='chunkwise' needs decay='separate': products of 1 - beta (x) gamma over "
                "time are no outer products; 'associative' is the parallel form for decay='joint'"
            )
        keys = jax.random.split(key, 1 + num_layers)

        def layer(key: PRNGKeyArray) -> Layer[GatedLinearAttention]:
            feature_key, output_key, layer_key = jax.random.split(key, 3)
            attention = GatedLinearAttention(
                norm=LayerNorm(hidden_size),
                features=GatedFeatures(
                    hidden_size,
                    key=feature_key,
                    num_heads=num_heads,
                    head_size=head_size,
                    eta=eta,
                    query=query,
                    init=init,
                    init_per=init_per,
                    chrono=chrono,
                ),
                output=Linear(num_heads * head_size, hidden_size, key=output_key, init=init),
                decay=decay,
                epsilon=epsilon,
                backend=backend,
            )
            return Layer(hidden_size, ffn_size, attention, key=layer_key, init=init)

        self.embedding = Linear(input_size, hidden_size, key=keys[0], init=init)
        self.embedding_relu = embedding_relu
        self.layers = tuple(layer(k) for k in keys[1:])
        self.input_size = input_size
        self.output_size = hidden_size
