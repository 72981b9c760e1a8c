"""Convolutional encoders of pictures: the IMPALA ResNet and the Nature CNN."""

import abc
import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from clew.agents.encoders.base import (
    CHANNELS,
    FEATURES,
    AbstractEncoder,
    activate,
    in_precision,
    leading_axes,
)
from clew.agents.encoders.convolution import Convolution, Picture, max_pool
from clew.errors import UserError
from clew.memory.parts.blocks import Init, Linear


class ResidualBlock(eqx.Module):
    """x + conv(relu(conv(relu(x)))), both 3 x 3 and padded."""

    first: Convolution
    second: Convolution

    def __init__(self, channels: int, *, key: PRNGKeyArray, init: Init):
        keys = jax.random.split(key)
        self.first, self.second = (
            Convolution((channels, channels), 3, key=k, same=True, init=init) for k in keys
        )

    def __call__(self, x: Picture, nonlinearity: str) -> Picture:
        inner = activate(self.first(activate(x, nonlinearity)), nonlinearity)
        return x + self.second(inner)


class Stage(eqx.Module):
    """A padded 3 x 3 convolution, `max_pool`, and two residual blocks."""

    convolution: Convolution
    blocks: tuple[ResidualBlock, ResidualBlock]

    def __init__(self, channels: tuple[int, int], *, key: PRNGKeyArray, init: Init):
        keys = jax.random.split(key, 3)
        self.convolution = Convolution(channels, 3, key=keys[0], same=True, init=init)
        first, second = (ResidualBlock(channels[1], key=k, init=init) for k in keys[1:])
        self.blocks = (first, second)

    def __call__(self, x: Picture, nonlinearity: str, scale: float) -> Picture:
        x = max_pool(self.convolution(x, scale))
        for block in self.blocks:
            x = block(x, nonlinearity)
        return x


class Frame(eqx.Module):
    """The layout of pictures: [height, width, channels], or channels first, or without channels.

    Channels are first if that axis is the shortest of the three, as with stacked frames; otherwise
    they are last. Bytes are divided by 255, in the weights of the first convolution, so that half
    precision does not round them.

    Raises:
        UserError: for another number of axes, or an empty one.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    def __init__(self, shape: tuple[int, ...], *, is_bytes: bool):
        if len(shape) not in (2, 3) or 0 in shape:
            raise UserError(
                f"a picture must be of shape [height, width, channels], got {list(shape)}; choose "
                "mlp for other observations"
            )
        self.shape, self.scale = shape, 1.0 / 255.0 if is_bytes else 1.0

    @property
    def channels_first(self) -> bool:
        """Whether the first axis is the shortest."""
        return len(self.shape) == 3 and self.shape[0] < min(self.shape[1:])

    @property
    def size(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        first, second, *rest = self.shape
        if not rest:
            return first, second, 1
        return (second, rest[0], first) if self.channels_first else (first, second, rest[0])

    def __call__(self, x: Shaped[Array, "..."], precision: str) -> Picture:
        """Pictures with their leading axes merged and their channels last."""
        count = math.prod(leading_axes(x, self.shape))
        x = x.reshape(count, *self.shape).astype(precision)
        return jnp.moveaxis(x, 1, -1) if self.channels_first else x.reshape(count, *self.size)


class PictureEncoder(AbstractEncoder):
    """Convolutions of a picture, then relu(x W + b).

    Args:
        frame: the layout of pictures.
        channels: of the stages or convolutions; by default the published ones.
        features: size of the output; 0 for the published one.
        nonlinearity: relu as published, or elu as in Sample Factory.
        precision: of all computations.

    Raises:
        UserError: for a picture that is too small.
    """

    output: eqx.AbstractVar[Linear]
    frame: Frame
    output_size: int = eqx.field(static=True)
    nonlinearity: str = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(
        self,
        frame: Frame,
        *,
        key: PRNGKeyArray,
        channels: Sequence[int] = (),
        features: int = 0,
        nonlinearity: str = "relu",
        precision: str = "float32",
        init: Init = "orthogonal",
    ):
        name = type(self).__name__.lower()
        widths = tuple(channels) or CHANNELS[name]
        height, width, depth = frame.size
        *keys, output_key = jax.random.split(key, len(widths) + 1)
        self.build(list(itertools.pairwise((depth, *widths))), keys, init)
        if not self.side(min(height, width)):
            least = next(n for n in itertools.count() if self.side(n))
            raise UserError(
                f"{name} needs pictures of at least {least} x {least}, got {height} x {width} with "
                f"{depth} channels; choose mlp"
            )
        flat_size = self.side(height) * self.side(width) * widths[-1]
        self.output_size = features or FEATURES[name]
        self.output = Linear(flat_size, self.output_size, key=output_key, init=init)
        self.frame, self.nonlinearity, self.precision = frame, nonlinearity, precision

    @abc.abstractmethod
    def build(self, channels: list[tuple[int, int]], keys: list[PRNGKeyArray], init: Init) -> None:
        """Draws the convolutions, of channels before and after each."""

    @abc.abstractmethod
    def side(self, length: int) -> int:
        """The length of a picture's side after the convolutions; 0 if the picture is too small."""

    @abc.abstractmethod
    def convolve(self, x: Picture, scale: float) -> Picture:
        """The convolutions of scaled pictures, and the nonlinearity after the last one."""

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*lead out"]:
        lead, net = leading_axes(x, self.frame.shape), in_precision(self, self.precision)
        y = net.convolve(self.frame(x, self.precision), self.frame.scale).reshape(*lead, -1)
        return activate(net.output(y), self.nonlinearity).astype(jnp.float32)


class Impala(PictureEncoder):
    """The deep residual network of IMPALA: three stages, then relu, x W + b and relu.

    A stage is a 3 x 3 convolution, a maximum over 3 x 3 with stride 2, and two residual blocks.
    Everything is padded like TensorFlow's SAME, as published: a picture of even size gets a pool's
    padding only below and on the right (PyTorch ports pad on all sides, so their weights do not
    fit). A picture of 64 x 64 x 3 takes 622,144 parameters.

    As published, stages have 16, 32 and 32 channels and the output 256 features (512 in Sample
    Factory). `orthogonal` starts the convolutions with gain 1 (as in Sample Factory) and the last
    layer with sqrt(2); `lecun` is that of the published code.

    Source: Espeholt et al. (2018), Figure 3, right, without its LSTM, and its published code.
    """

    stages: tuple[Stage, ...]
    output: Linear

    def build(self, channels: list[tuple[int, int]], keys: list[PRNGKeyArray], init: Init) -> None:
        pairs = zip(channels, keys, strict=True)
        self.stages = tuple(Stage(pair, key=key, init=init) for pair, key in pairs)

    def side(self, length: int) -> int:
        halved = 2 ** len(self.stages)
        return -(-length // halved) if length >= halved else 0

    def convolve(self, x: Picture, scale: float) -> Picture:
        for stage in self.stages:
            x, scale = stage(x, self.nonlinearity, scale), 1.0
        return activate(x, self.nonlinearity)


class Nature(PictureEncoder):
    """The network of the first deep Q-learner on Atari: three convolutions and a layer.

    32 of 8 x 8 with stride 4, 64 of 4 x 4 with stride 2, 64 of 3 x 3, none padded, each followed by
    relu, then x W + b and relu, of 512 features. A picture of 84 x 84 x 4 takes 1,684,128
    parameters. `orthogonal` starts every layer with gain sqrt(2).

    Source: Mnih et al. (2015), Methods, "Model architecture".
    """

    convolutions: tuple[Convolution, ...]
    output: Linear
    kernels: ClassVar = ((8, 4), (4, 2), (3, 1))
    """Sides and strides."""

    def build(self, channels: list[tuple[int, int]], keys: list[PRNGKeyArray], init: Init) -> None:
        self.convolutions = tuple(
            Convolution(pair, n, key=key, stride=stride, init=init, gain=math.sqrt(2.0))
            for pair, (n, stride), key in zip(channels, self.kernels, keys, strict=True)
        )

    def side(self, length: int) -> int:
        for n, stride in self.kernels:
            length = max(0, (length - n) // stride + 1)
        return length

    def convolve(self, x: Picture, scale: float) -> Picture:
        for convolution in self.convolutions:
            x, scale = activate(convolution(x, scale), self.nonlinearity), 1.0
        return x
