"""GTrXL, the gated Transformer-XL."""

from typing import Unpack

from jaxtyping import PRNGKeyArray

from clew.memory.parts.gates import GateName
from clew.memory.parts.layer import NormPlace
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.stack import LayerStack, WindowOptions, window_stack


class GTrXL(LayerStack):
    """The gated Transformer-XL: norms before, relative positions, GRU gates in place of residuals.

        e = relu(x W + b)
        layer: y = gate_1(x, relu(attention(norm(x))));  out = gate_2(y, relu(mlp(norm(y))))

    with `WindowAttention` over t - window .. t of each layer's inputs.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is a ring of window + 1 inputs with
    their keys and values.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        gate: "gru", "residual", or "temporal_gru", which is a recurrent net (see `TemporalGRU`).
        norm: "before" the sublayers, as published; "around", "after" or "none", see `Layer`.
        query_norm: False leaves the queries un-normed, as the authors' code of Pramanik does.
        banded: False lets a chunk see all of itself beside the window, as that code's learner
            does, so that learning is another function than acting; for reproduction only.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before what is
            said above happens to it, as in the published code of Makkink (2021).
        options: those of `window_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Parisotto et al. (2020), section 3; Pramanik (2023), Algorithm 3 and section 2.5.2.

    Deviations: the window is banded in a chunk too, so that acting and learning are one function;
    gradients flow through the hidden states of the chunk (Algorithm 3 stops them at each step,
    Parisotto et al. at each segment); the last layer's output is not cached: nothing reads it.
    """

    @takes_options_of(window_stack, attention_bias=True)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        gate: GateName = "gru",
        norm: NormPlace = "before",
        query_norm: bool = True,
        banded: bool = True,
        inner_residual: bool = False,
        **options: Unpack[WindowOptions],
    ):
        self.embedding, self.layers, self.output_size = window_stack(
            input_size,
            key,
            layer={"gate": gate, "norm": norm, "inner_residual": inner_residual},
            attention={"query_norm": query_norm, "banded": banded},
            **options,
        )
        self.embedding_relu = True
        self.input_size = input_size
