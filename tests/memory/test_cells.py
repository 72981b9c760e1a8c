"""Recurrent cells read chunks in batches whose parts may be shared."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memory_samples import episodes, sample
from slow_cases import fast_only

TIME, COUNT = 9, 3
PARTS = ("parameters", "state", "observations", "starts")


def parts(name: str, backend: str) -> tuple[Any, tuple[Any, ...]]:
    """The memory's static half, and `COUNT` of each of `PARTS`."""
    memory = sample(name, num_layers=1, backend=backend)
    params, static = eqx.partition(memory, eqx.is_inexact_array)
    random = np.random.default_rng(3)
    state = jax.tree.map(
        lambda x: random.standard_normal((COUNT, *x.shape)).astype(np.float32), memory.init_state()
    )
    xs, starts = zip(*(episodes(TIME, seed=seed, rate=0.3) for seed in range(COUNT)), strict=True)
    growth = [1 + 0.1 * i for i in range(COUNT)]
    params = jax.tree.map(lambda x: np.stack([np.asarray(x) * g for g in growth]), params)
    return static, (params, state, np.stack(xs), np.stack(starts))


@pytest.mark.parametrize("own", PARTS)
@pytest.mark.parametrize("backend", fast_only(["auto", "xla"], "auto"))
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_any_part_may_be_shared(name: str, backend: str, own: str) -> None:
    """Gradients, also compiled inside, equal those of the members one by one."""
    static, many = parts(name, backend)
    axes = tuple(0 if part == own else None for part in PARTS)

    def take(x: Any, i: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[i], x)

    given = tuple(x if axis == 0 else take(x, 0) for x, axis in zip(many, axes, strict=True))

    def one(params: Any, *rest: Any) -> Any:
        memory: Any = eqx.combine(params, static)
        return memory.unroll(*rest)

    def alone(*args: Any) -> Any:
        members = [
            one(*(take(x, i) if axis == 0 else x for x, axis in zip(args, axes, strict=True)))
            for i in range(COUNT)
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)

    def gradient(read: Any) -> Any:
        def total(*floats: Any) -> Any:
            return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(read(*floats, given[3])))

        return jax.grad(total, (0, 1, 2))

    found = gradient(jax.jit(jax.vmap(one, axes)))(*given[:3])
    expected = jax.jit(gradient(alone))(*given[:3])
    for a, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)
