"""The minimal gated recurrent unit."""

from typing import Any, ClassVar, Unpack

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from clew.memory.parts.linear_recurrence import ScanBackend
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.minimal import Candidate, MinimalMixer
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks


class MinGRUMixer(MinimalMixer):
    """The recurrence of a `MinGRU`; `inputs` holds [z | h~]."""

    num_gates: ClassVar[int] = 1

    def __init__(self, size: int, **options: Any):
        super().__init__(size, **options)  # a type checker would see a dataclass's own here

    def factors(self, *gates: Float[Array, "*lead inner"]) -> tuple[Array, Array]:
        (z,) = gates
        return jax.nn.sigmoid(-z), jax.nn.sigmoid(z)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """What is kept at every step."""
        return {"1 - z": MemoryMap(self.read_gates(self.norm(xs))[0], "keep")}


class MinGRU(MixerStack):
    """The minGRU: a GRU whose gate does not read the state, so it is parallel in time.

        z_t = sigmoid(x_t W_z + b_z)       h~_t = x_t W_h + b_h
        h_t = (1 - z_t) * h_{t-1} + z_t * h~_t

    in the layers of `mixer_stack`. The state is inner_size numbers per layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        inner_size: size of h; `hidden_size` if None.
        candidate: "linear", or "positive" for g(h~) instead, with g(a) = a + 1/2 where a >= 0 and
            sigmoid(a) elsewhere, as in the paper's version in logarithms.
        chrono: steps that the longest memories last at the start, see `initial.lasting`; with 0 the
            biases of z start like all others.
        backend: how a chunk is computed: "xla" or "associative"; see `ScanBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Feng et al. (2024), "Were RNNs all we needed?", its minGRU, and its version in
    logarithms for "positive". Deviation: "positive" takes no logarithms: the scan divides by
    nothing and needs none. The short convolution that the paper's experiments have in some layers
    is left out.
    """

    @stacks(MinGRUMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        inner_size: int | None = None,
        candidate: Candidate = "linear",
        chrono: int = 0,
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
