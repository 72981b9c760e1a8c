"""The forms of a study's task, how agents are measured in them, and what was published."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Expected(NamedTuple):
    """What a published table says of one model in one setting."""

    mean: float
    std: float
    """Standard deviation over the published seeds."""


@dataclass(frozen=True)
class Setting:
    """One form of a task."""

    env: str
    """Name of the task."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the task."""
    decisions: int | None = None
    """Steps of an episode, where all have as many. Agents that learn by whole episodes then take
    it as their rollout_length, and a budget may be given in episodes."""
    floors: Mapping[str, float] = field(default_factory=dict)
    """What policies earn that do not do what the task asks, by name, for example "memoryless"."""
    mix: str = ""
    """A task that plays several of these settings at once, "package.module:Class" called with
    `env` and the list of their `options`, as `clew.envs.mixed_recall:MixedRecall`; or none."""
    together: str = ""
    """Settings with the same word here, and the same `mix`, are trained in one program."""
    a2c: Mapping[str, float] = field(default_factory=dict)
    """Rates and costs of A2C in place of the models' own, by name. Settings of one task that
    differ in nothing else are trained in one program, with these as numbers of it."""
    ppo: Mapping[str, float] = field(default_factory=dict)
    """The same of PPO, where every setting is trained alone; in a study that is `resumable`."""
    further: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other options of the task, by name, on which every agent that was trained here is measured
    as well; in a study that is `resumable`."""
    further_needs: str = ""
    """A metric whose mean must be at least a half here for `further` to be played at all: with
    "junction" nobody waits for agents that do not even get there."""


@dataclass(frozen=True)
class Evaluation:
    """How a trained agent is measured."""

    episodes: int = 1000
    """Episodes of every agent. A resumable study may have 0: then a result is the mean over the
    last of training."""
    greedy: bool = False
    """Take the likeliest action, instead of drawing from the policy."""
    stream: bool = False
    """Play the first episodes of the task's fixed stream (`env.reset_at(n)`), not fresh ones."""
    seed: int = 0
    """Of fresh episodes and of draws; every agent's own seed goes in as well."""
    max_steps: int = 100_000
    """Give up after so many steps of one episode."""
