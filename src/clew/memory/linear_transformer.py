"""The linear transformer."""

from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_choice, require_rate
from clew.memory.base import select
from clew.memory.parts.blocks import Init, LayerNorm, Linear, check_heads, with_drawn_bias
from clew.memory.parts.gates import GateName
from clew.memory.parts.layer import Mixer, NormPlace
from clew.memory.parts.linear_sums import PIECE, LinearState, read_piece
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.products import exact_einsum
from clew.memory.parts.scans import scan_pieces
from clew.memory.parts.stack import LayerStack, embedded_layers

Summation = Literal["plain", "compensated"]


class LinearAttention(Mixer):
    """Attention with a kernel instead of the softmax, $phi(x) = elu(x) + 1$.

        C_t = C_{t-1} + v_t (x) phi(k_t)        s_t = s_{t-1} + phi(k_t)
        a_t = C_t phi(q_t) / (s_t . phi(q_t) + epsilon)

    per head; the heads are then concatenated and go through one product.

    In single precision a plain sum of 10^6 keys grows in steps of 1/16: an observation whose phi(k)
    is below half of that is lost, and after 1.7 10^7 observations so is one with phi(k) = 1. With
    `summation="compensated"` the rounding error of a sum is carried to the next addition.

    Shapes: x [size] to y [size]. Source: Katharopoulos et al. (2020), Eq. 16-20; Pramanik (2023),
    Algorithm 4; Kahan (1965) for the sum, with the error of Knuth (1969). Deviations: biases,
    `epsilon`.
    """

    norm: LayerNorm | None
    inputs: Linear
    output: Linear
    num_heads: int = eqx.field(static=True)
    head_size: int = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    summation: Summation = eqx.field(static=True, default="plain")

    def init_state(self) -> LinearState:
        heads, head, dtype = self.num_heads, self.head_size, self.inputs.weight.dtype
        shapes = ((heads, head, head), (heads, head))
        matrix, normaliser, *lost = (jnp.zeros(shape, dtype) for shape in 2 * shapes)
        return LinearState(matrix, normaliser, tuple(lost) if self.summation != "plain" else ())

    def step(
        self, state: LinearState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[LinearState, Float[Array, " n"]]:
        query, key, value = self._heads(x)
        state = select(start, self.init_state(), state)
        state = state.add(value[:, :, None] * key[:, None, :], key)
        above = exact_einsum("hvm,hm->hv", state.matrix, query)
        below = jnp.sum(state.normaliser * query, axis=-1) + self.epsilon
        return state, self.output((above / below[:, None]).reshape(-1))

    def unroll(
        self, state: LinearState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[LinearState, Float[Array, "time n"]]:
        """A chunk, in square products of several steps each; C is stored once for each product."""
        inputs = (*self._heads(xs), starts)
        state, attended = scan_pieces(partial(read_piece, self.epsilon), state, inputs, PIECE)
        return state, self.output(attended.reshape(len(xs), -1))

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The weights of every head over an episode, phi(q_t) . phi(k_s) over their sum."""
        query, key, _ = self._heads(xs)
        weights = jnp.tril(exact_einsum("thm,jhm->htj", query, key))
        below = jnp.sum(weights, axis=-1, keepdims=True) + self.epsilon
        return {"attention": MemoryMap(weights / below, "attention")}

    def _heads(self, x: Float[Array, "*lead n"]) -> tuple[Array, Array, Array]:
        projected = self.inputs(x if self.norm is None else self.norm(x))
        shape = (*x.shape[:-1], self.num_heads, self.head_size)
        query, key, value = (part.reshape(shape) for part in jnp.split(projected, 3, axis=-1))
        return jax.nn.elu(query) + 1.0, jax.nn.elu(key) + 1.0, value


class LinearTransformer(LayerStack):
    """The linear transformer: attention by a running sum of outer products.

        e = relu(x W + b)

    then layers with `LinearAttention`.

    Nothing is ever forgotten within an episode, so the sums grow with its length; the size of the
    state does not: heads head_size (head_size + 1) numbers per layer, or twice that with
    compensated sums. From about 10^6 steps of an episode on, a plain sum in single precision loses
    individual observations, see `LinearAttention`; a compensated one does not.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        hidden_size: width d of the residual stream, and of the output.
        num_layers: number of layers L.
        num_heads: number of heads per layer.
        head_size: width d_h of a head; with elu + 1 also the width of the features.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        gate: "gru", as in GTrXL, ReLiT and AReLiT, or "residual".
        norm: "before" the attention and the feed-forward net, or "after" them.
        epsilon: added to the denominator.
        summation: "plain", as published, or "compensated" for episodes of 10^6 steps and more.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Katharopoulos et al. (2020); Pramanik (2023), Algorithm 4. Deviations: the layer is
    GTrXL's by default, so that the linear transformer, ReLiT, AReLiT and GTrXL differ only in their
    attention; Katharopoulos et al. have `gate="residual"` and `norm="after"`. There are no position
    encodings.
    """

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
        gate: GateName = "gru",
        norm: NormPlace = "before",
        epsilon: float = 1e-5,
        summation: Summation = "plain",
        init: Init = "orthogonal",
    ):
        check_heads(num_heads, head_size)
        require_rate("epsilon", epsilon)
        require_choice("summation", summation, ("plain", "compensated"))
        wide = num_heads * head_size

        def attention(input_key: PRNGKeyArray, output_key: PRNGKeyArray) -> LinearAttention:
            return LinearAttention(
                norm=LayerNorm(hidden_size) if norm == "before" else None,
                inputs=Linear(hidden_size, 3 * wide, key=input_key, init=init),
                output=Linear(wide, hidden_size, key=output_key, init=init),
                num_heads=num_heads,
                head_size=head_size,
                epsilon=epsilon,
                summation=summation,
            )

        sizes = (input_size, hidden_size, num_layers, ffn_size)
        embedding, layers = embedded_layers(
            attention, *sizes, key=key, init=init, gate=gate, norm=norm
        )
        if gate == "residual":
            embedding = with_drawn_bias(embedding, key=key)
        self.set_layers(input_size, embedding, layers, embedding_relu=True)
