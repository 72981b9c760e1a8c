"""Whether arrays lie on several devices, as far as JAX's types say."""

from typing import Any

import jax


def placed(arrays: Any) -> bool:
    """Whether the types of some arrays say how they are placed on devices.

    They do on a mesh with explicit axes, and within `jax.shard_map` unless that is given
    `check_vma=False`. JAX's own operations propagate this; our primitives and kernels do not, so
    JAX's own operations must replace them there.
    """
    kinds = [jax.typeof(x) for x in jax.tree.leaves(arrays) if isinstance(x, jax.Array)]
    return any(_varying(kind) or kind.sharding.mesh.explicit_axes for kind in kinds)


def _varying(kind: Any) -> frozenset[str]:
    renamed = hasattr(kind, "mat")  # foreign: JAX's, since 0.10
    return kind.mat.varying if renamed else kind.vma
