"""Encoders of vectors and integers: identity, layers, one-hot, embeddings and past rewards."""

import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from clew.agents.encoders.base import AbstractEncoder, activate, flat, in_precision
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, Linear


class Dense(AbstractEncoder):
    """Layers of relu(x W + b) over a flattened observation; without layers, x itself.

    Args:
        shape: of an observation, which is flattened.
        sizes: of the layers.
        scale: factor on the observation, such as 1/255 for the bytes of a picture.
        nonlinearity: relu or elu.
        precision: of the layers' computations.
    """

    layers: tuple[Linear, ...]
    shape: tuple[int, ...] = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    nonlinearity: str = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        sizes: Sequence[int] = (),
        *,
        key: PRNGKeyArray,
        scale: float = 1.0,
        nonlinearity: str = "relu",
        precision: str = "float32",
        init: Init = "orthogonal",
    ):
        widths = [math.prod(shape), *sizes]
        pairs = itertools.pairwise(widths)
        self.layers = tuple(
            Linear(n, m, key=k, init=init)
            for (n, m), k in zip(pairs, jax.random.split(key, len(widths)), strict=False)
        )
        self.shape, self.output_size, self.scale = shape, widths[-1], scale
        self.nonlinearity, self.precision = nonlinearity, precision

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*lead out"]:
        x = flat(x, self.shape).astype(jnp.float32)
        x = x if self.scale == 1.0 else x * self.scale
        if not self.layers:
            return x
        x = x.astype(self.precision)
        for layer in in_precision(self, self.precision).layers:
            x = activate(layer(x), self.nonlinearity)
        return x.astype(jnp.float32)


class OneHot(AbstractEncoder):
    """Integers, each one-hot over its values.

    A number outside its range, such as a previous action where there was none, is all zeros.

    Args:
        sizes: the number of values of every integer.
        starts: the first value of every integer.
        shape: of an observation.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    starts: tuple[int, ...] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], starts: Sequence[int], shape: tuple[int, ...]):
        self.sizes, self.starts, self.shape = tuple(sizes), tuple(starts), shape
        self.output_size = sum(sizes)

    def __call__(self, x: Int[Array, "..."]) -> Float[Array, "*lead out"]:
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        pairs = zip(self.starts, self.sizes, strict=True)
        value = np.concatenate([np.arange(start, start + n) for start, n in pairs])
        numbers = jnp.take(flat(x, self.shape).astype(jnp.int32), owner, axis=-1)
        equal = numbers == jnp.broadcast_to(jnp.asarray(value, jnp.int32), numbers.shape)
        return equal.astype(jnp.float32)


class Embedding(AbstractEncoder):
    """Integers, each as the learned vector of its value: one-hot times a table.

    Tables start standard normal, one for every integer of the observation. A number outside its
    range is a vector of zeros.

    Args:
        one_hot: the integers and their values.
        size: of a vector.
    """

    one_hot: OneHot
    tables: Float[Array, "values size"]
    output_size: int = eqx.field(static=True)

    def __init__(self, one_hot: OneHot, size: int, *, key: PRNGKeyArray):
        self.one_hot = one_hot
        self.tables = initial.normal(key, (one_hot.output_size, size))
        self.output_size = size * len(one_hot.sizes)

    def __call__(self, x: Int[Array, "..."]) -> Float[Array, "*lead out"]:
        ends = list(itertools.accumulate(self.one_hot.sizes))[:-1]
        values = jnp.split(self.one_hot(x), ends, axis=-1)
        tables = jnp.split(self.tables, ends, axis=0)
        found = [value @ table for value, table in zip(values, tables, strict=True)]
        return jnp.concatenate(found, axis=-1)


class PreviousReward(AbstractEncoder):
    """sign(r) log(1 + |r|): nearly the reward itself close to 0, while large ones keep their order.

    Source: Hafner et al. (2023), equation 1, symlog.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    output_size = 1

    def __init__(self, shape: tuple[int, ...] = ()):
        self.shape = shape

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "*lead 1"]:
        reward = flat(x, self.shape).astype(jnp.float32)
        return jnp.sign(reward) * jnp.log1p(jnp.abs(reward))


class Chain(AbstractEncoder):
    """One encoder after the other."""

    first: AbstractEncoder
    second: AbstractEncoder
    output_size: int = eqx.field(static=True)

    def __init__(self, first: AbstractEncoder, second: AbstractEncoder):
        self.first, self.second, self.output_size = first, second, second.output_size

    def __call__(self, x: PyTree[Array]) -> Float[Array, "*lead out"]:
        return self.second(self.first(x))
