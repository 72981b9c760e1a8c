"""A study as data: models, settings of tasks, seeds, a budget, an evaluation, expected numbers."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from clew.envs import ENVS
from clew.errors import (
    UserError,
    one_line,
    require_at_least,
    require_finite,
    require_rate,
    unknown_name,
)
from clew.memory import MEMORIES
from clew.names import recorded_name, resolve
from clew.run.config import BOOKKEEPING, TrainConfig, keep_python_numbers, require_types


class Expected(NamedTuple):
    """The published result of one model in one setting."""

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
    """Steps of an episode, if all have the same number. Agents that learn by whole episodes then
    use it as their rollout_length, and a budget may be given in episodes."""
    floors: Mapping[str, float] = field(default_factory=dict)
    """Scores of policies that do not do what the task asks, by name, for example "memoryless"."""
    mix: str = ""
    """A task that plays several of these settings at once, "package.module:Class", called with
    `env` and the list of their `options`; empty for none."""
    together: str = ""
    """Settings with the same word here and the same `mix` are trained in one program."""
    learning: Mapping[str, float] = field(default_factory=dict)
    """Float settings of the learner that replace the models' own, by name. Settings of one task
    that differ in nothing else are trained in one program, with these as its inputs; in a
    `resumable` study each is trained alone."""
    further: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other options of the task, by name, on which every agent trained here is evaluated too; in a
    `resumable` study."""
    further_needs: str = ""
    """A metric whose mean must be at least a half here for `further` to be played: with "junction",
    agents that do not even reach the junction are not evaluated further."""
    perfect: float = 1.0
    """The best possible score; reports normalise by it and the floors."""

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        if not isinstance(self.env, str):
            object.__setattr__(self, "env", recorded_name("task", self.env))
        require_types(self, "{} of a setting")
        for name in ("options", "floors", "learning", "further"):
            _require_names(f"{name} of a setting", getattr(self, name))
        for name, options in self.further.items():
            _require_names(f"further[{name!r}] of a setting", options)
        if self.decisions is not None:
            require_at_least("decisions of a setting", self.decisions, 1)
        require_finite("perfect of a setting", self.perfect)
        for name, floor in self.floors.items():
            require_finite(f"floors[{name!r}] of a setting", floor)


@dataclass(frozen=True)
class Evaluation:
    """How a trained agent is measured.

    Raises:
        UserError: for an impossible value.
    """

    episodes: int = 1000
    """Episodes of every agent. A resumable study may have 0: a result is then the mean at the end
    of training."""
    greedy: bool = False
    """Take the greedy action, instead of sampling from the policy."""
    stream: bool = False
    """Play the first episodes of the task's fixed stream (`env.reset_at(n)`) instead of new ones;
    in a study that is not `resumable`."""
    seed: int = 0
    """Seed of new episodes and sampled actions; combined with every agent's own seed."""
    max_steps: int = 100_000
    """Give up after this many steps of one episode."""

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        for name, least in (("episodes", 0), ("seed", 0), ("max_steps", 1)):
            require_at_least(f"evaluation.{name}", getattr(self, name), least)
        require_types(self, "evaluation.{}")


class Cell(NamedTuple):
    """One training: the smallest unit of a study's progress."""

    model: str
    setting: str
    seed: int


@dataclass(frozen=True)
class Study:
    """A grid of trainings and their expected results.

    Every model is trained in every setting with every seed. A model's task, steps and seeds come
    from the setting, the budget and the study, not from the model.

    Raises:
        UserError: for an impossible or contradictory value.
    """

    name: str
    """Its name, which is recorded."""
    models: Mapping[str, TrainConfig]
    """The settings of each model by name."""
    settings: Mapping[str, Setting]
    """The forms of the task by name."""
    seeds: Sequence[int] = (0, 1, 2)
    """Seeds of every model in every setting; any different numbers from 0."""
    episodes: int | None = None
    """Budget of each training in episodes; needs the settings' `decisions`. Or give `steps`."""
    steps: int | None = None
    """Budget of each training in environment steps."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """How a trained agent is measured."""
    score: str = "return"
    """The episode metric that is the result, for example "return" or "success"."""
    expected: Mapping[tuple[str, str], Expected] = field(default_factory=dict)
    """Published numbers by (model, setting)."""
    memories: Mapping[str, str] = field(default_factory=dict)
    """Memories of your own, name to "package.module:factory", for use in `models`."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Tasks of your own, name to "package.module:Class", for use in `settings`."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Rough cost of a step by model, 1 by default: for the order of work and the time left."""
    curve_bins: int = 100
    """Maximum number of points of a learning curve."""
    resumable: bool = False
    """Train every cell as a separate run (`clew.train`) in the study's folder, one at a time on a
    core: for trainings of many minutes. A kill loses at most a checkpoint interval, a larger budget
    of `steps` continues where the smaller one ended, and cells are started seed by seed, so that
    the results are balanced at any time."""
    whole_machine: bool = False
    """Give every training all cores and any accelerator, one training at a time unless `--workers`
    says otherwise: for runs with their own processes. Needs `resumable`."""
    last_steps: int = 100_000
    """In a resumable study, a row has the means over the episodes in this many steps at the end of
    training."""
    fit_windows: bool = False
    """Limit the option `window` of memories to the length of the setting's episodes: they compute
    the same at a lower cost. Needs the settings' `decisions`."""

    def __post_init__(self) -> None:
        self._check_kinds()
        if (self.episodes is None) == (self.steps is None):
            raise UserError("give a study's budget either as episodes or as steps")
        require_at_least("episodes or steps", self.episodes or self.steps, 1)
        require_at_least("curve_bins", self.curve_bins, 1)
        if not self.resumable:
            require_at_least("evaluation.episodes", self.evaluation.episodes, 1)
        require_at_least("last_steps", self.last_steps, 1)
        if self.whole_machine and not self.resumable:
            raise UserError("whole_machine needs a resumable study")
        if self.resumable and self.steps is None:
            raise UserError("a resumable study needs its budget as steps")
        if self.resumable and self.evaluation.stream:
            raise UserError("a resumable study plays fresh episodes: leave evaluation.stream off")
        for kind in ("models", "settings", "seeds"):
            if not getattr(self, kind):
                raise UserError(f"a study needs at least one of {kind}")
        for seed in self.seeds:
            require_at_least("seed", seed, 0)
        if len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"seeds must all be different, got {self.seeds}")
        self._check_names()

    def _check_kinds(self) -> None:
        """Refuses fields of a wrong type, before anything is read from them."""
        require_types(self)
        if not self.name.strip("./ "):
            raise UserError(f"name of a study must be valid for a folder, got {self.name!r}")
        for name in ("models", "settings", "memories", "tasks", "weights"):
            _require_names(name, getattr(self, name))
        for group, kind in (
            ("models", TrainConfig),
            ("settings", Setting),
            ("expected", Expected),
            ("memories", str),
            ("tasks", str),
        ):
            for name, value in getattr(self, group).items():
                if not isinstance(value, kind):
                    said = f"{group}[{name!r}] must be of type {kind.__name__}"
                    raise UserError(f"{said}, got {one_line(value)}")
        for pair, (mean, std) in self.expected.items():
            require_finite(f"expected[{pair!r}].mean", mean)
            require_rate(f"expected[{pair!r}].std", std)
        for name, weight in self.weights.items():
            require_rate(f"weights[{name!r}]", weight)
        if not isinstance(self.seeds, Sequence) or isinstance(self.seeds, str):
            raise UserError(f"seeds must be integers as a tuple, got {one_line(self.seeds)}")

    def _check_names(self) -> None:
        """Refuses names in one field that are missing in another."""
        for pair in self.expected:
            if not (isinstance(pair, tuple) and len(pair) == 2):
                raise UserError(f"expected must be by (model, setting), got {one_line(pair)}")
            if pair[0] not in self.models:  # its setting may be one that was not asked for
                raise unknown_name("model in expected", pair[0], self.models)
        kinds = {frozenset(task.learning): task.learning for task in self.settings.values()}
        for name, config in self.models.items():
            if config.evaluate_every:
                raise UserError(
                    f"a study evaluates its agents at the end: leave evaluate_every of {name} "
                    f"at 0, got {config.evaluate_every}"
                )
            for learning in kinds.values():
                config.with_learning(**learning)

    @property
    def varied(self) -> bool:
        """Whether settings are lanes of a program, with their own learner settings."""
        return not self.resumable and any(t.learning for t in self.settings.values())

    def cells(self) -> list[Cell]:
        """Every cell: model by model, setting by setting, seed by seed."""
        return [Cell(m, s, n) for m in self.models for s in self.settings for n in self.seeds]

    def config(self, model: str, setting: str, seeds: Sequence[int] | None = None) -> TrainConfig:
        """The settings of one training.

        Args:
            seeds: of the program; the result has only their number and the first one.

        Raises:
            UserError: for a budget in episodes and a task whose episodes have no fixed length.
        """
        own, task = self.models[model], self.settings[setting]
        learning = dict(task.learning)
        if task.decisions is not None and own.learner.gathering.whole_episodes:
            learning["rollout_length"] = task.decisions
        steps = self.steps
        if self.episodes is not None:
            if task.decisions is None:
                raise UserError(f"a budget in episodes needs the decisions of {setting!r}")
            steps = self.episodes * task.decisions
        assert steps is not None
        config = replace(own, env=task.env, env_options=dict(task.options), steps=steps)
        config = config.with_learning(**learning)
        if self.fit_windows and task.decisions is not None and "window" in own.memory_options:
            window = min(own.memory_options["window"], max(1, task.decisions - 1))
            config = replace(config, memory_options=own.memory_options | {"window": window})
        numbers = self.seeds if seeds is None else seeds
        config = replace(config, seed=numbers[0], seeds=len(numbers))
        if self.resumable:  # rows of metrics must not depend on a budget that may be raised
            return config
        return replace(config, log_every=-(-config.updates // self.curve_bins))

    def digest(self, model: str, setting: str) -> str:
        """Twelve hexadecimal digits that identify all settings of a cell except its seed.

        In a resumable study the budget is excluded too, since it may be raised. The user's memories
        and tasks count by their names; `clew.lab.grid.sources` hashes their files.
        """
        config = self.config(model, setting).identity()
        values = {k: v for k, v in config.items() if k not in BOOKKEEPING}
        if self.resumable:
            del values["steps"]
            task = self.settings[setting]
            values["further"] = [{n: dict(o) for n, o in task.further.items()}, task.further_needs]
            values["last_steps"] = self.last_steps
        values |= {
            "evaluation": dataclasses.asdict(self.evaluation),
            "score": self.score,
            "curve_bins": self.curve_bins,
            "own": [self.memories.get(config["memory"]), self.tasks.get(config["env"])],
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]

    def only(
        self, models: Sequence[str] | None = None, settings: Sequence[str] | None = None
    ) -> "Study":
        """The part of the study with these models and settings, in the study's order.

        The expected results of its models stay for all settings, since its folder may have rows of
        others.

        Raises:
            UserError: for an unknown name, with the nearest ones.
        """
        kept = {}
        for kind, wanted in (("models", models), ("settings", settings)):
            known = getattr(self, kind)
            for name in wanted or ():
                if name not in known:
                    raise unknown_name(f"{kind[:-1]} of {self.name}", name, known)
            kept[kind] = {n: v for n, v in known.items() if wanted is None or n in wanted}
        expected = {pair: e for pair, e in self.expected.items() if pair[0] in kept["models"]}
        return replace(self, **kept, expected=expected)

    def add_memory(
        self,
        name: str,
        reference: str,
        options: Mapping[str, Any] | None = None,
        like: TrainConfig | None = None,
    ) -> "Study":
        """The study with one more model: a memory of your own in the other models' agent.

        Args:
            name: of the model; it must be new.
            reference: "package.module:factory"; called with input_size, key=key and options.
            options: the factory's keyword arguments.
            like: the model whose agent is used; by default the study's first one.

        Raises:
            UserError: if the name is taken.
        """
        if name in self.models or name in self.memories:
            raise UserError(f"{self.name} already has a model {name!r}; give yours another name")
        agent = next(iter(self.models.values())) if like is None else like
        config = replace(agent, memory=name, memory_options=dict(options or {}), preset="")
        models, memories = {**self.models, name: config}, {**self.memories, name: reference}
        return replace(self, models=models, memories=memories)


def _require_names(name: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise UserError(f"{name} must be a dict by name, got {one_line(value)}")
    for key in value:
        if not isinstance(key, str):
            raise UserError(f"{name} must have text as names, got {one_line(key)}")


@contextlib.contextmanager
def registered(memories: Mapping[str, str], tasks: Mapping[str, str]) -> Iterator[None]:
    """Registers the user's memories and tasks, as in `Study`, within this context.

    Raises:
        UserError: for a name of the library's own, or a reference that cannot be resolved.
    """
    with contextlib.ExitStack() as undo:
        for registry, kind, own in ((MEMORIES, "memory", memories), (ENVS, "task", tasks)):
            for name, reference in own.items():
                if name in registry:
                    raise UserError(f"clew already has a {kind} {name!r}; give yours another name")
                registry[name] = resolve(reference)  # pyright: ignore[reportArgumentType]
                undo.callback(registry.pop, name)
        yield
