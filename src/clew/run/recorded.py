"""The settings of a run as its folder records them: another process finds a user's code again."""

import dataclasses
from dataclasses import replace
from typing import Any, NamedTuple

from clew.agents.learners import LEARNERS, learner_settings
from clew.envs import ENVS
from clew.errors import UserError
from clew.memory import MEMORIES
from clew.names import SCRIPT, is_reference, reference_to, script_alone
from clew.run.config import TrainConfig
from clew.run.json_values import with_lists

LIBRARY = "clew."


class Recorded(NamedTuple):
    """Settings, and a line on each name in them that no other process can resolve."""

    config: TrainConfig
    warnings: list[str]


def by_reference(config: TrainConfig) -> Recorded:
    """The settings with names that lead to a user's own code wherever they are read.

    A memory or task that a script has registered in `clew.MEMORIES` or `clew.ENVS` is known by its
    "package.module:Class" everywhere, by its short name in that script alone. Nothing is imported.
    """
    changes: dict[str, Any] = {}
    warnings = []
    for field, kind, registry in (("memory", "memory", MEMORIES), ("env", "task", ENVS)):
        name = getattr(config, field)
        found: Any = registry.get(name)
        reference = reference_to(found)
        if found is None or (reference or "").startswith(LIBRARY):
            continue
        if reference is None or reference.startswith(f"{SCRIPT}:"):
            warnings.append(script_alone(kind, name))
        else:
            changes |= {
                field: reference,
                f"{field}_options": {**getattr(config, f"{field}_options")},
            }
    return Recorded(replace(config, **changes) if changes else config, warnings)


def completed(config: TrainConfig) -> TrainConfig:
    """The settings with all those of a learner of the user's own, whose defaults may change.

    Raises:
        UserError: if the learner cannot be found, or does not take its options.
    """
    if not is_reference(config.algorithm):
        return config
    settings: Any = learner_settings(config.algorithm, config.learner_options)
    return replace(config, learner_options=with_lists(dataclasses.asdict(settings)))


def refuse_unused(config: TrainConfig) -> None:
    """Refuses settings of a learner that does not learn: they would change nothing.

    Raises:
        UserError: naming the settings, and how to use them.
    """
    for name, learner in LEARNERS.items():
        default = learner.settings()
        given: Any = getattr(config, name)
        if name == config.algorithm or given == default:
            continue
        changed = [
            field.name
            for field in dataclasses.fields(default)
            if getattr(given, field.name) != getattr(default, field.name)
        ]
        raise UserError(unused(f"{name}.{changed[0]}", name, config))


def unused(setting: str, learner: str, config: TrainConfig) -> str:
    """The line on a setting of a learner that does not learn."""
    return (
        f"{setting} would change nothing: {config.env} is learned by {config.algorithm} here; "
        f"--algorithm {learner} (in Python algorithm={learner!r}) would use it"
    )
