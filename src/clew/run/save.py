"""Saves agents that were changed outside of a run, beside the run's checkpoints."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from clew.agents.network import Agent
from clew.errors import UserError
from clew.interact.host_rollout import packed
from clew.run import checkpoint, folder, machine
from clew.run.best import AGENT, STATISTICS
from clew.run.load import LoadedRun, load_run
from clew.run.start import array_forms, differing_arrays

_NAME = re.compile(r"(?!best$|update-|unusable-|[0-9]+$)[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def save(
    path: str | Path, agent: Agent | Sequence[Agent], name: str, *, trust: bool = False
) -> Path:
    """Saves an agent of a run under a name, after it was changed outside of the run.

    For example after learning from demonstrations. `clew.load`, `load_policy`, `evaluate` and
    `export` find it by `checkpoint=name`, the commands by `--checkpoint NAME`, and `start_from`
    begins a run with the returned file. The run itself is not changed, and resumes from its own
    agent. Statistics of wrappers are those of the run's newest checkpoint.

    Args:
        path: the run's folder or name.
        agent: what `clew.load` returned, with other numbers; for a run of several seeds one for
            each, in order.
        name: letters, digits, "_", "-" and "."; an agent that was saved under it is replaced.
        trust: consent to import the code that the run's settings name; see `clew.run.trust`.

    Returns:
        The file, in the run's folder of checkpoints.

    Raises:
        UserError: for a name that is not possible, an agent that does not fit the run, or another
            number of agents than the run has seeds.
        CheckpointError: if the disk is full or cannot be written to.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            "the name of a saved agent must be of letters, digits, _, - and ., and not best or a "
            f"number, got {name!r}"
        )
    run = load_run(path, trust=trust)
    params = _of_seeds(run, [agent] if isinstance(agent, Agent) else list(agent))
    leaves = _named(AGENT, params)
    if run.statistics is not None:
        one = run.config.seeds == 1
        kept = jax.tree.map(lambda leaf: leaf[0] if one else leaf, run.statistics)
        leaves |= _named(STATISTICS, packed(kept))
    meta = {"update": max(run.updates)} | folder.read_run(run.path).identity.meta()
    file = run.path / folder.CHECKPOINTS / f"{name}.clew"
    checkpoint.save_agents(file, leaves, meta, machine.versions())
    return file


def _of_seeds(run: LoadedRun, agents: list[Agent]) -> PyTree:
    """The arrays of the agents, with the seeds as first axis if there are several."""
    if len(agents) != run.config.seeds:
        raise UserError(f"{run.path} has {run.config.seeds} seeds, got {len(agents)} agents")
    params = [eqx.filter(agent, eqx.is_array) for agent in agents]
    for given in params:
        if wrong := differing_arrays(array_forms(given), array_forms(run.params, 1)):
            raise UserError(f"the agent does not fit {run.path}: its agent{wrong}")
    return params[0] if len(params) == 1 else jax.tree.map(lambda *xs: jnp.stack(xs), *params)


def _named(prefix: str, tree: PyTree) -> dict[str, Any]:
    return {prefix + name: leaf for name, leaf in checkpoint.named_leaves(tree).items()}
