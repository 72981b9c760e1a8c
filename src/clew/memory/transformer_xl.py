"""Transformer-XL."""

from typing import Unpack

from jaxtyping import PRNGKeyArray

from clew.memory.parts.blocks import with_drawn_bias
from clew.memory.parts.layer import LayerOptions, NormPlace
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.stack import LayerStack, WindowOptions, window_stack


class TransformerXL(LayerStack):
    """Transformer-XL: cached inputs, relative positions, residual connections, post-norm.

        e = x W + b
        y = norm_1(x + attention(x))        in each layer
        out = norm_2(y + mlp(y))

    with `WindowAttention` over t - window .. t of each layer's inputs. b is drawn, see
    `with_drawn_bias`.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is a ring of window + 1 inputs with
    their keys and values.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        norm: "after" each residual connection, as published, or "before" each sublayer.
        options: passed to `window_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Dai et al. (2019), section 3; Pramanik (2023), Algorithms 2 and 3; Makkink (2021),
    section 2.2.4.

    Deviations: the window is the same for every position (in Dai et al. it grows along a segment
    during training), so that acting and learning are one function; gradients flow through the
    chunk, and the learner stops them at its edge (or `gradient="current"` stops them, as in
    Makkink's published results); no dropout.
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
        embedding, layers = window_stack(input_size, key, layer=layer, **options)
        self.set_layers(input_size, embedding and with_drawn_bias(embedding, key=key), layers)
