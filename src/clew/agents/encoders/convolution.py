"""Convolution and pooling of pictures [batch, height, width, channels], fast in both directions.

On a CPU, XLA brings a convolution into the one form for which it has fast code, but not inside a
loop, which is where learning happens; its gradients are then ten to thirty times slower. So they
are written here in that form: batch first, channels last, kernels [height, width, in, out], nothing
mirrored. Several kernels side by side (seeds) would become one grouped convolution, which is
equally slow; they are convolved in a loop instead.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, PRNGKeyArray

from clew.memory.parts import initial
from clew.memory.parts.blocks import Init
from clew.memory.parts.repeated import like

Padding = tuple[tuple[int, int], tuple[int, int]]
Product = Callable[[Array, Array], Array]
Picture = Float[Array, "batch height width channels"]
Kernel = Float[Array, "height width in out"]

LAYOUT = ("NHWC", "HWIO", "NHWC")
CACHED = 2**18  # numbers; beyond it a kernel's gradient takes up to seven times as long


class Convolution(eqx.Module):
    """A convolution with a bias over pictures, channels last.

    Shapes: weight [size, size, in, out], bias [out]; x [batch, height, width, in].

    `orthogonal` draws the weights as a matrix [size * size * in, out] with orthonormal rows or
    columns times `gain`; `lecun` and `uniform` as `Linear` does, with size * size * in for "in".

    Args:
        channels: number of channels before and after.
        size: of the square kernel.
        stride: in both directions.
        same: pad with zeros to ceil(height / stride), more after than before if the padding is odd,
            like TensorFlow's SAME; otherwise no padding, its VALID.
        gain: of orthogonal weights.
    """

    weight: Kernel
    bias: Float[Array, " out"]
    stride: int = eqx.field(static=True)
    same: bool = eqx.field(static=True)

    def __init__(
        self,
        channels: tuple[int, int],
        size: int,
        *,
        key: PRNGKeyArray,
        stride: int = 1,
        same: bool = False,
        init: Init = "orthogonal",
        gain: float = 1.0,
    ):
        shape = (size, size, *channels)
        bound = (size * size * channels[0]) ** -0.5
        weight_key, bias_key = jax.random.split(key)
        self.weight = initial.weight(init, weight_key, shape, bound=bound, gain=gain)
        self.bias = initial.constant(channels[1])
        if init == "uniform":
            self.bias = initial.uniform(bias_key, channels[1:], bound)
        self.stride, self.same = stride, same

    def __call__(self, x: Picture, scale: float = 1.0) -> Picture:
        """y = scale (x * W) + b; the scale is multiplied into the weights."""
        weight = self.weight if scale == 1.0 else self.weight * scale
        height, width = (self._padding(n) for n in x.shape[1:3])
        y = cast(Array, convolve(x, weight, self.stride, (height, width)))
        return y + like(self.bias, y)

    def _padding(self, length: int) -> tuple[int, int]:
        if not self.same:
            return 0, 0
        size = self.weight.shape[0]
        total = max(0, (-(-length // self.stride) - 1) * self.stride + size - length)
        return total // 2, total - total // 2


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolve(x: Picture, kernel: Kernel, stride: int, padding: Padding) -> Picture:
    """y[b, i, j, o] = sum x[b, stride i + k - before, stride j + l - before, c] kernel[k, l, c, o].

    Args:
        kernel: in the pictures' dtype.
        padding: zeros before and after the height, and before and after the width.
    """
    return _forward(stride, padding)(x, kernel)


def _fwd(x: Array, kernel: Array, stride: int, padding: Padding) -> tuple[Array, tuple]:
    return _forward(stride, padding)(x, kernel), (x, kernel)


def _bwd(stride: int, padding: Padding, kept: tuple, g: Array) -> tuple[Array, Array]:
    def plain(x: Array, kernel: Array, g: Array) -> tuple[Array, Array]:
        _, back = jax.vjp(lambda x, kernel: _plain(x, kernel, stride, padding), x, kernel)
        return back(g)

    def written_out(x: Array, kernel: Array, g: Array) -> tuple[Array, Array]:
        sizes = (x.shape[1:3], kernel.shape[:2])
        mirrored = jnp.flip(kernel, (0, 1)).swapaxes(2, 3)
        to_x = _backward_x(stride, padding, *sizes)(g, mirrored)
        return to_x, _backward_kernel(stride, padding, *sizes)(x, g)

    return jax.lax.platform_dependent(*kept, g, cpu=written_out, default=plain)


convolve.defvjp(_fwd, _bwd)


def _plain(
    x: Array, kernel: Array, stride: int, padding: Padding, spread: int = 1, apart: int = 1
) -> Array:
    """A convolution of pictures `spread` by zeros, with kernels whose numbers are `apart`."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        padding,
        lhs_dilation=(spread, spread),
        rhs_dilation=(apart, apart),
        dimension_numbers=LAYOUT,
    )


@lru_cache
def _forward(stride: int, padding: Padding) -> Product:
    return _one_by_one(lambda x, kernel: _plain(x, kernel, stride, padding), merge=True)


@lru_cache
def _backward_x(
    stride: int, padding: Padding, size: tuple[int, int], kernel: tuple[int, int]
) -> Product:
    """The gradient of the pictures: the output's, spread by the stride, with mirrored kernels."""

    def run(g: Array, mirrored: Array) -> Array:
        pads = []
        for n, k, out, (low, _) in zip(size, kernel, g.shape[1:3], padding, strict=True):
            before = k - 1 - low
            pads.append((before, n + k - 2 - (out - 1) * stride - before))
        return _plain(g, mirrored, 1, tuple(pads), spread=stride)

    return _one_by_one(run, merge=True)


@lru_cache
def _backward_kernel(
    stride: int, padding: Padding, size: tuple[int, int], kernel: tuple[int, int]
) -> Product:
    """The gradient of the kernel: channels take the place of the batch, and the batch of
    channels."""

    def run(x: Array, g: Array) -> Array:
        pads = []
        for axis, (n, k, (low, _)) in enumerate(zip(size, kernel, padding, strict=True), 1):
            after = k - 1 + (g.shape[axis] - 1) * stride + 1 - n - low
            if after < 0:  # the last pixels, which no kernel reached
                x = jax.lax.slice_in_dim(x, 0, n + after, axis=axis)
            pads.append((low, max(after, 0)))

        def add(total: Array, some: tuple[Array, Array]) -> tuple[Array, None]:
            turned = (some[0].transpose(3, 1, 2, 0), some[1].transpose(1, 2, 0, 3))
            y = _plain(*turned, 1, tuple(pads), apart=stride)
            return total + y.transpose(1, 2, 0, 3), None

        nothing = jnp.zeros((*kernel, x.shape[-1], g.shape[-1]), x.dtype)
        return jax.lax.scan(add, nothing, (_in_chunks(x, g), _in_chunks(g, g)))[0]

    return _one_by_one(run, merge=False)


def _in_chunks(x: Array, g: Array) -> Array:
    """A batch in equal parts, padded with zeros, so small that a part of `g` stays cached."""
    batch = x.shape[0]
    parts = min(batch, -(-g.size // CACHED))
    size = -(-batch // parts)
    padded = jnp.pad(x, [(0, parts * size - batch)] + [(0, 0)] * (x.ndim - 1))
    return padded.reshape(parts, size, *x.shape[1:])


def _one_by_one(run: Product, *, merge: bool) -> Product:
    """The same product, whose `vmap` is a loop; or one product where only the first is mapped."""

    @custom_vmap
    def product(a: Array, b: Array) -> Array:
        return run(a, b)

    @product.def_vmap
    def _(size: int, mapped: list[bool], a: Array, b: Array) -> tuple[Array, bool]:
        if merge and not mapped[1]:
            y = product(a.reshape(-1, *a.shape[2:]), b)
            return y.reshape(size, -1, *y.shape[1:]), True
        a, b = (
            x if is_mapped else jnp.broadcast_to(x, (size, *x.shape))
            for x, is_mapped in zip((a, b), mapped, strict=True)
        )
        return jax.lax.map(lambda pair: product(*pair), (a, b)), True

    return product


def max_pool(x: Picture) -> Picture:
    """The maximum over 3 x 3 with stride 2, padded like TensorFlow's SAME.

    An even height is padded only at the end, an odd one on both sides; padding never wins. Rows are
    pooled before columns: the gradient of a whole window is four times slower on a CPU. Where
    several entries are the largest, they share the gradient.
    """
    return _pool(_pool(x, 1), 2)


def _pool(x: Array, axis: int) -> Array:
    length = x.shape[axis]
    out, before = -(-length // 2), length % 2
    pads = [(0, 0)] * x.ndim
    pads[axis] = (before, 2 * out + 2 - length - before)
    padded = jnp.pad(x, pads, constant_values=-jnp.inf)
    pairs = padded.reshape(*x.shape[:axis], out + 1, 2, *x.shape[axis + 1 :])
    even, odd = (jax.lax.index_in_dim(pairs, i, axis + 1, keepdims=False) for i in (0, 1))
    first, second, third = (
        jax.lax.slice_in_dim(part, start, start + out, axis=axis)
        for part, start in ((even, 0), (odd, 0), (even, 1))
    )
    return jnp.maximum(jnp.maximum(first, second), third)
