"""Several devices: each one computes its shard of the environments.

A program for several devices is the program for one: XLA's partitioner decides from the layouts of
the arrays which device computes what, and adds the communication. It cannot partition custom calls,
such as the kernels of `clew.memory.kernels`, and would compute them whole on every device. So the
network's parts of a program declare that environments are independent: `shard_batch`.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from clew.errors import UserError

Tree = TypeVar("Tree")

AXIS = "devices"
"""Name of the only axis of a mesh."""

Axes = Any
"""The sharded axis of every argument or result, None for replicated ones; a tree in which a leaf
may stand for a whole branch."""

_MESH = contextvars.ContextVar[Mesh | None]("clew_devices", default=None)


def make_mesh(count: int) -> Mesh:
    """A mesh of the first `count` devices of JAX.

    Raises:
        UserError: if there are fewer.
    """
    devices = jax.devices()
    if count > len(devices):
        there = "1 device" if len(devices) == 1 else f"{len(devices)} devices"
        raise UserError(
            f"devices must be at most what JAX has, {there} of kind {devices[0].device_kind}, got "
            f"{count}; on a CPU several can be simulated with XLA_FLAGS="
            f"--xla_force_host_platform_device_count={count} in the environment"
        )
    return Mesh(np.array(devices[:count]), (AXIS,))


def jit_over(mesh: Mesh | None, function: Callable, **options: Any) -> Any:
    """`jax.jit` of a function whose `shard_batch` parts run on the devices of `mesh`, if any."""

    def traced(*args: Any) -> Any:
        with _over(mesh):
            return function(*args)

    return jax.jit(traced, **options)


def shard_count() -> int:
    """Number of shards of the batch in the function being traced."""
    mesh = _MESH.get()
    return 1 if mesh is None else mesh.size


def shard_batch(function: Callable, in_axes: Axes, out_axes: Axes) -> Callable:
    """A function of a batch that every device computes for its shard.

    It is the function itself outside `jit_over`, with one device, and within another `shard_batch`.
    Gradients with respect to replicated arguments are summed over the devices.

    Args:
        function: its result for one member of the batch must not depend on others, and results are
            arrays.
        in_axes: the batch axis of each argument.
        out_axes: the batch axis of each result, never None. All sizes must be multiples of the
            number of devices.
    """
    mesh = _MESH.get()
    if mesh is None:
        return function

    def shared(*args: Any) -> Any:
        arrays, rest = eqx.partition(args, eqx.is_array)

        def own(*arrays: Any) -> Any:
            with _over(None):
                return function(*eqx.combine(arrays, rest))

        specs = {"in_specs": specs_of(in_axes), "out_specs": specs_of(out_axes)}
        return jax.shard_map(own, mesh=mesh, check_vma=False, **specs)(*arrays)

    return shared


def specs_of(axes: Axes) -> Any:
    """The layouts of arrays whose batch has these axes."""
    return jax.tree.map(spec_of, axes, is_leaf=lambda axis: axis is None)


def spec_of(axis: int | None) -> PartitionSpec:
    """The layout of an array whose batch has this axis."""
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, AXIS)


def place_on_devices(tree: Tree, layouts: Any) -> Tree:
    """Places the arrays of a tree on their devices.

    Args:
        tree: of arrays.
        layouts: a tree of shardings in which a leaf may stand for a whole branch; None, as with one
            device, leaves the arrays where they are.
    """
    if not jax.tree.leaves(layouts):
        return tree
    return jax.device_put(tree, layouts)


@contextlib.contextmanager
def _over(mesh: Mesh | None) -> Iterator[None]:
    token = _MESH.set(mesh)
    try:
        yield
    finally:
        _MESH.reset(token)
