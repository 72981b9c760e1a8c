"""The space of a sweep: settings of `TrainConfig` by name, each with its values or its range."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from clew.agents.learners import LEARNERS
from clew.errors import UserError, one_line, unknown_name
from clew.memory import MEMORIES, options_of
from clew.names import find, is_reference
from clew.run.config import BESIDE, BOOKKEEPING, EVALUATION, TrainConfig, fits, unused
from clew.run.lanes import can_differ

PLACES = (*BOOKKEEPING, *BESIDE, *EVALUATION)
"""Settings that a sweep cannot vary, such as `run_dir` and `seeds`."""
OWN = ("env", "memory", "steps")
"""Settings that a sweep fixes, or compares."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; integers if the setting is an integer."""

    low: float
    high: float
    log: bool = False
    """Whether to draw uniformly in the logarithm, for numbers over orders of magnitude."""

    def __str__(self) -> str:
        return f"{'log:' if self.log else ''}{self.low:g}..{self.high:g}"


Vary = Mapping[str, Range | Sequence[Any]]
"""Maps the name of a setting, with its group ("ppo.learning_rate"), to its range or values."""
Values = Mapping[str, Any]
"""Maps the name of a setting to its value."""


def with_settings(config: TrainConfig, values: Values) -> TrainConfig:
    """A configuration with other values of some settings."""
    for name, value in values.items():
        group, point, last = name.partition(".")
        if not point:
            config = replace(config, **{name: value})
        elif group == learning_group(config):
            config = config.with_learning(**{last: value})
        else:
            holder, changed = _holder(config, group), {last: value}
            holder = holder | changed if isinstance(holder, dict) else replace(holder, **changed)
            config = replace(config, **{group: holder})
    return config


def value_of(config: TrainConfig, name: str) -> Any:
    """The value of a setting; None for an omitted option."""
    group, point, last = name.partition(".")
    holder = _holder(config, group)
    if not point:
        return holder
    return holder.get(last) if isinstance(holder, dict) else getattr(holder, last)


def learning_group(config: TrainConfig) -> str:
    """The group of the settings of the learner that is used."""
    return "learner_options" if is_reference(config.algorithm) else config.algorithm


def _holder(config: TrainConfig, group: str) -> Any:
    """The object with a group's settings; for a user's own learner all of them, not only
    options."""
    return config.learning if group == learning_group(config) else getattr(config, group)


def known_settings(config: TrainConfig) -> list[str]:
    """The settings that a sweep can vary, without options of the user's own classes."""
    names = []
    for field in dataclasses.fields(config):
        group = _holder(config, field.name)
        if field.name == "memory_options":
            options = options_of(find("memory", config.memory, MEMORIES))
            names += [f"memory_options.{option}" for option in options]
        elif dataclasses.is_dataclass(group):
            names += [f"{field.name}.{f.name}" for f in dataclasses.fields(group)]
        elif field.name not in (*PLACES, *OWN, "env_options"):
            names.append(field.name)
    return names


def unknown_setting(name: str, config: TrainConfig) -> UserError:
    """The error for a name that no setting has; it lists those that change something."""
    unused = tuple(f"{learner}." for learner in LEARNERS if learner != config.algorithm)
    known = [known for known in known_settings(config) if not known.startswith(unused)]
    return unknown_name("setting to vary", name, known)


def check_space(config: TrainConfig, vary: Vary) -> None:
    """Refuses an impossible space; nothing is built.

    Raises:
        UserError: naming the setting, what was given and what was expected, or the nearest name.
    """
    if not vary:
        raise UserError("a sweep needs at least one setting to vary")
    known = known_settings(config)
    for name, space in vary.items():
        group = name.partition(".")[0]
        if group in LEARNERS and group != config.algorithm:
            raise UserError(unused(name, group, config))
        if name == "memory":
            raise UserError(
                "a sweep varies settings of one memory; for several: --memories gru lstm"
            )
        if group == "env_options":
            raise UserError(
                f"a sweep compares agents on one task: {name} cannot vary; for another task give "
                "env_options, and sweep again"
            )
        if name not in known:
            raise unknown_setting(name, config)
        if isinstance(space, Range):
            _check_range(name, space, _kinds(config, name))
            continue
        if isinstance(space, str) or not isinstance(space, Sequence) or len(space) < 2:
            raise UserError(f"{name} needs a Range or at least two values, got {one_line(space)}")
        if len({repr(value) for value in space}) < len(space):
            raise UserError(f"{name} has a value twice: {one_line(list(space))}")
        _check_values(config, name, space)


def _check_values(config: TrainConfig, name: str, space: Sequence[Any]) -> None:
    """Refuses values of a wrong type; an option's class checks its own values."""
    hint = _declared_type(config, name)
    for value in space if hint is not None else ():
        if not fits(value, hint):
            own = value_of(config, name)
            one_name = isinstance(value, str) and isinstance(own, tuple)
            like = json.dumps([value]) if one_name else repr(own)
            raise UserError(f"{name} cannot be {one_line(value)}: give values like {like}")


def _check_range(name: str, space: Range, kinds: Sequence[type]) -> None:
    given = f"got {space}"
    if not (math.isfinite(space.low) and math.isfinite(space.high) and space.low < space.high):
        raise UserError(f"{name} must be a range from a smaller to a larger number, {given}")
    if space.log and space.low <= 0:
        raise UserError(f"{name} must start above 0 to be drawn on a log scale, {given}")
    if not {int, float} & {*kinds}:
        raise UserError(f"{name} is not a number: give its values, separated by commas, {given}")
    if float not in kinds and (space.low % 1 or space.high % 1):
        raise UserError(f"{name} must be a range of integers, {given}")


def is_whole(config: TrainConfig, name: str, space: Range) -> bool:
    """Whether the numbers of a range are integers."""
    kinds = _kinds(config, name)
    whole = not (space.low % 1 or space.high % 1)
    return float not in kinds or (int in kinds and whole)


def _kinds(config: TrainConfig, name: str) -> Sequence[type]:
    """The types that a setting may have; for an option, the type of its value."""
    hint = _declared_type(config, name)
    if hint is None:
        value = value_of(config, name)
        return (int, float) if value is None else (type(value),)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _declared_type(config: TrainConfig, name: str) -> Any:
    """The type of a setting; None for an option, since only its class knows it."""
    group, point, last = name.partition(".")
    holder: Any = _holder(config, group) if point else config
    return None if isinstance(holder, dict) else get_type_hints(type(holder))[last or group]


def declared(config: TrainConfig, name: str, space: Range | Sequence[Any], value: Any) -> Any:
    """The value in a setting's space that equals an external one.

    Raises:
        ValueError: if there is none.
    """
    if isinstance(space, Range):
        if type(value) in (int, float) and space.low <= value <= space.high:
            return int(value) if is_whole(config, name, space) else float(value)
        raise ValueError(f"{space} does not contain {one_line(value)}")
    text = json.dumps(value)
    for known in space:
        if json.dumps(known) == text:
            return known
    raise ValueError(f"{one_line(list(space))} does not contain {one_line(value)}")


def lane_names(config: TrainConfig, vary: Vary) -> list[str]:
    """The settings of a space that can vary between lanes of one compiled program."""
    prefix = f"{learning_group(config)}."
    return [
        name
        for name, space in vary.items()
        if name.startswith(prefix)
        and isinstance(space, Range)
        and can_differ(config, name.removeprefix(prefix))
    ]


def applicable(config: TrainConfig, vary: Vary) -> dict[str, Range | Sequence[Any]]:
    """The part of a space that applies to a memory: options of others are left out."""
    known = {*known_settings(config)}
    return {
        name: space
        for name, space in vary.items()
        if not name.startswith("memory_options.") or name in known
    }


def text_of(values: Values) -> str:
    """Values in readable form, as `clew train` takes them but without the dashes."""
    return " ".join(
        f"{n}={v:.4g}" if isinstance(v, float) else f"{n}={v}" for n, v in values.items()
    )
