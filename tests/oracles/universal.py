"""The Universal Transformer: Dehghani et al. (2019), section 2; Graves (2016), Eq. 5-9."""

from typing import Any

import numpy as np

from oracles.layers import LayerEquation, equations
from oracles.parts import Vector, affine, numbers, sigmoid, sinusoid
from oracles.window import windows


class Block:
    """The layers, each with one attention for every reading; halts as the weights say."""

    def __init__(self, memory: Any, options: dict[str, Any]):
        self.memory, self.options = memory, options
        self.max_steps = memory.halting.max_steps
        self.banks = [windows(memory) for _ in range(self.max_steps)]
        self.layers: list[LayerEquation] = equations(
            memory,
            options["gate"],
            options["norm"],
            inner=options["inner_residual"],
            crossed=options["crossed_states"],
        )

    def forget(self) -> None:
        """Empty windows at every reading, no h in any gate."""
        for part in [*self.layers, *(attention for bank in self.banks for attention in bank)]:
            part.forget()

    def read(self, e: Vector, t: int) -> tuple[Vector, int]:
        """The output, and the number of readings."""
        s, output, total, n = e, np.zeros(len(e)), 0.0, 0
        while n < self.max_steps:
            u = self._with_coordinates(s, t, n)
            p = self._probability(u)
            halts = total + p > self.memory.halting.threshold
            if n == self.max_steps - 1 and self.options["blend"] == "mean":
                halts = True
            weight = 1.0 - total if halts else p
            s = u
            for equation, attention in zip(self.layers, self.banks[n], strict=True):
                s = equation.read(s, attention.read(s))
            kept = 1.0 if self.options["blend"] == "mean" else 1.0 - weight
            output, total, n = kept * output + weight * s, total + p, n + 1
            if halts:
                break
        for later in range(n, self.max_steps):
            copy = self._with_coordinates(s, t, later)
            for attention in self.banks[later]:
                attention.past.append(copy if self.options["unreached"] == "copy" else 0.0 * copy)
        return output, n

    def _probability(self, u: Vector) -> float:
        unit = self.memory.halting.unit
        return 0.0 if unit is None else float(sigmoid(affine(unit, u))[0])

    def _with_coordinates(self, s: Vector, t: int, n: int) -> Vector:
        if not self.options["coordinates"]:
            return s
        return s + sinusoid(t, len(s)) + sinusoid(n + 1, len(s))


DEFAULTS = {
    "gate": "residual",
    "norm": "after",
    "coordinates": True,
    "blend": "mean",
    "unreached": "copy",
    "embedding": True,
    "inner_residual": False,
    "crossed_states": False,
}


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    readings: list[int] | None = None,
    **options: Any,
) -> np.ndarray:
    """One observation at a time; `readings` gets the number of readings of each."""
    options = {**DEFAULTS, **options}
    block, outputs, t = Block(memory, options), [], 0
    for x, start in zip(numbers(xs), starts, strict=True):
        if start:
            block.forget()
            t = 0
        e = affine(memory.embedding, x) if options["embedding"] else x
        y, n = block.read(e, t)
        outputs.append(y)
        if readings is not None:
            readings.append(n)
        t += 1
    return np.array(outputs)
