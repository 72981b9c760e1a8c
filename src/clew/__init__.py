"""Memory for reinforcement-learning agents: models, tasks, training and statistics.

    import clew

    result = clew.train(clew.TrainConfig(memory="arelit", steps=400_000))
    print(clew.evaluate(result.path, episodes=200))
    policy = clew.load_policy(result.path)

The names below are imported when they are first used, so that `import clew` is quick.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from clew.gymnasium_ids import register_with_gymnasium

if TYPE_CHECKING:
    from clew.agents.learners.a2c import A2CConfig
    from clew.agents.learners.ppo import PPOConfig
    from clew.agents.learners.pqn import PQNConfig
    from clew.agents.learners.r2d2 import R2D2Config
    from clew.agents.learners.sac import SACConfig
    from clew.agents.network import Agent, NetworkConfig
    from clew.bridges.make import make_env
    from clew.deploy.export import export, export_agent
    from clew.deploy.load import load_policy
    from clew.envs import ENVS, AutoReset, Environment
    from clew.envs.wrappers import WrapperConfig
    from clew.errors import UserError
    from clew.interact.policy import Policy
    from clew.interact.task import HostConfig
    from clew.memory import MEMORIES, AbstractMemory, make_memory
    from clew.memory.laws import check
    from clew.run.config import TrainConfig
    from clew.run.evaluate import evaluate, load
    from clew.run.metrics import read_metrics
    from clew.run.runner import EnvironmentFailed, TrainingDiverged, TrainingInterrupted
    from clew.run.save import save
    from clew.run.train import resume_run, train

_HOMES = {
    "A2CConfig": "clew.agents.learners.a2c",
    "Agent": "clew.agents.network",
    "NetworkConfig": "clew.agents.network",
    "Policy": "clew.interact.policy",
    "PPOConfig": "clew.agents.learners.ppo",
    "PQNConfig": "clew.agents.learners.pqn",
    "R2D2Config": "clew.agents.learners.r2d2",
    "SACConfig": "clew.agents.learners.sac",
    "WrapperConfig": "clew.envs.wrappers",
    "HostConfig": "clew.interact.task",
    "EnvironmentFailed": "clew.run.runner",
    "ENVS": "clew.envs",
    "AutoReset": "clew.envs",
    "Environment": "clew.envs",
    "make_env": "clew.bridges.make",
    "UserError": "clew.errors",
    "MEMORIES": "clew.memory",
    "AbstractMemory": "clew.memory",
    "make_memory": "clew.memory",
    "check": "clew.memory.laws",
    "TrainConfig": "clew.run.config",
    "evaluate": "clew.run.evaluate",
    "export": "clew.deploy.export",
    "export_agent": "clew.deploy.export",
    "load": "clew.run.evaluate",
    "load_policy": "clew.deploy.load",
    "read_metrics": "clew.run.metrics",
    "TrainingDiverged": "clew.run.runner",
    "TrainingInterrupted": "clew.run.runner",
    "resume_run": "clew.run.train",
    "save": "clew.run.save",
    "train": "clew.run.train",
}

__all__ = [
    "A2CConfig",
    "AbstractMemory",
    "Agent",
    "AutoReset",
    "ENVS",
    "Environment",
    "EnvironmentFailed",
    "HostConfig",
    "MEMORIES",
    "NetworkConfig",
    "PPOConfig",
    "PQNConfig",
    "R2D2Config",
    "SACConfig",
    "Policy",
    "TrainConfig",
    "TrainingDiverged",
    "TrainingInterrupted",
    "UserError",
    "WrapperConfig",
    "check",
    "evaluate",
    "export",
    "export_agent",
    "load",
    "load_policy",
    "make_env",
    "make_memory",
    "read_metrics",
    "resume_run",
    "save",
    "train",
]


register_with_gymnasium()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("clew")
    if name not in _HOMES:
        says = f"module 'clew' has no attribute {name!r}; it has {', '.join(__all__)}"
        if importlib.util.find_spec(f"clew.cli.{name}") is not None:
            says += f"; `clew {name}` is a command of the shell"
        if importlib.util.find_spec(f"clew.{name}") is not None:
            says += f"; clew.{name} is a module: import clew.{name}"
        raise AttributeError(says, name=name, obj=importlib.import_module("clew"))
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
