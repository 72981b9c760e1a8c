"""GTrXL, the gated Transformer-XL."""

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from clew.memory.kernels import Backend
from clew.memory.parts.attention import Gradient
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.gates import GateName
from clew.memory.parts.layer import NormPlace
from clew.memory.parts.stack import (
    LayerStack,
    WindowLayers,
    check_sizes,
    make_embedding,
    window_layers,
)


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
        hidden_size: width d of the residual stream, and of the output.
        num_layers: layers L; an output depends on at most L window + 1 observations.
        num_heads: heads per layer.
        head_size: width d_h of a head.
        window: memory size M, how many steps back a layer sees.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        gate: "gru", "residual", or "temporal_gru", which is a recurrent net (see `TemporalGRU`).
        norm: "before" the sublayers, as published; "around", "after" or "none", see `Layer`.
        attention_bias: whether the products of the attention have biases.
        query_norm: False leaves the queries un-normed, as the authors' code of Pramanik does.
        banded: False lets a chunk see all of itself beside the window, as that code's learner
            does, so that learning is another function than acting; for reproduction only.
        embedding: False hands the observation on as it is; it then has hidden_size numbers.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before what is
            said above happens to it, as in the published code of Makkink (2021).
        gradient: "full", or "current" to stop gradients into the inputs of earlier steps.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        backend: what computes a window: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Parisotto et al. (2020), section 3; Pramanik (2023), Algorithm 3 and section 2.5.2.

    Deviations: the window is banded in a chunk too, so that acting and learning are one function;
    gradients flow through the hidden states of the chunk (Algorithm 3 stops them at each step,
    Parisotto et al. at each segment); the last layer's output is not cached: nothing reads it.
    """

    embedding: Linear | None
    layers: WindowLayers
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
        window: int = 128,
        ffn_size: int | None = None,
        gate: GateName = "gru",
        norm: NormPlace = "before",
        attention_bias: bool = True,
        query_norm: bool = True,
        banded: bool = True,
        embedding: bool = True,
        inner_residual: bool = False,
        gradient: Gradient = "full",
        init: Init = "orthogonal",
        backend: Backend = "auto",
    ):
        check_sizes(input_size, hidden_size, num_layers)
        keys = jax.random.split(key, 1 + num_layers)
        self.embedding = make_embedding(embedding, input_size, hidden_size, key=keys[0], init=init)
        self.embedding_relu = True
        self.layers = window_layers(
            keys[1:],
            hidden_size,
            ffn_size,
            init=init,
            attention={
                "num_heads": num_heads,
                "head_size": head_size,
                "window": window,
                "relative": True,
                "norm": norm == "before",
                "bias": attention_bias,
                "query_norm": query_norm,
                "banded": banded,
                "gradient": gradient,
                "backend": backend,
            },
            layer={"gate": gate, "norm": norm, "inner_residual": inner_residual},
        )
        self.input_size = input_size
        self.output_size = hidden_size
