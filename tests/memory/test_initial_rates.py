"""The rates of linear recurrences start with the distributions of their papers."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from clew.errors import UserError
from clew.memory import make_memory
from clew.memory.s5 import hippo_normal

KEY = jax.random.key(0)
MANY = 512


def mixer(name: str, **options: Any) -> Any:
    """The mixer of a model with one small layer."""
    options = {"hidden_size": 6, "num_layers": 1, "init": "uniform", **options}
    memory: Any = make_memory(name, input_size=3, key=KEY, **options)
    return memory.layers[0].attention


def is_uniform(values: Any, low: float, high: float) -> bool:
    """Passes the test of Kolmogorov and Smirnov, and lies inside the bounds."""
    values = np.asarray(values, np.float64)
    inside = low * (1 - 1e-5) <= values.min() and values.max() <= high * (1 + 1e-5)
    return bool(inside and stats.kstest(values, "uniform", (low, high - low)).pvalue > 0.01)


def test_an_lru_begins_on_a_ring() -> None:
    """|lambda|^2 and the angle are uniform, and gamma preserves the size of the inputs."""
    made = mixer("lru", state_size=MANY, r_min=0.4, r_max=0.99, max_phase=0.5)
    keep, scale = (np.asarray(part) for part in made.transition())
    assert is_uniform(np.abs(keep) ** 2, 0.4**2, 0.99**2)
    assert is_uniform(np.angle(keep), 0.0, 0.5)
    np.testing.assert_allclose(np.abs(scale) ** 2, 1.0 - np.abs(keep) ** 2, rtol=1e-3)


def test_an_lru_begins_with_finite_numbers() -> None:
    """Also on the whole disc, whose centre and rim have no logarithm."""
    made = mixer("lru", state_size=MANY)
    for array in (made.nu, made.theta, made.log_gamma):
        assert np.all(np.isfinite(array))


@pytest.mark.parametrize("size", [2, 8, 32])
def test_s5_begins_with_the_eigenvalues_of_hippo(size: int) -> None:
    """Those of the normal part of HiPPO-LegS, from its matrix; the vectors are orthonormal."""
    n = np.arange(size)
    hippo = -np.tril(np.sqrt(2 * n[:, None] + 1) * np.sqrt(2 * n[None] + 1), -1) - np.diag(n + 1)
    low_rank = np.sqrt(n + 0.5)
    normal = hippo + np.outer(low_rank, low_rank)
    frequencies, vectors = hippo_normal(size)
    expected = np.linalg.eigvals(normal)
    np.testing.assert_allclose(expected.real, -0.5, atol=1e-9)
    np.testing.assert_allclose(np.sort(expected.imag)[size // 2 :], frequencies, atol=1e-9)
    np.testing.assert_allclose(normal @ vectors, vectors * (-0.5 + 1j * frequencies), atol=1e-9)
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(size // 2), atol=1e-9)


def test_s5_begins_in_blocks_with_steps_of_many_sizes() -> None:
    """Every block has the same eigenvalues, dt is log-uniform, and B is as large as a real one."""
    made = mixer("s5", hidden_size=64, state_size=MANY, num_blocks=32, dt_min=0.002, dt_max=0.2)
    frequencies, _ = hippo_normal(MANY // 32)
    np.testing.assert_allclose(made.imag.reshape(32, -1), np.tile(frequencies, (32, 1)), rtol=1e-6)
    assert np.all(np.asarray(made.real) == -0.5)
    assert is_uniform(-np.asarray(made.log_step), -np.log(0.2), -np.log(0.002))
    # A real B of variance 1 / n has n * P numbers, and half of all pairs has half of the squares.
    assert np.sum(np.square(made.input_matrix)) == pytest.approx(MANY / 2, rel=0.05)
    assert np.var(made.output_matrix) == pytest.approx(1 / MANY, rel=0.05)


def test_an_rg_lru_begins_as_griffin_or_for_long_memories() -> None:
    """a^c is uniform; with chrono the memory lasts up to this many steps where r is 1/2."""
    decay = np.asarray(mixer("rg_lru", inner_size=MANY).decay, np.float64)
    assert is_uniform((1 + np.exp(-decay)) ** -8.0, 0.9, 0.999)
    decay = np.asarray(mixer("rg_lru", inner_size=MANY, chrono=100).decay, np.float64)
    assert is_uniform(1 / (1 - (1 + np.exp(-decay)) ** -4.0), 2, 100)


def test_a_min_lstm_begins_open() -> None:
    """f is 1 - 1/u and i is 1/u, with u uniform up to chrono, so that f + i is 1."""
    bias = mixer("min_lstm", inner_size=MANY, chrono=100).inputs.bias
    f, i, _ = np.split(1 / (1 + np.exp(-np.asarray(bias, np.float64))), 3)
    np.testing.assert_allclose(f + i, 1.0, rtol=1e-6)
    assert is_uniform(1 / i, 2, 100)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lru", {"r_min": 0.9, "r_max": 0.5}, "r_min must be below r_max.*0.9.*0.5"),
        ("lru", {"max_phase": 7.0}, "max_phase.*7.0"),
        ("s5", {"state_size": 12, "num_blocks": 4}, "multiple of 2 num_blocks = 8, got 12"),
        ("s5", {"dt_min": 0.0}, "dt_min.*above 0, got 0.0"),
        ("s5", {"dt_min": 0.5}, "dt_min must not be above dt_max, got 0.5 and 0.1"),
        ("s5", {"activation": "glu"}, "activation.*full_glu"),
        ("rg_lru", {"r_max": 1.0}, "r_max must be between 0 and 1.*1.0"),
        ("rg_lru", {"inner_size": 12, "num_blocks": 5}, "num_blocks must divide.*5 and .* 12"),
    ],
)
def test_impossible_rates_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    """The error has the values."""
    with pytest.raises(UserError, match=message):
        mixer(name, **options)
