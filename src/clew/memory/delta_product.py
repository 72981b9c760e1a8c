"""The delta product."""

from typing import Unpack

from jaxtyping import PRNGKeyArray

from clew.memory.gated_delta_net import Decay, GatedDeltaMixer
from clew.memory.parts.matrix_recurrence import MatrixBackend
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks


class DeltaProduct(MixerStack):
    """The gated delta product: a delta network that replaces several values at every observation.

        q, k^j, v^j = silu(conv(x W))               q, k of length 1, per head
        a_t = exp(-A softplus(x_t W_a + c))         b^j_t = 2 sigmoid(x_t W_b^j + b^j)
        C^0_t = a_t C_{t-1}
        C^j_t = C^{j-1}_t (I - b^j_t k^j_t k^j_t') + b^j_t v^j_t k^j_t'
        y_t = (rmsnorm(C_t q_t) * silu(x_t G)) W_o

    with C = C^n after j = 1 ... n, in the layers of `mixer_stack`. With b = 2 a step reflects the
    contents of the state, and two reflections are a rotation: with n of them the state can track
    permutations, such as shuffled cups, which a single delta rule cannot. The state of a layer is
    heads head_size^2 numbers, and the inputs that the convolution still sees, (1 + 2 n) (conv - 1)
    heads head_size. A chunk is computed as in the gated delta network, with n times as many steps.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        num_heads: number of heads in a layer.
        head_size: width of a key, a query and a value.
        num_householder: steps n per observation; with 1 this is `GatedDeltaNet`.
        negative_eigenvalues: whether b goes from 0 to 2; False for 0 to 1, without reflections.
        conv: width of the short convolution in steps; 0 for none.
        decay: "learned", or "none" for a = 1, the paper's DeltaProduct without a gate.
        backend: how a chunk is computed: "kernel", "chunkwise", "xla" or "auto"; see
            `MatrixBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Siems et al. (2025), "DeltaProduct: improving state-tracking in linear RNNs via
    Householder products". As in the authors' code, in flash-linear-attention, each value has its
    own key and b, a belongs to the first step, and b goes up to 2. Deviations: those of
    `GatedDeltaNet`.
    """

    @stacks(GatedDeltaMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        head_size: int = 32,
        num_householder: int = 2,
        negative_eigenvalues: bool = True,
        conv: int = 4,
        decay: Decay = "learned",
        backend: MatrixBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
