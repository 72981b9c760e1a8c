"""The gated recurrent unit."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import DEEPEST, LARGEST_SIZE, require_at_least, require_choice
from clew.memory.base import State
from clew.memory.kernels import Backend, uses_kernel
from clew.memory.kernels.cells import CellKernel
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.cells import AbstractCell, CellStack, InitPer
from clew.memory.parts.maps import MemoryMap


class GRUCell(AbstractCell):
    """One layer of a `GRU`: `inputs` holds W and b, `recurrent` U, and `step` is the equation.

    `recurrent_bias` is c, or with `all_biases` also those of r and z before it.
    """

    inputs: Linear
    recurrent: Linear
    recurrent_bias: Float[Array, " biases"]
    size: int = eqx.field(static=True)
    backend: Backend = eqx.field(static=True)
    kernel: ClassVar[CellKernel] = "gru"

    def __init__(
        self,
        input_size: int,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        init_per: InitPer = "product",
        all_biases: bool = False,
        backend: Backend = "auto",
    ):
        input_key, recurrent_key = jax.random.split(key)
        blocks = 3 if init_per == "gate" else 1
        recurrent = Linear(size, 3 * size, key=recurrent_key, init=init, blocks=blocks)
        assert recurrent.bias is not None
        self.inputs = Linear(
            input_size, 3 * size, key=input_key, init=init, fan=size, blocks=blocks
        )
        self.recurrent_bias = recurrent.bias if all_biases else recurrent.bias[2 * size :]
        self.recurrent = eqx.tree_at(lambda linear: linear.bias, recurrent, None)
        self.size = size
        self.backend = backend

    def init_state(self) -> State:
        """A zero output h."""
        return jnp.zeros(self.size, self.recurrent.weight.dtype)

    def offset(self) -> Float[Array, " gates"]:
        """The biases of the recurrent product; [0 | 0 | c] unless the cell has all of them."""
        return jnp.pad(self.recurrent_bias, (3 * self.size - len(self.recurrent_bias), 0))

    def output(self, state: Float[Array, " size"]) -> Float[Array, " size"]:
        """The state is h."""
        return state

    def step(
        self,
        state: Float[Array, " size"],
        xw: Float[Array, " gates"],
        hu: Float[Array, " gates"],
    ) -> Float[Array, " size"]:
        """h_t from h = h_{t-1}, xw = x_t W + b and hu = h U + c."""
        h = state
        r, z, xw_n, hu_n = self._gates(xw, hu)
        n = jnp.tanh(xw_n + r * hu_n)
        return n + z * (h - n)

    def maps(
        self, projected: Float[Array, "*lead gates"], product: Float[Array, "*lead gates"]
    ) -> dict[str, MemoryMap]:
        """What is kept of h, z, and how far the reset gate is open, r."""
        r, z, _, _ = self._gates(projected, product)
        return {"z": MemoryMap(z, "keep"), "r": MemoryMap(r, "gate")}

    def _gates(self, projected: Array, product: Array) -> tuple[Array, Array, Array, Array]:
        x_r, x_z, x_n = jnp.split(projected, 3, axis=-1)
        h_r, h_z, h_n = jnp.split(product, 3, axis=-1)
        return jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z), x_n, h_n


class GRU(CellStack):
    """The GRU.

        r = sigmoid(x_t W_r + h U_r + b_r)        z = sigmoid(x_t W_z + h U_z + b_z)
        n = tanh(x_t W_n + b_n + r * (h U_n + c))  h_t = (1 - z) * n + z * h,   h = h_{t-1}

    Shapes: x [input_size] to h [hidden_size]; the state of a layer is h.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        hidden_size: width of h.
        num_layers: cells on top of each other.
        all_biases: whether the recurrent products of r and z have biases beside b, which add
            nothing that b could not, as in PyTorch and what was published with it.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        init_per: what is one orthogonal matrix: "product", the three gates side by side, or "gate",
            each by itself, as in flax and in Pramanik's code; then the recurrent weights are
            sqrt 3 times as large, and the memory chain is learned by more seeds
            (`results/initial-weights`). PyTorch's are uniform. The other draws do not differ by it.
        backend: what computes a chunk: "kernel", "xla" or "auto"; see `Backend`.

    Raises:
        UserError: for a size below 1, an unknown choice, or a kernel that cannot be built.

    Source: Cho et al. (2014), eq. 5-8. Deviation: the reset gate acts after the product,
    r * (h U_n + c), as the usual libraries have it; the paper has (r * h) U_n.
    """

    cells: tuple[GRUCell, ...]
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        hidden_size: int = 128,
        num_layers: int = 1,
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
        sizes = [input_size] + [hidden_size] * num_layers
        keys = jax.random.split(key, num_layers)
        self.cells = tuple(
            GRUCell(
                sizes[i],
                hidden_size,
                key=keys[i],
                init=init,
                init_per=init_per,
                all_biases=all_biases,
                backend=backend,
            )
            for i in range(num_layers)
        )
        self.input_size = input_size
        self.output_size = hidden_size
