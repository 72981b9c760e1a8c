"""The canonical transformer."""

from typing import NamedTuple, Unpack

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.memory.base import check_episode, check_state, check_step_input, check_unroll_input
from clew.memory.parts.layer import LayerOptions, LayerState, NormPlace
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.positions import count_positions, encode
from clew.memory.parts.stack import (
    LayeredMemory,
    WindowOptions,
    layer_maps,
    refresh_layers,
    step_layers,
    unroll_layers,
    window_stack,
)


class TransformerState(NamedTuple):
    """The layers' rings, and how many observations of this episode have been read."""

    layers: tuple[LayerState, ...]
    position: Int[Array, ""]


class Transformer(LayeredMemory):
    """The canonical transformer encoder, causal, with absolute positions in the episode.

        e_t = x_t W + b + [sin(t w) | cos(t w)],   t = 0, 1, ... from the episode's start
        y = norm_1(x + attention(x))        in each layer
        out = norm_2(y + mlp(y))

    with `WindowAttention` without relative positions over t - window .. t of each layer's inputs.
    Positions are computed, not looked up in a table, so episodes may have any length.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is a ring of window + 1 inputs with
    their keys and values.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        norm: "after" each residual connection, as published, or "before" each sublayer.
        options: passed to `window_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Vaswani et al. (2017), section 3; Pramanik (2023), Algorithm 1.

    Deviations: a window instead of the whole sequence, since a stream has no end; scores are scaled
    by 1 / sqrt(head_size) as in Vaswani et al., where Algorithm 1 has 1 / sqrt(d); sines and
    cosines are concatenated and not interleaved; no dropout. Angles are in single precision: after
    a million steps of one episode those of the fastest sines are off by some 0.03 radians.
    """

    @takes_options_of(window_stack)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        norm: NormPlace = "after",
        **options: Unpack[WindowOptions],
    ):
        layer: LayerOptions = {"gate": "residual", "norm": norm}
        made = window_stack(input_size, key, layer=layer, attention={"relative": False}, **options)
        self.set_layers(input_size, *made)

    def init_state(self) -> TransformerState:
        rings = tuple(layer.init_state() for layer in self.layers)
        return TransformerState(rings, jnp.array(0, jnp.int32))

    def step(
        self, state: TransformerState, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[TransformerState, Float[Array, " out"]]:
        x = check_step_input(self, x, start, state)
        position = jnp.where(start, 0, state.position)
        embedded = self._embed(x, position)
        rings, y = step_layers(self.layers, state.layers, embedded, start)
        return TransformerState(rings, position + 1), y

    def unroll(
        self, state: TransformerState, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[TransformerState, Float[Array, "time out"]]:
        xs = check_unroll_input(self, xs, starts, state)
        positions, position = count_positions(state.position, starts)
        embedded = self._embed(xs, positions)
        rings, ys = unroll_layers(self.layers, state.layers, embedded, starts)
        return TransformerState(rings, position), ys

    def _embed(self, x: Array, position: Array) -> Array:
        e = self.embed(x)
        return e + encode(position, self.output_size, e.dtype)

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        xs = check_episode(self, xs)
        positions = jnp.arange(len(xs), dtype=jnp.int32)
        return layer_maps(self.layers, self._embed(xs, positions))

    def refresh(self, state: TransformerState) -> TransformerState:
        check_state(self, state)
        return state._replace(layers=refresh_layers(self.layers, state.layers))
