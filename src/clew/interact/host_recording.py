"""Episodes of other people's environments, recorded with what they render."""

import dataclasses
import warnings
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium.vector import SyncVectorEnv
from jaxtyping import Array

from clew.agents.distributions import Distribution
from clew.agents.network import Agent
from clew.bridges.gymnasium.build import takes
from clew.bridges.gymnasium.stream import HostStep, HostStream
from clew.errors import require_episodes
from clew.interact.acting import Choice, compile_act, step
from clew.interact.recording import Picture, Recording, chances
from clew.interact.rollout import empty_memories

if TYPE_CHECKING:
    from clew.interact.hosted_task import HostedTask


def record_host(
    agent: Agent,
    task: "HostedTask",
    *,
    statistics: Any = None,
    episodes: int = 1,
    greedy: bool = True,
    max_steps: int = 10_000,
    seed: int = 0,
) -> Iterator[Recording]:
    """Plays episodes of a Gymnasium environment, one after another; as `record` does otherwise.

    Pictures are what it renders as "rgb_array", if it does. `rewards` are those that the
    agent learns from, which its values are about; `earned` and the metrics are the environment's.

    Args:
        agent: the network.
        task: the environment, with the wrappers of the training.
        statistics: what the wrappers have learned; None for nothing.
        episodes: how many, at least 1.
        greedy: take the most probable action, instead of sampling from the policy.
        max_steps: an episode that takes longer is cut there.
        seed: of the episodes and samples.

    Raises:
        UserError: for impossible numbers, or an environment that cannot be built.
        EnvironmentFault: the environment failed.
    """
    require_episodes(episodes, max_steps, seed)
    arrays, static = eqx.partition(agent, eqx.is_array)
    choose = partial(compile_act(static, greedy=greedy, keep=_kept), arrays)
    stream, env = _opened(task, seed)
    with stream:
        if statistics is not None:
            stream.restore(statistics)
        now = stream.reset()
        for number in range(episodes):
            key = jax.random.fold_in(jax.random.key(seed), number)
            rows, memory = [], empty_memories(agent, 1)
            while True:
                seen, picture = now.observation, _picture(env)
                memory, chosen = choose(memory, seen, now.start, key, np.int32(len(rows)))
                action, likely, value = jax.device_get(chosen)
                (now,) = step([stream], agent.distribution, [action])
                kept = agent.distribution.decode(action) if likely is None else action
                rows.append((seen, kept, likely, value, now.reward, now.own_reward, picture))
                if now.ended[0] or len(rows) >= max_steps:
                    break
            yield _recording(rows, now)
            if now.last[0]:
                (now,) = step([stream], agent.distribution, [action])
            elif not now.start[0]:
                now = stream.reset()


def _opened(task: "HostedTask", seed: int) -> tuple[HostStream, gymnasium.Env | None]:
    """A stream of one environment, and that environment if it can be rendered."""
    environment, wrappers = task.environment, dataclasses.replace(task.wrappers, video_every=0)
    if environment.vector:
        return environment.open(1, seed=seed, wrappers=wrappers, frozen=True), None
    options = dict(environment.options)
    if takes(task.name, "render_mode"):
        options.setdefault("render_mode", "rgb_array")
    env = dataclasses.replace(environment, options=options).builder(wrappers)()
    # Those around a single environment are around it already.
    others = dataclasses.replace(wrappers, frame_skip=1, time_limit=None)
    stream = HostStream(
        SyncVectorEnv([lambda: env]), name=task.name, wrappers=others, seed=seed, frozen=True
    )
    return stream, env if _renders(env) else None


def _renders(env: gymnasium.Env) -> bool:
    """Whether it gives pictures; a package that drawing needs may be missing."""
    if env.render_mode != "rgb_array":
        return False
    try:
        env.reset()
        env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        warnings.warn(f"no pictures of the environment: {error}", UserWarning, stacklevel=2)
        return False
    return True


def _picture(env: gymnasium.Env | None) -> Picture | None:
    if env is None:
        return None
    picture: Any = env.render()
    return np.array(picture, np.uint8)


def _kept(distribution: Distribution, choice: Choice) -> tuple[Array, Array | None, Array]:
    """Actions, the probabilities of the choices or None, and values."""
    return choice.action, chances(distribution, choice.logits), choice.value


def _recording(rows: list[tuple], last: HostStep) -> Recording:
    seen, actions, likely, values, rewards, own, pictures = zip(*rows, strict=True)
    ended = "cut"
    if last.ended[0]:
        ended = "truncated" if last.discount[0] else "terminated"
    return Recording(
        observations=jax.tree.map(lambda *x: np.concatenate(x), *seen),
        actions=np.concatenate(actions),
        rewards=np.concatenate(rewards),
        values=np.concatenate(values),
        probabilities=None if likely[0] is None else np.concatenate(likely),
        ended=ended,
        pictures=None if pictures[0] is None else pictures,
        metrics={name: float(x[0]) for name, x in last.metrics.items()} if last.ended[0] else {},
        own_rewards=None if np.array_equal(own, rewards) else np.concatenate(own),
    )
