"""What attention over a window multiplies its inputs with."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from clew.memory.parts.blocks import LayerNorm, Linear
from clew.memory.parts.positions import sinusoids

Gradient = Literal["full", "current"]


class WindowProducts(eqx.Module):
    """The products of `WindowAttention`: queries, keys, values and projected distances."""

    norm: eqx.AbstractVar[LayerNorm | None]
    query: eqx.AbstractVar[Linear]
    key: eqx.AbstractVar[Linear]
    value: eqx.AbstractVar[Linear]
    distance: eqx.AbstractVar[Linear | None]
    content_bias: eqx.AbstractVar[Float[Array, "heads head"] | None]
    distance_bias: eqx.AbstractVar[Float[Array, "heads head"] | None]
    window: eqx.AbstractVar[int]
    num_heads: eqx.AbstractVar[int]
    head_size: eqx.AbstractVar[int]
    query_norm: eqx.AbstractVar[bool]
    gradient: eqx.AbstractVar[str]

    def _stored(self, x: Float[Array, "*time n"]) -> Float[Array, "*time n"]:
        return x if self.gradient == "full" else jax.lax.stop_gradient(x)

    def _own(self, x: Float[Array, "*time n"]) -> tuple[Array | None, Array | None]:
        """Zeros with the gradient of a stopped input's own key and value."""
        if self.gradient == "full":
            return None, None
        stopped = self.keys_values(self._stored(x))
        own = tuple(a - b for a, b in zip(self.keys_values(x), stopped, strict=True))
        return own[0], own[1]

    def keys_values(self, x: Float[Array, "*time n"]) -> tuple[Array, Array]:
        """The key and the value of every input, heads first."""
        normed = x if self.norm is None else self.norm(x)
        return self._heads(self.key(normed)), self._heads(self.value(normed))

    def queries(self, x: Float[Array, "*time n"]) -> tuple[Array, Array]:
        """The queries, scaled, with the content bias and with the distance bias."""
        query = self._heads(self.query(self._asking(x)))
        scale = 1.0 / math.sqrt(self.head_size)
        biases = self._biases()
        if biases is None:
            return query * scale, query * scale
        u, v = (jnp.broadcast_to(b if query.ndim == 2 else b[:, None], query.shape) for b in biases)
        return (query + u) * scale, (query + v) * scale

    def distances(self, count: int) -> Float[Array, "heads count head"]:
        """The projected sinusoids of the distances from 0."""
        return jnp.moveaxis(self._distance_rows(count), 1, 0)

    def _distance_rows(self, count: int) -> Float[Array, "count heads head"]:
        assert self.distance is not None
        table = sinusoids(np.arange(count), self.query.weight.shape[0])
        return self._rows(self.distance(jnp.asarray(table)))

    def _places(self, reach: int, like: Array) -> tuple[Array, Array, Array]:
        """The distances up to `reach` [reach + 1, heads, head] and both biases, for the kernels."""
        biases = self._biases()
        if biases is None:
            nothing = jnp.zeros((self.num_heads, self.head_size), like.dtype)
            return jnp.zeros((0, *nothing.shape), like.dtype), nothing, nothing
        return self._distance_rows(reach + 1), *biases

    def _biases(self) -> tuple[Array, Array] | None:
        if self.content_bias is None or self.distance_bias is None:
            assert self.distance is None, "an attention that shares its biases was used alone"
            return None
        return self.content_bias, self.distance_bias

    def _asking(self, x: Float[Array, "*time n"]) -> Float[Array, "*time n"]:
        return self.norm(x) if self.norm is not None and self.query_norm else x

    def _rows(self, x: Float[Array, "*time wide"]) -> Float[Array, "*time heads head"]:
        return x.reshape(*x.shape[:-1], self.num_heads, self.head_size)

    def _heads(self, x: Float[Array, "*time wide"]) -> Array:
        return jnp.moveaxis(self._rows(x), -2, 0)
