"""GTrXL, the gated Transformer-XL."""

from typing import Literal, Unpack

from jaxtyping import PRNGKeyArray

from clew.errors import require_choice
from clew.memory.parts.blocks import with_drawn_bias
from clew.memory.parts.layer import LayerOptions, NormPlace
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.stack import LayerStack, WindowOptions, window_stack


class GTrXL(LayerStack):
    """The gated Transformer-XL: pre-norm, relative positions, GRU gates instead of residuals.

        e = relu(x W + b)
        y = gate_1(x, relu(attention(norm(x))))        in each layer
        out = gate_2(y, relu(mlp(norm(y))))

    with `WindowAttention` over t - window .. t of each layer's inputs.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is a ring of window + 1 inputs with
    their keys and values.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        gate: "gru" as above, or "residual": x + y, without the relu.
        norm: "before" the sublayers, as published; "around", "after" or "none", see `Layer`.
        options: passed to `window_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Parisotto et al. (2020), section 3; Pramanik (2023), Algorithm 3 and section 2.5.2.

    Deviations: the window is banded in a chunk too, so that acting and learning are one function;
    gradients flow through the hidden states of the chunk (Algorithm 3 stops them at each step,
    Parisotto et al. at each segment); the last layer's output is not cached: nothing reads it.
    `clew.lab.studies.models.PublishedGTrXL` has what two published implementations do differently.
    """

    @takes_options_of(window_stack, attention_bias=True)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        gate: Literal["gru", "residual"] = "gru",
        norm: NormPlace = "before",
        **options: Unpack[WindowOptions],
    ):
        require_choice("gate", gate, ("gru", "residual"))
        layer: LayerOptions = {"gate": gate, "norm": norm}
        embedding, layers = window_stack(input_size, key, layer=layer, **options)
        if embedding is not None and gate == "residual":
            embedding = with_drawn_bias(embedding, key=key)
        self.set_layers(input_size, embedding, layers, embedding_relu=True)
