"""The Integrated Transformer: GTrXL's gates, ReZero's weight and the Universal one's halting."""

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from clew.memory.kernels import Backend
from clew.memory.parts.attention import Gradient
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.gates import GateName
from clew.memory.parts.halting import Blend, Halting, Unreached
from clew.memory.parts.layer import NormPlace
from clew.memory.parts.stack import WindowLayers, check_sizes, make_embedding, window_layers
from clew.memory.universal import AbstractUniversal


class Integrated(AbstractUniversal):
    """The Integrated Transformer.

        e = x W + b
        u_n = s_{n-1} + P_t + P_n       s_0 = e, P the sinusoids of the position and of n
        layer: y = gate_1(u, zeta relu(attention(u)));  s = gate_2(y, zeta relu(mlp(y)))

    with GRU gates, one zeta a layer that starts at 0, halted and blended by `Halting`.

    Shapes, arguments and errors are those of `Universal`; three defaults differ: `gate`, `norm` and
    `residual_weight`.

    Source: Makkink (2021), section 3.5 and Algorithm 3.

    Deviations: the gates are those of Parisotto et al. (2020), as the thesis says, with the relu
    before them; Algorithm 3 and the published code have a GRU over time (`gate="temporal_gru"`),
    the code also a residual connection and a norm inside the attention (`inner_residual`) and a
    first gate that goes on from the second's state (`crossed_states`). See `Universal` as well.
    """

    embedding: Linear | None
    layers: WindowLayers
    halting: Halting
    coordinates: bool = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        hidden_size: int = 128,
        num_layers: int = 1,
        num_heads: int = 4,
        head_size: int = 32,
        window: int = 128,
        ffn_size: int | None = None,
        max_steps: int = 6,
        threshold: float = 0.9,
        halting: bool = True,
        coordinates: bool = True,
        blend: Blend = "mean",
        unreached: Unreached = "copy",
        gate: GateName = "gru",
        norm: NormPlace = "none",
        residual_weight: bool = True,
        crossed_states: bool = False,
        attention_bias: bool = False,
        embedding: bool = True,
        inner_residual: bool = False,
        gradient: Gradient = "full",
        init: Init = "orthogonal",
        backend: Backend = "auto",
    ):
        check_sizes(input_size, hidden_size, num_layers)
        keys = jax.random.split(key, 2 + num_layers)
        self.embedding = make_embedding(embedding, input_size, hidden_size, key=keys[0], init=init)
        unit = Linear(hidden_size, 1, key=keys[1], init=init) if halting else None
        self.halting = Halting(unit, max_steps, threshold, blend, unreached)
        self.coordinates = coordinates
        self.layers = window_layers(
            keys[2:],
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
            layer={
                "gate": gate,
                "norm": norm,
                "residual_weight": residual_weight,
                "inner_residual": inner_residual,
                "crossed_states": crossed_states,
            },
        )
        self.input_size = input_size
        self.output_size = hidden_size
