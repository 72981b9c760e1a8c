"""Transformer-XL."""

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from clew.errors import require_at_least
from clew.memory.attention import WindowAttention
from clew.memory.blocks import Init, Layer, Linear, NormPlace
from clew.memory.stack import LayerStack


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
        init: "orthogonal" (gain sqrt 2) or "lecun".

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Dai et al. (2019), section 3; Pramanik (2023), Algorithms 2 and 3.

    Deviations: the window is the same for every position (Dai et al. have one that grows along a
    segment while training), so that acting and learning are one function; gradients flow through
    the chunk, and whoever learns stops them at its edge; no dropout.
    """

    embedding: Linear
    layers: tuple[Layer, ...]
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
        init: Init = "orthogonal",
    ):
        require_at_least("input_size", input_size, 1)
        require_at_least("hidden_size", hidden_size, 1)
        require_at_least("num_layers", num_layers, 1)
        keys = jax.random.split(key, 1 + num_layers)

        def layer(i: int) -> Layer:
            attention_key, layer_key = jax.random.split(keys[1 + i])
            attention = WindowAttention(
                hidden_size,
                key=attention_key,
                num_heads=num_heads,
                head_size=head_size,
                window=window,
                relative=True,
                norm=norm == "before",
                init=init,
                bias=attention_bias,
                owns_biases=i == 0,
            )
            return Layer(
                hidden_size,
                ffn_size,
                attention,
                key=layer_key,
                gate="residual",
                init=init,
                norm=norm,
            )

        self.embedding = Linear(input_size, hidden_size, key=keys[0], init=init)
        self.embedding_relu = False
        self.layers = tuple(layer(i) for i in range(num_layers))
        self.input_size = input_size
        self.output_size = hidden_size
