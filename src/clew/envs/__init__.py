"""Tasks, which are independent of agents. `ENVS` lists the pure-JAX ones by name."""

from clew.envs.bandit import Bandit
from clew.envs.base import Environment, Transition
from clew.envs.dark_room import DarkRoom
from clew.envs.distributed_memory import DistributedMemory
from clew.envs.endless_tmaze import EndlessTMaze
from clew.envs.key_to_door import KeyToDoor
from clew.envs.memory_chain import MemoryChain
from clew.envs.permutation import Permutation
from clew.envs.pixel_maze import PixelMaze
from clew.envs.popgym import POPGYM
from clew.envs.stream import AutoReset, AutoResetState, TimeStep
from clew.envs.timed_tmaze import ActiveTMaze, PassiveTMaze
from clew.envs.tmaze import TMaze

__all__ = [
    "ENVS",
    "ActiveTMaze",
    "AutoReset",
    "AutoResetState",
    "Bandit",
    "DarkRoom",
    "DistributedMemory",
    "EndlessTMaze",
    "Environment",
    "KeyToDoor",
    "MemoryChain",
    "PassiveTMaze",
    "Permutation",
    "PixelMaze",
    "TMaze",
    "TimeStep",
    "Transition",
]

ENVS: dict[str, type[Environment]] = {
    "tmaze": TMaze,
    "passive_tmaze": PassiveTMaze,
    "active_tmaze": ActiveTMaze,
    "endless_tmaze": EndlessTMaze,
    "key_to_door": KeyToDoor,
    "memory_chain": MemoryChain,
    "distributed_memory": DistributedMemory,
    "permutation": Permutation,
    "bandit": Bandit,
    "dark_room": DarkRoom,
    "pixel_maze": PixelMaze,
    **POPGYM,
}
