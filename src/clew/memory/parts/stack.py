"""Layers on top of each other, over an embedding of the observation."""

from typing import Required, TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import UserError, require_at_least
from clew.memory.base import AbstractMemory, State, check_step_input, check_unroll_input
from clew.memory.kernels import Backend
from clew.memory.parts.attention import Gradient, WindowAttention
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.layer import Layer, LayerOptions
from clew.memory.parts.maps import MemoryMap, prefixed


class LayerStack(AbstractMemory):
    """An embedding, x W + b with relu where `embedding_relu`, and layers that keep the state.

    Without an embedding the first layer reads the observation as it is.

    Shapes: x [input_size] to y [hidden_size]; the state is a tuple with one entry a layer.
    """

    embedding: eqx.AbstractVar[Linear | None]
    layers: eqx.AbstractVar[tuple[Layer, ...]]
    embedding_relu: eqx.AbstractVar[bool]

    def init_state(self) -> State:
        """The initial state of every layer."""
        return tuple(layer.init_state() for layer in self.layers)

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        """One observation through all layers."""
        check_step_input(self, x, start)
        return step_layers(share_biases(self.layers), state, embed(self, x), start)

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        """A chunk, layer by layer."""
        check_unroll_input(self, xs, starts)
        return unroll_layers(share_biases(self.layers), state, embed(self, xs), starts)

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        """What every layer tells of an episode."""
        return layer_maps(self.layers, embed(self, xs))

    def refresh(self, state: State) -> State:
        """Every layer's state, rebuilt for the present parameters."""
        return refresh_layers(self.layers, state)


def make_embedding(
    wanted: bool, input_size: int, hidden_size: int, *, key: PRNGKeyArray, init: Init
) -> Linear | None:
    """The embedding of a stack, or none, which needs an observation of the stack's own width.

    Raises:
        UserError: without an embedding, if the sizes differ.
    """
    if wanted:
        return Linear(input_size, hidden_size, key=key, init=init)
    if input_size != hidden_size:
        raise UserError(
            "without an embedding input_size must equal hidden_size, got input_size "
            f"{input_size} and hidden_size {hidden_size}"
        )
    return None


class WindowOptions(TypedDict, total=False):
    """The options of a `WindowAttention`, by the names of its arguments."""

    num_heads: Required[int]
    head_size: Required[int]
    window: Required[int]
    relative: Required[bool]
    norm: Required[bool]
    bias: Required[bool]
    query_norm: bool
    banded: bool
    gradient: Gradient
    backend: Backend


def window_layers(
    keys: PRNGKeyArray,
    size: int,
    ffn_size: int | None,
    *,
    init: Init,
    attention: WindowOptions,
    layer: LayerOptions,
) -> tuple[Layer, ...]:
    """Layers over windows, one for each key; the first one holds the position biases of all."""

    def one(i: int, key: PRNGKeyArray) -> Layer:
        attention_key, layer_key = jax.random.split(key)
        window = WindowAttention(
            size, key=attention_key, init=init, owns_biases=i == 0, **attention
        )
        backend = attention.get("backend", "auto")
        return Layer(size, ffn_size, window, key=layer_key, init=init, backend=backend, **layer)

    return tuple(one(i, key) for i, key in enumerate(keys))


def embed(stack: LayerStack, x: Float[Array, "*lead in"]) -> Float[Array, "*lead n"]:
    """The first product of a stack."""
    if stack.embedding is None:
        return x
    embedded = stack.embedding(x)
    return jax.nn.relu(embedded) if stack.embedding_relu else embedded


def share_biases(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Lends the first layer's position biases u and v to the others, which hold none.

    Source: Dai et al. (2019), whose code shares them between layers.
    """
    first = layers[0].attention
    if not isinstance(first, WindowAttention) or first.content_bias is None:
        return layers

    def biases(layer: Layer) -> tuple:
        attention = layer.attention
        assert isinstance(attention, WindowAttention)
        return attention.content_bias, attention.distance_bias

    own = biases(layers[0])
    others = (eqx.tree_at(biases, layer, own, is_leaf=lambda x: x is None) for layer in layers[1:])
    return layers[0], *others


def step_layers(
    layers: tuple[Layer, ...], state: State, x: Float[Array, " n"], start: Bool[Array, ""]
) -> tuple[State, Float[Array, " n"]]:
    """One time step through `layers`."""
    after = []
    for layer, before in zip(layers, state, strict=True):
        new, x = layer.step(before, x, start)
        after.append(new)
    return tuple(after), x


def unroll_layers(
    layers: tuple[Layer, ...],
    state: State,
    xs: Float[Array, "time n"],
    starts: Bool[Array, " time"],
) -> tuple[State, Float[Array, "time n"]]:
    """A chunk through `layers`."""
    after = []
    for layer, before in zip(layers, state, strict=True):
        new, xs = layer.unroll(before, xs, starts)
        after.append(new)
    return tuple(after), xs


def layer_maps(layers: tuple[Layer, ...], xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
    """What `layers`, the first of which may lend its position biases, tell of an episode."""
    found: dict[str, MemoryMap] = {}
    for number, layer in enumerate(share_biases(layers), 1):
        found |= prefixed(f"layer {number}: ", layer.maps(xs))
        _, xs = layer.unroll(layer.init_state(), xs, jnp.zeros(len(xs), bool))
    return found


def refresh_layers(layers: tuple[Layer, ...], state: State) -> State:
    """The states of `layers`, rebuilt for their present parameters."""
    return tuple(layer.refresh(before) for layer, before in zip(layers, state, strict=True))


class WindowStack(LayerStack):
    """A stack whose layers attend over windows; the models differ by the layers' options."""

    embedding: Linear | None
    layers: tuple[Layer, ...]
    embedding_relu: bool = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        ffn_size: int | None,
        *,
        key: PRNGKeyArray,
        init: Init,
        embedding: bool,
        embedding_relu: bool,
        attention: WindowOptions,
        layer: LayerOptions,
    ):
        require_at_least("input_size", input_size, 1)
        require_at_least("hidden_size", hidden_size, 1)
        require_at_least("num_layers", num_layers, 1)
        keys = jax.random.split(key, 1 + num_layers)
        self.embedding = make_embedding(embedding, input_size, hidden_size, key=keys[0], init=init)
        self.embedding_relu = embedding_relu
        self.layers = window_layers(
            keys[1:], hidden_size, ffn_size, init=init, attention=attention, layer=layer
        )
        self.input_size = input_size
        self.output_size = hidden_size
