"""One agent of a run, from any of its checkpoints, with what its wrappers have learned."""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from clew.agents.network import Agent
from clew.errors import UserError, unknown_name
from clew.run import checkpoint, folder
from clew.run.build import make_stream
from clew.run.config import TrainConfig
from clew.run.host_state import packed, unpacked
from clew.run.sync import agent_template
from clew.run.tasks import HostSide


class Loaded(NamedTuple):
    """An agent and where it comes from."""

    path: Path
    config: TrainConfig
    agent: Agent
    update: int
    """Of the checkpoint."""
    statistics: Any
    """What the wrappers around an environment of others have learned; None without one."""


def load_agent(path: str | Path, seed_index: int = 0, wanted: str = "") -> Loaded:
    """Loads one agent.

    Args:
        path: the run's folder or name.
        seed_index: which of the run's seeds, from 0.
        wanted: the checkpoint's file name or update; empty takes the newest good one.

    Raises:
        UserError: if there is no such run, seed or checkpoint, or the checkpoint is damaged.
    """
    found = folder.find_run(path)
    config = folder.read_config(found)
    if seed_index >= config.seeds:
        raise UserError(f"seed_index must be below the run's {config.seeds} seeds: {seed_index}")
    template, static = agent_template(config)
    learned = _statistics_template(config)

    def arrays(read: checkpoint.Checkpoint) -> tuple[Any, Any]:
        params = checkpoint.restore(read, template, prefix="/seed/agent")
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
    if config.seeds > 1:
        made = jax.tree.map(lambda leaf: leaf[seed_index], made)
    params, statistics = made
    statistics = None if statistics is None else unpacked(statistics)
    return Loaded(found, config, eqx.combine(params, static), read.meta["update"], statistics)


def _statistics_template(config: TrainConfig) -> Any:
    """Shapes of what the wrappers have learned, in a checkpoint; None if there are none."""
    stream = make_stream(config)
    if not isinstance(stream, HostSide):
        return None
    blank = packed(stream.statistics())
    if config.seeds == 1:
        return blank
    return jax.tree.map(lambda leaf: np.stack([leaf] * config.seeds), blank)


def _checkpoint(found: Path, wanted: str) -> Path:
    names = {p.name: p for p in checkpoint.list_checkpoints(found / folder.CHECKPOINTS)}
    for name, path in names.items():
        update = name.removeprefix("update-").removesuffix(".clew")
        if wanted in (name, path.stem) or (wanted.isdigit() and int(wanted) == int(update)):
            return path
    raise unknown_name("checkpoint", wanted, names)
