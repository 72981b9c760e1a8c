"""The settings of a training run."""

import dataclasses
import functools
import hashlib
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from clew.agents.learners import (
    LEARNERS,
    Learner,
    LearnerConfig,
    LearnerSettings,
    learner_settings,
    make_learner,
)
from clew.agents.network import NetworkConfig
from clew.envs.spaces import WHOLE
from clew.envs.wrappers import WrapperConfig
from clew.errors import (
    UserError,
    one_line,
    require_at_least,
    require_choice,
    require_rate,
    together,
    unknown_name,
    unknown_setting,
)
from clew.files import with_lists, with_tuples
from clew.interact.task import HostConfig
from clew.memory import MEMORIES
from clew.names import is_reference, recorded_name
from clew.other_names import meanings, note
from clew.run.asynchronous.settings import PLACE, AsyncConfig
from clew.run.defaults import ENV, MEMORY_OPTIONS, DefaultOptions, defaults_for, memory_defaults
from clew.run.loggers import WandbConfig, check_loggers
from clew.run.migration import lasting_groups, lasting_memory, migrate_settings

ALGORITHMS = (*LEARNERS, "auto")
RUNNERS = ("sync", "async")
THREADS = ("auto", "one", "all")
ACTIONS = ("greedy", "sampled")


T = TypeVar("T")


def _chosen(kind: Callable[..., T]) -> T:
    """A field that is None if it is left out, until the configuration is built."""
    return cast(T, field(default=None))


def keep_python_numbers(settings: Any) -> None:
    """Replaces NumPy's numbers, which JSON does not have, by Python's; for a `__post_init__`."""
    for name in settings.__dataclass_fields__:
        object.__setattr__(settings, name, _python_numbers(getattr(settings, name)))


def _python_numbers(value: Any) -> Any:
    """A setting, or a container of settings; the same object if nothing changes."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        made = [*map(_python_numbers, value)]
        return value if all(map(operator.is_, made, value)) else type(value)(made)
    if isinstance(value, dict):
        changed = {k: new for k, v in value.items() if (new := _python_numbers(v)) is not v}
        return value | changed if changed else value
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    changed = {k: new for k, v in held.items() if (new := _python_numbers(v)) is not v}
    return replace(value, **changed) if changed else value


def _unknown_setting(name: str) -> UserError:
    places: dict[str, list[str]] = {}
    for group, kind in _GROUPS.items():
        if meant := next((m for m in meanings(name) if m in _hints(kind)), None):
            places.setdefault(meant, []).append(f"{group}=clew.{kind.__name__}({meant}=...)")
    if places:
        having = (" or ".join(those) + note(name, meant) for meant, those in places.items())
        return UserError(f"{name} belongs to a group of settings: {' or '.join(having)}")
    return unknown_setting("setting", name, _hints(TrainConfig))


@dataclass(frozen=True)
class TrainConfig(LearnerSettings):
    """All settings of a training; the defaults learn a short T-Maze in a minute.

    A setting that is None or left out with the default None is chosen by the task when the
    configuration is built (see `clew.run.defaults`); afterwards none is None.
    """

    env: str = ENV
    """Name of the task: one that `clew envs` lists, gymnasium:ID, pettingzoo:MODULE, gymnax:ID (or
    xminigrid, craftax, brax or jumanji), or module:Class for your own JAX task or Gymnasium
    environment."""
    env_options: dict[str, Any] = _chosen(dict)
    """Options of the task. Defaults apply only to the default task."""
    memory: str = "arelit"
    """Name of the memory model: one that `clew models` lists, or module:Class for your own, called
    with input_size, key=key and memory_options."""
    memory_options: dict[str, Any] = field(default_factory=lambda: DefaultOptions(MEMORY_OPTIONS))
    """Options of the memory model. Without any, models of the library get hidden_size=64 and
    num_layers=2 if they have them. If some are given, the others take the model's own defaults. A
    memory of your own always has its own defaults."""
    network: NetworkConfig = _chosen(NetworkConfig)
    """The network around the memory: encoder, projection and heads."""
    algorithm: str = "auto"
    """Learner: a2c (advantage actor-critic), ppo (proximal policy optimisation), pqn or r2d2
    (Q-learning without and with replay, for discrete actions), sac (soft actor-critic with replay,
    for discrete or continuous actions), or auto: a2c on tasks written in JAX; on Gymnasium
    environments the one whose settings are given, else ppo, with a fitting encoder (auto) and
    normalised rewards unless you set them. Or module:Class for a learner of your own."""
    learner_options: dict[str, Any] = field(default_factory=dict)
    """Settings of a learner of your own; the others take its defaults."""
    wrappers: WrapperConfig = _chosen(WrapperConfig)
    """Wrappers around the environment."""
    host: HostConfig = field(default_factory=HostConfig)
    """How Gymnasium environments are run."""
    runner: str = "sync"
    """How acting and learning alternate: sync, one after the other, or async, at the same time in
    several processes (PPO, PQN, R2D2 and SAC on Gymnasium environments only)."""
    asynchronous: AsyncConfig = field(default_factory=AsyncConfig)
    """How actors and learner share the work; used only with runner async."""
    start_from: str = ""
    """A run whose trained agent to start with: its folder, its name or one of its checkpoint files;
    empty starts with fresh weights. The arrays must have the same shapes. The wrappers' statistics
    are taken over; the optimiser, the replay buffer and all counters are reset. If that run has
    several seeds, this one needs as many, one for each; in studies and sweeps it must have one."""
    steps: int = 500_000
    """Environment steps of every seed, over all its environments; rounded up to whole rollouts."""
    seeds: int = 1
    """Independent agents trained side by side in one compiled program."""
    devices: int = 0
    """Devices to compute on. The seeds are divided between them if that works out evenly, otherwise
    the environments of each seed. 0 chooses: for a task written in JAX one per CPU core, as many as
    divide the seeds. config.json records the number."""
    device_threads: str = "auto"
    """Threads of each CPU device: one, all (XLA's default), or auto, which is one for a task
    written in JAX."""
    seed: int = 0
    """First seed; the others count up from it."""
    name: str = ""
    """Name of the run's folder; by default <env>-<memory>-<number>."""
    run_dir: str = "runs"
    """Folder that holds the runs."""
    log_every: int = 5
    """Updates between two rows of metrics.jsonl."""
    checkpoint_seconds: float = 60.0
    """Seconds of training between two checkpoints."""
    evaluate_every: int = 0
    """Environment steps of each seed between two evaluations on fresh episodes, rounded up to rows
    of metrics.jsonl, which record their results; 0 for none. Evaluations select the best agent;
    they do not change the training."""
    evaluate_episodes: int = 16
    """Episodes of an evaluation, for every seed."""
    evaluate_actions: str = "greedy"
    """How evaluations choose actions: greedy, the most probable one, or sampled, as in training."""
    evaluate_max_steps: int = 100_000
    """Most steps of an episode in an evaluation; with a longer one the evaluation is dropped."""
    loggers: tuple[str, ...] = ()
    """Loggers of metrics besides metrics.jsonl: tensorboard, wandb, or module:Class for your own;
    several or none."""
    wandb: WandbConfig = field(default_factory=WandbConfig)
    """Weights & Biases, if it is among the loggers."""
    preset: str = ""
    """On the command line: start with the settings of a published experiment, such as
    pramanik/arelit or makkink/gtrxl; other given options are added to them. In Python: only the
    name of the preset that these settings come from."""

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Refuses an unknown setting; the error has the nearest ones or the group that has it."""
        for name in settings.keys() - cls.__dataclass_fields__.keys():
            raise _unknown_setting(name)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._name_classes()
        self._place_start()
        self._check_groups()
        keep_python_numbers(self)
        given: list[str] = []
        if self.algorithm == "auto":
            given = [n for n, kind in LEARNERS.items() if getattr(self, n) != kind.settings()]
        chosen = defaults_for(self.env, self.algorithm, given)._asdict()
        left_out = [name for name in chosen if getattr(self, name) is None]
        if isinstance(self.env_options, DefaultOptions):
            left_out.append("env_options")
        for name in ("algorithm", *left_out):
            object.__setattr__(self, name, chosen[name])
        if isinstance(self.memory_options, DefaultOptions) and self.memory in MEMORIES:
            options = memory_defaults(self.memory)
            object.__setattr__(self, "memory_options", options)
        elif isinstance(self.memory_options, DefaultOptions) and is_reference(self.memory):
            object.__setattr__(self, "memory_options", DefaultOptions())

    def _name_classes(self) -> None:
        """Replaces classes that are given as objects by their names."""
        for name, kind in (("memory", "memory"), ("env", "task"), ("algorithm", "learner")):
            given: object = getattr(self, name)
            if not isinstance(given, str):
                object.__setattr__(self, name, recorded_name(kind, given))

    def _place_start(self) -> None:
        """Makes `start_from` an absolute path, which is valid wherever the settings are read."""
        given = self.start_from
        if isinstance(given, str) and given:
            near = (Path(given), Path(self.run_dir) / given)
            found = next((str(path.absolute()) for path in near if path.exists()), given)
            object.__setattr__(self, "start_from", found)

    def _check_groups(self) -> None:
        """Refuses a group of settings of the wrong type, before anything is read from it."""
        for name, kind in _GROUPS.items():
            given = getattr(self, name)
            if given is not None and not isinstance(given, kind):
                hint = f"; write clew.{kind.__name__}(...)" if isinstance(given, dict) else ""
                raise UserError(f"{name} must be a {kind.__name__}, got {one_line(given)}{hint}")
        for name in _OPTIONS:
            given = getattr(self, name)
            if given is not None and not isinstance(given, dict):
                raise UserError(f"{name} must be a dict of options by name, got {one_line(given)}")

    @property
    def learning(self) -> LearnerConfig:
        """The settings of the algorithm in use."""
        if is_reference(self.algorithm):
            return learner_settings(self.algorithm, self.learner_options)
        return getattr(self, self.algorithm)

    def with_learning(self, **changes: Any) -> Self:
        """The configuration with other values for some settings of the algorithm in use.

        Raises:
            UserError: for a setting that the algorithm does not have, with the nearest ones.
        """
        if is_reference(self.algorithm):
            return replace(self, learner_options=self.learner_options | changes)
        learning: Any = self.learning
        for name in changes:
            if name not in learning.__dataclass_fields__:
                raise unknown_name(
                    f"setting of {self.algorithm}", name, learning.__dataclass_fields__
                )
        return replace(self, **{self.algorithm: replace(learning, **changes)})

    @property
    def learner(self) -> Learner:
        """The algorithm in use, with its settings."""
        return make_learner(self.algorithm, self.learning, self.updates)

    @property
    def own_parts(self) -> list[tuple[str, dict[str, Any]]]:
        """The parts named by module:name, with their options, except the task: memory, encoder,
        learner, loggers, schedules."""
        parts: list[tuple[str, dict[str, Any]]] = [
            (self.memory, self.memory_options),
            (self.network.encoder, self.network.encoder_options),
            (self.algorithm, self.learner_options),
            *((logger, {}) for logger in self.loggers),
        ]
        if self.algorithm in LEARNERS:
            settings = vars(self.learning).values()
            parts += [(value, {}) for value in settings if isinstance(value, str)]
        return [(name, options) for name, options in parts if is_reference(name)]

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one seed between two updates."""
        return self.learning.num_envs * self.learning.rollout_length

    @property
    def updates(self) -> int:
        """Number of updates of the whole run."""
        return math.ceil(self.steps / self.steps_per_update)

    def validate(self) -> None:
        """Refuses impossible settings, without building anything; `make_parts` checks the rest.

        Raises:
            UserError: naming the setting, its value and what was expected, or the nearest valid
                name.
        """
        self.check_types()
        together(
            lambda: require_at_least("seeds", self.seeds, 1),
            lambda: require_at_least("log_every", self.log_every, 1),
            lambda: require_at_least("devices", self.devices, 0),
            lambda: require_choice("device_threads", self.device_threads, THREADS),
            lambda: require_rate("checkpoint_seconds", self.checkpoint_seconds),
            lambda: require_at_least("evaluate_every", self.evaluate_every, 0, 2**53),
            lambda: require_at_least("evaluate_episodes", self.evaluate_episodes, 1),
            lambda: require_choice("evaluate_actions", self.evaluate_actions, ACTIONS),
            lambda: require_at_least("evaluate_max_steps", self.evaluate_max_steps, 1),
            self.network.validate,
            self._validate_whole,
            self._validate_learning,
            self.host.validate,
            lambda: require_choice("runner", self.runner, RUNNERS),
            self.asynchronous.validate,
            lambda: check_loggers(self.loggers, self.wandb),
            lambda: _check_name(self.name),
        )
        require_at_least("seed", self.seed, 0, SEEDS - self.seeds)  # larger ones wrap in JAX
        try:
            json.dumps(self.to_json(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(f"settings must be plain finite values: {error}") from error

    def _validate_whole(self) -> None:
        """Refuses to show the actor what the wrappers hide."""
        if self.wrappers.whole and WHOLE not in self.network.critic_only:
            raise UserError(
                f"wrappers.whole is for the critic alone: network.critic_only must name {WHOLE!r}, "
                f"got {self.network.critic_only}"
            )

    def _validate_learning(self) -> None:
        """Validates the learner's settings and the steps, which are whole rollouts."""
        if not is_reference(self.algorithm):  # otherwise `learning` raises the error
            require_choice("algorithm", self.algorithm, ALGORITHMS)
            if self.learner_options:
                raise UserError(
                    f"learner_options are for a learner of your own (module:Class); the settings "
                    f"of {self.algorithm} are in the group {self.algorithm}, got "
                    f"{self.learner_options}"
                )
        together(self.learning.validate, lambda: require_at_least("steps", self.steps, 1, 2**53))
        if self.steps < self.steps_per_update:
            raise UserError(
                f"steps must be at least one rollout, {self.learning.num_envs} environments x "
                f"{self.learning.rollout_length} steps = {self.steps_per_update}, got {self.steps}"
            )
        require_at_least("the number of updates", self.updates, 1)

    def check_types(self) -> None:
        """Refuses settings of the wrong type; see `require_types`."""
        require_types(self)
        for name in _GROUPS:
            require_types(getattr(self, name), f"{name}.{{}}")

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        values = with_lists(dataclasses.asdict(self))
        learners = {name: values.pop(name) for name in LEARNERS}
        return values | learners  # the task and the memory come first

    def identity(self) -> dict[str, Any]:
        """The settings that determine what is computed, as JSON values.

        Settings of algorithms that are not in use are left out. A newer setting is left out if
        its value changes nothing against versions without it, so that results keep their names.
        """
        values = self.to_json()
        for name in (*(n for n in LEARNERS if n != self.algorithm), *BESIDE):
            del values[name]
        for name in PLACE:
            del values["asynchronous"][name]
        # In one process, taking turns, both runners compute the same.
        if self.runner == "sync" or self.asynchronous.serial:
            del values["runner"], values["asynchronous"]
        for name in _NEWER:
            *groups, last = name.split(".")
            if groups and groups[0] not in values:
                continue
            holder, default = values, _DEFAULTS
            for group in groups:
                holder, default = holder[group], default[group]
            if holder[last] == default[last]:
                del holder[last]
        if self.algorithm == "sac":
            values |= lasting_groups(values)
        return values | lasting_memory(self.memory, values["memory_options"])

    def digest(self) -> str:
        """Twelve hexadecimal digits that identify the settings on which an update depends."""
        values = self.identity()
        for name in ("name", "run_dir", "preset", "steps", "checkpoint_seconds"):
            del values[name]
        for name in EVALUATION:
            values.pop(name, None)
        if is_reference(self.algorithm):
            values["steps"] = self.steps  # only its code knows whether it has a schedule
        elif self.learner.gathering.scheduled:
            values["updates"] = self.updates
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


EVALUATION = ("evaluate_every", "evaluate_episodes", "evaluate_actions", "evaluate_max_steps")
"""Settings of the evaluations while training; no update depends on them."""
_NEWER = (
    *EVALUATION,
    "algorithm",
    "start_from",
    "learner_options",
    "network.encoder_options",
    "a2c.schedule",
    *(
        f"{n}.{name}"
        for n in ("a2c", "ppo")
        for name in ("warmup_fraction", "gradient_accumulation")
    ),
    *(f"{n}.memory_rate" for n in ("a2c", "ppo", "pqn", "r2d2")),
    "wrappers",
    *(f"wrappers.{name}" for name in ("trial_episodes", "trial_memory")),
    *(f"wrappers.{name}" for name in ("action_mask", "show_action_mask", "metrics")),
    *(f"wrappers.{name}" for name in ("previous_action", "noise", "flicker", "whole")),
    *(f"network.{name}" for name in ("picture_channels", "picture_size", "embedding_size")),
    *(f"network.{name}" for name in ("encoder_projection", "encoder_norm", "nonlinearity")),
    *(f"network.{name}" for name in ("precision", "continuous", "log_std", "initial_log_std")),
    *(f"network.{name}" for name in ("noise_steps", "critic_only", "memory_of_critic")),
)
SEEDS = 2**32
"""The number of different seeds."""
_TYPES = {
    str: "a string",
    bool: "True or False",
    tuple: "a tuple",
    dict: "a dict",
    Mapping: "a dict",
}
BOOKKEEPING = ("name", "run_dir", "preset", "seed", "seeds", "log_every", "checkpoint_seconds")
"""Settings that no training depends on, apart from its seed; a study and a sweep set them."""
BESIDE = ("loggers", "wandb", "devices", "device_threads", "host")
"""Settings that no number of a run depends on, except by rounding and after a fault of an
environment; a resumed run may change them."""
_GROUPS: dict[str, type] = {
    "network": NetworkConfig,
    **{name: learner.settings for name, learner in LEARNERS.items()},
    "wrappers": WrapperConfig,
    "host": HostConfig,
    "asynchronous": AsyncConfig,
    "wandb": WandbConfig,
}
_OPTIONS = ("env_options", "memory_options", "learner_options")
_DEFAULTS = TrainConfig().to_json()


def config_from_json(values: dict[str, Any], *, former: bool = False) -> TrainConfig:
    """The settings that `to_json` wrote; `former` is as in `migrate_settings`.

    Raises:
        UserError: for a field that this version does not have, or a value of the wrong kind.
    """
    if not isinstance(values, dict):
        raise UserError(f"settings must be an object, got {values!r:.40}")
    values = migrate_settings(values, TrainConfig.memory, former=former)
    if values["algorithm"] == "auto":  # choosing one may import the task, but this is only data
        raise UserError("the setting algorithm must name an algorithm, got 'auto'")
    parts = {name: values.pop(name, {}) for name in _GROUPS}
    for kind, given in ((TrainConfig, values), *((_GROUPS[n], v) for n, v in parts.items())):
        if not isinstance(given, dict):
            raise UserError(f"settings of {kind.__name__} must be an object, got {one_line(given)}")
        hints = _hints(kind)
        for name, value in given.items():
            if name not in hints:
                raise unknown_name("setting", name, hints)
            if not fits(value, hints[name]):
                raise UserError(f"the setting {name} has the wrong type: {one_line(value)}")
    values["loggers"] = tuple(values.get("loggers", ()))
    made = {name: _GROUPS[name](**with_tuples(group)) for name, group in parts.items()}
    return TrainConfig(**values, **made)


def require_types(settings: Any, called: str = "{}") -> None:
    """Refuses strings, flags, lists and groups of the wrong type; numbers are checked elsewhere.

    Messages name a setting as `called`, with its name in place of {}.

    Raises:
        UserError: naming the setting, its value and what was expected.
    """
    for name, hint in _hints(type(settings)).items():
        value, said = getattr(settings, name), called.format(name)
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        kinds = [get_origin(option) or option for option in options]
        named = [_TYPES[kind] for kind in kinds if kind in _TYPES]
        groups = [k for k in kinds if isinstance(k, type) and dataclasses.is_dataclass(k)]
        named += [f"of type {group.__name__}" for group in groups]
        if named and not fits(value, hint):
            raise UserError(f"{said} must be {' or '.join(named)}, got {one_line(value)}")
        if dict in kinds and not all(isinstance(key, str) for key in value or ()):
            raise UserError(f"{said} must have strings as keys, got {one_line(value)}")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a group's settings."""
    return get_type_hints(kind)


def fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is of a setting's type; types that JSON cannot tell apart pass."""
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is float:
        return type(value) in (int, float)
    if hint in (bool, int, str, NoneType):
        return type(value) is hint
    if get_origin(hint) in (tuple, list):
        of = get_args(hint)[0]
        return isinstance(value, tuple | list) and all(fits(one, of) for one in value)
    if dataclasses.is_dataclass(hint):
        return isinstance(value, cast(type, hint))
    return isinstance(value, Mapping) if get_origin(hint) in (dict, Mapping) else True


def differences(old: TrainConfig, new: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """The settings in which two configurations differ, apart from folder, name and loggers.

    Returns:
        Name of the setting ("a2c.gamma" for nested ones) to its old and new value.
    """
    # Through JSON and back, where a tuple is a list.
    a, b = json.loads(json.dumps(old.to_json())), json.loads(json.dumps(new.to_json()))
    for group in _GROUPS:
        a |= {f"{group}.{k}": v for k, v in a.pop(group).items()}
        b |= {f"{group}.{k}": v for k, v in b.pop(group).items()}
    aside = ("name", "run_dir", "preset", *BESIDE)
    # As text, in which all NaN are equal.
    return {
        k: (a[k], b[k])
        for k in a
        if json.dumps(a[k]) != json.dumps(b[k]) and k.split(".")[0] not in aside
    }


def refuse_unused(config: TrainConfig) -> None:
    """Refuses settings of a learner that is not in use, since they would change nothing.

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
    """The error's text for a setting of a learner that is not in use."""
    return (
        f"{setting} would change nothing: {config.env} is learned by {config.algorithm} here; "
        f"--algorithm {learner} (in Python algorithm={learner!r}) would use it"
    )


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"name must be text in UTF-8, got {name!r}") from error
    if name != name.strip() or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise UserError(
            f"name must be a folder name without a path (run_dir sets the place), got {name!r}"
        )
