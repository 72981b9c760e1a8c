"""The minimal long short-term memory."""

from typing import Any, ClassVar, Unpack

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from clew.memory.parts.linear_recurrence import ScanBackend
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.minimal import Candidate, MinimalMixer
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks


class MinLSTMMixer(MinimalMixer):
    """The recurrence of a `MinLSTM`; `inputs` holds [f | i | h~]."""

    normalised: bool = eqx.field(static=True)
    num_gates: ClassVar[int] = 2

    def __init__(self, size: int, *, normalised: bool, **options: Any):
        super().__init__(size, **options)
        self.normalised = normalised

    def factors(self, *gates: Float[Array, "*lead inner"]) -> tuple[Array, Array]:
        f, i = gates
        if not self.normalised:
            return jax.nn.sigmoid(f), jax.nn.sigmoid(i)
        # f / (f + i) as a sigmoid of log f - log i: no quotient, so it works where both are 0.
        difference = jax.nn.softplus(-i) - jax.nn.softplus(-f)
        return jax.nn.sigmoid(difference), jax.nn.sigmoid(-difference)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """What is kept at every step, and what is written."""
        keep, write = self.read_gates(self.norm(xs))
        return {"f": MemoryMap(keep, "keep"), "i": MemoryMap(write, "gate")}


class MinLSTM(MixerStack):
    """The minLSTM: an LSTM whose gates do not read the state, so it is parallel in time.

        f_t = sigmoid(x_t W_f + b_f)       f'_t = f_t / (f_t + i_t)
        i_t = sigmoid(x_t W_i + b_i)       i'_t = i_t / (f_t + i_t)
        h~_t = x_t W_h + b_h
        h_t = f'_t * h_{t-1} + i'_t * h~_t

    in the layers of `mixer_stack`. The state is inner_size numbers per layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        inner_size: size of h; `hidden_size` if None.
        normalised: whether the gates sum to 1, f' and i', so that the scale of h does not depend on
            the length of an episode; otherwise they are f and i.
        candidate: "linear", or "positive" for g(h~) instead, with g(a) = a + 1/2 where a >= 0 and
            sigmoid(a) elsewhere, as in the paper's version in logarithms.
        chrono: steps that the longest memories last at the start, see `initial.lasting`: f begins
            as 1 - 1 / u and i as 1 / u; with 0 their biases start like all others.
        backend: how a chunk is computed: "xla" or "associative"; see `ScanBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Feng et al. (2024), "Were RNNs all we needed?", its minLSTM, whose last step (section
    3.2.3) is the normalisation, and its version in logarithms for "positive". Deviation: "positive"
    takes no logarithms: the scan divides by nothing and needs none. The short convolution that the
    paper's experiments have in some layers is left out.
    """

    @stacks(MinLSTMMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        inner_size: int | None = None,
        normalised: bool = True,
        candidate: Candidate = "linear",
        chrono: int = 0,
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
