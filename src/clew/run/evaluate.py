"""Loads and evaluates a trained run."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from clew.agents.network import Agent
from clew.envs.spaces import entries_named, named_spaces
from clew.errors import UserError, counted, require_episodes
from clew.interact.episodes import metrics_of_all
from clew.interact.task import Task
from clew.run import machine
from clew.run.build import make_task
from clew.run.load import LoadedRun, load_agent, load_run
from clew.run.progress import EpisodeLines
from clew.run.spaces import changed_spaces, recorded_spaces
from clew.stats import Interval, bootstrap_interval, wilson_interval
from clew.stats.intervals import over_seeds


class EvalResult(NamedTuple):
    """Scores of a run's agents on fresh episodes."""

    episodes: int
    """Episodes of every seed."""
    greedy: bool
    """Whether the most probable action was taken, instead of a sample from the policy."""
    steps: int
    """Environment steps that each seed's agent was trained for; for best agents the largest."""
    per_seed: dict[str, list[float]]
    """The mean over episodes of every metric, for each seed."""
    pooled: dict[str, Interval]
    """Mean and 95% interval of every metric: over the seeds by bootstrap if there are several,
    else over the episodes, by Wilson for metrics that are 0 or 1, and by bootstrap for others and
    for lengths, which are counts even if all are 1."""

    @property
    def success(self) -> Interval | None:
        """The fraction of episodes solved, if the task defines success."""
        return self.pooled.get("success")

    @property
    def seeds(self) -> int:
        """The number of agents that played."""
        return len(next(iter(self.per_seed.values())))

    @property
    def texts(self) -> dict[str, str]:
        """Mean and interval of every metric as text, success first."""
        names = sorted(self.pooled, key=lambda name: (name != "success", name))
        return {name: format(self.pooled[name], ".3f") for name in names}

    @property
    def note(self) -> str:
        """A line that says what the intervals are over."""
        return f"[..] 95% interval, over {over_seeds(self.seeds) if self.seeds > 1 else 'episodes'}"

    def __str__(self) -> str:
        """A line for each metric, as in `clew evaluate`."""
        way = "greedy" if self.greedy else "sampled"
        each = f" with each of {self.seeds} agents" if self.seeds > 1 else ""
        lines = [f"{counted(self.episodes, 'episode')}{each}, {way} actions"]
        lines += [f"{name}: {text}" for name, text in self.texts.items()]
        return "\n".join([*lines, self.note])


def load(
    path: str | Path, seed_index: int = 0, *, checkpoint: str = "", trust: bool = False
) -> Agent:
    """The agent of a run.

    Args:
        path: the run's folder or name.
        seed_index: which of the run's seeds, from 0.
        checkpoint: its file name or update, or "best", the best agent so far (see
            `clew.run.best`); by default the newest usable one.
        trust: consent to import the code that the run's settings name; see `clew.run.trust`.

    Raises:
        UserError: if there is no such run or seed, or no usable checkpoint; or if the run names
            code, and is neither trusted nor trained here.
    """
    return load_agent(path, seed_index, checkpoint, trust=trust).agent


def evaluate(
    path: str | Path,
    *,
    episodes: int = 200,
    greedy: bool = True,
    seed: int = 0,
    max_steps: int = 100_000,
    checkpoint: str = "",
    env: str = "",
    env_options: Mapping[str, Any] | None = None,
    trust: bool = False,
    log: Callable[[str], None] = lambda line: None,
) -> EvalResult:
    """Plays fresh episodes with every agent of a run.

    Environments side by side play the same number of complete episodes (one each for a task written
    in JAX), so that short episodes do not count more than long ones.

    Args:
        path: the run's folder or name.
        episodes: for every seed, at least 1.
        greedy: take the most probable action, instead of sampling from the policy.
        seed: of the episodes and samples.
        max_steps: most steps of an episode; a longer one is an error.
        checkpoint: its file name or update, or "best", the best agents so far (see
            `clew.run.best`); by default the newest usable one.
        env: another task than the run's, with the same observations and actions, and its options
            in `env_options`. The run's wrappers apply. Entries that only the critic reads may be
            missing.
        env_options: options of the task that differ from the run's, such as a longer corridor.
        trust: consent to import the code that the run's settings name; see `clew.run.trust`.
        log: called with a line before the first episode, and every few seconds with the number of
            finished episodes, their rate and the time left.

    Raises:
        UserError: if there is no such run, no usable checkpoint, an episode does not end, or the
            agents do not fit the other task; or if the run names code, and is neither trusted nor
            trained here.
    """
    require_episodes(episodes, max_steps, seed)
    machine.use_compilation_cache()
    run = load_run(path, checkpoint, trust=trust)
    config, task = run.config, _played(run, env, env_options or {})
    log(f"playing {counted(episodes, 'episode')} of at most {counted(max_steps, 'step')}")
    heard = EpisodeLines(episodes * config.seeds, log)
    play = task.evaluator(run.static, greedy=greedy, max_steps=max_steps, on_ended=heard)
    found, learned = [], (run.params, _statistics(run, task))
    for index in range(config.seeds):
        params, statistics = jax.tree.map(lambda x, i=index: x[i], learned)
        found.append(play(params, statistics, episodes, (seed, index)))
    names = metrics_of_all(found)
    return EvalResult(
        episodes=episodes,
        greedy=greedy,
        steps=max(run.updates) * config.steps_per_update,
        per_seed={n: [float(seed[n].mean()) for seed in found] for n in names},
        pooled={n: interval(n, [seed[n] for seed in found]) for n in names},
    )


def _played(run: LoadedRun, env: str, env_options: Mapping[str, Any]) -> Task:
    """The run's task, or the one to play instead."""
    own, config = run.task, run.config
    if not env and not env_options:
        return own
    options = {**({} if env else config.env_options), **env_options}
    task = make_task(replace(config, env=env or config.env, env_options=options))
    critic_only = entries_named(named_spaces(own.observation_space), config.network.critic_only)
    lacking = set(critic_only) - named_spaces(task.observation_space).keys()
    if changed := changed_spaces(recorded_spaces(own, lacking), task):
        raise UserError(f"the agents of {run.path} do not fit this task: {changed}")
    if task.acts_on_device != own.acts_on_device:
        raise UserError(
            f"{task.name} cannot replace {own.name}: one is written in JAX, and the other one not"
        )
    return task


def _statistics(run: LoadedRun, task: Task) -> Any:
    """The wrappers' statistics, without those of entries that the task lacks."""
    needed = (task.statistics() or {}).get("observation", ())
    if not needed:
        return run.statistics
    return run.statistics | {"observation": {n: run.statistics["observation"][n] for n in needed}}


def interval(name: str, values: list[np.ndarray]) -> Interval:
    """Mean and 95% interval of a metric of episodes, one array for each seed; see `EvalResult`."""
    if len(values) > 1:
        return bootstrap_interval([float(v.mean()) for v in values])
    episodes = values[0]
    if name != "length" and np.isin(episodes, (0.0, 1.0)).all():
        return wilson_interval(int(episodes.sum()), episodes.size)
    return bootstrap_interval(episodes, method="percentile", resamples=2000)
