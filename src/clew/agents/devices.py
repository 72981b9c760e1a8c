"""Several devices: what is computed for many environments, each device for its shard of them.

A program over several devices is the program of one: from the layouts of the arrays XLA's
partitioner decides which device computes what, and adds the communication. It cannot partition
custom calls, such as the kernels of `clew.memory.kernels`, and would compute them whole on every
device. So the network's parts of a program say that environments are independent: `shard_batch`.
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
"""The sharded axis of every argument or result, None for what every device has whole; a tree, of
which a leaf may stand for a whole branch."""

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
            f"{count}; on a processor some can be simulated, by XLA_FLAGS="
            f"--xla_force_host_platform_device_count={count} in the environment"
        )
    return Mesh(np.array(devices[:count]), (AXIS,))


def jit_over(mesh: Mesh | None, function: Callable, **options: Any) -> Any:
    """`jax.jit` of a function whose parts `shard_batch` are for the devices of `mesh`, if any."""

    def traced(*args: Any) -> Any:
        with _over(mesh):
            return function(*args)

    return jax.jit(traced, **options)


def shard_count() -> int:
    """Number of shards of the batch in what is being traced."""
    mesh = _MESH.get()
    return 1 if mesh is None else mesh.size


def shard_batch(function: Callable, in_axes: Axes, out_axes: Axes) -> Callable:
    """A function of a batch, computed by every device for its shard of the batch.

    It is the function itself outside of `jit_over`, with one device, and within itself. The
    gradient with respect to what every device has whole is summed over the devices.

    Args:
        function: no result for one member of the batch may depend on another, and results are
            arrays.
        in_axes: of the batch in the arguments, one for each.
        out_axes: of the batch in the results, none None. All sizes must be multiples of the
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
    """The arrays of a tree where they belong.

    Args:
        tree: of arrays.
        layouts: a tree of shardings, a leaf of which may stand for a whole branch; None, as with
            one device, leaves things where they are.
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
