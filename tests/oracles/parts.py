"""Parts that several papers share, for one observation at a time, in double precision."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Vector = np.ndarray


class Attention(Protocol):
    """The interface of an attention's oracle: it forgets, and it reads one vector."""

    def forget(self) -> None:
        """Opens an episode."""
        ...

    def read(self, x: Vector) -> Vector:
        """The attention's output at this time step."""
        ...


def numbers(array: Any) -> np.ndarray:
    """A parameter in double precision."""
    return np.asarray(array, dtype=np.float64)


def affine(linear: Any, x: Vector) -> Vector:
    """W^T x + b, where the bias may be missing."""
    y = numbers(linear.weight).T @ x
    return y if linear.bias is None else y + numbers(linear.bias)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def relu(x: Any) -> Any:
    """max(x, 0)."""
    return np.maximum(x, 0.0)


def softmax(scores: list[float]) -> list[float]:
    """exp(s_j) / sum_i exp(s_i)."""
    top = max(scores)
    powers = [np.exp(s - top) for s in scores]
    return [p / sum(powers) for p in powers]


def layer_norm(norm: Any, x: Vector, epsilon: float = 1e-6) -> Vector:
    """Ba et al. (2016): the biased variance over the vector, epsilon under the root."""
    mean = sum(x) / len(x)
    variance = sum((x - mean) ** 2) / len(x)
    return numbers(norm.scale) * (x - mean) / np.sqrt(variance + epsilon) + numbers(norm.offset)


def silu(x: Any) -> Any:
    """x sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Any) -> Any:
    """Hendrycks and Gimpel (2016), the approximation by tanh."""
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def rms_norm(norm: Any, x: Vector) -> Vector:
    """Zhang and Sennrich (2019), epsilon 1e-6 under the root."""
    return numbers(norm.scale) * x / np.sqrt(x @ x / len(x) + 1e-6)


def convolve(convolution: Any, seen: list[Vector]) -> Vector:
    """The sum over the last steps of an episode, of which `seen` has the inputs."""
    weight = numbers(convolution.weight)
    last = seen[-len(weight) :]
    return numbers(convolution.bias) + sum(
        w * x for w, x in zip(weight[-len(last) :], last, strict=True)
    )


def sinusoid(position: int, size: int) -> Vector:
    """Vaswani et al. (2017), section 3.5, all sines first: sin(p / 10000^(2i/d)), then cos."""
    half = (size + 1) // 2
    angles = [position / 10_000.0 ** (2.0 * i / size) for i in range(half)]
    return np.array([np.sin(a) for a in angles] + [np.cos(a) for a in angles])[:size]


def net(mlp: Any, x: Vector) -> Vector:
    """Two products with a relu between."""
    return affine(mlp.output, relu(affine(mlp.hidden, x)))


def gru_gate(gate: Any, x: Vector, y: Vector) -> Vector:
    """Parisotto et al. (2020), section 3.2, GRU-type."""
    w_r, w_z, w_g = np.split(numbers(gate.update.weight), 3, axis=1)
    u_r, u_z = np.split(numbers(gate.stream.weight), 2, axis=1)
    u_g = numbers(gate.candidate.weight)
    r = sigmoid(w_r.T @ y + u_r.T @ x)
    z = sigmoid(w_z.T @ y + u_z.T @ x - numbers(gate.bias))
    h = np.tanh(w_g.T @ y + u_g.T @ (r * x))
    return (1.0 - z) * x + z * h


def run_cells(
    cell: Callable[[Any, Vector, Any], tuple[Vector, ...]],
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    sizes: Callable[[Any], tuple[int, ...]] = lambda memory: (memory.output_size,),
) -> np.ndarray:
    """Cells on top of each other, whose states are zeros at a start.

    `cell` has weights, input and state and gives the next state, h first; `sizes` are its parts'.
    """
    fresh = tuple(np.zeros(size) for size in sizes(memory))
    outputs, state = [], [fresh for _ in memory.cells]
    for x, start in zip(numbers(xs), starts, strict=True):
        for layer, weights in enumerate(memory.cells):
            state[layer] = cell(weights, x, fresh if start else state[layer])
            x = state[layer][0]
        outputs.append(x)
    return np.array(outputs)
