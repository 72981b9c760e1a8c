"""Building blocks of the models: products, norms and nets.

Everything here works on any leading axes, so a whole chunk of time goes through one product.
"""

import math
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import DEEPEST, LARGEST_SIZE, MOST_PARTS, require_at_least, require_choice
from clew.memory.parts import initial
from clew.memory.parts.products import product
from clew.memory.parts.repeated import like

Terms = TypeVar("Terms")

Init = Literal["orthogonal", "lecun", "uniform"]
INITS = ("orthogonal", "lecun", "uniform")


def check_sizes(input_size: int, hidden_size: int, num_layers: int) -> None:
    """Refuses sizes below 1 and those that no machine can hold.

    Raises:
        UserError: naming the size and its value.
    """
    require_at_least("input_size", input_size, 1)
    require_at_least("hidden_size", hidden_size, 1, LARGEST_SIZE)
    require_at_least("num_layers", num_layers, 1, DEEPEST)


def check_heads(num_heads: int, head_size: int) -> None:
    """Refuses zero heads, and more or wider heads than any machine can hold.

    Raises:
        UserError: naming the size and its value.
    """
    require_at_least("num_heads", num_heads, 1, MOST_PARTS)
    require_at_least("head_size", head_size, 1, LARGEST_SIZE)
    require_at_least("num_heads x head_size", num_heads * head_size, 1, LARGEST_SIZE)


def wide(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The array in single precision at least."""
    return x if jnp.finfo(x.dtype).bits >= 32 else x.astype(jnp.float32)


def as_precise(state: jnp.dtype, given: jnp.dtype, terms: Terms) -> tuple[Terms, jnp.dtype]:
    """A step's inputs in the dtype of the state that sums them, and the dtype of its outputs.

    Args:
        state: its dtype, which is at least single precision if the memory made the state: half
            precision would lose what a long sum adds.
        given: the dtype of the inputs; outputs have it too, unless the state is wider than single
            precision.
        terms: the inputs of a step.
    """
    made = jnp.promote_types(given, jnp.float32)
    return jax.tree.map(lambda x: x.astype(state), terms), given if made == state else state


def standardise(x: Float[Array, "*lead n"], epsilon: float) -> Float[Array, "*lead n"]:
    """(x - mean) / sqrt(var + epsilon) over the last axis.

    Half precision could not hold the root's derivative, 1 / sqrt(epsilon)^3.
    """
    centred = wide(x) - jnp.mean(wide(x), axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + epsilon)).astype(x.dtype)


def unit(x: Float[Array, "*lead n"], epsilon: float) -> Float[Array, "*lead n"]:
    """x / sqrt(sum x^2 + epsilon) over the last axis, as wide as in `standardise`."""
    square = jnp.sum(jnp.square(wide(x)), axis=-1, keepdims=True)
    return (wide(x) * jax.lax.rsqrt(square + epsilon)).astype(x.dtype)


class Linear(eqx.Module):
    """An affine map, y = x W + b, over the last axis.

    Shapes: weight [in, out], bias [out] or None; x [..., in] to y [..., out].

    `orthogonal` draws W with orthonormal rows or columns times sqrt(2) (Saxe et al., 2014), as
    Pramanik (2023) does; `lecun` draws a truncated normal of variance 1 / in; their biases start
    at 0. `uniform` draws weights and biases uniformly from -1 / sqrt(in) to 1 / sqrt(in), which is
    PyTorch's default; `fan` replaces the "in" of this rule.

    `blocks` draws W as that many separate matrices [in, out / blocks] side by side. It matters only
    for orthogonal weights: their standard deviation is sqrt(2 / max(in, out / blocks)).
    """

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"] | None

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        key: PRNGKeyArray,
        init: Init = "orthogonal",
        bias: bool = True,
        fan: int | None = None,
        blocks: int = 1,
    ):
        require_choice("init", init, INITS)
        bound = 1.0 / math.sqrt(input_size if fan is None else fan)
        blocks = blocks if init == "orthogonal" else 1
        keys = [key] if blocks == 1 else jax.random.split(key, blocks)
        shape = (input_size, output_size // blocks)
        drawn = [initial.weight(init, k, shape, bound=bound) for k in keys]
        self.weight = drawn[0] if blocks == 1 else jnp.concatenate(drawn, axis=1)
        self.bias = initial.bias(init, key, output_size, bound=bound) if bias else None

    def __call__(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead out"]:
        y = product(x, self.weight)
        return y if self.bias is None else y + like(self.bias, y)


def begin_open(
    linear: Linear,
    chrono: int,
    *,
    key: PRNGKeyArray,
    forgetting: slice | None = None,
    keeping: slice | None = None,
) -> Linear:
    """The same product, with gate biases from `initial.lasting`.

    Args:
        chrono: steps that the longest memories last; 0 leaves the biases as they are.
        key: of the draw; earlier draws from this key stay independent.
        forgetting: the outputs that are forgetting gates, if any.
        keeping: as many outputs that are keeping gates, like an LSTM's f, if any; each starts as 1
            minus its counterpart.

    Raises:
        UserError: for `chrono` of 1 or below 0.
    """
    require_at_least("chrono", chrono, 0)
    if not chrono or linear.bias is None:
        return linear
    require_at_least("chrono", chrono, 2)
    size, bias = len(linear.bias[forgetting or keeping]), linear.bias
    lasting = initial.lasting(jax.random.fold_in(key, 2), size, chrono)
    for gates, begin in ((forgetting, lasting), (keeping, -lasting)):
        bias = bias if gates is None else bias.at[gates].set(begin)
    return eqx.tree_at(lambda made: made.bias, linear, bias)


def with_drawn_bias(linear: Linear, *, key: PRNGKeyArray) -> Linear:
    """The same product, its bias drawn uniformly from -1 / sqrt(in) to 1 / sqrt(in).

    An embedding whose bias starts at 0 turns zero observations into a stream of zeros, where every
    norm has a slope of 1 / sqrt(epsilon), a thousand: the first gradient grows with each layer,
    until it is not finite.

    Args:
        key: of its draw; earlier draws from this key stay independent.
    """
    fan, size = linear.weight.shape
    bias = initial.uniform(initial.beside(key), (size,), 1.0 / math.sqrt(fan))
    return eqx.tree_at(lambda made: made.bias, linear, bias)


class LayerNorm(eqx.Module):
    """Layer normalisation over the last axis, y = scale (x - mean) / sqrt(var + epsilon) + offset.

    Source: Ba et al. (2016). The variance is the biased one.
    """

    scale: Float[Array, " n"]
    offset: Float[Array, " n"]
    epsilon: float = eqx.field(static=True)

    def __init__(self, size: int, epsilon: float = 1e-6):
        self.scale = initial.constant(size, 1.0)
        self.offset = initial.constant(size)
        self.epsilon = epsilon

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        normed = standardise(x, self.epsilon)
        return normed * like(self.scale, x) + like(self.offset, x)


class RMSNorm(eqx.Module):
    """Root-mean-square normalisation over the last axis, y = scale x / sqrt(mean x^2 + 1e-6).

    Source: Zhang and Sennrich (2019).
    """

    scale: Float[Array, " n"]

    def __init__(self, size: int):
        self.scale = initial.constant(size, 1.0)

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        square = jnp.mean(jnp.square(wide(x)), axis=-1, keepdims=True)
        return (wide(x) * jax.lax.rsqrt(square + 1e-6)).astype(x.dtype) * like(self.scale, x)


class MLP(eqx.Module):
    """A position-wise feed-forward net, y = relu(x W_1 + b_1) W_2 + b_2."""

    hidden: Linear
    output: Linear

    def __init__(self, size: int, hidden_size: int, *, key: PRNGKeyArray, init: Init):
        hidden_key, output_key = jax.random.split(key)
        self.hidden = Linear(size, hidden_size, key=hidden_key, init=init)
        self.output = Linear(hidden_size, size, key=output_key, init=init)

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        return self.output(jax.nn.relu(self.hidden(x)))


def relu_layers(
    input_size: int, hidden_size: int, num_layers: int, *, key: PRNGKeyArray, init: Init
) -> tuple[Linear, ...]:
    """The products of a feed-forward net with relu after each of them, see `through_relus`.

    Raises:
        UserError: for a size below 1 or an unknown `init`.
    """
    check_sizes(input_size, hidden_size, num_layers)
    sizes = [input_size] + [hidden_size] * num_layers
    keys = jax.random.split(key, num_layers)
    return tuple(Linear(sizes[i], sizes[i + 1], key=keys[i], init=init) for i in range(num_layers))


def through_relus(layers: tuple[Linear, ...], x: Float[Array, "*lead in"]) -> Array:
    """relu(... relu(x W_1 + b_1) ... W_n + b_n)."""
    for layer in layers:
        x = jax.nn.relu(layer(x))
    return x
