"""AReLiT's recurrence over a chunk, through a kernel that recomputes its states."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float

from clew.memory.kernels.call import read_chunk


class AReLiTInputs(NamedTuple):
    """What the recurrence of a chunk starts from, for all heads."""

    products: Float[Array, "time 5 heads head"]
    """Key, query, value, beta and gamma, before their relu or sigmoid."""
    maps: Float[Array, "time 3 heads eta"]
    """Those of key, query and gamma, likewise."""
    cosines: Float[Array, "time rows"]
    starts: Bool[Array, " time"]
    keys: Float[Array, "rows heads eta head"]
    """The state; the values' cosines are the last of `rows`."""
    values: Float[Array, "vectors heads head"]


class AReLiTOutputs(NamedTuple):
    """What comes of a chunk."""

    attended: Float[Array, "time heads head"]
    keys: Float[Array, "rows heads eta head"]
    values: Float[Array, "vectors heads head"]


class Readout(NamedTuple):
    """The constants of the readout, see `ApproximateLinearAttention`."""

    weights: tuple[float, ...]
    scale: float
    epsilon: float


def arelit_recurrence(readout: Readout, inputs: AReLiTInputs) -> AReLiTOutputs:
    """`ApproximateLinearAttention` over a chunk, between its products.

    Forward, one pass over time with the state in the processor's first cache. Backward, the
    states are run again, from every 16th of them that is kept meanwhile for one head; nothing of
    the size of time x state is ever held. No gradient passes into the cosines.
    """
    return AReLiTOutputs(*read_chunk("arelit", readout, inputs))
