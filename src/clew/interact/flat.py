"""Any observation as one axis of numbers, and agents that read it so."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from clew.agents.network import Agent, ReadMask


class Laid(eqx.Module):
    """An encoder that takes all numbers of an observation in one axis, in the order of its leaves.

    Encoders make of numbers what they need: a byte or a choice may come as a float of that value.
    """

    encoder: Callable[[Any], Array]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead out"]:
        """What the encoder makes of the observation."""
        ends = itertools.accumulate(math.prod(shape) for shape in self.shapes)
        parts = jnp.split(x, list(ends)[:-1], axis=-1)
        pairs = zip(parts, self.shapes, strict=True)
        leaves = [part.reshape(*x.shape[:-1], *shape) for part, shape in pairs]
        return self.encoder(jax.tree.unflatten(self.structure, leaves))


def in_one_axis(observation: Any, lead: int) -> Float[Array, "*lead n"]:
    """All numbers of observations with this many leading axes, as float32 in one last axis."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(observation)]
    flat = [leaf.astype(jnp.float32).reshape(*leaf.shape[:lead], -1) for leaf in leaves]
    return flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=-1)


def reads_one_axis(agent: Agent, observation: Any) -> Agent:
    """The agent with observations in one axis, and without its action mask.

    Its logits are those of all actions, of which a mask would allow some.

    Args:
        agent: the network.
        observation: one, of which only the shapes count.
    """
    leaves, structure = jax.tree.flatten(observation)
    shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
    laid = Laid(agent.encoder, structure, shapes)
    agent = eqx.tree_at(lambda agent: agent.encoder, agent, laid)
    if agent.mask is None:
        return agent
    return eqx.tree_at(
        lambda agent: agent.mask, agent, None, is_leaf=lambda x: isinstance(x, ReadMask)
    )
