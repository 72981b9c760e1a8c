"""ReZero: a Transformer-XL without norms, whose layers begin as the identity."""

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from clew.memory.kernels import Backend
from clew.memory.parts.attention import Gradient
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.gates import GateName
from clew.memory.parts.stack import (
    LayerStack,
    WindowLayers,
    check_sizes,
    make_embedding,
    window_layers,
)


class ReZero(LayerStack):
    """Residual connections with a learned weight that starts at zero, in the place of norms.

        e = x W + b
        layer: y = x + zeta attention(x);  out = y + zeta mlp(y)

    with one zeta a layer, and `WindowAttention` over t - window .. t of each layer's inputs. At the
    beginning every layer is the identity: the output is e, and nothing is remembered yet.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is a ring of window + 1 inputs with
    their keys and values.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        hidden_size: width d of the residual stream, and of the output.
        num_layers: layers L; an output depends on at most L window + 1 observations.
        num_heads: heads per layer.
        head_size: width d_h of a head.
        window: how many steps back a layer sees.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        gate: "residual" as above; "gru" or "temporal_gru" joins x and zeta times the sublayer.
        attention_bias: whether the products of the attention have biases.
        embedding: False hands the observation on as it is; it then has hidden_size numbers.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before what is
            said above (zeta) happens to it, as in the published code of Makkink (2021).
        gradient: "full", or "current" to stop gradients into the inputs of earlier steps.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        backend: what computes a window: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Bachlechner et al. (2020), Eq. 6 and section 4; Makkink (2021), Eq. 2.36.

    Deviations: positions are relative and the past is a window, as in all of Makkink's models.
    Makkink's code keeps a residual connection and a norm inside the attention: `inner_residual`.
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
        gate: GateName = "residual",
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
                "norm": False,
                "bias": attention_bias,
                "gradient": gradient,
                "backend": backend,
            },
            layer={
                "gate": gate,
                "norm": "none",
                "residual_weight": True,
                "inner_residual": inner_residual,
            },
        )
        self.input_size = input_size
        self.output_size = hidden_size
