"""Tasks; they know nothing of agents. `ENVS` lists the pure-JAX ones by name."""

from clew.envs.analysis import (
    dark_room_return,
    distributed_memory_floors,
    memory_chain_floors,
    one_bit_return,
    optimal_return,
    reach_probability,
)
from clew.envs.bandit import Bandit
from clew.envs.bandit_policies import bandit_policy_returns, best_bandit_return
from clew.envs.base import Environment, Transition
from clew.envs.dark_room import DarkRoom
from clew.envs.distributed_memory import DistributedMemory
from clew.envs.memory_chain import MemoryChain
from clew.envs.permutation import Permutation
from clew.envs.stream import AutoReset, AutoResetState, TimeStep
from clew.envs.tmaze import TMaze

__all__ = [
    "ENVS",
    "AutoReset",
    "AutoResetState",
    "Bandit",
    "DarkRoom",
    "DistributedMemory",
    "Environment",
    "MemoryChain",
    "Permutation",
    "TMaze",
    "TimeStep",
    "Transition",
    "bandit_policy_returns",
    "best_bandit_return",
    "dark_room_return",
    "distributed_memory_floors",
    "memory_chain_floors",
    "one_bit_return",
    "optimal_return",
    "reach_probability",
]

ENVS: dict[str, type[Environment]] = {
    "tmaze": TMaze,
    "memory_chain": MemoryChain,
    "distributed_memory": DistributedMemory,
    "permutation": Permutation,
    "bandit": Bandit,
    "dark_room": DarkRoom,
}
