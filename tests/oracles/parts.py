"""Parts that several papers have in common, for one observation at a time, in double precision."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Vector = np.ndarray


class Attention(Protocol):
    """What an oracle of an attention offers: it forgets, and it reads one vector."""

    def forget(self) -> None:
        """Opens an episode."""
        ...

    def read(self, x: Vector) -> Vector:
        """What the attention adds at this time step."""
        ...


def numbers(array: Any) -> np.ndarray:
    """A parameter as it is, in double precision."""
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


def layer_norm(norm: Any, x: Vector) -> Vector:
    """Ba et al. (2016): the biased variance over the vector, epsilon 1e-6 under the root."""
    mean = sum(x) / len(x)
    variance = sum((x - mean) ** 2) / len(x)
    return numbers(norm.scale) * (x - mean) / np.sqrt(variance + 1e-6) + numbers(norm.offset)


def sinusoid(position: int, size: int) -> Vector:
    """Vaswani et al. (2017), section 3.5, all sines first: sin(p / 10000^(2i/d)), then cos."""
    half = (size + 1) // 2
    angles = [position / 10_000.0 ** (2.0 * i / size) for i in range(half)]
    return np.array([np.sin(a) for a in angles] + [np.cos(a) for a in angles])[:size]


def net(mlp: Any, x: Vector) -> Vector:
    """Two products with a relu between."""
    return affine(mlp.output, relu(affine(mlp.hidden, x)))


def gate(gate: Any, x: Vector, y: Vector) -> Vector:
    """Parisotto et al. (2020), section 3.2, GRU-type; or x + y where there is no gate."""
    if type(gate).__name__ == "Residual":
        return x + y
    w_r, w_z, w_g = np.split(numbers(gate.update.weight), 3, axis=1)
    u_r, u_z = np.split(numbers(gate.stream.weight), 2, axis=1)
    u_g = numbers(gate.candidate.weight)
    r = sigmoid(w_r.T @ y + u_r.T @ x)
    z = sigmoid(w_z.T @ y + u_z.T @ x - numbers(gate.bias))
    h = np.tanh(w_g.T @ y + u_g.T @ (r * x))
    return (1.0 - z) * x + z * h


def gtrxl_layer(layer: Any, x: Vector, attended: Vector) -> Vector:
    """Parisotto et al. (2020), section 3.2: relu before the gates, the norm before the net."""
    y = gate(layer.attention_gate, x, relu(attended))
    return gate(layer.mlp_gate, y, relu(net(layer.mlp, layer_norm(layer.mlp_norm, y))))


def pre_norm_layer(layer: Any, x: Vector, attended: Vector) -> Vector:
    """Norms before, plain residual connections."""
    y = x + attended
    return y + net(layer.mlp, layer_norm(layer.mlp_norm, y))


def post_norm_layer(layer: Any, x: Vector, attended: Vector) -> Vector:
    """Vaswani et al. (2017), Figure 1: norm(x + sublayer(x))."""
    y = layer_norm(layer.attention_norm, x + attended)
    return layer_norm(layer.mlp_norm, y + net(layer.mlp, y))


def gru_post_norm_layer(layer: Any, x: Vector, attended: Vector) -> Vector:
    """GRU gates in the place of the residual connections, norms after them."""
    y = layer_norm(layer.attention_norm, gate(layer.attention_gate, x, relu(attended)))
    return layer_norm(layer.mlp_norm, gate(layer.mlp_gate, y, relu(net(layer.mlp, y))))


def layer_kind(gate: str, norm: str) -> Callable[[Any, Vector, Vector], Vector]:
    """The layer's equation by the names of its options."""
    before = {"gru": gtrxl_layer, "residual": pre_norm_layer}
    after = {"gru": gru_post_norm_layer, "residual": post_norm_layer}
    return (before if norm == "before" else after)[gate]


def run_layers(
    memory: Any,
    attentions: list[Attention],
    layer_equation: Callable[[Any, Vector, Vector], Vector],
    embed: Callable[[Vector, int], Vector],
    xs: np.ndarray,
    starts: np.ndarray,
) -> np.ndarray:
    """All layers over a sequence, one observation at a time; `embed` also gets the episode's t."""
    outputs, t = [], 0
    for x, start in zip(numbers(xs), starts, strict=True):
        if start:
            t = 0
            for attention in attentions:
                attention.forget()
        y = embed(x, t)
        for layer, attention in zip(memory.layers, attentions, strict=True):
            y = layer_equation(layer, y, attention.read(y))
        outputs.append(y)
        t += 1
    return np.array(outputs)
