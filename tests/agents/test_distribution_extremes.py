"""Distributions over actions at the limits of floating point, and what they refuse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import integrate, stats

from clew.agents.distributions import (
    Bounds,
    Categorical,
    DiagonalGaussian,
    MultiBinary,
    MultiCategorical,
    TanhGaussian,
    make_distribution,
)
from clew.errors import UserError


@pytest.mark.parametrize("d", [Categorical(3), MultiCategorical([3]), MultiBinary((3,))])
def test_certain_choices_are_finite(d: Any) -> None:
    """Logits of a thousand give no NaN in values or gradients, and an entropy of 0."""
    logits = jnp.array([1000.0, -1000.0, -1000.0])

    def total(x: Any) -> Any:
        return d.entropy(x) + d.log_prob(x, d.mode(-x))

    assert d.entropy(logits) == 0.0 and np.isfinite(total(logits))
    assert np.isfinite(jax.grad(total)(logits)).all()


@pytest.mark.parametrize("far", [5.0, 12.0, 50.0, 1000.0])
def test_a_saturated_tanh_keeps_its_density(far: float) -> None:
    """If tanh(u) = 1 in float32, log_prob equals a computation with an exact 1 - tanh(u)^2."""
    d = TanhGaussian((1,), -1.0, 1.0)
    log_prob = jax.jit(jax.value_and_grad(d.log_prob))
    for u in (far, -far):
        parameters = jnp.array([0.9 * u, 0.0])
        exact = stats.norm.logpdf(u, 0.9 * u) - 2.0 * (np.log(2.0) - abs(u))  # cosh is exp / 2
        exact += 2.0 * np.log1p(np.exp(-2.0 * abs(u)))
        found, slope = log_prob(parameters, jnp.array([u]))
        np.testing.assert_allclose(found, exact, rtol=2e-6, atol=1e-5)
        assert np.isfinite(slope).all()
        assert d.decode(np.array([u], np.float32)) == pytest.approx(np.tanh(u))
        assert np.abs(d.decode(jnp.array([u]))) <= 1.0


def expected_slope(mean: float, std: float) -> float:
    """E log(1 - tanh(u)^2) of a normal u, by adaptive quadrature."""

    def weighed(u: float) -> float:
        return stats.norm.pdf(u, mean, std) * -2.0 * (np.logaddexp(u, -u) - np.log(2.0))

    ends = (mean - 12 * std, mean + 12 * std)
    return integrate.quad(weighed, *ends, points=[0.0, mean], limit=400, epsabs=1e-10)[0]


@pytest.mark.parametrize(
    ("log_std", "error"), [(-4.9, 5e-6), (0.6, 5e-6), (1.38, 3e-4), (1.9, 8e-3)]
)
def test_the_entropy_of_a_squashed_normal_is_as_near_as_it_says(
    log_std: float, error: float
) -> None:
    d = TanhGaussian((1,), -1.0, 1.0, initial_log_std=log_std)
    for mean in (0.0, 0.4, -1.7, 9.0):
        exact = stats.norm.entropy(scale=np.exp(log_std)) + expected_slope(mean, np.exp(log_std))
        assert abs(d.entropy(jnp.array([mean, 0.0])) - exact) < error + 1e-6 * abs(mean)


def test_the_deviation_stays_within_its_bounds_and_comes_back() -> None:
    """This holds for any raw number; near the bounds the gradient leads back from either side."""
    d = DiagonalGaussian((1,), initial_log_std=-1.0, log_std_bounds=(-3.0, 0.5))
    for raw, bound in ((1e6, 0.5), (-1e6, -3.0)):
        assert d.mean_and_log_std(jnp.array([0.0, raw]))[1] == pytest.approx(bound)
        slope = jax.grad(lambda p: d.entropy(p))(jnp.array([0.0, np.sign(raw) * 5.0]))
        assert slope[1] > 0
    assert d.mean_and_log_std(jnp.zeros(2))[1] == pytest.approx(-1.0)


def test_what_the_environment_gets_is_within_the_limits() -> None:
    """Clipped and squashed actions do, even if the limits are not float32 numbers, or enormous."""
    for dtype in (np.float32, np.float64, np.float16):
        limits = np.array([[-0.1, 1e-3], [0.3, 1e4]]).astype(dtype)
        space = spaces.Box(*limits, dtype=dtype)
        for kind in ("gaussian", "tanh"):
            d = make_distribution(space, continuous=kind)
            for u in (1e6, -1e6, 0.05, 0.0):
                action = d.decode(np.full(2, u, np.float32))
                assert isinstance(action, np.ndarray) and action.dtype == dtype
                assert space.contains(action), (kind, dtype, action)
    huge = TanhGaussian((1,), -np.finfo(np.float32).max, np.finfo(np.float32).max)
    assert np.isfinite(huge.decode(np.array([30.0], np.float32))).all()
    half = DiagonalGaussian((2,), [0.0, -np.inf], [np.inf, 1.0])
    assert half.decode(np.array([-2.0, 2.0], np.float32)).tolist() == [0.0, 1.0]
    assert half.decode(jnp.array([5.0, -7.0])).tolist() == [5.0, -7.0]


def test_an_action_of_a_small_type_is_one_of_the_space() -> None:
    """It is an integer of the environment's own type, counted from its first value."""
    space = spaces.Discrete(3, start=-7, dtype=np.int8)
    d = make_distribution(space)
    found = d.decode(np.arange(3, dtype=np.int32))
    assert found.tolist() == [-7, -6, -5] and found.dtype == np.int8
    assert d.decode(jnp.arange(3)).tolist() == [-7, -6, -5]


MISTAKES = {
    "a dictionary": (
        lambda: make_distribution(spaces.Dict(a=spaces.Discrete(2))),
        "Dict.*expected Disc",
    ),
    "text": (lambda: make_distribution(spaces.Text(5)), "Text.*not supported"),
    "whole numbers": (
        lambda: make_distribution(spaces.Box(0, 9, (2,), np.int64)),
        "int64.*floating",
    ),
    "an open box": (
        lambda: make_distribution(spaces.Box(-np.inf, 1, (2,)), continuous="tanh"),
        "finite limits, got -inf and 1.0 in component 0.*choose gaussian, with ppo or a2c",
    ),
    "no component": (lambda: make_distribution(spaces.Box(0, 1, (0,))), "at least one component"),
    "no choice": (
        lambda: make_distribution(spaces.MultiDiscrete([])),
        "nvec must have at least one",
    ),
    "an unknown kind": (
        lambda: make_distribution(spaces.Box(0, 1), continuous="gausian"),
        "'gaussian'",
    ),
    "an unknown deviation": (lambda: make_distribution(spaces.Box(0, 1), log_std="fre"), "'free'"),
    "a far start": (lambda: make_distribution(spaces.Discrete(3, start=2**31)), "2147483648"),
    "no action": (lambda: Categorical(0), "n must be an integer of at least 1, got 0"),
    "no bit": (lambda: MultiBinary((0,)), "number of bits"),
    "an empty choice": (lambda: MultiCategorical([2, 0]), "nvec.*got 0"),
    "another start": (lambda: MultiCategorical([2, 2], [0]), "shape"),
    "limits reversed": (
        lambda: Bounds((2,), [0.0, 1.0], [1.0, 0.0]),
        "got 1.0 and 0.0 in number 1",
    ),
    "no limit": (lambda: Bounds((1,), np.nan, 1.0), "got nan"),
    "limits of another shape": (lambda: Bounds((2,), [0.0] * 3, 1.0), r"\(2,\), got \(3,\)"),
    "a deviation out of bounds": (lambda: DiagonalGaussian((1,), initial_log_std=2.0), "got 2.0"),
    "endless bounds": (
        lambda: DiagonalGaussian((1,), log_std_bounds=(-np.inf, 0.5)),
        "finite",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    """The error is one line with the value and the expectation."""
    mistake, message = MISTAKES[name]
    with pytest.raises(UserError, match=message) as error:
        mistake()
    assert "\n" not in str(error.value)
