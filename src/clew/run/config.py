"""The settings of a training run."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax

from clew.agents.a2c import A2CConfig
from clew.agents.network import Agent, NetworkConfig, make_agent
from clew.envs import make_env
from clew.envs.base import AutoReset
from clew.errors import UserError, require_at_least, require_rate, unknown_name
from clew.run.loggers import WandbConfig, check_loggers


@dataclass(frozen=True)
class TrainConfig:
    """What to train, on what, for how long; the defaults learn a short T-Maze in a minute."""

    env: str = "tmaze"
    """Name of the task."""
    env_options: dict[str, Any] = field(default_factory=lambda: {"corridor_length": 20})
    """Options of the task."""
    memory: str = "arelit"
    """Name of the memory model."""
    memory_options: dict[str, Any] = field(
        default_factory=lambda: {"hidden_size": 64, "num_layers": 2}
    )
    """Options of the memory model."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """What stands before and after the memory."""
    a2c: A2CConfig = field(default_factory=A2CConfig)
    """Settings of the learning algorithm."""
    steps: int = 500_000
    """Environment steps for every seed, over all its environments; rounded up to whole rollouts."""
    seeds: int = 1
    """Independent agents trained side by side in one compiled program."""
    seed: int = 0
    """First seed; the others follow it."""
    name: str = ""
    """Name of the run's folder; empty chooses <env>-<memory>-<number>."""
    run_dir: str = "runs"
    """Folder that holds the folders of runs."""
    log_every: int = 5
    """Updates between two rows of metrics.jsonl."""
    checkpoint_seconds: float = 60.0
    """Seconds of training between two checkpoints."""
    loggers: tuple[str, ...] = ()
    """Where rows of metrics go besides metrics.jsonl: tensorboard, wandb, both or neither."""
    wandb: WandbConfig = field(default_factory=WandbConfig)
    """Weights & Biases, if it is among the loggers."""
    preset: str = ""
    """Name of the preset that these settings came from, for the record."""

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one seed between two updates."""
        return self.a2c.num_envs * self.a2c.rollout_length

    @property
    def updates(self) -> int:
        """Number of updates of the whole run."""
        return math.ceil(self.steps / self.steps_per_update)

    def validate(self) -> None:
        """Refuses impossible settings; nothing is compiled or computed.

        Raises:
            UserError: naming the setting, its value and what was expected, or the nearest valid
                name.
        """
        for name in ("seeds", "log_every"):
            require_at_least(name, getattr(self, name), 1)
        require_at_least("seed", self.seed, 0)
        require_rate("checkpoint_seconds", self.checkpoint_seconds)
        self.network.validate()
        self.a2c.validate()
        check_loggers(self.loggers, self.wandb)
        require_at_least("steps", self.steps, 1)
        if self.steps < self.steps_per_update:
            raise UserError(
                f"steps must be at least one rollout, {self.a2c.num_envs} environments x "
                f"{self.a2c.rollout_length} steps = {self.steps_per_update}, got {self.steps}"
            )
        _check_name(self.name)
        try:
            json.dumps(self.to_json(), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(f"settings must be plain finite values: {error}") from error
        abstract_agent(self, make_stream(self))

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return dataclasses.asdict(self)

    def digest(self) -> str:
        """Twelve hexadecimal digits that name the settings which an update depends on."""
        values = self.to_json()
        for name in ("name", "run_dir", "preset", "steps", "checkpoint_seconds", *LOGGING):
            del values[name]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


LOGGING = ("loggers", "wandb")
"""Settings that no number of a run depends on; a run that is gone on with may change them."""
_GROUPS: dict[str, type] = {"network": NetworkConfig, "a2c": A2CConfig, "wandb": WandbConfig}


def config_from_json(values: dict[str, Any]) -> TrainConfig:
    """The settings that `to_json` wrote.

    Raises:
        UserError: for a field that this version does not know, or a value of the wrong kind.
    """
    values = dict(values)
    parts = {name: values.pop(name, {}) for name in _GROUPS}
    for kind, given in ((TrainConfig, values), *((_GROUPS[n], v) for n, v in parts.items())):
        known = [f.name for f in dataclasses.fields(kind)]
        for name in given:
            if name not in known:
                raise unknown_name("setting", name, known)
    values["loggers"] = tuple(values.get("loggers", ()))
    return TrainConfig(**values, **{name: _GROUPS[name](**v) for name, v in parts.items()})


def differences(old: TrainConfig, new: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """The settings in which two configurations differ, folder, name and loggers set aside.

    Returns:
        Name of the setting ("a2c.gamma" for nested ones) to its old and new value.
    """
    # Through JSON and back, where a tuple is a list.
    a, b = json.loads(json.dumps(old.to_json())), json.loads(json.dumps(new.to_json()))
    for group in _GROUPS:
        a |= {f"{group}.{k}": v for k, v in a.pop(group).items()}
        b |= {f"{group}.{k}": v for k, v in b.pop(group).items()}
    aside = ("name", "run_dir", "preset", *LOGGING)
    return {k: (a[k], b[k]) for k in a if a[k] != b[k] and k.split(".")[0] not in aside}


def make_stream(config: TrainConfig) -> AutoReset:
    """The run's task as an endless stream of episodes.

    Raises:
        UserError: for an unknown task or option, or an impossible value.
    """
    return AutoReset(make_env(config.env, **config.env_options))


def build_agent(config: TrainConfig, stream: AutoReset, key: jax.Array) -> Agent:
    """The run's agent before training.

    Raises:
        UserError: for an unknown memory or option, or an impossible value.
    """
    return make_agent(
        config.memory,
        config.memory_options,
        observation_size=stream.observation_size,
        num_actions=stream.num_actions,
        network=config.network,
        key=key,
    )


def abstract_agent(config: TrainConfig, stream: AutoReset) -> Agent:
    """The run's agent with shapes in place of arrays; nothing is computed."""
    return eqx.filter_eval_shape(lambda key: build_agent(config, stream, key), jax.random.key(0))


def _check_name(name: str) -> None:
    if name != name.strip() or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise UserError(f"name must be one folder's name (see run_dir for the place), got {name!r}")
