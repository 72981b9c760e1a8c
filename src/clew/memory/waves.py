"""AReLiT's recurrence over a chunk, through a kernel that recomputes its states."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Bool, Float

from clew.memory import kernels
from clew.memory.kernels import shapes


class WaveInputs(NamedTuple):
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


class WaveOutputs(NamedTuple):
    """What comes of a chunk."""

    attended: Float[Array, "time heads head"]
    keys: Float[Array, "rows heads eta head"]
    values: Float[Array, "vectors heads head"]


class Readout(NamedTuple):
    """The constants of the readout, see `ApproximateLinearAttention`."""

    weights: tuple[float, ...]
    scale: float
    epsilon: float


def read_waves(readout: Readout, inputs: WaveInputs) -> WaveOutputs:
    """`ApproximateLinearAttention` over a chunk, between its products.

    Forward, one pass over time with the state in the processor's first cache. Backward, the
    states are run again, from every 16th of them that is kept meanwhile for one head; nothing of
    the size of time x state is ever held. No gradient passes into the cosines.
    """
    return _read(readout, inputs)


def _run(readout: Readout, inputs: WaveInputs) -> WaveOutputs:
    products = inputs.products
    attended = jax.ShapeDtypeStruct((len(products), *products.shape[2:]), products.dtype)
    results = (attended, *shapes(inputs.keys, inputs.values))
    return WaveOutputs(*kernels.call("waves_forward", results, *inputs, **readout._asdict()))


_read = jax.custom_vjp(_run, nondiff_argnums=(0,))


def _forward(readout: Readout, inputs: WaveInputs) -> tuple[WaveOutputs, WaveInputs]:
    return _run(readout, inputs), inputs


def _backward(readout: Readout, inputs: WaveInputs, cotangents: WaveOutputs) -> tuple[WaveInputs]:
    results = shapes(inputs.products, inputs.maps, inputs.keys, inputs.values)
    products, maps, keys, values = kernels.call(
        "waves_backward", results, *inputs, *cotangents, **readout._asdict()
    )
    return (WaveInputs(products, maps, None, None, keys, values),)  # pyright: ignore[reportArgumentType]


_read.defvjp(_forward, _backward)
