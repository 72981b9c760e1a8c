"""The agents of a run, from any of its checkpoints, with what their wrappers have learned."""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from clew.agents.network import Agent
from clew.errors import UserError, require_at_least, unknown_name
from clew.interact.host_rollout import packed, unpacked
from clew.interact.policy import PolicyAdapter
from clew.run import checkpoint, folder
from clew.run.build import agent_parts, make_task
from clew.run.config import TrainConfig
from clew.run.trust import require


class LoadedRun(NamedTuple):
    """The agents of all seeds, and where they come from."""

    path: Path
    config: TrainConfig
    params: PyTree[Array]
    """The agents' arrays, seeds first."""
    static: Agent
    """What the agents are besides."""
    update: int
    """Of the checkpoint."""
    statistics: Any
    """What the wrappers around Gymnasium environments have learned, seeds first; None for a task
    written in JAX."""


class Loaded(NamedTuple):
    """An agent and where it comes from."""

    path: Path
    config: TrainConfig
    agent: Agent
    update: int
    """Of the checkpoint."""
    statistics: Any
    """What the wrappers around a Gymnasium environment have learned; None for a task written in
    JAX."""

    @property
    def adapter(self) -> PolicyAdapter:
        """What stands between its environment and it."""
        return make_task(self.config).adapter(self.statistics)


def load_agent(
    path: str | Path, seed_index: int = 0, wanted: str = "", *, trust: bool = False
) -> Loaded:
    """Loads one agent.

    Args:
        path: the run's folder or name.
        seed_index: which of the run's seeds, from 0.
        wanted: the checkpoint's file name or update; empty takes the newest good one.
        trust: consent to import the code that the run's settings name; see `clew.run.trust`.

    Raises:
        UserError: if there is no such run, seed or checkpoint, or the checkpoint is damaged; or the
            run names code, and is neither trusted nor trained here.
    """
    require_at_least("seed_index", seed_index, 0)
    run = load_run(path, wanted, trust=trust)
    if seed_index >= run.config.seeds:
        raise UserError(
            f"seed_index must be below the run's number of seeds, {run.config.seeds}, got "
            f"{seed_index}"
        )
    params, statistics = jax.tree.map(lambda x: x[seed_index], (run.params, run.statistics))
    return Loaded(run.path, run.config, eqx.combine(params, run.static), run.update, statistics)


def load_run(path: str | Path, wanted: str = "", *, trust: bool = False) -> LoadedRun:
    """Loads the agents of all seeds; see `load_agent`."""
    found = folder.find_run(path)
    config, identity = folder.read_run(found)
    require(found, config, trust=trust)
    task = make_task(config)
    shapes, static = agent_parts(config, task)
    learned = packed(task.statistics())
    if config.seeds > 1:
        shapes, learned = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((config.seeds, *x.shape), x.dtype), (shapes, learned)
        )

    def arrays(read: checkpoint.Checkpoint) -> tuple[Any, Any]:
        identity.check(read)
        params = checkpoint.restore(read, shapes, prefix="/seed/agent")
        prefix = "/seed/actor/statistics"
        return params, None if learned is None else checkpoint.restore(read, learned, prefix)

    if wanted:
        read = checkpoint.read(_checkpoint(found, wanted))
        made = arrays(read)
    else:
        newest = checkpoint.load_newest(found / folder.CHECKPOINTS, arrays)
        if newest is None:
            raise UserError(f"{found} has no checkpoint yet")
        read, made, _ = newest
    if config.seeds == 1:
        made = jax.tree.map(lambda leaf: leaf[None], made)
    params, statistics = made
    return LoadedRun(found, config, params, static, read.meta["update"], unpacked(statistics))


def _checkpoint(found: Path, wanted: str) -> Path:
    names = {p.name: p for p in checkpoint.list_checkpoints(found / folder.CHECKPOINTS)}
    for name, path in names.items():
        update = name.removeprefix("update-").removesuffix(".clew")
        if wanted in (name, path.stem) or (wanted.isdigit() and int(wanted) == int(update)):
            return path
    raise unknown_name("checkpoint", wanted, names)
