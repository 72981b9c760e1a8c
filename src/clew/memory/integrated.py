"""The Integrated Transformer: GTrXL's gates, ReZero's weight and the Universal one's halting."""

from jaxtyping import PRNGKeyArray

from clew.memory.kernels import Backend
from clew.memory.parts.attention import Gradient
from clew.memory.parts.blocks import Init
from clew.memory.parts.gates import GateName
from clew.memory.parts.halting import Blend, Unreached
from clew.memory.parts.layer import NormPlace
from clew.memory.universal import Universal


class Integrated(Universal):
    """The Integrated Transformer.

        e = x W + b
        u_n = s_{n-1} + P_t + P_n       s_0 = e, P the sinusoids of the position and of n
        layer: y = gate_1(u, zeta relu(attention(u)));  s = gate_2(y, zeta relu(mlp(y)))

    with GRU gates, one zeta a layer that starts at 0, halted and blended by `Halting`.

    Shapes, arguments and errors are those of `Universal`; only the defaults are others.

    Source: Makkink (2021), section 3.5 and Algorithm 3.

    Deviations: the gates are those of Parisotto et al. (2020), as the thesis says, with the relu
    before them; Algorithm 3 and the published code have a GRU over time (`gate="temporal_gru"`),
    the code also a residual connection and a norm inside the attention (`inner_residual`) and a
    first gate that goes on from the second's state (`crossed_states`). See `Universal` as well.
    """

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
        super().__init__(
            input_size,
            key=key,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=num_heads,
            head_size=head_size,
            window=window,
            ffn_size=ffn_size,
            max_steps=max_steps,
            threshold=threshold,
            halting=halting,
            coordinates=coordinates,
            blend=blend,
            unreached=unreached,
            gate=gate,
            norm=norm,
            residual_weight=residual_weight,
            crossed_states=crossed_states,
            attention_bias=attention_bias,
            embedding=embedding,
            inner_residual=inner_residual,
            gradient=gradient,
            init=init,
            backend=backend,
        )
