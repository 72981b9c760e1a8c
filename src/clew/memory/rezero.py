"""ReZero: a Transformer-XL without norms whose layers start as the identity."""

from typing import Unpack

from jaxtyping import PRNGKeyArray

from clew.memory.parts.layer import LayerOptions
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.stack import LayerStack, WindowOptions, window_stack


class ReZero(LayerStack):
    """Residual connections with a learned weight that starts at zero, instead of norms.

        e = x W + b
        y = x + zeta attention(x)        in each layer
        out = y + zeta mlp(y)

    with one zeta per layer, and `WindowAttention` over t - window .. t of each layer's inputs. At
    the start every layer is the identity: the output is e, and nothing is remembered yet.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is a ring of window + 1 inputs with
    their keys and values.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        options: passed to `window_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Bachlechner et al. (2020), Eq. 6 and section 4; Makkink (2021), Eq. 2.36.

    Deviations: positions are relative and the past is a window, as in all of Makkink's models.
    Makkink's code keeps a residual connection and a norm inside the attention, see
    `clew.lab.studies.makkink.models.PublishedReZero`.
    """

    @takes_options_of(window_stack)
    def __init__(self, input_size: int, *, key: PRNGKeyArray, **options: Unpack[WindowOptions]):
        layer: LayerOptions = {"gate": "residual", "norm": "none", "residual_weight": True}
        self.set_layers(input_size, *window_stack(input_size, key, layer=layer, **options))
