"""One episode as it was played, step by step: what a video is made from."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from clew.agents.distributions import Categorical, Distribution
from clew.agents.network import Agent
from clew.envs.base import Environment
from clew.envs.stream import AutoReset
from clew.errors import require_episodes
from clew.interact.acting import ActorState, act_and_step
from clew.interact.rollout import init_actor

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
        observations: [T, n].
    """

    def __init__(self, render: Any, states: Any, observations: np.ndarray):
        self._render, self._states, self._observations = render, states, observations

    def __len__(self) -> int:
        return len(self._observations)

    def __getitem__(self, index: Any) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        state = jax.tree.map(lambda leaf: leaf[index], self._states)
        return self._render(state, self._observations[index])


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

    def one(actor: ActorState, key: PRNGKeyArray) -> tuple[ActorState, dict[str, Array]]:
        action_key, env_key = jax.random.split(key)
        pick = partial(agent.distribution.choose, key=action_key, greedy=greedy)
        after, (logits, action, value) = act_and_step(agent, stream, actor, pick, env_key[None])
        seen, then = actor.timestep, after.timestep
        row = {
            "state": actor.env.env,
            "observation": seen.observation,
            "action": action,
            "probability": chances(agent.distribution, logits),
            "value": value,
            "reward": then.reward,
            "ended": then.ended,
            "truncated": then.last,
            "metrics": then.metrics,
        }
        return after, jax.tree.map(lambda leaf: leaf[0], row)

    return jax.lax.scan(one, actor, jax.random.split(key, PIECE))


def chances(
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
    pictures, texts = (
        Rendered(render, states, seen) for render in (env.render_image, env.render_text)
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
