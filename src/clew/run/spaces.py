"""What a run's agent observes and chooses from, recorded so that it is shown nothing else later."""

from collections.abc import Mapping

from gymnasium import spaces

from clew.envs.spaces import named_spaces
from clew.errors import UserError
from clew.interact.task import Task
from clew.names import BARE

MISSING = "missing"


def recorded_spaces(task: Task) -> dict[str, str]:
    """What config.json says of a task: {"observation/eye": "float32[5]", "action": "Discrete(3)"}.

    Observed numbers are recorded without their limits, which an agent does not use.
    """
    observed = {
        BARE if name == BARE else f"{BARE}/{name}": _text(space)
        for name, space in named_spaces(task.observation_space).items()
    }
    return observed | {"action": str(task.action_space)}


def require_same_spaces(run: str, recorded: Mapping[str, str], task: Task) -> None:
    """Refuses a task that has changed since an agent was trained on it.

    An agent reads entries in the order of their names, so one that is renamed could be read in
    another's place.

    Args:
        run: what messages call the run.
        recorded: of the task as it was; empty in runs of versions that recorded nothing.
        task: as it is now.

    Raises:
        UserError: naming what was recorded and what there is.
    """
    if not recorded:
        return
    now = recorded_spaces(task)
    changed = [
        f"{name} was {recorded.get(name, MISSING)} and is {now.get(name, MISSING)}"
        for name in sorted({*recorded, *now})
        if recorded.get(name) != now.get(name)
    ]
    if changed:
        raise UserError(
            f"{task.name} has changed since the agent of {run} was trained on it: "
            + "; ".join(changed)
        )


def _text(space: spaces.Space) -> str:
    if isinstance(space, spaces.Box):
        return f"{space.dtype}{list(space.shape)}"
    return str(space)
