"""The maps of a memory (`AbstractMemory.maps`) for one episode, summarised for drawing."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from clew.agents.network import Agent
from clew.memory.parts.maps import left


class MapSummary(NamedTuple):
    """One map of a memory, summarised over its units."""

    kind: str
    """As in `MemoryMap`: "attention", "keep" or "gate"."""
    mean: Any
    """[time], mean over units; for attention the mean lag in steps."""
    pairs: Any
    """[time, time], step x past step: for attention the mean over heads; otherwise the fraction
    left at t of the content at s, the mean over units (`left`); None for a gate."""


def summarise_maps(
    agent: Agent, observations: Float[np.ndarray, "time n"]
) -> dict[str, MapSummary]:
    """The maps of the agent's memory for a whole episode; empty if it has none."""
    return jax.device_get(_summarise(agent, jnp.asarray(observations)))


@eqx.filter_jit
def _summarise(agent: Agent, xs: Float[Array, "time n"]) -> dict[str, MapSummary]:
    times = jnp.arange(len(xs), dtype=jnp.float32)
    lags = times[:, None] - times[None, :]
    found = {}
    for name, found_map in agent.memory.maps(agent.encoder(xs)).items():
        values = found_map.values.astype(jnp.float32)
        if found_map.kind == "attention":
            pairs = jnp.mean(values, axis=0)
            mean = jnp.sum(pairs * lags, axis=1)
        else:
            mean = jnp.mean(values, axis=1)
            pairs = left(values) if found_map.kind == "keep" else None
        found[name] = MapSummary(found_map.kind, mean, pairs)
    return found
