"""PettingZoo's environments with several agents that share one policy: "pettingzoo:MODULE"."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from clew.bridges.gymnasium.vector import seeds_of
from clew.errors import UserError, parameters_of
from clew.names import BARE, resolve

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

    With A agents, agent a of the e-th copy is environment e A + a. The agents of a copy begin and
    end their episodes together, and the step that ends them opens the next ones.

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
        self.name, self.agents = name, tuple(first.possible_agents)
        count = math.ceil(num_envs / len(self.agents))
        self.copies = [first, *(make() for _ in range(count - 1))]
        self.num_envs = count * len(self.agents)
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.with_state, self.render_mode = state, getattr(first, "render_mode", None)
        observed = self._same("observation", first.observation_space)
        self.single_observation_space = _beside_state(observed, first, name) if state else observed
        self.single_action_space = self._same("action", first.action_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Opens an episode in every copy; each has its own seed, derived from this one."""
        count = len(self.copies)
        seeds = [None] * count if seed is None else seeds_of(seed, count)
        rows, infos = [], {}
        for copy, own in enumerate(seeds):
            observations, of_agents = self._open(copy, seed=own, options=options)
            rows += observations
            infos = self._noted(infos, copy, of_agents)
        return self._batch(rows), infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of every copy.

        Raises:
            UserError: some agents of a copy ended their episode, and others did not.
        """
        chosen, size = list(iterate(self.action_space, actions)), len(self.agents)
        rows, infos = [], {}
        rewards, flags = np.zeros(self.num_envs), np.zeros((2, self.num_envs), np.bool_)
        for copy, env in enumerate(self.copies):
            own = slice(copy * size, (copy + 1) * size)
            observations, earned, *ends, of_agents = env.step(
                dict(zip(self.agents, chosen[own], strict=True))
            )
            self._require_all(observations)
            seen, noted = self._seen(env, observations), self._each(of_agents)
            rewards[own] = [earned[agent] for agent in self.agents]
            flags[:, own] = [[end[agent] for agent in self.agents] for end in ends]
            over = zip(self.agents, flags[:, own].T.tolist(), strict=True)
            ended = [agent for agent, either in over if any(either)]
            if ended:
                self._require_all(ended)
                finals = zip(seen, noted, strict=True)
                finals = [{"final_obs": last, "final_info": info} for last, info in finals]
                infos = self._noted(infos, copy, finals)
                seen, noted = self._open(copy)
            rows += seen
            infos = self._noted(infos, copy, noted)
        return self._batch(rows), rewards, flags[0], flags[1], infos

    def render(self) -> tuple[Any, ...]:
        """The picture of its copy, for every agent."""
        return tuple(
            picture for env in self.copies for picture in [env.render()] * len(self.agents)
        )

    def close_extras(self, **_: Any) -> None:
        """Closes all copies."""
        for env in self.copies:
            env.close()

    def _open(self, copy: int, **options: Any) -> tuple[list[Any], list[Mapping[str, Any]]]:
        """The first observation and info of every agent of a copy."""
        env = self.copies[copy]
        observations, infos = env.reset(**options)
        self._require_all(observations)
        return self._seen(env, observations), self._each(infos)

    def _seen(self, env: Any, observations: Mapping[str, Any]) -> list[Any]:
        """What every agent observes."""
        own = [observations[agent] for agent in self.agents]
        if not self.with_state:
            return own
        state = env.state()
        return [{**(x if isinstance(x, Mapping) else {BARE: x}), STATE: state} for x in own]

    def _each(self, infos: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [infos.get(agent, {}) for agent in self.agents]

    def _noted(
        self, infos: dict[str, Any], copy: int, of_agents: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The batch of infos with those of a copy's agents."""
        for index, info in enumerate(of_agents, copy * len(self.agents)):
            infos = self._add_info(infos, dict(info), index)
        return infos

    def _batch(self, rows: list[Any]) -> Any:
        space = self.single_observation_space
        return concatenate(space, rows, create_empty_array(space, self.num_envs))

    def _require_all(self, found: Iterable[str]) -> None:
        """Refuses a step in which only some agents take part, or end their episode."""
        there = set(found)
        missing = [agent for agent in self.agents if agent not in there]
        if missing:
            raise UserError(
                f"{self.name}: all agents must begin and end an episode together, but "
                f"{', '.join(missing)} did not: supersuit.black_death_v3 keeps agents to the end"
            )

    def _same(self, kind: str, space_of: Callable[[str], spaces.Space]) -> spaces.Space:
        """The space that all agents have."""
        found = [space_of(agent) for agent in self.agents]
        for agent, space in zip(self.agents, found, strict=True):
            if space != found[0]:
                raise UserError(
                    f"{self.name}: agents that share a policy have equal spaces, but the {kind} "
                    f"space of {self.agents[0]} is {found[0]} and that of {agent} is {space}: "
                    f"{PADDED[kind]} makes them equal"
                )
        return found[0]


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
