"""Trials: several episodes with the same draw of a task, through which an agent keeps its memory.

An agent trained on trials learns to learn: in a trial's first episodes it finds out what the task
has drawn, and in the later ones it uses that (Duan et al., 2016; Wang et al., 2016).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from clew.envs.base import Environment, EnvState, Metrics, Observation, Transition, Wrapper, choose
from clew.errors import UserError, require_at_least

MOST_GROUPS = 10
"""Returns by position in the trial: those of more episodes are averaged in this many groups."""
NEXT_EPISODE = 0x7269616C
"""Folded into a step's key to open a trial's next episode."""
COUNTED = ("return", "length")
"""Metrics that are summed over a trial's episodes; the others are averaged."""


def episode_groups(episodes: int) -> list[range]:
    """The episodes of a trial, from 0, in at most `MOST_GROUPS` groups of nearly equal size."""
    groups = np.array_split(np.arange(episodes), min(episodes, MOST_GROUPS))
    return [range(int(group[0]), int(group[-1]) + 1) for group in groups]


def return_names(episodes: int) -> tuple[str, ...]:
    """The metrics of returns by position in the trial: "return_1", or "return_1_10" for a group."""
    return tuple(
        f"return_{g[0] + 1}" if len(g) == 1 else f"return_{g[0] + 1}_{g[-1] + 1}"
        for g in episode_groups(episodes)
    )


class TrialState(NamedTuple):
    """The task's state, and the counters of the running trial."""

    env: EnvState
    first: tuple[EnvState, Observation]
    """The state and observation that opened the trial."""
    episode: Int[Array, ""]
    """The running episode, from 0."""
    ended: Bool[Array, ""]
    """The last step ended an episode, and the next one of the trial is open."""
    earned: Float[Array, ""]
    """The return so far in the running episode."""
    returns: Float[Array, " groups"]
    """Summed over the episodes of each group."""
    metrics: Metrics
    """The task's own metrics, summed over the episodes."""


class Trials(Wrapper):
    """Joins the episodes of a trial into one episode for the agent; `trial_episodes`.

    A trial is a number of the task's episodes that share what the task drew at the trial's
    beginning (`Environment.next_in_trial`). For the agent it is one episode: `start` is set only at
    its beginning, so a memory keeps its state, and discounting continues across the ends in
    between. The step that ends an episode, by termination or truncation, returns its reward and the
    first observation of the next episode; the final observation is not shown. The last end
    terminates the trial, however that episode ended: nothing follows, because the trial is the
    task.

    Metrics: "return" and, from the stream, "length" of the whole trial; "return_1", "return_2", ...
    of each of its episodes, or with more than 10 episodes the mean of each of 10 groups, such as
    "return_1_10" for the first of 100 episodes; and the task's own metrics, averaged over the
    episodes.

    Args:
        env: the task itself, without wrappers, which go around the trials.
        episodes: of a trial, at least 2.

    Raises:
        UserError: fewer than 2 episodes, or the task has wrappers already.

    Source: Duan et al. (2016), RL^2, section 2.2.
    """

    episodes: int = eqx.field(static=True)

    def __init__(self, env: Environment, episodes: int):
        require_task(env, episodes)
        self.episodes = episodes
        super().__init__(env)
        own = tuple(name for name in env.metric_names if name != "return")
        self.metric_names = (*own, *return_names(episodes), "return")

    @property
    def shortest(self) -> int:
        return self.episodes * self.env.shortest

    def opened(self, state: EnvState, observation: Observation) -> tuple[TrialState, Observation]:
        nothing = jnp.zeros((), jnp.float32)
        return TrialState(
            env=state,
            first=(state, observation),
            episode=jnp.zeros((), jnp.int32),
            ended=jnp.zeros((), jnp.bool_),
            earned=nothing,
            returns=jnp.zeros(len(episode_groups(self.episodes)), jnp.float32),
            metrics={name: nothing for name in self.env.metric_names},
        ), observation

    def stepped(
        self, before: TrialState, state: EnvState, transition: Transition, action: Array, key: Array
    ) -> tuple[TrialState, Transition]:
        """Continues with the trial's next episode where one ended."""
        over = transition.terminated | transition.truncated
        last = before.episode + 1 >= self.episodes
        goes_on = over & ~last
        again = self.env.next_in_trial(before.first, jax.random.fold_in(key, NEXT_EPISODE))
        now, observation = choose(goes_on, again, (state, transition.observation))
        earned = before.earned + transition.reward
        whole = transition.metrics.get("return", earned)  # a task may report it itself
        after = TrialState(
            env=now,
            first=before.first,
            episode=before.episode + over.astype(jnp.int32),
            ended=goes_on,
            earned=jnp.where(over, 0.0, earned),
            returns=before.returns + self._place(before.episode) * jnp.where(over, whole, 0.0),
            metrics={
                name: before.metrics[name] + jnp.where(over, value, 0.0)
                for name, value in transition.metrics.items()
            },
        )
        return after, Transition(
            observation=observation,
            reward=transition.reward,
            terminated=over & last,
            truncated=jnp.zeros_like(over),
            metrics=self._metrics(after),
        )

    def task_state(self, state: TrialState) -> Any:
        return state.env

    def trial_goes_on(self, state: TrialState) -> Bool[Array, ""]:
        return state.ended

    def _place(self, episode: Int[Array, ""]) -> Float[Array, " groups"]:
        """1 for the group of an episode, 0 for the others."""
        begins = jnp.array([group[0] for group in episode_groups(self.episodes)])
        ends = jnp.append(begins[1:], self.episodes)
        return ((begins <= episode) & (episode < ends)).astype(jnp.float32)

    def _metrics(self, state: TrialState) -> Metrics:
        groups = episode_groups(self.episodes)
        names = return_names(self.episodes)
        found = {
            name: total if name in COUNTED else total / self.episodes
            for name, total in state.metrics.items()
        }
        found |= {n: state.returns[i] / len(groups[i]) for i, n in enumerate(names)}
        return found | {"return": jnp.sum(state.returns)}


class SeparateState(NamedTuple):
    """The task's state, and the progress of the trial."""

    env: EnvState
    first: tuple[EnvState, Observation]
    episode: Int[Array, ""]


class SeparateEpisodes(Wrapper):
    """The same trials, but every episode is an episode for the agent; `trial_memory=False`.

    The control for `Trials`: the memory is reset in each episode, and each episode has its own
    return, so nothing that a trial's first episodes show can be used later.

    Args:
        env: the task itself.
        episodes: of a trial, at least 2.

    Raises:
        UserError: fewer than 2 episodes, or the task has wrappers already.
    """

    episodes: int = eqx.field(static=True)

    def __init__(self, env: Environment, episodes: int):
        require_task(env, episodes)
        self.episodes = episodes
        super().__init__(env)

    def opened(
        self, state: EnvState, observation: Observation
    ) -> tuple[SeparateState, Observation]:
        first = state, observation
        return SeparateState(state, first, jnp.zeros((), jnp.int32)), observation

    def next_episode(
        self, state: SeparateState, key: Key[Array, ""]
    ) -> tuple[SeparateState, Observation]:
        """The trial's next episode, or the next trial's first."""
        again_key, trial_key = jax.random.split(key)
        again, observation = self.env.next_in_trial(state.first, again_key)
        same = SeparateState(again, state.first, state.episode + 1), observation
        other = self.opened(*self.env.next_episode(state.env, trial_key))
        return choose(state.episode + 1 < self.episodes, same, other)

    def stepped(
        self,
        before: SeparateState,
        state: EnvState,
        transition: Transition,
        action: Array,
        key: Key[Array, ""],
    ) -> tuple[SeparateState, Transition]:
        return before._replace(env=state), transition

    def task_state(self, state: SeparateState) -> Any:
        return state.env


def require_task(env: Environment, episodes: int) -> None:
    """Refuses trials of fewer than 2 episodes, or of a task that has wrappers already."""
    require_at_least("trial_episodes", episodes, 2)
    if isinstance(env, Wrapper):
        raise UserError(
            f"trials go around the task itself, inside other wrappers; got a {type(env).__name__}"
        )
