"""The IMPALA ResNet and the Nature CNN, one position of one picture after another."""

from typing import Any

import numpy as np

from oracles.parts import affine, numbers, relu


def same(length: int, size: int, stride: int) -> tuple[int, int]:
    """TensorFlow's SAME: enough for ceil(length / stride) places, the odd one at the end."""
    places = int(np.ceil(length / stride))
    total = max((places - 1) * stride + size - length, 0)
    return total // 2, total - total // 2


def padded(x: np.ndarray, size: int, stride: int, value: float) -> np.ndarray:
    """A picture [height, width, channels] with its SAME padding."""
    pads = [same(n, size, stride) for n in x.shape[:2]]
    return np.pad(x, [*pads, (0, 0)], constant_values=value)


def windows(x: np.ndarray, size: int, stride: int) -> Any:
    """Every position (row, column) and the window there."""
    for row in range((x.shape[0] - size) // stride + 1):
        for column in range((x.shape[1] - size) // stride + 1):
            top, left = row * stride, column * stride
            yield row, column, x[top : top + size, left : left + size]


def places(x: np.ndarray, size: int, stride: int) -> tuple[int, int]:
    """Number of rows and columns of places."""
    return (x.shape[0] - size) // stride + 1, (x.shape[1] - size) // stride + 1


def convolution(module: Any, x: np.ndarray, size: int, stride: int, *, pad: bool) -> np.ndarray:
    """y[r, c, o] = sum of window times kernel o, plus b_o."""
    x = padded(x, size, stride, 0.0) if pad else x
    kernel, bias = numbers(module.weight), numbers(module.bias)
    y = np.empty((*places(x, size, stride), kernel.shape[-1]))
    for row, column, window in windows(x, size, stride):
        for o in range(kernel.shape[-1]):
            y[row, column, o] = np.sum(window * kernel[..., o]) + bias[o]
    return y


def pool(x: np.ndarray) -> np.ndarray:
    """The largest of 3 x 3 with stride 2."""
    x = padded(x, 3, 2, -np.inf)
    y = np.empty((*places(x, 3, 2), x.shape[-1]))
    for row, column, window in windows(x, 3, 2):
        y[row, column] = window.max(axis=(0, 1))
    return y


def impala(encoder: Any, picture: np.ndarray) -> np.ndarray:
    """Espeholt et al. (2018), Figure 3, right, and the published code: bytes over 255 at first."""
    x = numbers(picture) / 255.0
    for stage in encoder.stages:
        x = pool(convolution(stage.convolution, x, 3, 1, pad=True))
        for block in stage.blocks:
            inner = convolution(block.first, relu(x), 3, 1, pad=True)
            x = x + convolution(block.second, relu(inner), 3, 1, pad=True)
    return relu(affine(encoder.output, relu(x).reshape(-1)))


def nature(encoder: Any, picture: np.ndarray) -> np.ndarray:
    """Mnih et al. (2015), Methods: 8 x 8 by 4, 4 x 4 by 2, 3 x 3 by 1, and a layer."""
    x = numbers(picture) / 255.0
    for module, size, stride in zip(encoder.convolutions, (8, 4, 3), (4, 2, 1), strict=True):
        x = relu(convolution(module, x, size, stride, pad=False))
    return relu(affine(encoder.output, x.reshape(-1)))
