"""Tasks; they know nothing of agents. `ENVS` lists the pure-JAX ones by name."""

import inspect
from typing import Any

from clew.envs.analysis import (
    distributed_memory_floors,
    memory_chain_floors,
    one_bit_return,
    optimal_return,
    reach_probability,
)
from clew.envs.base import Environment, Transition
from clew.envs.distributed_memory import DistributedMemory
from clew.envs.memory_chain import MemoryChain
from clew.envs.stream import AutoReset, AutoResetState, TimeStep
from clew.envs.tmaze import TMaze
from clew.errors import unknown_name

__all__ = [
    "ENVS",
    "AutoReset",
    "AutoResetState",
    "DistributedMemory",
    "Environment",
    "MemoryChain",
    "TMaze",
    "TimeStep",
    "Transition",
    "distributed_memory_floors",
    "env_options",
    "make_env",
    "memory_chain_floors",
    "one_bit_return",
    "optimal_return",
    "reach_probability",
]

ENVS: dict[str, type[Environment]] = {
    "tmaze": TMaze,
    "memory_chain": MemoryChain,
    "distributed_memory": DistributedMemory,
}


def make_env(name: str, **options: Any) -> Environment:
    """Builds an environment that is written in JAX, by name.

    Args:
        name: a key of `ENVS`; or "gymnax:ID" or "gymnax:module:factory", see
            `clew.bridges.gymnax.make_gymnax`.
        options: keyword arguments of that environment's constructor.

    Raises:
        UserError: an unknown name or option (with the nearest valid ones), or a value that the
            environment refuses.
    """
    if name.startswith("gymnax:"):
        from clew.bridges.gymnax import make_gymnax

        return make_gymnax(name, options)
    if name not in ENVS:
        raise unknown_name("environment", name, ENVS)
    known = env_options(name)
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name}", option, known)
    return ENVS[name](**options)


def env_options(name: str) -> dict[str, Any]:
    """The options of an environment with their defaults.

    Raises:
        UserError: an unknown name.
    """
    if name.startswith("gymnax:"):
        from clew.bridges.gymnax import gymnax_options

        return gymnax_options(name)
    if name not in ENVS:
        raise unknown_name("environment", name, ENVS)
    parameters = inspect.signature(ENVS[name]).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters}
