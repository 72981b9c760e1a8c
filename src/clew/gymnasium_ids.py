"""The ids of clew's tasks in Gymnasium. `import clew` registers them, without importing JAX.

Gymnasium 1.0 and later do not discover the ids of installed packages, so the package has to be
imported first or be named: `gymnasium.make("clew:clew/TMaze-v0")`.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

GYMNASIUM = "gymnasium"
_TASK, _MAZE = "clew.envs.gymnasium_api:JaxTaskEnv", "clew.bridges.memory_maze:MemoryMazeEnv"
_OF_POPGYM = (
    "Autoencode",
    "Battleship",
    "Concentration",
    "CountRecall",
    "HigherLower",
    "LabyrinthEscape",
    "LabyrinthExplore",
    "MineSweeper",
    "MultiarmedBandit",
    "NoisyPositionOnlyCartPole",
    "NoisyPositionOnlyPendulum",
    "PositionOnlyCartPole",
    "PositionOnlyPendulum",
    "RepeatFirst",
    "RepeatPrevious",
    "VelocityOnlyCartPole",
)


def _name_of(popgym_task: str) -> str:
    """RepeatFirst is repeat_first; CartPole is one word."""
    words = popgym_task.replace("CartPole", "Cartpole")
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in words).lstrip("_")


IDS: dict[str, tuple[str, dict[str, Any]]] = {
    "clew/TMaze-v0": (_TASK, {"task": "tmaze"}),
    "clew/PassiveTMaze-v0": (_TASK, {"task": "passive_tmaze"}),
    "clew/ActiveTMaze-v0": (_TASK, {"task": "active_tmaze"}),
    "clew/EndlessTMaze-v0": (_TASK, {"task": "endless_tmaze"}),
    "clew/KeyToDoor-v0": (_TASK, {"task": "key_to_door"}),
    "clew/PixelMaze-v0": (_TASK, {"task": "pixel_maze"}),
    "clew/MemoryChain-v0": (_TASK, {"task": "memory_chain"}),
    "clew/DistributedMemory-v0": (_TASK, {"task": "distributed_memory"}),
    "clew/Permutation-v0": (_TASK, {"task": "permutation"}),
    "clew/Bandit-v0": (_TASK, {"task": "bandit"}),
    "clew/DarkRoom-v0": (_TASK, {"task": "dark_room"}),
    **{f"clew/{name}-v0": (_TASK, {"task": _name_of(name)}) for name in _OF_POPGYM},
    **{f"clew/MemoryMaze-{n}x{n}-v0": (_MAZE, {"size": n}) for n in (9, 11, 13, 15)},
}
"""Every id with its class, which is imported when an environment is made, and its arguments."""


def register() -> None:
    """Makes the ids known to `gymnasium.make`; calling it again changes nothing."""
    import gymnasium  # start: it takes 0.2 s, and many uses of clew do not need it

    for env_id, (entry_point, options) in IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=entry_point, kwargs=options)


def register_with_gymnasium() -> None:
    """Registers the ids now, or as soon as Gymnasium is imported."""
    if GYMNASIUM in sys.modules:
        register()
    elif not any(isinstance(finder, _WithGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WithGymnasium())


class _WithGymnasium:
    """Finds Gymnasium as the other finders do, and registers the ids after its import."""

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None", target: "ModuleType | None" = None
    ) -> Any:
        """Looks for one module; only importing it registers the ids."""
        if fullname != GYMNASIUM:
            return None
        others = (f.find_spec(fullname, path, target) for f in sys.meta_path if f is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: "ModuleType") -> None:
            execute(module)
            sys.meta_path.remove(self)
            register()

        spec.loader.exec_module = execute_and_register
        return spec
