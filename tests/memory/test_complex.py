"""Memories with complex parameters and states obey the laws."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from toy_memories import Waves, build

from clew.errors import UserError
from clew.memory.base import check_step_input
from clew.memory.laws import check
from clew.memory.laws.replay import stored_floats
from memory_samples import quick_compilation
from own_lru import LRU
from slow_cases import fast_only

__all__ = ["quick_compilation"]
pytestmark = pytest.mark.usefixtures("ordinary_promotion")

LENGTHS = (1, 5)


class LateLRU(LRU):
    """Learns with its reset one step late, as PufferLib's MinGRU does."""

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Shifts the flags."""
        return super().unroll(state, xs, jnp.roll(starts, 1).at[0].set(False))


class StaleWaves(Waves):
    """Rebuilds its complex values, and stops the gradient to the parameters behind them."""

    def refresh(self, state: Any) -> Any:
        """No gradient to `value`."""
        value = jax.lax.stop_gradient(self.value)
        return super().refresh(state)._replace(values=state.hidden @ value)


def lru(kind: type[LRU] = LRU) -> LRU:
    """Three numbers in and out, with eight complex numbers in between."""
    return kind(3, key=jax.random.key(0))


def waves(kind: type[Waves] = Waves) -> Waves:
    """A window with complex values."""
    turned = jnp.exp(1j * jnp.arange(6.0).reshape(3, 2))
    memory = build(kind)
    return kind(memory.query, memory.key, memory.value * turned)


@pytest.mark.parametrize("make", fast_only([lru, waves], waves))
@pytest.mark.parametrize("precision", fast_only(["float32", "float64"], "float32"))
def test_a_sound_one_passes(make: Any, precision: Any) -> None:
    """Up to rounding, also in the gradients of complex arrays."""
    report = check(make(), lengths=LENGTHS, precision=precision)
    limit = 1e-5 if precision == "float32" else 1e-13
    laws = ("causal", "reset", "stream", "split", "replay", "batch")
    assert max(max(report.largest(law)) for law in laws) < limit
    assert report.warnings == []


@pytest.mark.parametrize("precision", fast_only(["float32", "float64"], "float32"))
def test_a_late_reset_is_named(precision: Any) -> None:
    """With its deviation, which is larger than rounding."""
    report = check(lru(LateLRU), lengths=LENGTHS, precision=precision, raise_on_failure=False)
    first, second = report.failures[:2]
    assert (first.law, second.law) == ("reset", "stream") and first.place == "output[t=0]"
    assert 0.01 < second.amount < 10 and second.tolerance < 1e-4


@pytest.mark.slow
def test_a_stopped_gradient_of_a_complex_cache_is_named() -> None:
    """By finite differences of the cache's complex parameter."""
    report = check(waves(StaleWaves), lengths=(5,), precision="float64", raise_on_failure=False)
    assert [failure.law for failure in report.failures] == ["refresh"]
    assert "the gradient that passes refresh" in report.failures[0].place


def test_a_complex_number_is_two() -> None:
    assert stored_floats(lru()) == 16


def test_observations_are_real_and_as_precise_as_the_parameters() -> None:
    """Whatever mixture of float32 and complex64 these are."""
    memory, start = lru(), jnp.array(False)
    with jax.enable_x64(True):
        assert check_step_input(memory, jnp.zeros(3, jnp.float64), start).dtype == jnp.float32
    with pytest.raises(UserError, match="expected x of type floating, got complex64"):
        check_step_input(memory, jnp.zeros(3, jnp.complex64), start)
