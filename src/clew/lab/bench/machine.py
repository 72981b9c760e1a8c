"""The machine that measures: its device, the rate of its matrix products, and compiled programs.

Speeds of two machines differ by a factor of three, so rates are also given as a fraction of the
machine's own rate of matrix products, measured in the same run.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import jax

from clew.lab.bench.timing import Estimate, by_turns, estimate, seconds_of
from clew.run.machine import available_cores, git_commit

K = TypeVar("K")

PRODUCT_SIZE = 2048


def device() -> dict[str, Any]:
    """The device on which programs run here, and their commit."""
    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "cores": available_cores(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "commit": git_commit(),
    }


def until_ready(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call of a compiled program that waits until its results are computed."""
    return lambda: jax.block_until_ready(call())


def call_seconds(
    calls: Mapping[K, Callable[[], Any]], turns: int, log: Callable[[str], None] = lambda _: None
) -> dict[K, list[float]]:
    """Seconds of calls of compiled programs, taken in turns after a warm-up turn."""
    measures = {name: partial(seconds_of, until_ready(call)) for name, call in calls.items()}
    return by_turns(measures, turns, warm_up=True, log=log)


def rate_of(call: Callable[[], Any], amount: float, repeats: int) -> Estimate:
    """`amount` per second of a compiled program's call, after an untimed one."""
    return estimate([amount / seconds for seconds in call_seconds({"": call}, repeats)[""]])


def matrix_product_rate(repeats: int = 5) -> float:
    """Floating-point operations per second of square float32 products of size 2048, the median.

    The products run at JAX's default precision, as the models' own do; on a GPU that may be
    less than float32.
    """
    size, count = PRODUCT_SIZE, 4
    a = jax.random.normal(jax.random.key(0), (size, size)) / size**0.5

    @jax.jit
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(count):
            x = x @ a
        return x

    operations = count * 2 * size**3
    return rate_of(lambda: chain(a), operations, repeats).middle


def products_text(rates: Sequence[float]) -> str:
    """The slowest and the fastest of the machine's rates of matrix products, in words."""
    ends = dict.fromkeys(f"{rate / 1e9:,.0f}" for rate in (min(rates), max(rates)))
    return f"{' to '.join(ends)} GFLOP/s in matrix products"
