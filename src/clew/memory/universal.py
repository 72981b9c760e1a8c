"""The Universal Transformer: one block, applied as often as each observation needs."""

import jax
from jaxtyping import PRNGKeyArray

from clew.errors import require_at_least
from clew.memory.kernels import Backend
from clew.memory.parts.adaptive import AdaptiveStack
from clew.memory.parts.attention import Gradient
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.gates import GateName
from clew.memory.parts.halting import Blend, Halting, Unreached
from clew.memory.parts.layer import NormPlace
from clew.memory.parts.stack import make_embedding, window_layers


class Universal(AdaptiveStack):
    """A block of layers shared by all depths, with adaptive halting for every observation.

        e = x W + b
        u_n = s_{n-1} + P_t + P_n       s_0 = e, P the sinusoids of the position and of n
        layer: y = norm_1(u + attention(u));  s = norm_2(y + mlp(y))

    halted and blended by `Halting`, with `WindowAttention` over the n-th readings of
    t - window .. t.

    Shapes: x [input_size] to y [hidden_size]; a layer's state is max_steps rings of window + 1
    inputs with their keys and values.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        hidden_size: width d of the residual stream, and of the output.
        num_layers: layers of the block.
        num_heads: heads per layer.
        head_size: width d_h of a head.
        window: how many steps back a layer sees.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        max_steps: most readings of one observation.
        threshold: sum of halting probabilities beyond which an observation halts, 0 to 1.
        halting: False applies the block max_steps times to everything and gives the last output.
        coordinates: whether P_t and P_n are added; the attention's distances are there anyway.
        blend: "mean" of the readings, as in Graves (2016), or "running" as in Dehghani et al.
        unreached: what later observations see of one at readings beyond its halting: a "copy" of
            where it stood, as published, or "zero".
        gate: "residual" as above, "gru" or "temporal_gru", see `clew.memory.parts.gates`.
        norm: "after" as above, "before", "around" or "none", see `Layer`.
        residual_weight: weigh what a sublayer adds with a number that starts at 0, as in ReZero.
        crossed_states: let the first temporal gate go on from the second's state, see `Layer`.
        attention_bias: whether the products of the attention have biases.
        embedding: False hands the observation on as it is; it then has hidden_size numbers.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before what is
            said above happens to it, as in the published code of Makkink (2021).
        gradient: "full", or "current" to stop gradients into the inputs of earlier steps.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        backend: what computes a window: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Dehghani et al. (2019), section 2; Graves (2016), sections 2-2.2; Makkink (2021),
    section 2.2.7.

    Deviations: causal, with relative positions over a window, as in all of Makkink's models; the
    weights of the readings sum to 1 (in the listing of Dehghani et al. they do not). Makkink's
    published code drops the coordinates, blends as that listing does, and fills with zeros.
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
        gate: GateName = "residual",
        norm: NormPlace = "after",
        residual_weight: bool = False,
        crossed_states: bool = False,
        attention_bias: bool = False,
        embedding: bool = True,
        inner_residual: bool = False,
        gradient: Gradient = "full",
        init: Init = "orthogonal",
        backend: Backend = "auto",
    ):
        require_at_least("input_size", input_size, 1)
        require_at_least("hidden_size", hidden_size, 1)
        require_at_least("num_layers", num_layers, 1)
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
