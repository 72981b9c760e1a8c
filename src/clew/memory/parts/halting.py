"""Adaptive halting: a block is applied again until every observation has halted."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from clew.errors import DEEPEST, require_at_least, require_choice, require_fraction
from clew.memory.base import State
from clew.memory.parts.blocks import Linear
from clew.memory.parts.positions import sinusoids

Blend = Literal["mean", "running"]
Unreached = Literal["copy", "zero"]

Read = Callable[[Array, State, Array, Array], tuple[State, Array, Array]]
"""The block: maps the number of the reading (from 0), the gates' states, u and a mask of the
observations that are still running to the gates' states, the inputs of all layers [layers, *lead,
n] and s [*lead, n]."""


class Pondering(NamedTuple):
    """The state of the loop; `lead` is empty for one observation, and time for a chunk."""

    number: Int[Array, ""]
    running: Bool[Array, "*lead"]
    stream: Float[Array, "*lead n"]
    probability: Float[Array, "*lead"]
    blend: Float[Array, "*lead n"]
    readings: Float[Array, "*lead"]
    remainder: Float[Array, "*lead"]
    gates: State
    inputs: Float[Array, "steps layers *lead n"]


class Halting(eqx.Module):
    """How often a block is applied, and how its outputs are combined.

    With s_0 the stream, c_n the coordinates of the n-th reading and n = 1 .. N:

        u_n = s_{n-1} + c_n     p_n = sigmoid(u_n . w + b)      s_n = block(u_n)
        N = min(max_steps, the first n with p_1 + .. + p_n > threshold)
        w_n = p_n for n < N,    w_N = 1 - p_1 - .. - p_{N-1}
        y = sum_n w_n s_n

    `blend="running"` is y_n = w_n s_n + (1 - w_n) y_{n-1} with y_0 = 0 instead, and w_N stays p_N
    where max_steps ended the loop. Without a halting unit, y = s_N with N = max_steps.

    Source: Graves (2016), Eq. 5-9; Dehghani et al. (2019), section 2.2 and appendix C, which
    computes p_n before the block is applied and has the running blend.
    """

    unit: Linear | None
    max_steps: int = eqx.field(static=True)
    threshold: float = eqx.field(static=True)
    blend: str = eqx.field(static=True)
    unreached: str = eqx.field(static=True)

    def __init__(
        self, unit: Linear | None, max_steps: int, threshold: float, blend: str, unreached: str
    ):
        require_at_least("max_steps", max_steps, 1, DEEPEST)
        require_fraction("threshold", threshold)
        require_choice("blend", blend, ("mean", "running"))
        require_choice("unreached", unreached, ("copy", "zero"))
        self.unit = unit
        self.max_steps = max_steps
        self.threshold = threshold
        self.blend = blend
        self.unreached = unreached

    def ponder(
        self,
        stream: Float[Array, "*lead n"],
        where: Float[Array, "*lead n"] | None,
        read: Read,
        gates: State,
        num_layers: int,
        nudges: Float[Array, " steps"] | None = None,
    ) -> Pondering:
        """Reads until all observations have halted; the readings after that cost nothing.

        Args:
            stream: s_0.
            where: P_t, the encoded positions, or None for no coordinates.
            read: applies the block.
            gates: the states of recurrent gates, for one observation.
            num_layers: layers of the block.
            nudges: for one observation, what is added to the probability of each reading.

        Returns:
            The last state of the loop; its `inputs` [layers, steps, *lead, n] are filled as
            `unreached` says for the readings that an observation did not reach.
        """
        lead = jnp.zeros(stream.shape[:-1], stream.dtype)
        begin = Pondering(
            number=jnp.array(0, jnp.int32),
            running=jnp.ones(lead.shape, bool),
            stream=stream,
            probability=lead,
            blend=jnp.zeros_like(stream),
            readings=lead,
            remainder=lead,
            gates=gates,
            inputs=jnp.zeros((self.max_steps, num_layers, *stream.shape), stream.dtype),
        )

        def one(now: Pondering) -> Pondering:
            u = self._input(now.stream, where, now.number)
            p = self.probability(u)
            if nudges is not None:
                p = p + nudges[now.number]
            if self.unreached == "zero":
                u = jnp.where(now.running[..., None], u, 0.0)
            gates, inputs, s = read(now.number, now.gates, u, now.running)
            now = now._replace(gates=gates, inputs=now.inputs.at[now.number].set(inputs))
            return self._weigh(now, p, s)

        # Unlike JAX's loop, differentiable without running to the end, also under vmap.
        after = eqxi.while_loop(
            lambda now: jnp.any(now.running),
            one,
            begin,
            max_steps=self.max_steps,
            buffers=lambda now: now.inputs,
            kind="checkpointed",
            checkpoints=self.max_steps,
        )
        return after._replace(inputs=jnp.moveaxis(self._filled(after, where), 1, 0))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names in `metrics`: none without a halting unit, where N is always `max_steps`."""
        return ("ponder_steps", "ponder_cost") if self.unit is not None else ()

    def metrics(self, readings: Array, remainder: Array) -> dict[str, Array]:
        """The readings N of every observation, and N + w_N, which a loss may penalise."""
        return dict(zip(self.metric_names, (readings, readings + remainder), strict=False))

    def _weigh(self, now: Pondering, p: Array, s: Array) -> Pondering:
        """Adds one output to the blend, and halts the observations that reach the threshold."""
        total = now.probability + p
        halts = total > self.threshold
        last = jnp.broadcast_to(now.number == self.max_steps - 1, halts.shape)
        if self.blend == "mean" or self.unit is None:
            halts = halts | last
        halts = halts & now.running
        rest = 1.0 - now.probability
        weight = jnp.where(now.running, jnp.where(halts, rest, p), 0.0)[..., None]
        kept = now.blend if self.blend == "mean" else (1.0 - weight) * now.blend
        return now._replace(
            number=now.number + 1,
            running=now.running & ~halts & ~last,
            stream=jnp.where(now.running[..., None], s, now.stream),
            probability=jnp.where(now.running & ~halts, total, now.probability),
            blend=kept + weight * s,
            readings=now.readings + now.running.astype(now.readings.dtype),
            remainder=jnp.where(halts, rest, now.remainder),
        )

    def probability(self, u: Float[Array, "*lead n"]) -> Float[Array, "*lead"]:
        """p_n, the probability that the reading of `u` is the last."""
        if self.unit is None:
            return jnp.zeros(u.shape[:-1], u.dtype)
        return jax.nn.sigmoid(self.unit(u))[..., 0]

    def _input(self, stream: Array, where: Array | None, number: Array) -> Array:
        if where is None:
            return stream
        table = sinusoids(np.arange(1, self.max_steps + 1), stream.shape[-1])
        encoded = jnp.asarray(table, stream.dtype)[number]
        return stream + where + jnp.broadcast_to(encoded, stream.shape)

    def _filled(self, after: Pondering, where: Array | None) -> Array:
        """The inputs, with `unreached` in place of those of readings that did not happen."""
        filled = []
        for number in range(self.max_steps):
            reached = number < after.readings
            copy = self._input(after.stream, where, jnp.array(number))
            instead = copy if self.unreached == "copy" else jnp.zeros_like(copy)
            inputs = after.inputs[number]
            mask = jnp.broadcast_to(reached[..., None], inputs.shape)
            filled.append(jnp.where(mask, inputs, jnp.broadcast_to(instead, inputs.shape)))
        return jnp.stack(filled)
