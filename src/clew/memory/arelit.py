"""AReLiT, the approximate recurrent linear transformer."""

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from clew.errors import require_at_least, require_choice, require_rate
from clew.memory.kernels import Backend, uses_kernel
from clew.memory.parts.approximate import ApproximateLinearAttention, Tick
from clew.memory.parts.blocks import Init, LayerNorm, Linear
from clew.memory.parts.features import GatedFeatures
from clew.memory.parts.layer import Layer
from clew.memory.parts.oscillators import Frequencies, Scale, oscillators
from clew.memory.parts.stack import LayerStack


class AReLiT(LayerStack):
    """The approximate recurrent linear transformer: AReLiT attention inside the GTrXL layer.

        e = relu(x W + b)
        layer: y = gate_1(x, relu(attention(norm(x))));  out = gate_2(y, relu(mlp(norm(y))))

    with `ApproximateLinearAttention` and the GRU gate. The cost of a step and the state do not
    grow with the length of an episode: (r + 1)(eta + 1) heads head_size numbers a layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        hidden_size: width d of the residual stream, and of the output.
        num_layers: layers L.
        num_heads: heads per layer.
        head_size: width d_h of a head.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        eta: size of the feature maps' learned factor.
        r: number of intervals of the approximation; r + 1 vectors (`code`: r vectors).
        frequencies: "half_wave", "full_wave", "odd_wave", "thesis", "code"; see `oscillators`.
        scale: "derived", "thesis" or "code"; see `oscillators`.
        tick: "episode" counts from 1 in every episode; "carried" is never reset and starts one
            later, as in the authors' published code, so that outputs depend on what came before
            an episode (unless frequencies are multiples of pi, or have cosine and sine).
        epsilon: added to the denominator; the published code has 1e-5, the thesis none.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        backend: what computes a chunk: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Pramanik (2023), Algorithm 6 and section 4.2; Parisotto et al. (2020) for the layer.

    Deviations: the thesis's frequencies hold every cosine twice and alias with period r (at r = 1
    the layer is an average of gated values, whatever keys and queries are), so the default is
    `half_wave`, which has the same number of vectors, all distinct, and twice the period. The
    scale is the one that follows from Eq. 4.6; Eq. 4.22 is a fourth of it. Relu before each gate
    and after the embedding follow the published code; the thesis is silent.
    """

    embedding: Linear | None
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
        ffn_size: int | None = None,
        eta: int = 4,
        r: int = 3,
        frequencies: Frequencies = "half_wave",
        scale: Scale = "derived",
        tick: Tick = "episode",
        epsilon: float = 1e-5,
        init: Init = "orthogonal",
        backend: Backend = "auto",
    ):
        require_at_least("input_size", input_size, 1)
        require_at_least("hidden_size", hidden_size, 1)
        require_at_least("num_layers", num_layers, 1)
        require_choice("tick", tick, ("episode", "carried"))
        require_rate("epsilon", epsilon)
        oscillators(frequencies, r, scale)
        uses_kernel(backend)
        keys = jax.random.split(key, 1 + num_layers)

        def layer(key: PRNGKeyArray) -> Layer:
            feature_key, output_key, layer_key = jax.random.split(key, 3)
            attention = ApproximateLinearAttention(
                norm=LayerNorm(hidden_size),
                features=GatedFeatures(
                    hidden_size,
                    key=feature_key,
                    num_heads=num_heads,
                    head_size=head_size,
                    eta=eta,
                    query="single",
                    init=init,
                ),
                output=Linear(num_heads * head_size, hidden_size, key=output_key, init=init),
                frequencies=frequencies,
                r=r,
                scale=scale,
                tick=tick,
                epsilon=epsilon,
                backend=backend,
            )
            return Layer(hidden_size, ffn_size, attention, key=layer_key, init=init)

        self.embedding = Linear(input_size, hidden_size, key=keys[0], init=init)
        self.embedding_relu = True
        self.layers = tuple(layer(k) for k in keys[1:])
        self.input_size = input_size
        self.output_size = hidden_size
