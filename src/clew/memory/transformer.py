"""The canonical transformer."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.memory.base import AbstractMemory, check_step_input, check_unroll_input
from clew.memory.kernels import Backend
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.layer import LayerState, NormPlace
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.positions import count_positions, encode
from clew.memory.parts.stack import (
    WindowLayers,
    check_sizes,
    layer_maps,
    refresh_layers,
    step_layers,
    unroll_layers,
    window_layers,
)


class TransformerState(NamedTuple):
    """The layers' rings, and how many observations of this episode have been read."""

    layers: tuple[LayerState, ...]
    position: Int[Array, ""]


class Transformer(AbstractMemory):
    """The canonical transformer encoder, causal, with the absolute positions of the episode.

        e_t = x_t W + b + [sin(t w) | cos(t w)],   t = 0, 1, ... from the episode's start
        layer: y = norm_1(x + attention(x));  out = norm_2(y + mlp(y))

    with `WindowAttention` without relative positions over t - window .. t of each layer's inputs.
    Positions are counted and not looked up, so that they go on for as long as an episode does.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is a ring of window + 1 inputs with
    their keys and values.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        hidden_size: width d of the residual stream, and of the output.
        num_layers: layers L; an output depends on at most L window + 1 observations.
        num_heads: heads per layer.
        head_size: width d_h of a head.
        window: how many steps back a layer sees.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        norm: "after" each residual connection, as published, or "before" what it adds.
        attention_bias: whether the products of the attention have biases.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        backend: what computes a window: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Vaswani et al. (2017), section 3; Pramanik (2023), Algorithm 1.

    Deviations: a window in place of the whole sequence, which a stream does not have; scores are
    scaled by 1 / sqrt(head_size) as in Vaswani et al., where Algorithm 1 has 1 / sqrt(d); the
    sines stand beside the cosines and not between them; no dropout. Angles are single precision:
    after a million steps of one episode those of the fastest sines are off by some 0.03 radians.
    """

    embedding: Linear
    layers: WindowLayers
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
        window: int = 128,
        ffn_size: int | None = None,
        norm: NormPlace = "after",
        attention_bias: bool = False,
        init: Init = "orthogonal",
        backend: Backend = "auto",
    ):
        check_sizes(input_size, hidden_size, num_layers)
        keys = jax.random.split(key, 1 + num_layers)

        self.embedding = Linear(input_size, hidden_size, key=keys[0], init=init)
        self.layers = window_layers(
            keys[1:],
            hidden_size,
            ffn_size,
            init=init,
            attention={
                "num_heads": num_heads,
                "head_size": head_size,
                "window": window,
                "relative": False,
                "norm": norm == "before",
                "bias": attention_bias,
                "backend": backend,
            },
            layer={"gate": "residual", "norm": norm},
        )
        self.input_size = input_size
        self.output_size = hidden_size

    def init_state(self) -> TransformerState:
        """Empty rings, and position 0."""
        rings = tuple(layer.init_state() for layer in self.layers)
        return TransformerState(rings, jnp.array(0, jnp.int32))

    def step(
        self, state: TransformerState, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[TransformerState, Float[Array, " out"]]:
        """One observation through all layers."""
        x = check_step_input(self, x, start, state)
        position = jnp.where(start, 0, state.position)
        embedded = self._embed(x, position)
        rings, y = step_layers(self.layers, state.layers, embedded, start)
        return TransformerState(rings, position + 1), y

    def unroll(
        self, state: TransformerState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[TransformerState, Float[Array, "time out"]]:
        """A chunk, layer by layer."""
        xs = check_unroll_input(self, xs, starts, state)
        positions, position = count_positions(state.position, starts)
        embedded = self._embed(xs, positions)
        rings, ys = unroll_layers(self.layers, state.layers, embedded, starts)
        return TransformerState(rings, position), ys

    def _embed(self, x: Array, position: Array) -> Array:
        e = self.embedding(x)
        return e + encode(position, self.output_size).astype(e.dtype)

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        """The maps of every layer."""
        positions = jnp.arange(len(xs), dtype=jnp.int32)
        return layer_maps(self.layers, self._embed(xs, positions))

    def refresh(self, state: TransformerState) -> TransformerState:
        """Every layer's keys and values, projected again."""
        return state._replace(layers=refresh_layers(self.layers, state.layers))
