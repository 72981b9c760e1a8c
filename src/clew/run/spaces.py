"""Spaces of a run's observations and actions, recorded to detect later changes of the task."""

from collections.abc import Collection, Mapping

from gymnasium import spaces

from clew.envs.spaces import named_spaces
from clew.errors import UserError
from clew.interact.task import Task
from clew.names import BARE

MISSING = "missing"


def recorded_spaces(task: Task, without: Collection[str] = ()) -> dict[str, str]:
    """A task's spaces for config.json: {"observation/eye": "float32[5]", "action": "Discrete(3)"}.

    Limits of observations are not recorded, since an agent does not use them. The entries `without`
    are left out.
    """
    observed = {
        BARE if name == BARE else f"{BARE}/{name}": _text(space)
        for name, space in named_spaces(task.observation_space).items()
        if name not in without
    }
    return observed | {"action": str(task.action_space)}


def require_same_spaces(run: str, recorded: Mapping[str, str], task: Task) -> None:
    """Refuses a task that has changed since an agent was trained on it.

    An agent reads entries in the order of their names, so a renamed one could be taken for another.
    Runs of early versions recorded nothing.

    Raises:
        UserError: naming the recorded and the present spaces that differ.
    """
    if not recorded:
        return
    if changed := changed_spaces(recorded, task):
        raise UserError(
            f"{task.name} has changed since the agent of {run} was trained on it: {changed}"
        )


def changed_spaces(recorded: Mapping[str, str], task: Task) -> str:
    """How the recorded spaces differ from those of a task; empty if they are the same."""
    now = recorded_spaces(task)
    return "; ".join(
        f"{name} was {recorded.get(name, MISSING)} and is {now.get(name, MISSING)}"
        for name in sorted({*recorded, *now})
        if recorded.get(name) != now.get(name)
    )


def _text(space: spaces.Space) -> str:
    if isinstance(space, spaces.Box):
        return f"{space.dtype}{list(space.shape)}"
    return str(space)
