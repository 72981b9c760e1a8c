"""ReLiT's recurrence over a chunk, through a kernel that recomputes its states."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float

from clew.memory.kernels.call import read_chunk


class ReLiTInputs(NamedTuple):
    """What the recurrence of a chunk starts from, for all heads."""

    products: Float[Array, "time 5 heads head"]
    """Key, query, value, beta and gamma, before their relu or sigmoid."""
    maps: Float[Array, "time 3 heads eta"]
    """Those of key, query and gamma, likewise."""
    starts: Bool[Array, " time"]
    matrix: Float[Array, "heads head eta head"]
    normaliser: Float[Array, "heads eta head"]


class ReLiTOutputs(NamedTuple):
    """What comes of a chunk."""

    attended: Float[Array, "time heads head"]
    matrix: Float[Array, "heads head eta head"]
    normaliser: Float[Array, "heads eta head"]


class Recurrence(NamedTuple):
    """The constants, see `GatedLinearAttention`."""

    joint: bool
    epsilon: float


def relit_recurrence(recurrence: Recurrence, inputs: ReLiTInputs) -> ReLiTOutputs:
    """`GatedLinearAttention` over a chunk, between its products.

    No row of the matrix depends on another: four at a time go through sixteen steps in the
    processor's first cache. Backward, the states are run again, from every 16th of them that is
    kept meanwhile for one head; nothing of the size of time x state is ever held.
    """
    return ReLiTOutputs(*read_chunk("relit", recurrence, inputs))
