"""PettingZoo's environments with several agents that share one policy: "pettingzoo:MODULE"."""

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from clew.bridges.gymnasium.vector import seeds_of
from clew.errors import UserError, parameters_of
from clew.names import BARE, MASK, resolve

PETTINGZOO = "pettingzoo:"
STATE = "state"
"""The entry of an observation that is the state of the whole environment."""
PARALLEL = "parallel_env"
"""The factory in a module of PettingZoo's for an environment whose agents act at once."""
PADDED = {"observation": "supersuit.pad_observations_v0", "action": "supersuit.pad_action_space_v0"}
"""The wrapper that gives all agents equal spaces, for messages."""


def reference_of(name: str) -> str:
    """The "module:factory" behind "pettingzoo:MODULE" or "pettingzoo:MODULE:FACTORY"."""
    module, _, factory = name.removeprefix(PETTINGZOO).partition(":")
    return f"{module}:{factory or PARALLEL}"


def agents_of(name: str) -> Callable[..., "AgentsAsEnvironments"]:
    """The factory of vector environments that a name of PettingZoo's stands for.

    It takes `state`, see `AgentsAsEnvironments`, and the options of PettingZoo's own factory.

    Raises:
        UserError: an unknown module or factory.
    """
    make = resolve(reference_of(name))

    def agents(num_envs: int, *, state: bool = False, **options: Any) -> AgentsAsEnvironments:
        return AgentsAsEnvironments(partial(make, **options), num_envs, name, state=state)

    signature = inspect.signature(agents)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    theirs = [
        p if p.kind is p.VAR_KEYWORD else p.replace(kind=p.KEYWORD_ONLY)
        for p in parameters_of(make).values()
        if p.kind is not p.VAR_POSITIONAL
    ]
    agents.__dict__["__signature__"] = signature.replace(parameters=[*own, *theirs])
    return agents


class AgentsAsEnvironments(VectorEnv):
    """The agents of PettingZoo's parallel environments, each as an environment of its own.

    With A agents, agent a of the e-th copy is environment e A + a. Their episodes begin and end
    with those of the copy, see `_Copy`, and the step that ends them opens the next ones.

    Args:
        make: makes a copy.
        num_envs: number of environments; rounded up to whole copies.
        name: its name in errors.
        state: whether every agent also observes the state of its copy, as the entry "state".

    Raises:
        UserError: agents that act in turn, or differ in their spaces; no state to observe.
    """

    def __init__(self, make: Callable[[], Any], num_envs: int, name: str, *, state: bool = False):
        first = _parallel(make(), name)
        agents = tuple(first.possible_agents)
        observed = _same(name, "observation", agents, first.observation_space)
        self.single_observation_space = _beside_state(observed, first, name) if state else observed
        self.single_action_space = _same(name, "action", agents, first.action_space)
        others = [make() for _ in range(math.ceil(num_envs / len(agents)) - 1)]
        space = self.single_observation_space
        self.copies = [_Copy(env, name, agents, space, state) for env in (first, *others)]
        self.num_envs = len(self.copies) * len(agents)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = getattr(first, "render_mode", None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Opens an episode in every copy; each has its own seed, derived from this one."""
        count = len(self.copies)
        seeds = [None] * count if seed is None else seeds_of(seed, count)
        opened = [
            copy.reset(seed=own, options=options)
            for copy, own in zip(self.copies, seeds, strict=True)
        ]
        observations, infos = (list(itertools.chain(*found)) for found in zip(*opened, strict=True))
        return self._batch(observations), self._joined(infos)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of every copy.

        Raises:
            UserError: an agent's episode ended in a way that is not supported, see `_Copy`.
        """
        chosen = iterate(self.action_space, actions)
        observations, infos, rewards, flags = [], [], [], []
        for copy in self.copies:
            seen, earned, ends, noted = copy.step(list(itertools.islice(chosen, copy.size)))
            if not copy.agents:
                pairs = zip(seen, noted, strict=True)
                finals = [{"final_obs": last, "final_info": info} for last, info in pairs]
                seen, noted = copy.reset()
                noted = [new | final for new, final in zip(noted, finals, strict=True)]
            observations += seen
            infos += noted
            rewards += earned
            flags += ends
        terminated, truncated = np.array(flags, np.bool_).T
        answer = self._batch(observations), np.array(rewards, np.float64), terminated, truncated
        return *answer, self._joined(infos)

    def render(self) -> tuple[Any, ...]:
        """The picture of its copy, for every agent."""
        return tuple(x for copy in self.copies for x in [copy.env.render()] * copy.size)

    def close_extras(self, **_: Any) -> None:
        """Closes all copies."""
        for copy in self.copies:
            copy.env.close()

    def _batch(self, rows: list[Any]) -> Any:
        space = self.single_observation_space
        return concatenate(space, rows, create_empty_array(space, self.num_envs))

    def _joined(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The infos of all environments as Gymnasium's vector environments have them."""
        infos: dict[str, Any] = {}
        for index, info in enumerate(rows):
            infos = self._add_info(infos, info, index)
        return infos


class _Copy:
    """One parallel environment, in which every agent takes part to the end.

    The episode ends when no agent is left. One that leaves earlier, or comes later, observes zeros
    and earns 0 meanwhile, and one that has left before the end has terminated, however the others
    end: nothing more can come to it.
    """

    def __init__(
        self, env: Any, name: str, all_agents: Sequence[str], space: spaces.Space, state: bool
    ):
        self.env, self._name, self._all, self._state = env, name, all_agents, state
        (self._absent,) = iterate(batch_space(space, 1), create_empty_array(space, 1))
        if isinstance(space, spaces.Dict) and MASK in space.spaces:
            self._absent[MASK] = np.ones_like(self._absent[MASK])
        self._infos: dict[str, dict[str, Any]] = {}

    @property
    def size(self) -> int:
        """How many agents there are at most."""
        return len(self._all)

    @property
    def agents(self) -> Sequence[str]:
        """The agents that are there."""
        return self.env.agents

    def reset(self, **options: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        """The first observation and info of every agent."""
        observations, infos = self.env.reset(**options)
        self._infos = {}
        return self._seen(observations), self._noted(infos)

    def step(
        self, actions: Sequence[Any]
    ) -> tuple[list[Any], list[float], list[tuple[bool, bool]], list[dict[str, Any]]]:
        """Every agent's observation, reward, whether it terminated and was truncated, and info.

        Raises:
            UserError: an agent was truncated and others continue, or ended without saying how.
        """
        given = dict(zip(self._all, actions, strict=True))
        observations, rewards, terminated, truncated, infos = self.env.step(
            {agent: given[agent] for agent in self.agents}
        )
        ends = [(bool(terminated.get(a, True)), bool(truncated.get(a, False))) for a in self._all]
        if self.agents:
            wrong, what = (False, True), "was truncated, but others continue"
            told = [(False, False)] * self.size
        else:
            wrong, what = (False, False), "is gone, but neither terminated nor truncated"
            told = ends
        if wrong in ends:
            raise UserError(f"{self._name}: {self._all[ends.index(wrong)]} {what}")
        earned = [float(rewards.get(agent, 0.0)) for agent in self._all]
        return self._seen(observations), earned, told, self._noted(infos)

    def _seen(self, observations: Mapping[str, Any]) -> list[Any]:
        """What every agent observes."""
        if not self._state:
            return [observations.get(agent, self._absent) for agent in self._all]
        state, seen = self.env.state(), []
        for agent in self._all:
            own = observations.get(agent, self._absent)
            seen.append({**(own if isinstance(own, Mapping) else {BARE: own}), STATE: state})
        return seen

    def _noted(self, infos: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Every agent's info: the last one of those that left, which may do anything now."""
        masks = [info[MASK] for info in infos.values() if MASK in info]
        free = {MASK: np.ones_like(masks[0])} if masks else {}
        self._infos = {
            agent: dict(infos[agent]) if agent in infos else self._infos.get(agent, {}) | free
            for agent in self._all
        }
        return list(self._infos.values())


def _same(
    name: str, kind: str, agents: Sequence[str], space_of: Callable[[str], spaces.Space]
) -> spaces.Space:
    """The space that all agents have."""
    shared = space_of(agents[0])
    for agent in agents:
        space = space_of(agent)
        if space != shared:
            raise UserError(
                f"{name}: agents that share a policy have equal spaces, but the {kind} space of "
                f"{agents[0]} is {shared} and that of {agent} is {space}: {PADDED[kind]} makes "
                "them equal"
            )
    return shared


def _parallel(env: Any, name: str) -> Any:
    """An environment, checked to be one whose agents act at once."""
    if not hasattr(env, "possible_agents"):
        raise UserError(
            f"{name} must make a pettingzoo.ParallelEnv with possible_agents, it made a "
            f"{type(env).__module__}.{type(env).__name__}"
        )
    if hasattr(env, "agent_selection") or hasattr(env, "agent_iter"):
        raise UserError(
            f"{name} makes an environment whose agents act in turn, expected a ParallelEnv: "
            "pettingzoo.utils.aec_to_parallel makes one of some"
        )
    return env


def _beside_state(observed: spaces.Space, env: Any, name: str) -> spaces.Dict:
    """The space of an agent's observation with the state of the whole environment."""
    state = getattr(env, "state_space", None)
    if not isinstance(state, spaces.Space):
        raise UserError(f"{name} has no state_space, which state=True would show")
    own = observed.spaces if isinstance(observed, spaces.Dict) else {BARE: observed}
    if STATE in own:
        raise UserError(f"{name} has an entry {STATE!r} in its observations: leave out state=True")
    return spaces.Dict({**own, STATE: state})
