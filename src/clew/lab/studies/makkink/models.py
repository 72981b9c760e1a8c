"""The transformers of Makkink (2021) as in the published code.

Each is the library's memory with switches for that code's differences from the text; with all of
them off it equals the library's memory exactly. The study's editions set them.
"""

from typing import Unpack

from jaxtyping import PRNGKeyArray

from clew.memory.parts.blocks import with_drawn_bias
from clew.memory.parts.gates import GateName
from clew.memory.parts.halting import Blend, Unreached
from clew.memory.parts.layer import LayerOptions, NormPlace
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.stack import LayerStack, WindowOptions, window_stack
from clew.memory.universal import AbstractUniversal, UniversalOptions, universal_block


class PublishedTransformerXL(LayerStack):
    """`clew.memory.transformer_xl.TransformerXL` with an inner residual connection.

    Args:
        norm: as in `TransformerXL`.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before the
            layer's own residual connection and norm.
        options: passed to `window_stack`.
    """

    @takes_options_of(window_stack)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        norm: NormPlace = "after",
        inner_residual: bool = False,
        **options: Unpack[WindowOptions],
    ):
        layer: LayerOptions = {"gate": "residual", "norm": norm, "inner_residual": inner_residual}
        embedding, layers = window_stack(input_size, key, layer=layer, **options)
        self.set_layers(input_size, embedding and with_drawn_bias(embedding, key=key), layers)


class PublishedReZero(LayerStack):
    """`clew.memory.rezero.ReZero` with an inner residual connection, or with gates.

    Args:
        gate: "residual"; "gru" or "temporal_gru" joins x and zeta times the sublayer.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before zeta
            weighs it.
        options: passed to `window_stack`.
    """

    @takes_options_of(window_stack)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        gate: GateName = "residual",
        inner_residual: bool = False,
        **options: Unpack[WindowOptions],
    ):
        layer: LayerOptions = {"gate": gate, "norm": "none", "residual_weight": True}
        layer["inner_residual"] = inner_residual
        self.set_layers(input_size, *window_stack(input_size, key, layer=layer, **options))


class BlockOptions(UniversalOptions, LayerOptions, total=False):
    """The options of `published_block`, which describes them."""

    blend: Blend
    unreached: Unreached


@takes_options_of(universal_block)
def published_block(
    input_size: int,
    key: PRNGKeyArray,
    *,
    blend: Blend = "mean",
    unreached: Unreached = "copy",
    gate: GateName = "residual",
    norm: NormPlace = "after",
    residual_weight: bool = False,
    inner_residual: bool = False,
    crossed_states: bool = False,
    **options: Unpack[UniversalOptions],
) -> tuple:
    """Builds the parts of a `PublishedUniversal` or a `PublishedIntegrated`, like
    `universal_block`.

    Args:
        blend: "mean" of the readings, as in Graves (2016), or "running", as in that code.
        unreached: what later observations see of an observation at readings after it halted: a
            "copy" of its last s, as in Dehghani et al. (2019), or "zero", as in that code.
        gate: "residual", "gru" or "temporal_gru", see `clew.memory.parts.gates`.
        norm: "after", "before", "around" or "none", see `Layer`.
        residual_weight: multiply a sublayer's output by a learned number that starts at 0, as in
            ReZero.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before the
            layer's own joins it.
        crossed_states: let the first temporal gate continue from the second one's state, see
            `Layer`.
        options: passed to `universal_block`.
    """
    layer: LayerOptions = {
        "gate": gate,
        "norm": norm,
        "residual_weight": residual_weight,
        "inner_residual": inner_residual,
        "crossed_states": crossed_states,
    }
    return universal_block(input_size, key, layer, blend, unreached, **options)


class PublishedUniversal(AbstractUniversal):
    """`clew.memory.universal.Universal` with the options of `published_block`."""

    @takes_options_of(published_block)
    def __init__(self, input_size: int, *, key: PRNGKeyArray, **options: Unpack[BlockOptions]):
        self.set_block(input_size, *published_block(input_size, key, **options))


class PublishedIntegrated(AbstractUniversal):
    """`clew.memory.integrated.Integrated` with the options of `published_block`."""

    @takes_options_of(published_block, gate="gru", norm="none", residual_weight=True)
    def __init__(self, input_size: int, *, key: PRNGKeyArray, **options: Unpack[BlockOptions]):
        self.set_block(input_size, *published_block(input_size, key, **options))
