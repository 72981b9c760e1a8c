"""Transformer-XL."""

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from clew.memory.kernels import Backend
from clew.memory.parts.attention import Gradient
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.layer import NormPlace
from clew.memory.parts.stack import (
    LayerStack,
    WindowLayers,
    check_sizes,
    make_embedding,
    window_layers,
)


class TransformerXL(LayerStack):
    """Transformer-XL: cached inputs, relative positions, residual connections, norms after.

        e = x W + b
        layer: y = norm_1(x + attention(x));  out = norm_2(y + mlp(y))

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
        norm: "after" each residual connection, as published, or "before" what it adds.
        attention_bias: whether the products of the attention have biases.
        embedding: False hands the observation on as it is; it then has hidden_size numbers.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before what is
            said above happens to it, as in the published code of Makkink (2021).
        gradient: "full", or "current" to stop gradients into the inputs of earlier steps.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        backend: what computes a window: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Dai et al. (2019), section 3; Pramanik (2023), Algorithms 2 and 3; Makkink (2021),
    section 2.2.4.

    Deviations: the window is the same for every position (Dai et al. have one that grows along a
    segment while training), so that acting and learning are one function; gradients flow through
    the chunk, and whoever learns stops them at its edge (or with `gradient="current"`, of which
    Makkink's published results were made); no dropout.
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
        norm: NormPlace = "after",
        attention_bias: bool = False,
        embedding: bool = True,
        inner_residual: bool = False,
        gradient: Gradient = "full",
        init: Init = "orthogonal",
        backend: Backend = "auto",
    ):
        check_sizes(input_size, hidden_size, num_layers)
        keys = jax.random.split(key, 1 + num_layers)
        self.embedding = make_embedding(embedding, input_size, hidden_size, key=keys[0], init=init)
        self.embedding_relu = False
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
                "gradient": gradient,
                "backend": backend,
            },
            layer={"gate": "residual", "norm": norm, "inner_residual": inner_residual},
        )
        self.input_size = input_size
        self.output_size = hidden_size
