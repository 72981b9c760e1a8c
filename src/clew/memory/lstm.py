"""The long short-term memory."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import sigmoid
from jax.numpy import tanh
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import DEEPEST, LARGEST_SIZE, UserError, require_at_least, require_choice
from clew.memory.base import State
from clew.memory.kernels import Backend, uses_kernel
from clew.memory.kernels.cells import CellKernel
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.cells import AbstractCell, CellStack, InitPer
from clew.memory.parts.maps import MemoryMap


class LSTMCell(AbstractCell):
    """One layer of an `LSTM`: `inputs` holds W and b, `recurrent` U, and `step` is the equation."""

    inputs: Linear
    recurrent: Linear
    recurrent_bias: Float[Array, " gates"] | None
    size: int = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)
    kernel: ClassVar[CellKernel] = "lstm"

    def __init__(
        self,
        input_size: int,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        init_per: InitPer,
        forget_bias: float,
        all_biases: bool,
        backend: Backend,
    ):
        input_key, recurrent_key = jax.random.split(key)
        blocks = 4 if init_per == "gate" else 1
        inputs = Linear(input_size, 4 * size, key=input_key, init=init, fan=size, blocks=blocks)
        recurrent = Linear(size, 4 * size, key=recurrent_key, init=init, blocks=blocks)
        assert inputs.bias is not None
        bias = inputs.bias.at[size : 2 * size].add(forget_bias)
        self.inputs = eqx.tree_at(lambda linear: linear.bias, inputs, bias)
        self.recurrent_bias = recurrent.bias if all_biases else None
        self.recurrent = eqx.tree_at(lambda linear: linear.bias, recurrent, None)
        self.size = size
        self.backend = backend

    def init_state(self) -> State:
        """Zero cell and zero output, (c, h)."""
        zeros = jnp.zeros(self.size, self.recurrent.weight.dtype)
        return zeros, zeros

    def offset(self) -> Float[Array, " gates"]:
        """The biases of the recurrent product; zeros unless the cell has them."""
        if self.recurrent_bias is None:
            return jnp.zeros(4 * self.size, self.recurrent.weight.dtype)
        return self.recurrent_bias

    def output(self, state: tuple[Array, Array]) -> Float[Array, " size"]:
        """The h of (c, h)."""
        return state[1]

    def step(
        self,
        state: tuple[Array, Array],
        xw: Float[Array, " gates"],
        hu: Float[Array, " gates"],
    ) -> tuple[Array, Array]:
        """(c_t, h_t) from (c_{t-1}, h_{t-1}), xw = x_t W + b and hu = h_{t-1} U."""
        c, _ = state
        i, f, g, o = jnp.split(xw + hu, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return c, sigmoid(o) * tanh(c)

    def maps(
        self, projected: Float[Array, "*lead gates"], product: Float[Array, "*lead gates"]
    ) -> dict[str, MemoryMap]:
        """What is kept of c, f, and how far the input and output gates are open, i and o."""
        i, f, _, o = (sigmoid(x) for x in jnp.split(projected + product, 4, axis=-1))
        return {"f": MemoryMap(f, "keep"), "i": MemoryMap(i, "gate"), "o": MemoryMap(o, "gate")}


class LSTM(CellStack):
    """The LSTM with a forget gate.

        [i | f | g | o] = x_t W + b + h_{t-1} U
        c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
        h_t = sigmoid(o) * tanh(c_t)

    Shapes: x [input_size] to h [hidden_size]; the state of a layer is (c, h).

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        hidden_size: width of c and h.
        num_layers: cells on top of each other.
        forget_bias: where the forget gate's bias starts; the baseline of Pramanik (2023) has 0,
            1 keeps the cell longer at the start of training.
        all_biases: whether the recurrent products have biases beside b, which add nothing that b
            could not, as in PyTorch and what was published with it.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        init_per: what is one orthogonal matrix: "product", the four gates side by side, or "gate",
            each by itself, as in flax and in Pramanik's code; then the recurrent weights are
            twice as large, and the T-Maze and the memory chain are learned by more seeds
            (`results/initial-weights`). PyTorch's are uniform. The other draws do not differ by it.
        backend: what computes a chunk: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for a size below 1, an unknown choice, or a kernel that cannot be built.

    Source: Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000).
    Deviation: none in the equations.
    """

    cells: tuple[LSTMCell, ...]
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        hidden_size: int = 128,
        num_layers: int = 1,
        forget_bias: float = 0.0,
        all_biases: bool = False,
        init: Init = "orthogonal",
        init_per: InitPer = "gate",
        backend: Backend = "auto",
    ):
        require_at_least("input_size", input_size, 1)
        require_choice("init_per", init_per, ("product", "gate"))
        require_at_least("hidden_size", hidden_size, 1, LARGEST_SIZE)
        require_at_least("num_layers", num_layers, 1, DEEPEST)
        uses_kernel(backend)
        if not math.isfinite(forget_bias):
            raise UserError(f"forget_bias must be a finite number, got {forget_bias!r}")
        sizes = [input_size] + [hidden_size] * num_layers
        keys = jax.random.split(key, num_layers)
        self.cells = tuple(
            LSTMCell(
                sizes[i],
                hidden_size,
                key=keys[i],
                init=init,
                init_per=init_per,
                forget_bias=float(forget_bias),
                all_biases=all_biases,
                backend=backend,
            )
            for i in range(num_layers)
        )
        self.input_size = input_size
        self.output_size = hidden_size
