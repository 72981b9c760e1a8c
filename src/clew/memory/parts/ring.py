"""The ring of inputs that a window of attention keeps."""

from typing import NamedTuple

from jaxtyping import Array, Float, Int

from clew.memory.parts.band import Band, join_rings


class WindowState(NamedTuple):
    """A ring of the last `window + 1` inputs, and what was projected from them.

    `hidden` is the definition; keys and values are derived from it by the parameters, which
    `refresh` does again after they change.
    """

    hidden: Float[Array, "slots n"]
    keys: Float[Array, "heads slots head"]
    values: Float[Array, "heads slots head"]
    position: Int[Array, ""]  # the slot that the next input goes to
    length: Int[Array, ""]  # how many slots hold inputs of this episode


def ring_after(
    band: Band, state: WindowState, hidden: Array, key: Array, value: Array
) -> WindowState:
    """The ring after a chunk of inputs with their keys and values."""
    return WindowState(
        join_rings(band, state.hidden[None], hidden[None])[0],
        join_rings(band, state.keys, key),
        join_rings(band, state.values, value),
        band.position_after,
        band.length_after,
    )
