"""Mathematical consequences of the models hold, and impossible outputs never occur."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.lab.studies.tmaze.models import ScaledWaves
from clew.memory import MEMORIES, AbstractMemory, make_memory, scan_steps
from clew.memory.laws.runs import unroll
from memory_samples import INPUT_SIZE, episodes, quick_compilation, sample
from oracles.parts import layer_norm, numbers
from oracles.relit import features
from slow_cases import fast_only

__all__ = ["quick_compilation"]

HEADS, HEAD, SIZE = 3, 4, 12
WINDOWED = ("transformer", "transformer_xl", "gtrxl")


def attention_of(name: str, seed: int = 0, **options: Any) -> Any:
    """One attention whose heads are visible: its last product is the identity.

    The biases before the relus are raised, so that no denominator vanishes without epsilon.
    """
    layer: Any = sample(name, 1, seed, hidden_size=SIZE, num_heads=HEADS, head_size=HEAD, **options)
    attention = layer.layers[0].attention
    new = (
        jnp.eye(SIZE),
        jnp.zeros(SIZE),
        attention.features.inputs.bias + jnp.repeat(jnp.array([2.0, 2.0, 0.0, 0.0, 0.0]), SIZE),
        attention.features.maps.bias + 2.0,
    )
    return eqx.tree_at(
        lambda a: (a.output.weight, a.output.bias, a.features.inputs.bias, a.features.maps.bias),
        attention,
        new,
    )


def inputs(time: int, seed: int = 0) -> jax.Array:
    """Random vectors for an attention, [time, SIZE]."""
    return jax.random.normal(jax.random.key(seed), (time, SIZE))


@eqx.filter_jit
def read(attention: Any, xs: jax.Array) -> tuple[Any, jax.Array]:
    """One episode through an attention."""
    return attention.unroll(attention.init_state(), xs, jnp.zeros(len(xs), bool))


def per_head(attention: Any, xs: jax.Array) -> list[list[Any]]:
    """Keys, queries, values and gates in double precision, [head][time]."""
    normed = [layer_norm(attention.norm, x) for x in numbers(xs)]
    f = attention.features
    return [[features(f, x, h, "single") for x in normed] for h in range(HEADS)]


def test_thesis_arelit_with_one_interval_averages_values() -> None:
    """At r = 1 every cosine is 1, so a_t is the gated average of values, whatever the keys are.

    Then the parameters of keys and queries get no gradient; `half_wave` is the repair.
    """
    attention = attention_of("arelit", r=1, frequencies="printed", scale="printed", epsilon=1e-15)
    xs = inputs(20)
    expected = np.zeros((20, HEADS, HEAD))
    for h, head in enumerate(per_head(attention, xs)):
        average = np.zeros(HEAD)
        for t, f in enumerate(head):
            average = (1.0 - f.beta) * average + f.beta * f.v
            expected[t, h] = average
    np.testing.assert_allclose(
        read(attention, xs)[1], expected.reshape(20, -1), rtol=1e-5, atol=1e-5
    )

    def gradient(attention: Any) -> np.ndarray:
        weights = eqx.filter_grad(lambda a: jnp.sum(read(a, xs)[1] ** 2))(attention)
        return np.abs(weights.features.inputs.weight).reshape(SIZE, 5, -1).max(axis=(0, 2))

    keys, queries, values, *_ = gradient(attention)
    assert max(keys, queries) < 1e-5 * values
    repaired = attention_of("arelit", r=1, frequencies="half_wave", epsilon=1e-15)
    keys, queries, values, *_ = gradient(repaired)
    assert min(keys, queries) > 1e-3 * values


@pytest.mark.parametrize("r", [2, 3, 6])
@pytest.mark.parametrize("frequencies", ["printed", "half_wave"])
def test_arelit_is_relit_with_that_delta(frequencies: Any, r: int) -> None:
    """Eq. 4.13: C~_t = sum_ij delta(i, j) l_i (x) m_j, with l and m of Eq. 4.11 and 4.12."""
    attention = attention_of("arelit", r=r, frequencies=frequencies, epsilon=1e-15)
    xs = inputs(9)
    period, constant = (r, 2 / r) if frequencies == "printed" else (2 * r, 0.0)
    expected = np.zeros((9, HEADS, HEAD))
    for h, head in enumerate(per_head(attention, xs)):
        ls, ms = [], []
        for t, f in enumerate(head):
            ls = [(1 - f.beta) * old for old in ls] + [f.beta * f.v]
            ms = [(1 - f.gamma) * old for old in ms] + [f.gamma * f.k]
            for i, l_i in enumerate(ls, start=1):
                for j, m_j in enumerate(ms, start=1):
                    delta = ((i - j) % period == 0) + ((i + j) % period == 0) + constant
                    expected[t, h] += delta * l_i * (m_j @ f.q)
            expected[t, h] /= sum(ms) @ f.q
    actual = read(attention, xs)[1]
    np.testing.assert_allclose(actual, expected.reshape(9, -1), rtol=2e-5, atol=2e-5)


def test_the_code_with_one_vector_is_the_code_with_two() -> None:
    """{-pi} and {-pi, pi} are one oscillator, (-1)^t; three vectors are another function."""
    xs, starts = episodes(40)
    ys = []
    for r in (1, 2, 3):
        memory = sample("arelit", frequencies="code", scale="code", r=r, epsilon=1e-12)
        run = eqx.filter_jit(lambda m: m.unroll(m.init_state(), jnp.asarray(xs), jnp.array(starts)))
        ys.append(run(memory)[1])
    np.testing.assert_allclose(ys[0], ys[1], rtol=1e-5, atol=1e-5)
    assert np.max(np.abs(ys[0] - ys[2])) > 1e-2


@pytest.mark.parametrize("frequencies", ["printed", "half_wave", "code", "full_wave", "odd_wave"])
def test_arelit_is_bounded_by_its_values(frequencies: Any) -> None:
    """|k~| <= s, so that |a_t| <= scale sum_k w_k max |v|, however long the episode is.

    With cosine and sine of each frequency the bound is max |v|.
    """
    attention = attention_of("arelit", r=5, frequencies=frequencies, eta=1)
    xs = 30.0 * inputs(300)
    state, attended = read(attention, xs)
    keys = np.asarray(state.keys)
    assert np.all(np.abs(keys) <= keys[0] * (1 + 1e-5))
    waves = ScaledWaves(frequencies)(5)
    largest = max(np.abs(f.v).max() for head in per_head(attention, xs) for f in head)
    both = frequencies in ("full_wave", "odd_wave")
    bound = largest if both else abs(waves.scale) * waves.weights.sum() * largest
    assert np.max(np.abs(attended)) <= bound * (1 + 1e-5)


def test_gtrxl_acts_and_learns_alike_beyond_its_window() -> None:
    """The published code's learner sees more than its actor from t = window + 1 on; not so here."""
    xs, window = jnp.asarray(episodes(24)[0]), 3
    none = jnp.zeros(24, bool)
    ys = {}
    for banded in (True, False):
        memory = sample("gtrxl", 1, window=window, banded=banded)
        state = memory.init_state()
        ys[banded] = eqx.filter_jit(memory.unroll)(state, xs, none)[1]
        ys["acting"] = eqx.filter_jit(scan_steps)(memory, state, xs, none)[1]
    np.testing.assert_allclose(ys[True], ys["acting"], atol=2e-5)
    np.testing.assert_allclose(ys[False][: window + 1], ys["acting"][: window + 1], atol=2e-5)
    assert np.max(np.abs(ys[False] - ys["acting"])[window + 1 :]) > 1e-3


@pytest.mark.parametrize("name", WINDOWED)
def test_influence_ends_after_layers_times_window_steps(name: str) -> None:
    """x_0 influences y_t up to t = layers * window, and not at all from the next step on."""
    memory, layers, window = sample(name, window=3), 2, 3
    starts = jnp.zeros(12, bool)

    @jax.jit
    def influence(x0: jax.Array) -> jax.Array:
        xs = jnp.asarray(episodes(12)[0]).at[0].set(x0)
        return memory.unroll(memory.init_state(), xs, starts)[1]

    jacobian = np.abs(jax.jacrev(influence)(jnp.ones(INPUT_SIZE))).max(axis=(1, 2))
    assert np.all(jacobian[: layers * window + 1] > 0)
    assert np.all(jacobian[layers * window + 1 :] == 0.0)


@eqx.filter_jit
def loss_and_gradient(memory: AbstractMemory, xs: jax.Array, starts: jax.Array) -> Any:
    """A number that depends on all outputs, and its gradient for the parameters."""
    run = lambda m: jnp.mean(m.unroll(m.init_state(), xs, starts)[1] ** 2)  # noqa: E731
    return eqx.filter_value_and_grad(run)(memory)


def all_finite(tree: Any) -> bool:
    """Whether there is neither NaN nor infinity."""
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))


LONG = ("gtrxl", "linear_transformer", "relit", "arelit")


@pytest.mark.parametrize("name", fast_only(MEMORIES, *LONG))
def test_a_long_chunk_stays_finite(name: str) -> None:
    """2048 steps at once, with large inputs: values and gradients."""
    xs, starts = episodes(2048, rate=0.003)
    memory = sample(name, 1)
    assert all_finite(loss_and_gradient(memory, jnp.asarray(10.0 * xs), jnp.asarray(starts)))


@pytest.mark.parametrize("shift", [-100.0, 100.0])
@pytest.mark.parametrize("name", ["relit", "arelit"])
def test_dead_keys_and_saturated_gates_stay_finite(name: str, shift: float) -> None:
    """Keys and queries that are all zero, gates at 0 or 1: the denominator is epsilon."""
    memory: Any = sample(name, 1)
    xs, starts = (jnp.asarray(a) for a in episodes(2048, rate=0.003))

    def biases(memory: Any) -> tuple[jax.Array, ...]:
        features = memory.layers[0].attention.features
        return features.inputs.bias, features.maps.bias, memory.layers[0].attention_gate.bias

    for dead in (False, True):
        inputs, maps, gate = biases(memory)
        parts = jnp.array(
            [-1000.0, -1000.0, 0.0, shift, shift] if dead else [0, 0, 0, shift, shift]
        )
        shifted = (
            inputs + jnp.repeat(parts, len(inputs) // 5),
            maps + jnp.repeat(jnp.array([0.0, 0.0, shift]), len(maps) // 3),
            gate + shift,
        )
        assert all_finite(loss_and_gradient(eqx.tree_at(biases, memory, shifted), xs, starts))


GATES = {"mlstm": "gates", "slstm": "gates", "mamba2": "rates", "gla": "keep"}


@pytest.mark.parametrize("name", fast_only(GATES, "mlstm", "slstm"))
def test_extreme_gates_stay_finite(name: str) -> None:
    """For gates of exp(700) and exp(-700), values and gradients; a chunk still equals its steps."""
    memory: Any = sample(name, 1)
    xs, starts = (jnp.asarray(a) for a in episodes(40))

    def weight(memory: Any) -> jax.Array:
        return getattr(memory.layers[0].attention, GATES[name]).weight

    memory = eqx.tree_at(weight, memory, 300.0 * weight(memory))
    assert all_finite(loss_and_gradient(memory, xs, starts))
    both = eqx.filter_jit(lambda m: (m.unroll(m.init_state(), xs, starts)[1],
                                     scan_steps(m, m.init_state(), xs, starts)[1]))  # fmt: skip
    np.testing.assert_allclose(*both(memory), rtol=1e-2, atol=1e-2)


def test_a_window_wider_than_the_episode_changes_nothing() -> None:
    """Studies rely on it to reduce computation (`Study.fit_windows`)."""
    length, options = 6, {"hidden_size": 4, "num_layers": 1, "num_heads": 1, "head_size": 4}
    xs = jax.random.normal(jax.random.key(1), (length, 3))
    starts = jnp.arange(length) == 0
    found = []
    for window in (length - 1, 30):
        memory = make_memory(
            "transformer_xl", input_size=3, key=jax.random.key(0), window=window, **options
        )
        found.append(eqx.filter_jit(unroll)(memory, memory.init_state(), xs, starts)[1])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", ["unroll", "step"])
def test_a_compensated_sum_loses_no_observation(way: str) -> None:
    """After as many keys as in 10^8 steps, where a plain float32 sum no longer grows."""
    time, before = 256, 2.0**27
    xs, starts = inputs(time), jnp.zeros(time, bool)
    gained = {}
    for summation in ("plain", "compensated"):
        memory: Any = sample("linear_transformer", 1, summation=summation)
        attention = memory.layers[0].attention
        state = attention.init_state()
        state = state._replace(normaliser=jnp.full_like(state.normaliser, before))
        run = scan_steps if way == "step" else lambda a, *data: a.unroll(*data)
        after = eqx.filter_jit(run)(attention, state, xs, starts)[0]
        gained[summation] = np.asarray(after.normaliser, np.float64) - before
        if after.lost:
            gained[summation] += np.asarray(after.lost[1], np.float64)
    keys = np.asarray(attention._heads(xs)[1], np.float64).sum(axis=0)
    np.testing.assert_allclose(gained["compensated"], keys, rtol=1e-6)
    assert way == "unroll" or np.all(gained["plain"] == 0.0)
