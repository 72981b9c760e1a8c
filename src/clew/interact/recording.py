"""One episode as it was played, step by step: what a video is made from."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium.vector import SyncVectorEnv
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from clew.agents.distributions import Categorical, Distribution
from clew.agents.network import Agent
from clew.bridges.gymnasium.build import takes
from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream
from clew.envs.base import Environment
from clew.envs.spaces import split_mask
from clew.envs.stream import AutoReset
from clew.errors import require_episodes
from clew.interact.acting import (
    ActorState,
    Choice,
    act_and_step,
    compile_act,
    step,
    step_keys,
)
from clew.interact.rollout import empty_memories, init_actor

if TYPE_CHECKING:
    from clew.interact.hosted_task import HostedTask

PIECE = 32
"""Steps between two looks at whether the episode has ended."""

Picture = UInt8[np.ndarray, "height width 3"]


class Recording(NamedTuple):
    """An episode of T steps. Nothing here depends on where it comes from.

    Whoever has an environment that is not written in JAX fills in these arrays in a loop and hands
    the frames that the environment rendered as `pictures`.
    """

    observations: Any
    """[T, ...] what the agent saw before each action, or a dict of such arrays."""
    actions: np.ndarray
    """[T] the actions taken, or [T, k] if each is k numbers."""
    rewards: Float[np.ndarray, " time"]
    """Of each action, as the agent learned from it."""
    values: Float[np.ndarray, " time"]
    """The agent's value of each observation."""
    probabilities: Float[np.ndarray, "time actions"] | None
    """Of each action at each step; None where actions are no choices."""
    ended: str = "terminated"
    """How the episode ended: terminated, truncated, or cut where recording stopped before its
    end."""
    pictures: Sequence[Picture] | None = None
    """Of each step, before its action; any size. None where there are none."""
    texts: Sequence[str] | None = None
    """The same as lines of text."""
    action_names: Sequence[str] = ()
    """What the actions are called, or the numbers of an action; empty if they have no names."""
    metrics: dict[str, float] = {}
    """The task's numbers about the episode, such as "success"."""
    own_rewards: Float[np.ndarray, " time"] | None = None
    """The task's own reward of each action; None if the agent learned from just that."""

    @property
    def length(self) -> int:
        """Its steps, T."""
        return len(self.actions)

    @property
    def earned(self) -> Float[np.ndarray, " time"]:
        """The task's own reward of each action, T."""
        return self.rewards if self.own_rewards is None else self.own_rewards

    def returns(self, gamma: float) -> Float[np.ndarray, " time"]:
        """What came after each observation, r_t + gamma r_{t+1} + ..., to the recording's end."""
        found, total = np.zeros(self.length), 0.0
        for t in reversed(range(self.length)):
            found[t] = total = float(self.rewards[t]) + gamma * total
        return found


class Rendered(Sequence):
    """What a task renders of each step, made when it is asked for.

    A thousand pictures at once would take half a gigabyte.

    Args:
        render: `render_image` or `render_text` of an environment.
        states: with time as the first axis of every leaf.
        observations: [T, n], or a dict of such arrays.
    """

    def __init__(self, render: Any, states: Any, observations: Any):
        self._render, self._states, self._observations = render, states, observations

    def __len__(self) -> int:
        return len(jax.tree.leaves(self._observations)[0])

    def __getitem__(self, index: Any) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        moment = (self._states, self._observations)
        return self._render(*jax.tree.map(lambda leaf: leaf[index], moment))


def record(
    agent: Agent,
    stream: AutoReset,
    *,
    episodes: int = 1,
    greedy: bool = True,
    max_steps: int = 10_000,
    seed: int = 0,
) -> Iterator[Recording]:
    """Plays episodes of a task written in JAX, one after another.

    The same seed plays the same episodes, and the first of several are those of fewer.

    Args:
        agent: the network.
        stream: the task.
        episodes: how many, at least 1.
        greedy: take the most probable action, instead of sampling from the policy.
        max_steps: an episode that takes longer is cut there.
        seed: of the episodes and samples.

    Raises:
        UserError: for impossible numbers.
    """
    require_episodes(episodes, max_steps, seed)
    arrays, static = eqx.partition(agent, eqx.is_array)
    opened = jax.jit(partial(_open, static, stream))
    played = jax.jit(partial(_play, static, stream, greedy))
    for number in range(episodes):
        reset_key, key = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
        actor = opened(arrays, reset_key)
        rows: list[Any] = []
        while not rows or (len(rows) * PIECE < max_steps and not rows[-1]["ended"].any()):
            actor, row = played(arrays, actor, jax.random.fold_in(key, len(rows)))
            rows.append(jax.device_get(row))
        yield _recording(jax.tree.map(lambda *x: np.concatenate(x), *rows), stream.env, max_steps)


def _open(static: Agent, stream: AutoReset, arrays: Any, key: PRNGKeyArray) -> ActorState:
    return init_actor(eqx.combine(arrays, static), stream, 1, key)


def _play(
    static: Agent,
    stream: AutoReset,
    greedy: bool,
    arrays: Any,
    actor: ActorState,
    key: PRNGKeyArray,
) -> tuple[ActorState, dict[str, Any]]:
    """`PIECE` steps of one environment, the batch's only one."""
    agent = eqx.combine(arrays, static)

    def one(actor: ActorState, keys: tuple[Array, Array]) -> tuple[ActorState, dict[str, Array]]:
        action_key, env_key = keys
        pick = partial(agent.distribution.choose, key=action_key, greedy=greedy)
        after, (logits, action, value) = act_and_step(agent, stream, actor, pick, env_key[None])
        seen, then = actor.timestep, after.timestep
        row = {
            "state": actor.env.env,
            "observation": seen.observation,
            "action": action,
            "probability": _chances(agent.distribution, logits),
            "value": value,
            "reward": then.reward,
            "ended": then.ended,
            "truncated": then.last,
            "metrics": then.metrics,
        }
        return after, jax.tree.map(lambda leaf: leaf[0], row)

    return jax.lax.scan(one, actor, step_keys(key, PIECE, agent.distribution))


def _chances(
    distribution: Distribution, logits: Float[Array, "*lead n"]
) -> Float[Array, "*lead n"] | None:
    """The probability of every action; None where actions are no choices."""
    return jax.nn.softmax(logits) if isinstance(distribution, Categorical) else None


def _recording(rows: dict[str, Any], env: Environment, max_steps: int) -> Recording:
    """The first episode of the rows."""
    ends = np.flatnonzero(rows["ended"][:max_steps])
    length = int(ends[0]) + 1 if len(ends) else min(max_steps, len(rows["ended"]))
    rows = jax.tree.map(lambda leaf: leaf[:length], rows)
    ended = "cut"
    if len(ends):
        ended = "truncated" if rows["truncated"][-1] else "terminated"
    seen, states = rows["observation"], rows["state"]
    own = split_mask(seen)[0] if env.masks_actions else seen
    pictures, texts = (
        Rendered(render, states, own) for render in (env.render_image, env.render_text)
    )
    return Recording(
        observations=seen,
        actions=rows["action"],
        rewards=rows["reward"],
        values=rows["value"],
        probabilities=rows["probability"],
        ended=ended,
        pictures=pictures if pictures[0] is not None else None,
        texts=texts if texts[0] is not None else None,
        action_names=env.action_names,
        metrics={name: float(values[-1]) for name, values in rows["metrics"].items()}
        if len(ends)
        else {},
    )


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
    choose = partial(compile_act(static, greedy=greedy, keep=_shown), arrays)
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
            yield _host_recording(rows, now)
            if now.last[0]:
                (now,) = step([stream], agent.distribution, [action])
            elif not now.start[0]:
                now = stream.reset()


def _opened(task: "HostedTask", seed: int) -> tuple[GymnasiumStream, gymnasium.Env | None]:
    """A stream of one environment, and that environment if it can be rendered."""
    environment, wrappers = task.environment, dataclasses.replace(task.wrappers, video_every=0)
    if environment.vector:
        return environment.open(1, seed=seed, wrappers=wrappers, frozen=True), None
    options = dict(environment.options)
    if takes(task.name, "render_mode"):
        options.setdefault("render_mode", "rgb_array")
    env = dataclasses.replace(environment, options=options).builder(wrappers)()
    # Wrappers of a single environment are applied already.
    others = dataclasses.replace(wrappers, frame_skip=1, time_limit=None)
    stream = GymnasiumStream(
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


def _shown(distribution: Distribution, choice: Choice) -> tuple[Array, Array | None, Array]:
    """Actions, the probabilities of the choices or None, and values."""
    return choice.action, _chances(distribution, choice.logits), choice.value


def _host_recording(rows: list[tuple], last: GymnasiumStep) -> Recording:
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
