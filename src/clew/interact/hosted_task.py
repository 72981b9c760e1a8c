"""Gymnasium environments as tasks: the host steps them, a compiled network chooses."""

import dataclasses
import itertools
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv
from jaxtyping import PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.network import Agent
from clew.agents.trajectory import Rollout, empty_memories
from clew.bridges.gymnasium.spaces import adapt_action, number
from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream, metric_names_of
from clew.bridges.gymnasium.task import GymnasiumTask
from clew.bridges.gymnasium.trials import ENDED
from clew.bridges.gymnasium.wrappers import VectorWrappers
from clew.envs.spaces import MASK
from clew.envs.stream import AutoReset
from clew.envs.wrappers import INFO, WrapperConfig
from clew.errors import UserError, one_line
from clew.interact.acting import compile_act, step
from clew.interact.episodes import (
    CUT,
    FILMED,
    INSPECTED,
    Episodes,
    EpisodeTooLong,
    Picture,
    Played,
    Recording,
    ending,
    episodes_of,
    metrics_of_all,
    recording_of,
)
from clew.interact.host_rollout import (
    HostRollout,
    HostState,
    environment_seed,
    packed,
    rollout_template,
)
from clew.interact.policy import Moment, PolicyAdapter
from clew.interact.task import Evaluator, HostConfig, OnEnded, PlayConfig, Task, unheard

Result = TypeVar("Result")
Drawn = gymnasium.Env | VectorEnv

BATCH = 16
"""Number of environments to play side by side."""
LARGEST = 4 * 2**30
"""Most bytes of observations to hold."""


NEW = (0, 0, 1)
"""Suffix of a seed's numbers for environments that no training uses. A training has at most four
numbers, and trailing zeros do not count."""


class HostedTask(Task):
    """A Gymnasium environment with a run's wrappers. It can be pickled.

    Args:
        environment: without wrappers.
        wrappers: between the environment and the agent.
        host: how to step the environments that episodes are played in; by default in this process.

    Raises:
        UserError: for impossible wrappers, or wrappers that do not fit the environment.
    """

    acts_on_device = False
    whole_episodes = False
    shortest_episode = 1
    runners = ("sync", "async")

    def __init__(
        self, environment: GymnasiumTask, wrappers: WrapperConfig, host: HostConfig | None = None
    ):
        self.environment, self.wrappers = environment, wrappers
        self.host = host or HostConfig()
        self.name = environment.name
        self.observation_space = environment.observed(wrappers)
        self.action_space = environment.action_space
        self.unread = environment.observations.unread
        self.metric_names = metric_names_of(wrappers)

    def open(self, num_envs: int, *, seed: int, processes: int = 0) -> GymnasiumStream:
        """Opens `num_envs` environments to train in, see `GymnasiumTask.open`."""
        return self.environment.open(
            num_envs, processes=processes, seed=seed, wrappers=self.wrappers
        )

    def check_training(self, processes: int, num_envs: int) -> None:
        self.environment.check_processes(processes, num_envs)
        self.environment.check_video(self.wrappers)

    def unused_mask(self) -> bool:
        return self.environment.unused_mask(self.wrappers, self.host.timeout)

    def check_same_observations(self, other: Task, name: str, other_name: str) -> None:
        own, others = self.observation_space, other.observation_space
        if own != others:
            raise UserError(
                f"{other_name} has {others}, and {name} {own}: one agent cannot read both"
            )

    def require_stream(self) -> AutoReset:
        raise UserError(f"this needs a task written in JAX, got {self.name}")

    def program(
        self, *, compiled: Callable[[Any], Result], hosted: Callable[["HostedTask"], Result]
    ) -> Result:
        return hosted(self)

    def init_actor(self, agent: Agent, num_envs: int, key: PRNGKeyArray) -> HostState:
        """Empty memories and initial wrapper statistics; no environment is opened."""
        return HostState(empty_memories(agent, num_envs), packed(self.statistics()))

    def actor_layout(self, environments: Any, whole: Any) -> Any:
        """Memory states have an axis of environments, statistics do not."""
        return HostState(environments, whole)

    def host_rollout_template(self, agent: Agent, num_envs: int, learner: Learner) -> HostRollout:
        """Shapes and types of a rollout in `num_envs` environments; nothing is computed."""
        space, names = self.observation_space, self.metric_names
        return rollout_template(agent, space, names, num_envs, learner)

    def require_finite(self, actor: HostState, returns: Any) -> None:
        """Checks nothing, since a stream refuses such numbers at once."""

    def rollout_template(self, agent: Agent, actor: HostState, learner: Learner) -> Rollout:
        """In the form of a rollout on the host."""
        template = self.host_rollout_template(agent, learner.config.num_envs, learner)
        return jax.eval_shape(Rollout.cut, *template[:3])

    def statistics(self) -> dict[str, Any]:
        seen = self.adapter().unmasked
        return VectorWrappers(self.wrappers, seen, self.action_space, 1).state()

    def evaluator(
        self, static: Agent, *, greedy: bool, max_steps: int, on_ended: OnEnded = unheard
    ) -> Evaluator:
        """Environments side by side each play the same number of complete episodes, so that short
        ones do not count more than long ones."""
        choose = compile_act(static, greedy=greedy)

        def evaluate(
            params: Any, statistics: Any, episodes: int, entropy: tuple[int, ...]
        ) -> dict[str, np.ndarray]:
            # More than two numbers are hashed to one, so that published results stay the same.
            if len(entropy) == 2:
                (seed, index), streams = entropy, environment_seed(*entropy, *NEW)
            else:
                seed, index = environment_seed(*entropy), 0
                streams = environment_seed(seed)
            count = min(episodes, BATCH)
            each = math.ceil(episodes / count)
            with self._to_play(count, streams) as stream:
                stream.restore(statistics)
                agent, act = eqx.combine(params, static), partial(choose, params)
                player = HostPlayer(
                    agent, stream, act, timeout=self.host.timeout, on_ended=on_ended
                )
                key = jax.random.fold_in(jax.random.key(seed), index)
                played = player.play(key, each, may_take=max_steps)[:episodes]
            names = metrics_of_all([one.metrics for one in played])
            return {name: np.array([one.metrics[name] for one in played]) for name in names}

        return evaluate

    def episodes(self, agent: Agent, how: PlayConfig, statistics: Any = None) -> Episodes:
        """Plays environments side by side, as in `evaluator`. They have no labels for what was to
        be remembered."""
        how.validate()
        count = min(BATCH, how.episodes)
        with self._to_play(count, environment_seed(how.seed, 0, *NEW)) as stream:
            player = _player(agent, stream, statistics, how.greedy, INSPECTED, self.host.timeout)
            each, key = math.ceil(how.episodes / count), jax.random.key(how.seed)
            played = player.play(key, each, longest=how.max_steps)
        return episodes_of(played[: how.episodes], how.max_steps)

    def recordings(
        self, agent: Agent, how: PlayConfig, statistics: Any = None
    ) -> Iterator[Recording]:
        """Plays episodes, with the pictures that environments render as "rgb_array", if any."""
        how.validate()
        stream, env = self._open_rendered(how.seed)
        with stream:
            player = _player(agent, stream, statistics, how.greedy, (*FILMED, "own_reward"))
            now = stream.reset()
            for episode in range(how.episodes):
                key = jax.random.fold_in(jax.random.key(how.seed), episode)
                rows, pictures = [], [_picture(env)]
                for then, row in itertools.islice(player.steps(now, key), how.max_steps):
                    now = then
                    rows.append(row)
                    if now.ended[0]:
                        break
                    pictures.append(_picture(env))
                yield _filmed(_played(rows, now, 0), pictures[: len(rows)], agent, self.adapter())
                if now.last[0]:
                    (now,) = step([stream], agent.distribution, [rows[-1]["action"]])
                elif not now.start[0]:
                    now = stream.reset()

    def _to_play(self, count: int, seed: int) -> GymnasiumStream:
        """At least `count` environments with fixed wrapper statistics and no films, divided equally
        between processes."""
        count = self.environment.at_least(count)
        processes = self.host.processes and math.gcd(count, self.host.processes)
        wrappers = dataclasses.replace(self.wrappers, video_every=0)
        return self.environment.open(
            count, seed=seed, processes=processes, wrappers=wrappers, frozen=True
        )

    def _open_rendered(self, seed: int) -> tuple[GymnasiumStream, Drawn | None]:
        """A stream of one environment, or of the agents that come together, and what draws it."""
        environment = self.environment.rendered()
        wrappers = dataclasses.replace(self.wrappers, video_every=0)
        if environment.vector:
            count = environment.agents
            stream = environment.open(count, seed=seed, wrappers=wrappers, frozen=True)
            drawn = cast(VectorEnv, stream.vector)
            return stream, drawn if _renders(drawn) else None
        env = environment.builder(wrappers)()
        # Wrappers of single environments are already applied.
        others = dataclasses.replace(wrappers, frame_skip=1, time_limit=None)
        stream = GymnasiumStream(
            SyncVectorEnv([lambda: env]), name=self.name, wrappers=others, seed=seed, frozen=True
        )
        return stream, env if _renders(env) else None

    def adapter(self, statistics: Any = None) -> PolicyAdapter:
        environment = self.environment
        return PolicyAdapter(
            environment.observations,
            adapt_action(environment.own_action_space, self.name),
            self.action_space,
            environment.own_action_space,
            self.wrappers,
            statistics or {},
        )

    def moments(
        self, policy: Callable[..., Any], *, longest: int, seed: int = 0
    ) -> Iterator[Moment]:
        env = self.environment.single(dataclasses.replace(self.wrappers, video_every=0))
        mask, folder = MASK if self.wrappers.action_mask == INFO else "", os.getcwd()
        try:
            while True:
                observation, info = env.reset(seed=seed)
                moment, seed = Moment(observation, True, None, action_mask=info.get(mask)), seed + 1
                for _ in range(longest):
                    yield moment
                    observation, reward, *ends, info = env.step(moment.given_to(policy))
                    if any(ends):
                        break
                    ended = bool(info.get(ENDED))
                    earned = number("reward", reward)
                    moment = Moment(observation, False, earned, ended, info.get(mask))
        finally:
            env.close()
            os.chdir(folder)


class HostPlayer:
    """Plays episodes in environments side by side, and keeps the named values of each step.

    Args:
        stream: the environments; the caller closes them.
        choose: from `compile_act`, with the agent's arrays.
        keep: names: "observation", "reward", "own_reward" (the environment's), and those that
            `choose` returns.
        timeout: seconds after which an environment in a worker process counts as hung.
        on_ended: called after a step that ends episodes.
    """

    def __init__(
        self,
        agent: Agent,
        stream: GymnasiumStream,
        choose: Callable,
        keep: Sequence[str] = (),
        timeout: float | None = None,
        on_ended: OnEnded = unheard,
    ):
        self._agent, self._stream, self._choose, self._keep = agent, stream, choose, keep
        self._timeout, self._on_ended = timeout, on_ended

    def steps(
        self, now: GymnasiumStep, key: PRNGKeyArray
    ) -> Iterator[tuple[GymnasiumStep, dict[str, Any]]]:
        """Acts without end from an empty memory; yields each next step and the kept values."""
        memory = empty_memories(self._agent, self._stream.num_envs)
        for time in itertools.count():
            seen = now.observation
            memory, choice = self._choose(memory, seen, now.start, key, np.int32(time))
            found = jax.device_get(choice)
            actions = [found["action"]]
            (now,) = step([self._stream], self._agent.distribution, actions, self._timeout)
            found |= {"observation": seen, "reward": now.reward, "own_reward": now.own_reward}
            yield now, {name: found[name] for name in self._keep}

    def play(
        self, key: PRNGKeyArray, each: int, *, longest: float = math.inf, may_take: float = math.inf
    ) -> list[Played]:
        """Plays `each` episodes of every environment, sorted by when they began.

        Args:
            longest: an episode that takes more steps is cut there; once nothing else is being
                played, it is left by resetting all environments.
            may_take: the most steps of an episode.

        Raises:
            UserError: if an episode takes more steps, or the kept values exceed `LARGEST`.
        """
        stream = self._stream
        found: list[list[Played]] = [[] for _ in range(stream.num_envs)]
        while any(len(own) < each for own in found):
            rows = self._play_on(found, key, each, longest=longest, may_take=may_take)
            for own, left in zip(found, rows, strict=True):
                own += [Played({}, len(left), CUT, {})] * bool(left)
            key = jax.random.fold_in(key, 1)
        return [own[episode] for episode in range(each) for own in found]

    def _play_on(
        self,
        found: list[list[Played]],
        key: PRNGKeyArray,
        each: int,
        *,
        longest: float,
        may_take: float,
    ) -> list[list[dict[str, Any]]]:
        """Adds episodes until `each` are complete or all others are longer than `longest`.

        Returns:
            The steps of these others, for every environment.
        """
        stream = self._stream
        seen = (one.steps.get("observation") for own in found for one in own)
        held = sum(4 * leaf.size for leaf in jax.tree.leaves(list(seen)))
        rows: list[list[dict[str, Any]]] = [[] for _ in range(stream.num_envs)]
        first = stream.reset(timeout=self._timeout)
        over = np.array([len(own) >= each for own in found])
        playing = ~first.last & ~over
        for now, row in self.steps(first, key):
            size = sum(4 * leaf[0].size for leaf in jax.tree.leaves(row.get("observation")))
            for index in np.flatnonzero(playing).tolist():
                kept = len(rows[index]) < longest
                rows[index].append(row if kept else {})
                held += size if kept else 0
            if held > LARGEST:
                raise UserError(
                    f"the observations of {stream.name} take more than {LARGEST / 2**30:.0f} GiB; "
                    "take fewer episodes, or a lower max_steps"
                )
            ended = np.flatnonzero(playing & now.ended).tolist()
            for index in ended:
                found[index].append(_played(rows[index], now, index, longest))
                rows[index] = []
            if ended:
                self._on_ended(len(ended))
            over = np.array([len(own) >= each for own in found])
            cut = np.array([len(own) > longest for own in rows])
            if (over | cut).all():
                break
            if max(map(len, rows)) >= may_take:
                raise EpisodeTooLong(
                    f"an episode of {stream.name} did not end within {may_take:,} steps: allow "
                    "more (--max-steps, in Python max_steps), or train with a "
                    "--wrappers.time-limit"
                )
            playing = ~now.last & ~over
        return rows


def _player(
    agent: Agent,
    stream: GymnasiumStream,
    statistics: Any,
    greedy: bool,
    keep: Sequence[str],
    timeout: float | None = None,
) -> HostPlayer:
    """The player of one agent, in environments with the wrappers' statistics of training."""
    if statistics is not None:
        stream.restore(statistics)
    params, static = eqx.partition(agent, eqx.is_array)
    choose = partial(compile_act(static, greedy=greedy, keep=keep), params)
    return HostPlayer(agent, stream, choose, keep, timeout)


def _played(
    rows: list[dict[str, Any]], then: GymnasiumStep, index: int, longest: float = math.inf
) -> Played:
    """The episode of one environment, from its rows and the step after them."""
    if len(rows) > longest:
        return Played({}, len(rows), CUT, {})
    steps = jax.tree.map(lambda *leaves: np.stack([leaf[index] for leaf in leaves]), *rows)
    ended = ending(then.ended[index], then.discount[index])
    numbers = then.numbers[index] if then.numbers else {}
    metrics = numbers | {name: float(values[index]) for name, values in then.metrics.items()}
    return Played(steps, len(rows), ended, {} if ended == CUT else metrics)


def _filmed(
    played: Played, pictures: list[Picture | None], agent: Agent, adapter: PolicyAdapter
) -> Recording:
    own = played.steps["own_reward"]
    return recording_of(
        played,
        agent,
        adapter,
        pictures=None if pictures[0] is None else pictures,
        own_rewards=None if np.array_equal(own, played.steps["reward"]) else own,
    )


def _renders(env: Drawn) -> bool:
    """Whether it renders pictures; a package needed for drawing may be missing."""
    if env.render_mode != "rgb_array":
        if "rgb_array" in env.metadata.get("render_modes", ()):
            what = 'it draws with render_mode="rgb_array", but its factory does not pass that on'
            warnings.warn(f"no pictures of the environment: {what}", UserWarning, stacklevel=2)
        return False
    try:
        env.reset()
        picture = _rendered(env)
    except (gymnasium.error.DependencyNotInstalled, NotImplementedError) as error:
        what = str(error) or "it has no render method"
        warnings.warn(f"no pictures of the environment: {what}", UserWarning, stacklevel=2)
        return False
    if np.ndim(picture) != 3:
        what = f"its render returns {one_line(picture)}, expected an array [height, width, 3]"
        warnings.warn(f"no pictures of the environment: {what}", UserWarning, stacklevel=2)
        return False
    return True


def _rendered(env: Drawn) -> Any:
    """What an environment renders, or the first of a vector environment."""
    rendered: Any = env.render()
    return rendered[0] if isinstance(env, VectorEnv) and rendered else rendered


def _picture(env: Drawn | None) -> Picture | None:
    picture = None if env is None else _rendered(env)
    return None if picture is None else np.array(picture, np.uint8)
