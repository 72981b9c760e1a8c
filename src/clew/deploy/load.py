"""Loads a policy from a run or from an export."""

from pathlib import Path

from clew.deploy import runner
from clew.deploy.files import is_export
from clew.deploy.policy import trained_wrappers
from clew.errors import UserError, require_at_least
from clew.interact.policy import Policy
from clew.run.load import load_agent


def load_policy(
    path: str | Path,
    seed_index: int = 0,
    *,
    checkpoint: str = "",
    greedy: bool = True,
    seed: int = 0,
    num_envs: int | None = None,
    trust: bool = False,
) -> Policy | runner.Policy:
    """The policy of a run or of an export, for observations as its environment gives them.

    An export is run with NumPy by the library's own `clew.deploy.runner`; nothing in its folder is
    imported.

    Args:
        path: the run's folder or name; or an export's folder or zip.
        seed_index: which of the run's seeds, from 0; an export has one.
        checkpoint: its file name or update, or "best", the best agent so far; by default the
            newest usable one.
        greedy: take the most probable action (deterministic) instead of sampling one; an export
            cannot sample.
        seed: of the sampling, if not greedy; with `num_envs` that of the first environment, from
            which those of the others count up.
        num_envs: environments that one policy plays side by side, the first axis of its arguments
            and actions; None for one without such an axis. An export has `runner.Model` for that.
        trust: consent to import the code that the run's settings name; see `clew.run.trust`.

    Raises:
        UserError: as `clew.run.load.load_agent`; or if the export is damaged or does not support
            an argument.
    """
    if not is_export(path):
        if num_envs is not None:
            require_at_least("num_envs", num_envs, 1)
        loaded = load_agent(path, seed_index, checkpoint, trust=trust)
        wrappers = trained_wrappers(loaded.adapter, num_envs)
        return Policy(loaded.agent, wrappers=wrappers, greedy=greedy, seed=seed, num_envs=num_envs)
    if seed_index or checkpoint or not greedy:
        raise UserError(
            f"{path} is an export, which has one policy with greedy actions: seed_index, "
            "checkpoint and sampling do not apply; its outputs have the distribution's parameters"
        )
    if num_envs is not None:
        raise UserError(
            f"{path} is an export, whose policy plays one environment; for {num_envs} side by side "
            "use clew.deploy.runner.Model, and keep its state yourself"
        )
    try:
        return runner.Policy(path)
    except runner.PolicyError as error:
        raise UserError(f"{path}: {error}") from error
