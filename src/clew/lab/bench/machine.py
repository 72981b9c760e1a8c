"""The machine that measures: what it is, how fast its matrix products are, and compiled programs.

Speeds of two machines differ by a factor of three, so that rates are also quoted as a fraction of
the machine's own rate of matrix products, measured in the same run.
"""

import os
import platform
from collections.abc import Callable
from typing import Any

import jax

from clew.lab.bench.timing import by_turns, estimate, seconds_of

PRODUCT_SIZE = 2048


def device() -> dict[str, Any]:
    """What programs run on here."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return {
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "cores": len(affinity(0)) if affinity else None,
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


def until_ready(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call of a compiled program, waiting until its results are computed."""
    return lambda: jax.block_until_ready(call())


def seconds_each(call: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls of a compiled program, after one that is not timed."""
    ready = until_ready(call)
    return by_turns({"": lambda: seconds_of(ready)}, repeats, warm_up=True)[""]


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
    return estimate([operations / s for s in seconds_each(lambda: chain(a), repeats)]).middle
