"""One set of the wrappers' running statistics out of those of several actors."""

from typing import Any

import numpy as np


def merged(base: dict[str, Any], begin: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
    """What `base` becomes by what an actor has seen between `begin` and `end`.

    Numbers n, sums n mean and sums of squares m2 + n mean^2 add up, so with differences d over the
    actor's rollout

        n'    = n + dn
        mean' = (n mean + d(n mean)) / n'
        m2'   = m2 + n mean^2 + d(m2 + n mean^2) - n' mean'^2

    and the mean square of returns like a mean.

    Args:
        base, begin, end: trees as `HostStream.state` gives them, in float64.
    """
    if "count" not in end:
        return {name: merged(base[name], begin[name], end[name]) for name in end}
    if all(np.array_equal(base[name], begin[name]) for name in end):
        return end  # exactly, and not up to rounding, where nobody else has seen anything
    count = np.asarray(base["count"] + (end["count"] - begin["count"]), np.float64)
    n = np.maximum(count, 1.0)

    def total(name: str) -> Any:
        base_sum, begin_sum, end_sum = (s["count"] * s[name] for s in (base, begin, end))
        return base_sum + (end_sum - begin_sum)

    if "mean_square" in end:
        return {"count": count, "mean_square": np.asarray(total("mean_square") / n)}
    mean = np.asarray(total("mean") / n)
    base_sum, begin_sum, end_sum = (
        s["m2"] + s["count"] * np.square(s["mean"]) for s in (base, begin, end)
    )
    m2 = np.asarray(base_sum + (end_sum - begin_sum) - n * np.square(mean))
    return {"count": count, "mean": mean, "m2": np.maximum(m2, 0.0)}
