"""Distributions over actions equal SciPy's, by formulas and by counting draws."""

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

from clew.agents.distributions import (
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiBinary,
    MultiCategorical,
    TanhGaussian,
    make_distribution,
)
from slow_cases import fast_only

ALL: dict[str, Distribution] = {
    "categorical": Categorical(4, start=-1),
    "one action": Categorical(1),
    "multi": MultiCategorical([[2, 3], [1, 4]], [[0, 1], [2, -3]]),
    "bits": MultiBinary((2, 2)),
    "gaussian": DiagonalGaussian((3, 2), -1.0, 2.0),
    "gaussian head": DiagonalGaussian((3,), log_std="head", initial_log_std=-1.0),
    "scalar gaussian": DiagonalGaussian((), 0.0),
    "tanh": TanhGaussian((3,), [-1.0, 0.0, 5.0], [1.0, 0.5, 5.0]),
    "tanh head": TanhGaussian((2, 2), -2.0, 2.0, log_std="head"),
    "scalar tanh": TanhGaussian((), 0.0, 1.0),
}
DENSITIES = [name for name, d in ALL.items() if isinstance(d, DiagonalGaussian | TanhGaussian)]
CHOICES = [name for name in ALL if name not in DENSITIES]
FEW = ("multi", "bits", "gaussian head", "tanh head")


class Facts(NamedTuple):
    """Everything that a distribution computes from given parameters and noise."""

    action: Any
    mode: Any
    log_prob: Any
    entropy: Any


@eqx.filter_jit
def facts(d: Distribution, parameters: Any, noise: Any) -> Facts:
    """Computes all of it in one compiled program."""
    action = d.sample(parameters, noise)
    log_prob = d.log_prob(parameters, action)
    return Facts(action, d.mode(parameters), log_prob, d.entropy(parameters))


def given(d: Distribution, lead: tuple[int, ...] = (5, 4), seed: int = 0) -> tuple[Any, Any]:
    """Parameters of moderate size, and noise, as NumPy arrays."""
    key, noise_key = jax.random.split(jax.random.key(seed))
    parameters = np.asarray(jax.random.normal(key, (*lead, d.num_parameters)))
    return parameters, np.asarray(d.noise(noise_key, lead))


def actions_of(d: Distribution) -> np.ndarray:
    """Every action that a discrete distribution can draw."""
    sizes: Any = getattr(d, "sizes", [2] * d.num_outputs if isinstance(d, MultiBinary) else None)
    if isinstance(d, Categorical):
        return np.arange(d.num_outputs, dtype=np.int32)
    every = np.array(list(itertools.product(*map(range, sizes))), d.action_dtype)
    return every.reshape(-1, *d.action_shape)


def moments(d: Any, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the normal components, computed by the docstring."""
    of = getattr(d, "normal", d)
    mean, raw = np.split(np.asarray(parameters, np.float64), 2, axis=-1)
    least, most = of.log_std_bounds
    middle, half = (most + least) / 2, (most - least) / 2
    shift = np.arctanh((of.initial_log_std - middle) / half)
    return mean, np.exp(middle + half * np.tanh(raw / half + shift))


@pytest.mark.parametrize("name", fast_only(ALL, *FEW))
def test_any_leading_axes_give_the_same(name: str) -> None:
    """Shapes and types are as declared, and a batch equals its elements."""
    d = ALL[name]
    arrays = given(d)
    batch, one = facts(d, *arrays), facts(d, *(x[2, 1] for x in arrays))
    for together, alone in zip(batch, one, strict=True):
        assert together.shape == (5, 4, *alone.shape) and together.dtype == alone.dtype
        np.testing.assert_allclose(alone, together[2, 1], rtol=1e-5, atol=1e-6)
    assert one.action.shape == one.mode.shape == d.action_shape
    assert one.action.dtype == one.mode.dtype == d.action_dtype
    assert one.log_prob.shape == () and one.log_prob.dtype == jnp.float32
    assert d.num_parameters == d.num_outputs + d.num_free
    assert not jax.tree.leaves(d)


@pytest.mark.parametrize("name", ALL)
def test_free_numbers_are_joined_for_every_element(name: str) -> None:
    d = ALL[name]
    outputs = jax.random.normal(jax.random.key(0), (5, d.num_outputs))
    free = d.initial_free() + 0.5
    joined = d.join(outputs, free)
    assert joined.shape == (5, d.num_parameters) and free.shape == (d.num_free,)
    assert (joined[:, : d.num_outputs] == outputs).all()
    assert (joined[:, d.num_outputs :] == 0.5).all()


def test_the_categorical_is_what_it_always_was() -> None:
    """Noise, actions and log-probabilities equal those of earlier versions bit for bit."""
    d, key = Categorical(5), jax.random.key(3)
    logits = 3.0 * jax.random.normal(jax.random.key(1), (7, 6, 5))
    noise = jax.random.gumbel(key, (7, 6, 5))
    action = jnp.argmax(logits + noise, axis=-1)
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]
    assert (d.noise(key, (7, 6)) == noise).all()
    assert (d.sample(logits, noise) == action).all()
    assert (d.log_prob(logits, action) == log_prob).all()


@pytest.mark.parametrize("name", CHOICES)
def test_choices_against_scipy(name: str) -> None:
    """Over all actions, the probabilities sum to one and the entropy follows its definition."""
    d, every = ALL[name], actions_of(ALL[name])
    p, noise = given(d)
    found = facts(d, p, noise)
    wide = jnp.broadcast_to(p[..., None, :], (5, 4, len(every), p.shape[-1]))
    actions = jnp.broadcast_to(every, (5, 4, *every.shape))
    chances = np.exp(np.asarray(jax.jit(d.log_prob)(wide, actions), np.float64))
    np.testing.assert_allclose(chances.sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found.entropy, stats.entropy(chances, axis=-1), rtol=1e-5, atol=1e-6)
    assert (np.asarray(found.mode) == every[np.argmax(chances, axis=-1)]).all()


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_drawn_as_often_as_they_should(name: str) -> None:
    """Frequencies pass a chi-squared test over 20,000 draws with a fixed seed."""
    d, every = ALL[name], actions_of(ALL[name])
    found = many(d, 20_000)
    rows = np.asarray(found.action).reshape(20_000, -1)
    equal = [(rows == a.reshape(-1)).all(axis=1) for a in every]
    counts = np.array([drawn.sum() for drawn in equal])
    assert counts.sum() == 20_000
    logs = [found.log_prob[np.flatnonzero(drawn)[0]] for drawn in equal]
    expected = np.exp(np.array(logs, np.float64))
    np.testing.assert_allclose(expected.sum(), 1.0, rtol=1e-5)
    if len(every) > 1:
        assert stats.chisquare(counts, 20_000 * expected / expected.sum()).pvalue > 0.001


def many(d: Distribution, number: int) -> Facts:
    """The same parameters with many draws of noise."""
    parameters = given(d, (), seed=2)[0]
    wide = np.broadcast_to(parameters, (number, *parameters.shape))
    return facts(d, wide, d.noise(jax.random.key(7), (number,)))


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_against_scipy(name: str) -> None:
    """log_prob equals SciPy's; a squashed one by the change of variables, a = tanh(u)."""
    d: Any = ALL[name]
    p, noise = given(d)
    found = facts(d, p, noise)
    u = np.asarray(found.action, np.float64).reshape(5, 4, -1)
    mean, std = moments(d, p)
    expected = stats.norm.logpdf(u, mean, std).sum(axis=-1)
    if isinstance(d, TanhGaussian):
        expected -= np.log(1.0 - np.tanh(u) ** 2).sum(axis=-1)
    np.testing.assert_allclose(found.log_prob, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_are_drawn_from(name: str) -> None:
    """Every component passes a Kolmogorov-Smirnov test, and entropy is the mean of -log_prob.

    There are 20,000 draws with a fixed seed; the entropy is within five standard errors.
    """
    d = ALL[name]
    found = many(d, 20_000)
    drawn = np.asarray(found.action).reshape(20_000, -1)
    mean, std = moments(d, given(d, (), seed=2)[0])
    for i in range(drawn.shape[1]):
        assert stats.kstest(drawn[:5_000, i], stats.norm(mean[i], std[i]).cdf).pvalue > 0.001
    np.testing.assert_allclose(np.ravel(found.mode[0]), mean, rtol=1e-6)
    losses = -np.asarray(found.log_prob, np.float64)
    error = losses.std() / np.sqrt(len(losses))
    assert abs(losses.mean() - found.entropy[0]) < 5 * error + 1e-5


@pytest.mark.parametrize("name", fast_only(ALL, *FEW))
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """Gradients of log-probability and entropy, in double precision, in random directions."""
    d = ALL[name]
    p = np.asarray(given(d)[0], np.float64)
    action = facts(d, *given(d)).action
    direction = np.random.default_rng(0).normal(size=p.shape)

    @jax.jit
    def sums(p: Any) -> Any:
        return jnp.stack([jnp.sum(f) for f in (d.log_prob(p, action), d.entropy(p))])

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        slope = np.einsum("ftbn,tbn->f", jax.jit(jax.jacrev(sums))(p), direction)
        step = 1e-6
        difference = (sums(p + step * direction) - sums(p - step * direction)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_spaces_contain_what_is_decoded(name: str) -> None:
    """Host and device decode alike, and the action's space contains every decoded action."""
    d: Any = ALL[name]
    bounds = getattr(getattr(d, "normal", d), "bounds", None)
    space: Any = {
        "categorical": spaces.Discrete(4, start=-1),
        "one action": spaces.Discrete(1),
        "multi": spaces.MultiDiscrete([[2, 3], [1, 4]], start=[[0, 1], [2, -3]]),
        "bits": spaces.MultiBinary((2, 2)),
    }.get(name)
    if bounds is not None:
        limits = (np.reshape(x, bounds.shape).astype(np.float32) for x in (bounds.low, bounds.high))
        space = spaces.Box(*limits, dtype=np.float32)
        kind = "tanh" if isinstance(d, TanhGaussian) else "gaussian"
        of: Any = getattr(d, "normal", d)
        log_std = {"log_std": of.log_std, "initial_log_std": of.initial_log_std}
        assert make_distribution(space, continuous=kind, **log_std) == d
    else:
        assert make_distribution(space) == d
    action = facts(d, *given(d)).action.reshape(20, *d.action_shape)
    host = d.decode(np.asarray(action))
    assert isinstance(host, np.ndarray) and host.dtype == space.dtype
    assert all(space.contains(np.asarray(x)) for x in host)
    on_device = np.asarray(d.decode(action))
    assert on_device.dtype == d.action_dtype
    np.testing.assert_allclose(on_device.astype(np.float64), host, rtol=1e-5, atol=1e-6)
