"""The code shared by all memories in JAX, whichever library they are from."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from serve import Arrays, Sizes

Chunk = Callable[[Any, jax.Array, jax.Array], jax.Array]
Step = Callable[[Any, Any, jax.Array, jax.Array], tuple[Any, jax.Array]]


class JaxSubject:
    """A memory as functions of its parameters, compiled for one size.

    Args:
        sizes, arrays: as `serve` passes them.
        params: a tree of floating-point arrays.
        chunk: (params, xs, starts) to outputs, time first or batch first, from a fresh state.
        step: (params, state, xs, starts) to the state and outputs of one observation each.
        state: a number of actors to their fresh states.
        gather: maps gradients in the tree of `params` to the names of `arrays`.
        batch_first: the layout that `chunk` wants.
        takes_starts: whether `chunk` heeds the starts.
        loss: (outputs, arrays) to a number; if None, the sum of the products with "cotangent".
    """

    def __init__(
        self,
        sizes: Sizes,
        arrays: Arrays,
        *,
        params: Any,
        chunk: Chunk,
        step: Step,
        state: Callable[[int], Any],
        gather: Callable[[Any], Arrays],
        batch_first: bool = False,
        takes_starts: bool = True,
        loss: Callable[[jax.Array, dict[str, jax.Array]], jax.Array] | None = None,
    ):
        self.takes_starts = takes_starts
        self._sizes, self._params, self._gather = sizes, params, gather
        self._fresh, self._batch_first, self._loss = state, batch_first, loss
        self._chunk, self._step = jax.jit(chunk), jax.jit(step)
        self._xs, self._starts = self._native(arrays["inputs"]), self._native(arrays["starts"])
        named = ("cotangent", "actions", "advantages", "returns")
        self._targets = {n: self._native(arrays[n]) for n in named if n in arrays}
        self._learn: Any = None

    def facts(self) -> dict[str, Any]:
        """Counted from the parameters."""
        leaves = jax.tree.leaves(self._params)
        weights = sum(leaf.size for leaf in leaves if leaf.ndim > 1)
        return {"parameters": sum(leaf.size for leaf in leaves), "weights": weights}

    def plan(self, mode: str) -> int | None:
        """XLA's own plan of the compiled program's memory."""
        if mode == "act":
            self._actors = self._fresh(self._sizes.actors)
            self._x = jnp.zeros((self._sizes.actors, self._sizes.width))
            self._going_on = jnp.zeros(self._sizes.actors, bool)
            return None
        # A policy reads observations, which need no gradient; a memory's inputs come from layers.
        of = (0, 1) if self._loss is None else (0,)
        gradient = jax.jit(jax.grad(self._total, argnums=of))
        arguments = (self._params, self._xs, self._starts, self._targets)
        self._learn = gradient.lower(*arguments).compile()
        plan = self._learn.memory_analysis()
        whole = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
        return whole - plan.alias_size_in_bytes

    def learn(self) -> Any:
        """Gradients for the parameters and, for a memory, for its inputs."""
        arguments = (self._params, self._xs, self._starts, self._targets)
        return jax.block_until_ready(self._learn(*arguments))

    def act(self) -> Any:
        """One observation for every actor."""
        self._actors, y = self._step(self._params, self._actors, self._x, self._going_on)
        return jax.block_until_ready(y)

    def result(self) -> Arrays:
        """Outputs, and gradients by library-independent names."""
        outputs = self._from_native(self._chunk(self._params, self._xs, self._starts))
        gradients = self.learn()
        found = self._gather(gradients[0])
        if self._loss is None:
            found["inputs"] = self._from_native(gradients[1])
        return {"outputs": outputs} | {n: np.asarray(x) for n, x in found.items()}

    def read(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """A chunk from a fresh state."""
        native = self._native(xs), self._native(starts)
        return self._from_native(self._chunk(self._params, *native))

    def read_by_steps(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The same, one observation at a time."""
        state, outputs = self._fresh(xs.shape[1]), []
        for x, start in zip(xs, starts, strict=True):
            state, y = self._step(self._params, state, jnp.asarray(x), jnp.asarray(start))
            outputs.append(np.asarray(y))
        return np.stack(outputs)

    def _total(self, params: Any, xs: Any, starts: Any, targets: Any) -> jax.Array:
        outputs = self._chunk(params, xs, starts)
        if self._loss is not None:
            return self._loss(outputs, targets)
        return jnp.sum(outputs * targets["cotangent"])

    def _native(self, x: np.ndarray) -> jax.Array:
        return jnp.asarray(x.swapaxes(0, 1) if self._batch_first else x)

    def _from_native(self, x: Any) -> np.ndarray:
        return np.asarray(x.swapaxes(0, 1) if self._batch_first else x)


def parts(arrays: Arrays, count: int) -> tuple[Any, ...]:
    """Input weights, recurrent weights and biases, each split by gate."""
    names = ("input_weight", "recurrent_weight", "bias")
    return tuple(jnp.split(jnp.asarray(arrays[n]), count, -1) for n in names)


def joined(gates: Any) -> np.ndarray:
    """Concatenates gates."""
    return np.concatenate([np.asarray(gate) for gate in gates], -1)
