"""Keys, queries, values and gates of ReLiT and AReLiT, and the layers of both."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, UserError, require_at_least, require_choice, require_rate
from clew.memory.kernels import RecurrenceBackend, choose_form
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, check_heads
from clew.memory.parts.layer import Layer
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.stack import embedded_layers

QueryPath = Literal["single", "double"]
InitPer = Literal["product", "role", "head"]
A = TypeVar("A", bound=Any)
SMALLEST = 1e-15
"""The smallest epsilon: gradients divide by its square, which float32 must be able to hold."""


class GatedOptions(TypedDict, total=False):
    """The options of ReLiT and AReLiT alike; `gated_stack` describes them."""

    hidden_size: int
    num_layers: int
    num_heads: int
    head_size: int
    ffn_size: int | None
    eta: int
    epsilon: float
    init: Init
    chrono: int
    backend: RecurrenceBackend


class Features(NamedTuple):
    """The factors of one observation's features, per head; users form the outer products.

    With [a, m] ranging over eta x head_size (nothing of that size is stored for a chunk): key[a, m]
    = key_map[a] key[m], query[a, m] = query_map[a] query[m] and gamma[a, m] = gamma_map[a]
    gamma[m].
    """

    key: Float[Array, "*lead heads head"]
    query: Float[Array, "*lead heads head"]
    value: Float[Array, "*lead heads head"]
    beta: Float[Array, "*lead heads head"]
    gamma: Float[Array, "*lead heads head"]
    key_map: Float[Array, "*lead heads eta"]
    query_map: Float[Array, "*lead heads eta"]
    gamma_map: Float[Array, "*lead heads eta"]


class GatedFeatures(eqx.Module):
    """The learned feature maps and gates, for all heads.

        k = relu(x W_p1) (x) relu(x W_K)      q = relu(x W_p2) (x) relu(x W_Q)      v = x W_V
        beta = sigmoid(x W_beta)              gamma = sigmoid(x W_p3) (x) sigmoid(x W_gamma)

    with (x) the outer product, flattened with eta outermost. Every product has a bias.

    `query="double"` sends the query through one more product per head, as the authors' ReLiT
    code does: with u = x W_Q, q = relu(u W_p2) (x) relu(u W'_Q).

    `inputs` holds [K | Q | V | beta | gamma], each [heads, head_size], and `maps`
    [p1 | p3] or [p1 | p2 | p3], each [heads, eta].

    `init_per` says what starts as one orthogonal matrix: with "product" all of `inputs` and all of
    `maps`, with "role" each of K, Q, V, ..., p3 over its heads, with "head" each of them per head.
    `chrono` is the number of steps that the longest memories last at the start, see
    `initial.lasting`; with 0 the biases of beta and gamma start like all others.

    Source: Pramanik (2023), Algorithm 5, lines 4-11; section 3.2 for the maps. Deviation: biases.
    """

    inputs: Linear
    maps: Linear
    query_again: Float[Array, "heads head head"] | None
    query_again_bias: Float[Array, "heads head"] | None
    query_map: Float[Array, "heads head eta"] | None
    query_map_bias: Float[Array, "heads eta"] | None
    num_heads: int = eqx.field(static=True)
    head_size: int = eqx.field(static=True)
    eta: int = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int,
        head_size: int,
        eta: int,
        init: Init,
        init_per: InitPer,
        chrono: int,
        query: QueryPath = "single",
    ):
        check_heads(num_heads, head_size)
        require_at_least("eta", eta, 1, LARGEST_SIZE)
        require_at_least("num_heads x eta", num_heads * eta, 1, LARGEST_SIZE)
        require_choice("query", query, ("single", "double"))
        require_choice("init_per", init_per, ("product", "role", "head"))
        require_at_least("chrono", chrono, 0)
        double = query == "double"
        keys = jax.random.split(key, 4)

        def roles(number: int, width: int, key: PRNGKeyArray) -> Linear:
            blocks = {"product": 1, "role": number, "head": number * num_heads}[init_per]
            return Linear(size, number * num_heads * width, key=key, init=init, blocks=blocks)

        self.inputs = roles(5, head_size, keys[0])
        if chrono:
            require_at_least("chrono", chrono, 2)
            width = num_heads * head_size
            biases = initial.lasting(initial.beside(keys[0]), 2 * width, chrono)
            assert self.inputs.bias is not None
            biases = jnp.concatenate([self.inputs.bias[: 3 * width], biases])
            self.inputs = eqx.tree_at(lambda made: made.bias, self.inputs, biases)
        self.maps = roles(2 if double else 3, eta, keys[1])
        self.query_again = _per_head(num_heads, head_size, head_size, keys[2], init, double)
        self.query_again_bias = initial.constant((num_heads, head_size)) if double else None
        self.query_map = _per_head(num_heads, head_size, eta, keys[3], init, double)
        self.query_map_bias = initial.constant((num_heads, eta)) if double else None
        self.num_heads = num_heads
        self.head_size = head_size
        self.eta = eta

    def products(self, x: Float[Array, "time n"]) -> tuple[Array, Array]:
        """What the kernels read: [K | Q | V | beta | gamma] and [p1 | p2 | p3], before their
        relu or sigmoid, as [time, 5, heads, head_size] and [time, 3, heads, eta]."""
        inputs, maps = self.inputs(x), self.maps(x)
        inputs = inputs.reshape(len(x), 5, self.num_heads, self.head_size)
        maps = maps.reshape(len(x), -1, self.num_heads, self.eta)
        if self.query_again is None:
            return inputs, maps
        query, query_map = self._second_query(inputs[:, 1])
        maps = jnp.stack([maps[:, 0], query_map, maps[:, 1]], axis=1)
        return inputs.at[:, 1].set(query), maps

    def __call__(self, x: Float[Array, "*lead n"]) -> Features:
        key, query, value, beta, gamma = self._heads(self.inputs(x), 5)
        if self.query_again is None:
            key_map, query_map, gamma_map = self._heads(self.maps(x), 3)
        else:
            key_map, gamma_map = self._heads(self.maps(x), 2)
            query, query_map = self._second_query(query)
        relu, sigmoid = jax.nn.relu, jax.nn.sigmoid
        return Features(
            key=relu(key),
            query=relu(query),
            value=value,
            beta=sigmoid(beta),
            gamma=sigmoid(gamma),
            key_map=relu(key_map),
            query_map=relu(query_map),
            gamma_map=sigmoid(gamma_map),
        )

    def _heads(self, x: Float[Array, "*lead wide"], parts: int) -> list[Array]:
        # Split, then reshaped: the gradient is then one concatenation, not a sum of padded arrays.
        shape = (*x.shape[:-1], self.num_heads, -1)
        return [part.reshape(shape) for part in jnp.split(x, parts, axis=-1)]

    def _second_query(self, query: Float[Array, "*lead heads head"]) -> tuple[Array, Array]:
        assert self.query_again is not None and self.query_map is not None
        assert self.query_again_bias is not None and self.query_map_bias is not None
        again = jnp.einsum("...hm,hmn->...hn", query, self.query_again)
        mapped = jnp.einsum("...hm,hma->...ha", query, self.query_map)
        return (
            again + jnp.broadcast_to(self.query_again_bias, again.shape),
            mapped + jnp.broadcast_to(self.query_map_bias, mapped.shape),
        )


def outer(
    first: Float[Array, "*lead eta"], second: Float[Array, "*lead head"]
) -> Float[Array, "*lead eta head"]:
    """The outer product over the last axes, eta outermost."""
    return first[..., :, None] * second[..., None, :]


def gated_stack(
    input_size: int,
    key: PRNGKeyArray,
    attention: Callable[..., A],
    *,
    init_per: InitPer,
    query: QueryPath = "single",
    hidden_size: int = 128,
    num_layers: int = 2,
    num_heads: int = 4,
    head_size: int = 32,
    ffn_size: int | None = None,
    eta: int = 4,
    epsilon: float = 1e-5,
    init: Init = "orthogonal",
    chrono: int = 0,
    backend: RecurrenceBackend = "auto",
) -> tuple[Linear, tuple[Layer[A], ...]]:
    """An embedding, and layers whose attention reads gated features.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        attention: makes the attention from its norm, its features, its product of all heads,
            epsilon=... and backend=...
        init_per: as in `GatedFeatures`.
        query: as in `GatedFeatures`.
        hidden_size: width d of the residual stream, and of the output.
        num_layers: number of layers L.
        num_heads: number of heads per layer.
        head_size: width d_h of a head.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        eta: size of the feature maps' learned factor.
        epsilon: added to the denominator; the published codes have 1e-5 (AReLiT) and 1e-10 (ReLiT),
            the thesis has none.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        chrono: steps that the longest memories last at the start: the biases of beta and gamma are
            drawn so that memories last from 2 steps to this many; 0 leaves these biases at 0, where
            a step keeps about half, as in the published codes. With 256 AReLiT solves T-Mazes of
            length 160 (`results/arelit-tmaze`).
        backend: how a chunk is computed: "kernel", "xla", "chunkwise", "associative" or "auto"; see
            `RecurrenceBackend`.

    Raises:
        UserError: for an impossible size or an unknown choice.
    """
    require_rate("epsilon", epsilon)
    if epsilon < SMALLEST:
        raise UserError(f"epsilon must be at least {SMALLEST:g}, got {epsilon!r}")
    choose_form(backend)
    check_heads(num_heads, head_size)

    def one(feature_key: PRNGKeyArray, output_key: PRNGKeyArray) -> A:
        read = GatedFeatures(
            hidden_size,
            key=feature_key,
            num_heads=num_heads,
            head_size=head_size,
            eta=eta,
            query=query,
            init=init,
            init_per=init_per,
            chrono=chrono,
        )
        output = Linear(num_heads * head_size, hidden_size, key=output_key, init=init)
        return attention(LayerNorm(hidden_size), read, output, epsilon=epsilon, backend=backend)

    widths = (input_size, hidden_size, num_layers, ffn_size)
    return embedded_layers(one, *widths, key=key, init=init)


def gate_maps(
    features: GatedFeatures, x: Float[Array, "time n"], joint: bool
) -> dict[str, MemoryMap]:
    """The decay of values, 1 - beta, and of keys, 1 - gamma, at every step of an episode.

    Args:
        joint: whether values decay only together with keys, so that 1 - beta alone is not a decay;
            then beta is reported as a gate.
    """
    f = features(x)
    beta, gamma = (g.reshape(len(x), -1) for g in (f.beta, outer(f.gamma_map, f.gamma)))
    first = {"1 - beta": MemoryMap(1.0 - beta, "keep")}
    if joint:
        first = {"beta": MemoryMap(beta, "gate")}
    return first | {"1 - gamma": MemoryMap(1.0 - gamma, "keep")}


def _per_head(
    heads: int, rows: int, columns: int, key: PRNGKeyArray, init: Init, wanted: bool
) -> Array | None:
    if not wanted:
        return None
    keys = jax.random.split(key, heads)
    return jnp.stack([Linear(rows, columns, key=k, init=init).weight for k in keys])
