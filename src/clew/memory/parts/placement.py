"""Arrays that lie on several devices, as far as JAX's types tell."""

from typing import Any

import jax


def placed(arrays: Any) -> bool:
    """Whether the types of some arrays say how they lie on devices.

    They do on a mesh with explicit axes, and within `jax.shard_map` unless that is given
    `check_vma=False`. JAX's own operations hand it on; primitives of ours and kernels do not, so
    that what is made of JAX's own operations has to stand in for them.
    """
    kinds = [jax.typeof(x) for x in jax.tree.leaves(arrays) if isinstance(x, jax.Array)]
    return any(_varying(kind) or kind.sharding.mesh.explicit_axes for kind in kinds)


def _varying(kind: Any) -> frozenset[str]:
    renamed = hasattr(kind, "mat")  # foreign: JAX's, since 0.10
    return kind.mat.varying if renamed else kind.vma
