"""The Integrated Transformer: gates of GTrXL, weight of ReZero, halting of the Universal one."""

from typing import Unpack

from jaxtyping import PRNGKeyArray

from clew.memory.parts.layer import LayerOptions
from clew.memory.parts.options import takes_options_of
from clew.memory.universal import AbstractUniversal, UniversalOptions, universal_block


class Integrated(AbstractUniversal):
    """The Integrated Transformer.

        e = x W + b
        u_n = s_{n-1} + P_t + P_n        s_0 = e,  P the sinusoids of the position and of n
        y = gate_1(u, zeta relu(attention(u)))        in each layer
        s = gate_2(y, zeta relu(mlp(y)))

    with GRU gates and one zeta per layer that starts at 0, halted and blended by `Halting`.

    Shapes: as in `Universal`.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        options: passed to `universal_block`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Makkink (2021), section 3.5 and Algorithm 3.

    Deviations: the gates are those of Parisotto et al. (2020), as the thesis says, with the relu
    before them. Algorithm 3 and the published code have a GRU over time; the code also has a
    residual connection and a norm inside the attention, and a first gate that continues from the
    state of the second: see `clew.lab.studies.makkink.models.PublishedIntegrated` and `Universal`.
    """

    @takes_options_of(universal_block)
    def __init__(self, input_size: int, *, key: PRNGKeyArray, **options: Unpack[UniversalOptions]):
        layer: LayerOptions = {"gate": "gru", "norm": "none", "residual_weight": True}
        self.set_block(input_size, *universal_block(input_size, key, layer, **options))
