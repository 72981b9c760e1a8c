"""Stacked layers over an embedding of the observation."""

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import UserError
from clew.memory.base import (
    AbstractMemory,
    State,
    check_episode,
    check_state,
    check_step_input,
    check_unroll_input,
)
from clew.memory.kernels import Backend
from clew.memory.parts.attention import Gradient, WindowAttention, compact_windows, expand_windows
from clew.memory.parts.blocks import Init, Linear, check_sizes
from clew.memory.parts.layer import Layer, LayerOptions
from clew.memory.parts.maps import MemoryMap, prefixed

A = TypeVar("A", bound=Any)
WindowLayers = tuple[Layer[WindowAttention], ...]


class LayeredMemory(AbstractMemory):
    """An embedding, x W + b with relu where `embedding_relu`, and layers.

    Without an embedding the first layer reads the observation itself. For replay, only the inputs
    of the layers' windows are stored.
    """

    embedding: Linear | None
    layers: tuple[Layer[Any], ...]
    embedding_relu: bool = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def set_layers(
        self,
        input_size: int,
        embedding: Linear | None,
        layers: tuple[Layer[Any], ...],
        embedding_relu: bool = False,
    ) -> None:
        """Sets every field; for constructors."""
        self.embedding, self.layers, self.embedding_relu = embedding, layers, embedding_relu
        self.input_size, self.output_size = input_size, layers[-1].size

    def embed(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead n"]:
        """e, the input of the first layer."""
        if self.embedding is None:
            return x
        e = self.embedding(x)
        return jax.nn.relu(e) if self.embedding_relu else e

    def compact(self, state: State) -> State:
        return compact_windows(state)

    def expand(self, compacted: State) -> State:
        return expand_windows(compacted, self.init_state())


class LayerStack(LayeredMemory):
    """Layers with a state each; the state is a tuple with one entry per layer.

    A model's constructor makes the layers.
    """

    def init_state(self) -> State:
        return tuple(layer.init_state() for layer in self.layers)

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

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        return layer_maps(self.layers, self.embed(check_episode(self, xs)))

    def refresh(self, state: State) -> State:
        check_state(self, state)
        return refresh_layers(self.layers, state)


def embedded_layers(
    attention: Callable[[PRNGKeyArray, PRNGKeyArray], A],
    input_size: int,
    hidden_size: int,
    num_layers: int,
    ffn_size: int | None,
    *,
    key: PRNGKeyArray,
    init: Init,
    **layer: Unpack[LayerOptions],
) -> tuple[Linear, tuple[Layer[A], ...]]:
    """An embedding, and layers around attentions that each draw weights with two keys.

    Args:
        attention: makes an attention from two keys, for its inputs and for its output.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.

    Raises:
        UserError: for an impossible size or an unknown choice.
    """
    check_sizes(input_size, hidden_size, num_layers)
    keys = jax.random.split(key, 1 + num_layers)

    def one(key: PRNGKeyArray) -> Layer[A]:
        read_key, output_key, layer_key = jax.random.split(key, 3)
        made = attention(read_key, output_key)
        return Layer(hidden_size, ffn_size, made, key=layer_key, init=init, **layer)

    embedding = Linear(input_size, hidden_size, key=keys[0], init=init)
    return embedding, tuple(one(k) for k in keys[1:])


class AttentionOptions(TypedDict, total=False):
    """The options of a model's `WindowAttention`, by the names of its arguments."""

    relative: bool
    query_norm: bool
    banded: bool


class WindowOptions(TypedDict, total=False):
    """The options of every model over windows; `window_stack` describes them."""

    hidden_size: int
    num_layers: int
    num_heads: int
    head_size: int
    window: int
    ffn_size: int | None
    attention_bias: bool
    embedding: bool
    gradient: Gradient
    init: Init
    backend: Backend


def window_stack(
    input_size: int,
    key: PRNGKeyArray,
    *,
    layer: LayerOptions,
    attention: AttentionOptions | None = None,
    spare_keys: int = 0,
    hidden_size: int = 128,
    num_layers: int = 2,
    num_heads: int = 4,
    head_size: int = 32,
    window: int = 128,
    ffn_size: int | None = None,
    attention_bias: bool = False,
    embedding: bool = True,
    gradient: Gradient = "full",
    init: Init = "orthogonal",
    backend: Backend = "auto",
) -> tuple[Linear | None, WindowLayers]:
    """An embedding, and layers over windows; the first layer holds the position biases of all.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        layer: options of each `Layer`.
        attention: options of each `WindowAttention` that differ from the usual ones.
        spare_keys: number of keys after that of the embedding which the caller uses.
        hidden_size: width d of the residual stream, and of the output.
        num_layers: number of layers L; an output depends on at most L window + 1 observations.
        num_heads: number of heads per layer.
        head_size: width d_h of a head.
        window: memory size M, the number of past steps that a layer sees.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        attention_bias: whether the products of the attention have biases.
        embedding: False passes the observation on unchanged; it must then have hidden_size numbers,
            and should not be all zeros, where every norm has a slope of a thousand.
        gradient: "full", or "current" to stop gradients into the inputs of earlier steps.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        backend: how a window is computed: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for an impossible size or an unknown choice.
    """
    check_sizes(input_size, hidden_size, num_layers)
    keys = jax.random.split(key, 1 + spare_keys + num_layers)

    def one(i: int, key: PRNGKeyArray) -> Layer[WindowAttention]:
        attention_key, layer_key = jax.random.split(key)
        attended = WindowAttention(
            hidden_size,
            key=attention_key,
            num_heads=num_heads,
            head_size=head_size,
            window=window,
            norm=layer.get("norm", "before") == "before",
            bias=attention_bias,
            owns_biases=i == 0,
            gradient=gradient,
            init=init,
            backend=backend,
            **(attention or {}),
        )
        return Layer(
            hidden_size, ffn_size, attended, key=layer_key, init=init, backend=backend, **layer
        )

    if not embedding and input_size != hidden_size:
        raise UserError(
            "without an embedding input_size must equal hidden_size, got input_size "
            f"{input_size} and hidden_size {hidden_size}"
        )
    embedded = Linear(input_size, hidden_size, key=keys[0], init=init) if embedding else None
    return embedded, tuple(map(one, range(num_layers), keys[1 + spare_keys :]))


def share_biases(layers: tuple[Layer[Any], ...]) -> tuple[Layer[Any], ...]:
    """Lends the first layer's position biases u and v to the others, which hold none.

    Source: Dai et al. (2019), whose code shares them between layers.
    """
    first = layers[0].attention
    if not isinstance(first, WindowAttention) or first.content_bias is None:
        return layers

    def biases(layer: Layer) -> tuple:
        return layer.attention.content_bias, layer.attention.distance_bias

    def lent(layer: Layer) -> Layer:
        attention = layer.attention
        if not isinstance(attention, WindowAttention) or attention.content_bias is not None:
            return layer  # of another kind, in a hybrid, or with its own
        return eqx.tree_at(biases, layer, biases(layers[0]), is_leaf=lambda x: x is None)

    return layers[0], *map(lent, layers[1:])


def step_layers(
    layers: tuple[Layer[Any], ...], state: State, x: Float[Array, " n"], start: Bool[Array, ""]
) -> tuple[State, Float[Array, " n"]]:
    """One time step through `layers`; the first may share its position biases."""
    after = []
    for layer, before in zip(share_biases(layers), state, strict=True):
        new, x = layer.step(before, x, start)
        after.append(new)
    return tuple(after), x


def unroll_layers(
    layers: tuple[Layer[Any], ...],
    state: State,
    xs: Float[Array, "time n"],
    starts: Bool[Array, " time"],
) -> tuple[State, Float[Array, "time n"]]:
    """A chunk through `layers`, like `step_layers`."""
    after = []
    for layer, before in zip(share_biases(layers), state, strict=True):
        new, xs = layer.unroll(before, xs, starts)
        after.append(new)
    return tuple(after), xs


def layer_maps(layers: tuple[Layer[Any], ...], xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
    """The maps of `layers`; the first may share its position biases."""
    found: dict[str, MemoryMap] = {}
    for number, layer in enumerate(share_biases(layers), 1):
        found |= prefixed(f"layer {number}: ", layer.maps(xs))
        _, xs = layer.unroll(layer.init_state(), xs, jnp.zeros(len(xs), bool))
    return found


def refresh_layers(layers: tuple[Layer[Any], ...], state: State) -> State:
    """The states of `layers`, rebuilt for their current parameters."""
    return tuple(layer.refresh(before) for layer, before in zip(layers, state, strict=True))
