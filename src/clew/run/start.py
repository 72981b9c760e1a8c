"""Starts a new run from the agent of another one."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import keystr
from jaxtyping import Array, PyTree

from clew.errors import UserError, one_line
from clew.run import checkpoint, folder
from clew.run.build import Parts
from clew.run.config import TrainConfig, differences
from clew.run.load import LoadedRun, load_run
from clew.run.spaces import MISSING
from clew.run.trust import remember

AGENT = (
    *("env", "env_options", "memory", "memory_options", "network", "wrappers"),
    *("algorithm", "learner_options", "r2d2.rescaling"),
)
"""Settings that may influence an agent's arrays or how it uses them."""
SHOWN = 3
"""Most differing settings that a message names."""


class Start(NamedTuple):
    """The agents that a run's seeds begin with."""

    params: PyTree[Array]
    """The agents' arrays, with seeds as first axis."""
    statistics: Any
    """The wrappers' statistics by their names, with seeds as first axis."""
    message: str
    """A line that names the agents and the settings in which the two runs differ."""
    path: Path
    """The other run's folder."""
    config: TrainConfig
    """Its settings."""

    def of_seed(self, index: int) -> tuple[Any, Any]:
        """One seed's arrays, and the statistics of its wrappers."""
        return jax.tree.map(lambda leaf: leaf[index], (self.params, self.statistics))


def read_start(parts: Parts, path: Path | None = None, *, trust: bool = False) -> Start | None:
    """The agents that `start_from` names; None if it is empty, or if the run has a checkpoint.

    Args:
        path: the new run's folder, if it exists: with a checkpoint in it the run is resumed.
        trust: consent to import the code that the other run names; see `clew.run.trust`.

    Raises:
        UserError: if there is no such run or checkpoint, or if its agents do not fit the new run
            in their arrays or their number.
    """
    config = parts.config
    begun = path is not None and checkpoint.list_checkpoints(path / folder.CHECKPOINTS)
    if begun or not config.start_from:
        return None
    given = Path(config.start_from)
    wanted = given.name if given.suffix == ".clew" else ""
    if wanted and not (given.is_file() and given.parent.name == folder.CHECKPOINTS):
        raise UserError(f"start_from: {given} is not a checkpoint in a run's folder")
    found = given.parent.parent if wanted else folder.find_run(given, config.run_dir)
    run = load_run(found, wanted, trust=trust)
    _require_same_arrays(parts, run)
    if run.config.seeds not in (1, config.seeds):
        raise UserError(
            f"start_from names a run with {run.config.seeds} seeds ({run.path}) for a run with "
            f"{config.seeds}: it must have 1, or as many"
        )
    arrays = jax.tree.leaves(jax.device_get(run.params))
    leaves = [_for_seeds(leaf, config.seeds) for leaf in arrays]
    params = jax.tree.unflatten(jax.tree.structure(parts.shapes), leaves)
    file = f" in {wanted}" if wanted else ""
    line = f"starting from the agent{file} of {run.path} after {max(run.updates)} updates"
    if differing := _differing(run.config, config):
        line += f"; {differing}"
    return Start(params, _statistics(parts, run), line, run.path, run.config)


def read_shared_start(parts: Parts, *, trust: bool = False) -> Start | None:
    """Like `read_start`, for a program with lanes of several cells: all start from one agent.

    Consent (`trust`) is remembered, since worker processes read the run again.

    Raises:
        UserError: if the other run has several agents.
    """
    start = read_start(parts, trust=trust)
    if start is None:
        return None
    if trust:
        remember(start.path, start.config)
    if start.config.seeds > 1:
        raise UserError(
            f"start_from names a run with {start.config.seeds} seeds ({parts.config.start_from}): "
            "in a study or sweep all agents start from the same one"
        )
    return start


def _for_seeds(leaf: np.ndarray, seeds: int) -> np.ndarray:
    """An array of one seed, or of all seeds, expanded to all seeds."""
    return np.broadcast_to(leaf, (seeds, *leaf.shape[1:]))


def _require_same_arrays(parts: Parts, run: LoadedRun) -> None:
    if wrong := differing_arrays(array_forms(run.params, 1), array_forms(parts.shapes)):
        differing = _differing(run.config, parts.config)
        raise UserError(
            f"start_from: the agent of {run.path} does not fit this run: its agent{wrong}"
            + (f"; {differing}" if differing else "")
        )


def differing_arrays(theirs: dict[str, str], own: dict[str, str]) -> str:
    """The first array of another agent that differs from this one's; empty if they agree."""
    for name in own | theirs:
        there, here = (found.get(name, MISSING) for found in (theirs, own))
        if there != here:
            return f"{name} is {there}, but here it is {here}"
    return ""


def array_forms(tree: Any, axes: int = 0) -> dict[str, str]:
    """Type and shape of an agent's arrays by their paths, without the first axes."""
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {keystr(path): f"{leaf.dtype}{list(leaf.shape[axes:])}" for path, leaf in named}


def _differing(old: TrainConfig, new: TrainConfig) -> str:
    """Names the settings of the agent that differ; empty if none do."""
    found = [
        f"{name} was {one_line(was, 60)}, here {one_line(now, 60)}"
        for name, (was, now) in differences(old, new).items()
        if name in AGENT or name.split(".")[0] in AGENT
    ]
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def _statistics(parts: Parts, run: LoadedRun) -> Any:
    """The statistics that the new run's wrappers start with: the other run's, where they fit."""
    seeds = parts.config.seeds
    learned = run.statistics or {}
    begun = {}
    for name, fresh in (parts.task.statistics() or {}).items():
        one = jax.tree.map(lambda leaf: leaf[None], fresh)
        theirs = learned.get(name, one)
        begun[name] = theirs if _shapes(theirs) == _shapes(one) else one
    return jax.tree.map(lambda leaf: _for_seeds(leaf, seeds), begun)


def _shapes(tree: Any) -> Any:
    """Shapes of the arrays, without the axis of seeds."""
    return jax.tree.map(lambda leaf: leaf.shape[1:], tree)
