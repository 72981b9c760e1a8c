"""Tasks written in JAX, whose episodes are compiled together with the agent."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.network import Agent
from clew.agents.trajectory import Rollout
from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.spaces import adapt_observation
from clew.bridges.gymnasium.vector import require_none
from clew.envs.base import Environment
from clew.envs.programs import without_key
from clew.envs.spaces import NOTHING_ALLOWED, split_mask
from clew.envs.stream import AutoReset
from clew.envs.trials import Trials
from clew.envs.wrappers import INFO, WrapperConfig, earned_so_far, wrap
from clew.errors import UserError
from clew.interact.acting import ActorState, Choice, act_and_step
from clew.interact.episodes import (
    FILMED,
    INSPECTED,
    Episodes,
    EpisodeTooLong,
    Played,
    Recording,
    Rendered,
    ending,
    episodes_of,
    parts_by_name,
    recording_of,
)
from clew.interact.policy import Moment, PolicyAdapter
from clew.interact.rollout import gather, init_actor
from clew.interact.task import Evaluator, OnEnded, PlayConfig, Task, unheard

Result = TypeVar("Result")

BATCH = 64
"""Number of episodes played side by side."""
PIECE = 32
"""Least number of steps between two checks of whether all episodes have ended."""


class CompiledTask(Task):
    """A task written in JAX.

    Args:
        name: as in a run's settings.
        environment: without wrappers.
        wrappers: between the environment and the agent.

    Raises:
        UserError: for impossible wrappers, or wrappers that do not fit the environment.
    """

    acts_on_device = True
    whole_episodes = True
    runners = ("sync",)
    unread = ()

    def __init__(self, name: str, environment: Environment, wrappers: WrapperConfig | None = None):
        self.name, self.environment = name, environment
        self.wrappers = WrapperConfig() if wrappers is None else wrappers
        wrapped = environment
        if self.wrappers != WrapperConfig():
            wrapped = wrap(environment, self.wrappers, name)
        self.stream = AutoReset(wrapped, self.wrappers.show_action_mask)
        self.observation_space = self.stream.observation_space
        self.action_space = self.stream.action_space
        self.metric_names = self.stream.metric_names
        self.shortest_episode = wrapped.shortest

    def check_training(self, processes: int, num_envs: int) -> None:
        """Accepts everything: there are no worker processes and no films."""

    def unused_mask(self) -> bool:
        """False, since there is no `info`."""
        return False

    def check_same_observations(self, other: Task, name: str, other_name: str) -> None:
        own, others = (task.require_stream().observation_size for task in (self, other))
        if own != others:
            raise UserError(
                f"{other_name} has {others} numbers, and {name} {own}: one agent cannot read both"
            )

    def require_stream(self) -> AutoReset:
        return self.stream

    def program(
        self, *, compiled: Callable[["CompiledTask"], Result], hosted: Callable[[Any], Result]
    ) -> Result:
        return compiled(self)

    def init_actor(self, agent: Agent, num_envs: int, key: PRNGKeyArray) -> ActorState:
        return init_actor(agent, self.stream, num_envs, key)

    def actor_layout(self, environments: Any, whole: Any) -> Any:
        return environments

    def rollout_template(self, agent: Agent, actor: ActorState, learner: Learner) -> Rollout:
        """In the form of a compiled rollout."""
        act = partial(gather, stream=self.stream, learner=learner)
        return eqx.filter_eval_shape(act, agent, actor, jax.random.key(0)).rollout

    def require_finite(self, actor: ActorState, returns: Any) -> None:
        """Checks the sums of rewards, and of observations only the latest."""
        env, seen = jax.device_get((actor.env, actor.timestep.observation))
        fields = {f"observation {name}".rstrip(): x for name, x in parts_by_name(seen).items()}
        for field, values in (fields | {"rewards": env.episode_return}).items():
            if jnp.issubdtype(values.dtype, jnp.inexact):
                wrong = ~np.isfinite(values)
                require_none(self.name, field, "", wrong, values, env.episode_length)
        if not np.isfinite(returns):
            raise EnvironmentFault(f"{self.name}: an environment gave {returns} in its rewards")

    def statistics(self) -> None:
        """None, since the wrappers of such tasks have no statistics."""

    def evaluator(
        self, static: Agent, *, greedy: bool, max_steps: int, on_ended: OnEnded = unheard
    ) -> Evaluator:
        play = jax.jit(partial(play_batch, static, self.stream, greedy, max_steps))

        def evaluate(
            params: Any, statistics: Any, episodes: int, entropy: tuple[int, ...]
        ) -> dict[str, np.ndarray]:
            first, *others = entropy
            key = jax.random.key(first)
            for number in others:
                key = jax.random.fold_in(key, number)
            keys = jax.random.split(key, math.ceil(episodes / BATCH))
            parts = []
            for number, one in enumerate(keys):
                parts.append(jax.device_get(play(params, one)))
                on_ended(min(BATCH, episodes - number * BATCH))
            if not np.concatenate([ended for _, ended in parts])[:episodes].all():
                raise EpisodeTooLong(
                    f"an episode of {self.name} did not end within {max_steps} steps"
                )
            found = {n: np.concatenate([m[n] for m, _ in parts])[:episodes] for n in parts[0][0]}
            if self.stream.masks_actions and not np.isfinite(found["return"]).all():
                raise UserError(
                    f"{self.name}: a return is not finite, for example after {NOTHING_ALLOWED}"
                )
            return found

        return evaluate

    def episodes(self, agent: Agent, how: PlayConfig, statistics: Any = None) -> Episodes:
        how.validate()
        batch = min(BATCH, how.episodes)
        play = compile_player(agent, self.stream, INSPECTED, how, batch)
        keys = jax.random.split(jax.random.key(how.seed), math.ceil(how.episodes / batch))
        played = [episode for key in keys for episode in play(key)]
        return episodes_of(played[: how.episodes], how.max_steps)

    def recordings(
        self, agent: Agent, how: PlayConfig, statistics: Any = None
    ) -> Iterator[Recording]:
        how.validate()
        env, adapter = self.stream.env, self.adapter()
        play = compile_player(agent, self.stream, (*FILMED, "state"), how)
        for number in range(how.episodes):
            (played,) = play(jax.random.fold_in(jax.random.key(how.seed), number))
            seen, states = played.steps["observation"], played.steps["state"]
            own = split_mask(seen)[0] if env.masks_actions else seen
            pictures, texts = (
                Rendered(render, states, own) for render in (env.render_image, env.render_text)
            )
            yield recording_of(
                played,
                agent,
                adapter,
                pictures=pictures if pictures[0] is not None else None,
                texts=texts if texts[0] is not None else None,
                action_names=env.action_names,
                own_rewards=self._own_rewards(played),
            )

    def _own_rewards(self, played: Played) -> np.ndarray | None:
        """The task's rewards; the last one of an episode that was cut is taken as not clipped."""
        earned = earned_so_far(self.stream.env, played.steps["state"])
        if earned is None:
            return None
        last = earned[-1] + played.steps["reward"][-1] / self.wrappers.reward_scale
        return np.diff(earned, append=played.metrics.get("return", last))

    def adapter(self, statistics: Any = None) -> PolicyAdapter:
        wrappers, env = self.wrappers, self.environment
        if env.masks_actions:  # beside its observation, like Gymnasium's
            wrappers = replace(wrappers, action_mask=INFO)
        observations = adapt_observation(env.observation_space, self.name, in_jax=True)
        return PolicyAdapter(
            observations, None, self.action_space, self.action_space, wrappers, statistics or {}
        )

    def moments(
        self, policy: Callable[..., Any], *, longest: int, seed: int = 0
    ) -> Iterator[Moment]:
        env = self.environment
        if self.wrappers.trials:
            env = Trials(env, self.wrappers.trial_episodes)
        reset, step, key = jax.jit(env.reset), jax.jit(env.step), jax.random.key(seed)
        allowed = jax.jit(env.action_mask)
        while True:
            key, now = jax.random.split(key)
            state, observation = reset(now)
            mask = _on_host(allowed(state))
            moment = Moment(_on_host(observation), True, None, action_mask=mask)
            for _ in range(longest):
                yield moment
                action = moment.given_to(policy)
                key, now = jax.random.split(key)
                state, then = step(state, np.asarray(action), now)
                if then.terminated or then.truncated:
                    break
                ended, mask = bool(env.trial_goes_on(state)), _on_host(allowed(state))
                reward = float(then.reward)
                moment = Moment(_on_host(then.observation), False, reward, ended, mask)


class Playing(NamedTuple):
    """The state of environments that each play one episode; every leaf has them as first axis."""

    actor: ActorState
    ended: Bool[Array, " batch"]
    """Whether the episode has ended; the environment then continues, but is ignored."""
    metrics: dict[str, Float[Array, " batch"]]
    """The stream's metrics of the episodes that have ended."""


def begin_playing(actor: ActorState) -> Playing:
    """Every environment at the beginning of an episode, with an empty memory."""
    nothing = jax.tree.map(jnp.zeros_like, actor.timestep.metrics)
    return Playing(actor, jnp.zeros(actor.timestep.reward.shape, jnp.bool_), nothing)


def play_step(
    agent: Agent,
    stream: AutoReset,
    greedy: bool,
    now: Playing,
    action_key: PRNGKeyArray,
    keys: Key[Array, " batch"],
) -> tuple[Playing, Choice]:
    """One step of every environment, each with its own key."""
    pick = partial(agent.distribution.choose, key=action_key, greedy=greedy)
    actor, choice = act_and_step(agent, stream, now.actor, pick, keys)
    then = actor.timestep
    first = then.ended & ~now.ended
    metrics = {n: jnp.where(first, then.metrics[n], x) for n, x in now.metrics.items()}
    return Playing(actor, now.ended | first, metrics), choice


def play_batch(
    static: Agent, stream: AutoReset, greedy: bool, max_steps: int, params: Any, key: PRNGKeyArray
) -> tuple[dict[str, Float[Array, " episodes"]], Bool[Array, " episodes"]]:
    """The metrics of the first episode of `BATCH` environments, and which of them ended."""
    agent = eqx.combine(params, static)
    reset_key, key = jax.random.split(key)
    actor = init_actor(agent, stream, BATCH, reset_key)
    return play_to_end(agent, stream, actor, greedy, max_steps, key)


def play_to_end(
    agent: Agent,
    stream: AutoReset,
    actor: ActorState,
    greedy: bool,
    max_steps: int,
    key: PRNGKeyArray,
) -> tuple[dict[str, Float[Array, " episodes"]], Bool[Array, " episodes"]]:
    """Plays every environment's episode to its end, within a compiled program.

    Args:
        actor: each environment at the beginning of an episode, with an empty memory.
        greedy: take the most probable action, instead of sampling from the policy.
        max_steps: stop after this many steps.

    Returns:
        The stream's metrics of every episode, and whether it ended.
    """
    count = actor.timestep.reward.shape[0]

    def more(carry: tuple) -> Array:
        playing, _, steps, _ = carry
        return ~jnp.all(playing.ended) & (steps < max_steps)

    def one(carry: tuple) -> tuple:
        playing, key, steps, held = carry
        key, action_key, env_key = jax.random.split(key, 3)
        drawn = agent.distribution.noise_time(steps) == steps
        action_key = jax.lax.select(drawn, action_key, held)
        keys = jax.random.split(env_key, count)
        playing, _ = play_step(agent, stream, greedy, playing, action_key, keys)
        return playing, key, steps + 1, action_key

    carry = (begin_playing(actor), key, jnp.zeros((), jnp.int32), key)
    playing, *_ = jax.lax.while_loop(more, one, carry)
    return playing.metrics, playing.ended


def compile_player(
    agent: Agent, stream: AutoReset, keep: Sequence[str], how: PlayConfig, batch: int | None = None
) -> Callable[[PRNGKeyArray], list[Played]]:
    """Compiles a function that plays episodes from a key, and keeps the named values of each step.

    Args:
        keep: names: "observation", "reward", "state" (the environment's, before the action), and
            those of `Choice.named`.
        how: whether to act greedily, and the most steps.
        batch: episodes side by side; None for one whose environment takes the keys of a batch.
    """
    arrays, static = eqx.partition(agent, eqx.is_array)
    held = 1 if how.greedy else min(agent.distribution.noise_steps, how.max_steps)
    piece = -(-PIECE // held) * held  # so that no noise is held across two pieces

    def begin(arrays: Any, key: PRNGKeyArray) -> tuple[Playing, dict[str, Array]]:
        actor = init_actor(eqx.combine(arrays, static), stream, batch or 1, key)
        return begin_playing(actor), jax.vmap(stream.env.remembered)(actor.env.env)

    def go_on(arrays: Any, playing: Playing, key: PRNGKeyArray) -> tuple[Playing, Any]:
        agent = eqx.combine(arrays, static)
        keys = jax.vmap(jax.random.split)(jax.random.split(key, piece))
        drawn = agent.distribution.noise_time(jnp.arange(piece))
        one = partial(_kept_step, agent, stream, how.greedy, keep, batch)
        return jax.lax.scan(one, playing, (keys[drawn, 0], keys[:, 1]))

    begin_jit, go_on_jit = jax.jit(begin), jax.jit(go_on)

    def play(key: PRNGKeyArray) -> list[Played]:
        reset_key, key = jax.random.split(key)
        playing, labels = begin_jit(arrays, reset_key)
        rows: list[Any] = []
        while len(rows) * piece < how.max_steps and not np.all(playing.ended):
            playing, row = go_on_jit(arrays, playing, jax.random.fold_in(key, len(rows)))
            rows.append(jax.device_get(row))
        steps, ended, discount = jax.tree.map(lambda *x: np.concatenate(x)[: how.max_steps], *rows)
        named, metrics = jax.device_get((labels, playing.metrics))
        ends = partial(_played, steps, ended, discount, named, metrics)
        return [ends(index) for index in range(batch or 1)]

    return play


def _kept_step(
    agent: Agent,
    stream: AutoReset,
    greedy: bool,
    keep: Sequence[str],
    batch: int | None,
    now: Playing,
    keys: tuple[Array, Array],
) -> tuple[Playing, tuple[dict[str, Any], Array, Array]]:
    action_key, env_key = keys
    each = env_key[None] if batch is None else jax.random.split(env_key, batch)
    after, choice = play_step(agent, stream, greedy, now, action_key, each)
    seen, then = now.actor.timestep, after.actor.timestep
    found = choice.named() | {"observation": seen.observation, "reward": then.reward}
    found["state"] = jax.tree.map(without_key, now.actor.env.env)
    return after, ({name: found[name] for name in keep}, then.ended, then.discount)


def _played(
    steps: dict[str, Any],
    ended: np.ndarray,
    discount: np.ndarray,
    labels: dict[str, np.ndarray],
    metrics: dict[str, np.ndarray],
    index: int,
) -> Played:
    """The first episode of one environment; all arrays except the last two have time first."""
    ends = np.flatnonzero(ended[:, index])
    length = int(ends[0]) + 1 if len(ends) else len(ended)
    return Played(
        jax.tree.map(lambda leaf: leaf[:length, index], steps),
        length,
        ending(len(ends), discount[length - 1, index]),
        {name: values[index] for name, values in metrics.items()} if len(ends) else {},
        {name: values[index] for name, values in labels.items()},
    )


def _on_host(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
