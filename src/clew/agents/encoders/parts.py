"""What every encoder needs: shapes told apart from leading axes, nonlinearities, precision."""

import abc
import math
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from clew.errors import UserError

Module = TypeVar("Module", bound=eqx.Module)


class AbstractEncoder(eqx.Module):
    """Maps an observation, an array or a dict of arrays, to a vector, on any leading axes.

    A chunk [time, batch, ...] goes through in one call. Outputs are float32 [*lead, output_size].
    """

    output_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, x: PyTree[Array]) -> Float[Array, "*lead out"]:
        """Encodes observations."""


def lead_of(x: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The leading axes of observations of one shape.

    Raises:
        UserError: if they are of another shape.
    """
    split = x.ndim - len(shape)
    if split < 0 or x.shape[split:] != shape:
        raise UserError(
            f"the encoder expected observations of shape {list(shape)} behind any leading axes, "
            f"got {list(x.shape)}"
        )
    return x.shape[:split]


def flat(x: Array, shape: tuple[int, ...]) -> Array:
    """Observations of one shape with that shape laid out in one axis."""
    return x.reshape(*lead_of(x, shape), math.prod(shape))


def bend(x: Array, nonlinearity: str) -> Array:
    """relu(x) = max(x, 0), or elu(x) = x above 0 and exp(x) - 1 below."""
    return jax.nn.relu(x) if nonlinearity == "relu" else jax.nn.elu(x)


def in_precision(module: Module, precision: str) -> Module:
    """The module with its parameters in another type; gradients come back in float32."""
    dtype = np.dtype(jnp.dtype(precision))
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, module
    )
