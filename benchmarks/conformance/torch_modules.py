"""PyTorch modules of other libraries as memories, called from JAX's programs.

A library reads whole batches, as it does in training: `vmap` passes all members in one call. The
gradient is PyTorch's, computed for one member at a time, which is read twice in a batch of two. So
one member's NaN never reaches another's gradient through the shared parameters, and libraries that
require more than one member have two.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array, Bool, Float

from clew.memory.base import AbstractMemory, State

Tensors = tuple[torch.Tensor, ...]


class TorchCalls(NamedTuple):
    """A library's own functions, on batches. `module` has the requested precision."""

    begin: Callable[[Any, int], Sequence[torch.Tensor]]
    """Maps module and batch size to the initial state, tensors [batch, ...]."""
    read: Callable[[Any, Tensors, torch.Tensor, torch.Tensor], tuple[Sequence, torch.Tensor]]
    """Reads a chunk: module, state, observations [batch, time, in] and starts [batch, time] to the
    state and outputs [batch, time, out]."""
    step: Callable[[Any, Tensors, torch.Tensor, torch.Tensor], tuple[Sequence, torch.Tensor]]
    """Reads one observation: [batch, in], starts [batch]; to the state and outputs [batch, out]."""


class TorchModule(AbstractMemory):
    """A memory of another library, a PyTorch module; its parameters are JAX arrays."""

    parameters: tuple[Array, ...]
    host: "Host" = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(
        self, module: torch.nn.Module, calls: TorchCalls, input_size: int, output_size: int
    ):
        self.host = Host(module, calls, output_size)
        self.parameters = tuple(jnp.asarray(p.detach().numpy()) for p in learned(module))
        self.input_size, self.output_size = input_size, output_size

    def init_state(self) -> State:
        """The library's own state before an episode."""
        return tuple(jnp.asarray(leaf[0]) for leaf in self.host.begin())

    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        """The library's step."""
        return _read(self.host, "step", self.parameters, state, x, start)

    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        """The library's chunk."""
        return _read(self.host, "read", self.parameters, state, xs, starts)


def learned(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that have a gradient."""
    return [p for p in module.parameters() if p.requires_grad]


class Host:
    """A module on PyTorch's side of a call."""

    def __init__(self, module: torch.nn.Module, calls: TorchCalls, output_size: int):
        self.modules = {"float32": module, "float64": copy.deepcopy(module).double()}
        self.calls, self.output_size = calls, output_size

    def begin(self) -> list[np.ndarray]:
        """The initial state of one member, [1, ...]."""
        with torch.no_grad():
            return [t.detach().numpy() for t in self.calls.begin(self.modules["float32"], 1)]

    def forward(self, way: str, parameters: Any, state: Any, x: Any, start: Any) -> Any:
        """State and outputs after the call named `way`; with or without a batch axis."""
        batched, (state, x, start) = self._batch(way, (state, x, start))
        with self._ready(parameters, batched, x.dtype) as module, torch.no_grad():
            after, ys = self._call(way, module, state, x, start)
        found = (tuple(t.numpy() for t in after), ys.numpy())
        return found if batched else jax.tree.map(lambda array: array[0], found)

    def backward(
        self, way: str, parameters: Any, state: Any, x: Any, start: Any, cotangents: Any
    ) -> Any:
        """Gradients of parameters, state and observations, one member at a time."""
        batched, (state, x, start, cotangents) = self._batch(way, (state, x, start, cotangents))
        with self._ready(parameters, batched, x.dtype) as module:
            data = (state, x, start, cotangents)
            members = [
                self._pull(way, module, *jax.tree.map(lambda a, b=b: a[b], data))
                for b in range(len(x))
            ]
        if not batched:
            return members[0]
        return jax.tree.map(lambda *arrays: np.stack(arrays), *members)

    def _pull(self, way: str, module: Any, state: Any, x: Any, start: Any, cotangents: Any) -> Any:
        """Gradients of the first of two equal members."""
        leaves = [torch.from_numpy(np.stack([a, a])).requires_grad_() for a in (*state, x)]
        after, ys = self._call(way, module, tuple(leaves[:-1]), leaves[-1], np.stack([start] * 2))
        backs = [torch.from_numpy(np.stack([a, 0 * a]).conj()) for a in _flat(cotangents)]
        pairs = [pair for pair in zip((*after, ys), backs, strict=True) if pair[0].requires_grad]
        wanted = [*learned(module), *leaves]
        found: Sequence[Any] = [None] * len(wanted)
        if pairs:
            outputs, weights = zip(*pairs, strict=True)
            found = torch.autograd.grad(outputs, wanted, weights, allow_unused=True)
        arrays = [
            np.zeros(like.shape, x.dtype)
            if gradient is None
            else gradient.resolve_conj().numpy().conj()
            for like, gradient in zip(wanted, found, strict=True)
        ]
        count = len(wanted) - len(leaves)
        return tuple(arrays[:count]), tuple(a[0] for a in arrays[count:-1]), arrays[-1][0]

    def _call(self, way: str, module: Any, state: Any, x: Any, start: Any) -> Any:
        call = self.calls.step if way == "step" else self.calls.read
        given = [torch.as_tensor(t) for t in (*state, x, start)]
        after, ys = call(module, tuple(given[:-2]), given[-2], given[-1])
        return [t.contiguous() for t in after], ys.contiguous()

    def _batch(self, way: str, data: Any) -> tuple[bool, Any]:
        """Arrays with equally many members, and whether there was a batch axis; they are copies."""
        data = jax.tree.map(np.asarray, data)
        batched = data[1].ndim == (2 if way == "step" else 3)
        if not batched:
            return False, jax.tree.map(lambda a: np.array(a)[None], data)
        size = max(len(leaf) for leaf in jax.tree.leaves(data))
        return True, jax.tree.map(lambda a: np.repeat(a, size // len(a), axis=0), data)

    @contextmanager
    def _ready(self, parameters: Any, batched: bool, dtype: Any) -> Iterator[torch.nn.Module]:
        """The module in a precision, with these parameters."""
        module = self.modules[np.dtype(dtype).name]
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.from_numpy(np.zeros(0, dtype)).dtype)
        try:
            with torch.no_grad():
                for own, given in zip(learned(module), parameters, strict=True):
                    array = np.array(given)
                    own.copy_(torch.from_numpy(array[0] if batched else array))
            yield module
        finally:
            torch.set_default_dtype(before)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _read(host: Host, way: str, parameters: Any, state: Any, x: Array, start: Array) -> Any:
    shape = (*x.shape[:-1], host.output_size)
    like = jax.tree.map(_shape, (state, jax.ShapeDtypeStruct(shape, x.dtype)))
    call = partial(host.forward, way)
    return jax.pure_callback(call, like, parameters, state, x, start, vmap_method="expand_dims")


def _forward(host: Host, way: str, *data: Any) -> Any:
    return _read(host, way, *data), data


def _backward(host: Host, way: str, data: Any, cotangents: Any) -> Any:
    like = jax.tree.map(_shape, data[:3])
    call = partial(host.backward, way)
    found = jax.pure_callback(call, like, *data, cotangents, vmap_method="expand_dims")
    return *found, None


def _flat(cotangents: Any) -> list[np.ndarray]:
    """The cotangents of the state followed by those of the outputs."""
    of_state, of_outputs = cotangents
    return [*of_state, of_outputs]


def _shape(array: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


_read.defvjp(_forward, _backward)


def cut_at_starts(
    begin: Callable[[Any, int], Sequence[torch.Tensor]],
    read: Callable[[Any, Tensors, torch.Tensor], tuple[Sequence, torch.Tensor]],
    step: Callable[[Any, Tensors, torch.Tensor], tuple[Sequence, torch.Tensor]],
) -> TorchCalls:
    """The calls of a library without starts, as a careful caller makes them.

    Members whose episodes start at the same steps are read together, and their chunk is cut there.
    """

    def together(module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor) -> Any:
        """Groups members whose episodes start at the same steps."""
        cuts = torch.nonzero(starts[0]).flatten().tolist()
        edges = [0, *[cut for cut in cuts if cut], xs.shape[1]]
        outputs = []
        for first, last in zip(edges, edges[1:], strict=False):
            state = renewed(begin, module, state, starts[:, first])
            after, ys = read(module, state, xs[:, first:last])
            state = tuple(after)
            outputs.append(ys)
        return state, torch.cat(outputs, 1)

    def chunk(module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor) -> Any:
        _, groups = torch.unique(starts, dim=0, return_inverse=True)
        rows = [torch.nonzero(groups == group).flatten() for group in range(int(groups.max()) + 1)]
        found = [together(module, tuple(t[r] for t in state), xs[r], starts[r]) for r in rows]
        order = torch.argsort(torch.cat(rows))
        states = zip(*[state for state, _ in found], strict=True)
        after = tuple(torch.cat(leaves)[order] for leaves in states)
        return after, torch.cat([ys for _, ys in found])[order]

    def one(module: Any, state: Tensors, x: torch.Tensor, start: torch.Tensor) -> Any:
        return step(module, renewed(begin, module, state, start), x)

    return TorchCalls(begin, chunk, one)


def renewed(
    begin: Callable[[Any, int], Sequence[torch.Tensor]],
    module: Any,
    state: Tensors,
    start: torch.Tensor,
) -> Tensors:
    """The state [batch, ...], reset wherever an episode starts."""
    return chosen(start, begin(module, len(start)), state)


def chosen(first: torch.Tensor, one: Sequence[Any], other: Sequence[Any]) -> Tensors:
    """`one` where `first` [batch] is true, `other` elsewhere; by selection."""
    masks = [first.view(-1, *[1] * (leaf.ndim - 1)) for leaf in other]
    return tuple(torch.where(m, a, b) for m, a, b in zip(masks, one, other, strict=True))
