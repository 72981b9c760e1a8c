"""RG-LRU with parts removed, minGRU with those added: the remaining equations hold."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.rg_lru_parts import MinGRUParts, RGLRUParts
from scipy.special import expit

from clew.memory import RGLRU, AbstractMemory, MinGRU, scan_steps

STEPS = 6


def made(kind: Any, **options: Any) -> Any:
    return kind(3, key=jax.random.key(0), hidden_size=4, num_layers=1, **options)


def draw(seed: int, size: int) -> jax.Array:
    """The observations of a chunk."""
    return jax.random.normal(jax.random.key(seed), (STEPS, size))


def read(memory: AbstractMemory) -> np.ndarray:
    """The outputs for a chunk in which an episode starts."""
    xs, starts = draw(1, 3), jnp.arange(STEPS) == 3
    ys = memory.unroll(memory.init_state(), xs, starts)[1]
    by_steps = scan_steps(memory, memory.init_state(), xs, starts)[1]
    np.testing.assert_allclose(by_steps, ys, atol=1e-6)
    return np.asarray(ys)


def mixed(mixer: Any, keep: Any, add: Any, gate: Any) -> np.ndarray:
    """The mixer's output by its equation, step by step, from zeros."""
    h, ys = jnp.zeros(4), []
    for k, a, g in zip(keep, add, gate, strict=True):
        h = k * h + a
        ys.append(mixer.output(h * g))
    return np.stack(ys)


def test_with_all_parts_and_with_none_they_are_the_librarys() -> None:
    np.testing.assert_allclose(read(made(RGLRUParts)), read(made(RGLRU, conv=0)), atol=1e-6)
    np.testing.assert_allclose(read(made(MinGRUParts)), read(made(MinGRU)), atol=1e-6)


@pytest.mark.parametrize(
    "away", [{"output_gate": False}, {"input_gate": False}, {"scale": "rest"}, {"scale": "one"}]
)
def test_rg_lru_without_a_part(away: dict[str, Any]) -> None:
    mixer, xs = made(RGLRUParts, **away).layers[0].attention, draw(2, 4)
    u, v = np.split(np.asarray(mixer.inputs(mixer.norm(xs))), 2, axis=-1)
    r, i = np.split(expit(mixer.gates(u)), 2, axis=-1)
    a = expit(mixer.decay) ** (8.0 * r)
    scale = {"rest": 1.0 - a, "one": 1.0}.get(away.get("scale", ""), np.sqrt(1.0 - a**2))
    add = scale * (i if away.get("input_gate", True) else 1.0) * u
    gate = jax.nn.gelu(v) if away.get("output_gate", True) else np.ones_like(v)
    ys = mixer.unroll(mixer.init_state(), xs, np.zeros(STEPS, bool))[1]
    np.testing.assert_allclose(ys, mixed(mixer, a, add, gate), atol=1e-5)


@pytest.mark.parametrize("added", [{"output_gate": True}, {"root": True}])
def test_min_gru_with_a_part(added: dict[str, bool]) -> None:
    mixer, xs = made(MinGRUParts, chrono=9, **added).layers[0].attention, draw(2, 4)
    x = mixer.norm(xs)
    z, h = np.split(np.asarray(mixer.inputs(x)), 2, axis=-1)
    keep = expit(-z)
    add = (np.sqrt(1.0 - keep**2) if "root" in added else 1.0 - keep) * h
    gate = jax.nn.gelu(mixer.reader(x)) if "output_gate" in added else np.ones_like(h)
    ys = mixer.unroll(mixer.init_state(), xs, np.zeros(STEPS, bool))[1]
    np.testing.assert_allclose(ys, mixed(mixer, keep, add, gate), atol=1e-5)
