"""Loads the agents of a run from any of its checkpoints, with their wrappers' statistics."""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from clew.agents.network import Agent
from clew.errors import UserError, require_at_least, unknown_name
from clew.interact.host_rollout import packed, unpacked
from clew.interact.policy import PolicyAdapter
from clew.interact.task import Task
from clew.run import checkpoint, folder
from clew.run.best import AGENT, EPISODES, STATISTICS, scores_of
from clew.run.build import agent_parts, make_task
from clew.run.config import TrainConfig
from clew.run.names import checkpoint_name
from clew.run.spaces import require_same_spaces
from clew.run.trust import require


class LoadedRun(NamedTuple):
    """The agents of all seeds, with their run."""

    path: Path
    config: TrainConfig
    task: Task
    """The task of the settings."""
    params: PyTree[Array]
    """The agents' arrays, with seeds as first axis."""
    static: Agent
    """The agents without their arrays."""
    updates: list[int]
    """Number of updates of each seed; the same for all, except for best agents."""
    statistics: Any
    """Statistics of the wrappers around Gymnasium environments, with seeds as first axis; None for
    a task written in JAX."""


class Loaded(NamedTuple):
    """An agent with its run."""

    path: Path
    config: TrainConfig
    task: Task
    agent: Agent
    update: int
    statistics: Any
    """As in `LoadedRun`, for this agent."""

    @property
    def adapter(self) -> PolicyAdapter:
        """The adapter between the environment and the agent, without what only its critic reads."""
        return self.task.adapter(self.statistics).without(self.config.network.critic_only)


def load_agent(
    path: str | Path, seed_index: int = 0, wanted: str = "", *, trust: bool = False
) -> Loaded:
    """Loads one agent, from the `wanted` checkpoint; `clew.run.evaluate.load` says the rest."""
    require_at_least("seed_index", seed_index, 0)
    run = load_run(path, wanted, trust=trust)
    if seed_index >= run.config.seeds:
        raise UserError(
            f"seed_index must be below the run's number of seeds, {run.config.seeds}, got "
            f"{seed_index}"
        )
    params, statistics = jax.tree.map(lambda x: x[seed_index], (run.params, run.statistics))
    agent = eqx.combine(params, run.static)
    return Loaded(run.path, run.config, run.task, agent, run.updates[seed_index], statistics)


def load_run(path: str | Path, wanted: str = "", *, trust: bool = False) -> LoadedRun:
    """Loads the agents of all seeds, as `load_agent` does."""
    found = folder.find_run(path)
    config, identity, recorded = folder.read_run(found)
    require(found, config, trust=trust)
    task = make_task(config)
    require_same_spaces(str(found), recorded, task)
    shapes, static = agent_parts(config, task)
    learned = packed(task.statistics())
    if config.seeds > 1:
        shapes, learned = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((config.seeds, *x.shape), x.dtype), (shapes, learned)
        )

    def arrays(read: checkpoint.Checkpoint) -> tuple[Any, Any]:
        identity.check(read)
        params = checkpoint.restore(read, shapes, AGENT)
        return params, None if learned is None else checkpoint.restore(read, learned, STATISTICS)

    if wanted:
        read = checkpoint.read(_checkpoint(found, wanted, config))
        made = arrays(read)
    else:
        newest = checkpoint.load_newest(found / folder.CHECKPOINTS, arrays)
        if newest is None:
            raise UserError(f"{found} has no checkpoint yet")
        read, made, _ = newest
    if config.seeds == 1:
        made = jax.tree.map(lambda leaf: leaf[None], made)
    params, statistics = made
    updates = [read.meta["update"]] * config.seeds
    if read.path.name == checkpoint.BEST:
        updates = [score.update for score in scores_of(read, config.seeds)]
    return LoadedRun(found, config, task, params, static, updates, unpacked(statistics))


def _checkpoint(found: Path, wanted: str, config: TrainConfig) -> Path:
    kept = found / folder.CHECKPOINTS
    best = kept / checkpoint.BEST
    if wanted in (best.name, best.stem) and not best.exists():
        needed = "an evaluation" if config.evaluate_every else f"{EPISODES} episodes"
        raise UserError(
            f"{found} has no best agent yet: it is kept from the first checkpoint after {needed} "
            "of every seed"
        )
    files = {path.name: path for path in sorted(kept.glob("[!.]*.clew"))}
    names = {n: path for n, path in files.items() if not n.startswith(checkpoint.UNUSABLE)}
    numbered = checkpoint_name(int(wanted)) if wanted.isdecimal() else wanted
    for name, path in names.items():
        if numbered in (name, path.stem):
            return path
    raise unknown_name("checkpoint", wanted, names)
