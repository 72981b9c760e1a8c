"""A trained run, loaded and measured."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.agents.network import Agent
from clew.envs.stream import AutoReset
from clew.errors import UserError, require_episodes
from clew.interact.rollout import ActorState, init_actor
from clew.interact.tasks import HostSide
from clew.run import machine
from clew.run.build import make_stream
from clew.run.load import load_agent, load_run
from clew.stats import Interval, bootstrap_interval, wilson_interval

BATCH = 64
"""Episodes evaluated side by side."""


class EvalResult(NamedTuple):
    """What a run's agents do on fresh episodes."""

    episodes: int
    """Episodes of every seed."""
    greedy: bool
    """Whether the likeliest action was taken, instead of a draw from the policy."""
    steps: int
    """Environment steps of each seed that the checkpoint was trained for."""
    per_seed: dict[str, list[float]]
    """The mean over episodes of every metric, for each seed."""
    pooled: dict[str, Interval]
    """Mean and 95% interval of every metric: over the seeds by bootstrap if there are several,
    else over the episodes, by Wilson for those that are 0 or 1 and by bootstrap for others."""

    @property
    def success(self) -> Interval | None:
        """The share of episodes solved, if the task says what that is."""
        return self.pooled.get("success")


def load(path: str | Path, seed_index: int = 0) -> Agent:
    """The agent of a run, from its newest good checkpoint.

    Args:
        path: the run's folder or name.
        seed_index: which of the run's seeds, from 0.

    Raises:
        UserError: if there is no such run or seed, or no usable checkpoint.
    """
    return load_agent(path, seed_index).agent


def evaluate(
    path: str | Path,
    *,
    episodes: int = 200,
    greedy: bool = True,
    seed: int = 0,
    max_steps: int = 100_000,
) -> EvalResult:
    """Plays fresh episodes with every agent of a run.

    Every environment plays one episode to its end, so that short episodes do not count more than
    long ones.

    Args:
        path: the run's folder or name.
        episodes: for every seed, at least 1.
        greedy: take the likeliest action, instead of drawing from the policy.
        seed: of the episodes and draws.
        max_steps: gives up after so many steps of one episode.

    Raises:
        UserError: if there is no such run, no usable checkpoint, or an episode does not end.
    """
    require_episodes(episodes, max_steps, seed)
    machine.use_compilation_cache()
    run = load_run(path)
    config = run.config
    stream = make_stream(config)
    if isinstance(stream, HostSide):
        from clew.interact.host_evaluate import evaluate_seeds

        found = evaluate_seeds(run, stream, episodes, greedy, seed, max_steps)
    else:
        play = jax.jit(partial(play_batch, run.static, stream, greedy, max_steps))
        found = []
        for index in range(config.seeds):
            agent = jax.tree.map(lambda leaf, i=index: leaf[i], run.params)
            key = jax.random.fold_in(jax.random.key(seed), index)
            found.append(play_episodes(partial(play, agent), key, episodes, config.env, max_steps))
    return EvalResult(
        episodes=episodes,
        greedy=greedy,
        steps=run.update * config.steps_per_update,
        per_seed={n: [float(seed[n].mean()) for seed in found] for n in found[0]},
        pooled={n: _interval([seed[n] for seed in found]) for n in found[0]},
    )


def play_episodes(
    play: Callable[[PRNGKeyArray], Any], key: PRNGKeyArray, episodes: int, env: str, max_steps: int
) -> dict[str, np.ndarray]:
    """Every metric of so many episodes, `BATCH` of them at a time.

    Args:
        play: a compiled `play_batch` of one agent.
        key: of the episodes and draws.
        episodes: how many.
        env: the task's name, for the error.
        max_steps: of an episode, as `play` has it.

    Raises:
        UserError: if an episode does not end.
    """
    keys = jax.random.split(key, math.ceil(episodes / BATCH))
    parts = [jax.device_get(play(one)) for one in keys]
    if not all(ended.all() for _, ended in parts):
        raise UserError(f"an episode of {env} did not end within {max_steps} steps")
    return {n: np.concatenate([m[n] for m, _ in parts])[:episodes] for n in parts[0][0]}


def play_batch(
    static: Agent, stream: AutoReset, greedy: bool, max_steps: int, params: Any, key: PRNGKeyArray
) -> tuple[dict[str, Float[Array, " episodes"]], Bool[Array, " episodes"]]:
    """The metrics of the first episode of `BATCH` environments, and which of them ended."""
    agent = eqx.combine(params, static)
    reset_key, key = jax.random.split(key)
    return play(agent, stream, init_actor(agent, stream, BATCH, reset_key), greedy, max_steps, key)


def play(
    agent: Agent,
    stream: AutoReset,
    actor: ActorState,
    greedy: bool,
    max_steps: int,
    key: PRNGKeyArray,
) -> tuple[dict[str, Float[Array, " episodes"]], Bool[Array, " episodes"]]:
    """Plays every environment's episode to its end.

    Args:
        agent: the network.
        stream: the task.
        actor: each environment at the beginning of an episode, with an empty memory.
        greedy: take the likeliest action, instead of drawing from the policy.
        max_steps: gives up after so many steps.
        key: of the draws, and of the environments' own chance.

    Returns:
        The stream's metrics of every episode, and whether it ended.
    """
    count = actor.timestep.reward.shape[0]

    def more(carry: tuple) -> Array:
        return ~jnp.all(carry[1]) & (carry[4] < max_steps)

    def one(carry: tuple) -> tuple:
        actor, ended, metrics, key, steps = carry
        key, action_key, env_key = jax.random.split(key, 3)
        seen = actor.timestep
        memory, logits, _ = jax.vmap(agent.step)(actor.memory, seen.observation, seen.start)
        action = agent.distribution.choose(logits, action_key, greedy=greedy)
        taken = cast(Array, agent.distribution.decode(action))
        env, then = jax.vmap(stream.step)(actor.env, taken, jax.random.split(env_key, count))
        first = then.ended & ~ended
        metrics = {n: jnp.where(first, then.metrics[n], metrics[n]) for n in metrics}
        return ActorState(env, then, memory), ended | first, metrics, key, steps + 1

    zeros = {name: jnp.zeros(count, jnp.float32) for name in stream.metric_names}
    carry = (actor, jnp.zeros(count, jnp.bool_), zeros, key, jnp.zeros((), jnp.int32))
    _, ended, metrics, _, _ = jax.lax.while_loop(more, one, carry)
    return metrics, ended


def _interval(values: list[np.ndarray]) -> Interval:
    if len(values) > 1:
        return bootstrap_interval([float(v.mean()) for v in values])
    episodes = values[0]
    if np.isin(episodes, (0.0, 1.0)).all():
        return wilson_interval(int(episodes.sum()), episodes.size)
    return bootstrap_interval(episodes, method="percentile", resamples=2000)
