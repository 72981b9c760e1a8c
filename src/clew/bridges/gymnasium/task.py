"""Gymnasium environments as tasks: "gymnasium:ID" and "module:factory"; "pettingzoo:MODULE"."""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import jax
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from clew.bridges.gymnasium.build import (
    GYMNASIUM,
    EnvBuilder,
    accepts_render_mode,
    build,
    call,
    takes_render_mode,
)
from clew.bridges.gymnasium.group import GroupPlan
from clew.bridges.gymnasium.grouped import GroupedEnvs
from clew.bridges.gymnasium.masks import ActionMasks
from clew.bridges.gymnasium.processes import close_quietly, is_ctrl_c, os_exit_raises, time_limit
from clew.bridges.gymnasium.spaces import ObservationAdapter, adapt_action, adapt_observation
from clew.bridges.gymnasium.stream import GymnasiumStream, restore_precision
from clew.bridges.gymnasium.vector import FirstEnvironment
from clew.bridges.jax_packages import is_packaged
from clew.bridges.pettingzoo import PETTINGZOO, agents_of, reference_of
from clew.envs.spaces import with_mask
from clew.envs.wrappers import WrapperConfig, observed
from clew.errors import UserError, check_call, one_line, parameters_of, require_at_least
from clew.names import MASK, METRICS, resolve

FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class GymnasiumTask:
    """A Gymnasium environment by name, with its spaces; it can be pickled.

    `open` makes a stream of it. The spaces are those of an agent without wrappers; `observed` is
    the observation space with wrappers.
    """

    name: str
    """ "gymnasium:ID", "module:factory" or "pettingzoo:MODULE"."""
    observations: ObservationAdapter
    """How the environment's observations reach the agent."""
    own_action_space: spaces.Space
    """The environment's own space of actions."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `gymnasium.make` or of the factory."""
    vector: bool = False
    """Whether the factory makes vector environments."""
    agents: int = 1
    """How many environments come only together: the agents of one vector environment."""

    metric_names = METRICS

    @property
    def observation_space(self) -> Any:
        """The agent's space: a Box (uint8, float32), Discrete, MultiDiscrete or a flat Dict."""
        return self.observations.space

    @functools.cached_property  # always the same object, because a space can be seeded
    def action_space(self) -> Any:
        """The agent's actions: Discrete or MultiDiscrete from 0, MultiBinary, Box of float32."""
        return adapt_action(self.own_action_space, self.name).space

    def observed(self, wrappers: WrapperConfig | None = None) -> Any:
        """The observation space through wrappers.

        Raises:
            UserError: impossible settings, or settings that do not fit the environment.
        """
        wrappers = wrappers or WrapperConfig()
        wrappers.validate()
        if self.vector:
            wrappers.require_no_single(self.name)
        masks = self.masks(wrappers)
        if masks is None:
            return observed(self.observation_space, self.action_space, wrappers)
        rest = masks.rest(self.observation_space)
        return with_mask(observed(rest, self.action_space, wrappers), masks.space)

    def masks(self, wrappers: WrapperConfig) -> ActionMasks | None:
        """Its action masks according to these settings; None for none.

        Raises:
            UserError: its actions cannot be masked.
        """
        return ActionMasks.of(wrappers, self.action_space)

    def unused_mask(self, wrappers: WrapperConfig, timeout: float) -> bool:
        """Whether `info` has an action mask that no wrapper uses.

        To find out, an environment is built and reset, in at most `timeout` seconds; if that fails,
        the error is left to later uses.
        """
        masked = isinstance(self.action_space, spaces.Discrete | spaces.MultiDiscrete)
        if not masked or wrappers.action_mask is not None:
            return False
        try:
            with _undoing_changes(self.name), time_limit(timeout):
                env = self.single(replace(wrappers, video_every=0))
                try:
                    return MASK in env.reset(seed=0)[1]
                finally:
                    close_quietly(env)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
        return False

    def open(
        self,
        num_envs: int,
        *,
        processes: int = 0,
        seed: int | None = None,
        wrappers: WrapperConfig | None = None,
        frozen: bool = False,
    ) -> GymnasiumStream:
        """Opens `num_envs` environments as a stream; close it when it is no longer needed.

        Args:
            num_envs: environments side by side, a multiple of `agents`.
            processes: worker processes, each for an equal share of the environments, which it steps
                in order; 0 steps all of them in this process. A factory of vector environments
                makes its own.
            seed: every environment's seed is derived from it.
            wrappers: between environments and agent.
            frozen: whether the wrappers' statistics are fixed, as in evaluation.

        Raises:
            UserError: impossible settings, or settings that do not fit the environment.
            EnvironmentFault: the worker processes did not start.
        """
        wrappers = wrappers or WrapperConfig()
        self.observed(wrappers)
        require_at_least("num_envs", num_envs, 1)
        require_at_least("processes", processes, 0)
        self.check_processes(processes, num_envs)
        if self.vector:
            vector = make_vector(self.name, num_envs, self.options)
        else:
            vector = GroupedEnvs(self._plan(num_envs, wrappers), num_envs, processes)
        return GymnasiumStream(vector, name=self.name, wrappers=wrappers, seed=seed, frozen=frozen)

    def single(self, wrappers: WrapperConfig) -> gymnasium.Env:
        """One environment with the wrappers for single ones, perhaps the first of a vector."""
        if self.vector:
            return FirstEnvironment(make_vector(self.name, self.agents, self.options))
        return self.builder(wrappers)()

    def rendered(self) -> "GymnasiumTask":
        """The same task with the render mode "rgb_array", if it takes one and has no other."""
        if self.vector:
            takes = accepts_render_mode(factory_of(self.name))
        else:
            takes = takes_render_mode(self.name)
        mode = {"render_mode": "rgb_array"} if takes else {}
        return replace(self, options=mode | dict(self.options))

    def builder(self, wrappers: WrapperConfig | None = None) -> EnvBuilder:
        """The builder of a single environment, with the wrappers for single ones."""
        wrappers = wrappers or WrapperConfig()
        masks, start = self.masks(wrappers), adapt_action(self.own_action_space, self.name).start
        return EnvBuilder(
            self.name,
            dict(self.options),
            frame_skip=wrappers.frame_skip,
            allows=masks and functools.partial(masks.allow, self.observations, start),
            time_limit=wrappers.time_limit,
            trial_episodes=wrappers.trial_episodes,
            trial_memory=wrappers.trial_memory,
            video_every=wrappers.video_every,
            video_folder=os.path.abspath(wrappers.video_folder),
            spec=gymnasium.registry.get(self.name.rpartition(":")[2]),
        )

    def _plan(self, num_envs: int, wrappers: WrapperConfig) -> GroupPlan:
        masks = self.masks(wrappers)
        return GroupPlan(
            mask=masks.size if masks is not None and masks.in_info else 0,
            builder=self.builder(wrappers),
            adapter=self.observations,
            action_space=self.own_action_space,
            first=0,
            count=num_envs,
            metrics=wrappers.metrics,
        )

    def at_least(self, count: int) -> int:
        """The least number of environments from `count` on that can be opened together."""
        return count + -count % self.agents

    def check_processes(self, processes: int, num_envs: int) -> None:
        """Refuses numbers of environments and of worker processes that do not fit.

        Raises:
            UserError: naming the number and the reason.
        """
        if num_envs % self.agents:
            raise UserError(
                f"{self.name} has {self.agents} agents, so num_envs must be a multiple of "
                f"{self.agents}, such as {self.at_least(num_envs)}; got {num_envs}"
            )
        if processes and self.vector:
            raise UserError(
                f"{self.name} makes vector environments, which have their own processes: leave "
                f"host.processes at 0, got {processes}"
            )
        if processes and num_envs % processes:
            raise UserError(
                f"host.processes must divide num_envs, got {processes} processes for {num_envs} "
                "environments"
            )

    def check_video(self, wrappers: WrapperConfig) -> None:
        """Refuses films of an environment that does not render, by building one.

        Raises:
            UserError: naming it and its render mode.
        """
        if wrappers.video_every:
            with _undoing_changes(self.name):
                close_quietly(self.builder(wrappers)())


def is_gymnasium(name: str) -> bool:
    """Whether a task's name is "gymnasium:ID", "module:factory" or "pettingzoo:MODULE"."""
    if is_packaged(name):
        return False
    return name.startswith((GYMNASIUM, PETTINGZOO)) or FACTORY.fullmatch(name) is not None


def definition(name: str) -> Hashable:
    """The present definition of a name, since a notebook may redefine or reregister it.

    Raises:
        UserError: an unknown module or factory.
    """
    made, options = None, ""
    if name.startswith(PETTINGZOO):
        made = resolve(reference_of(name))
    elif not name.startswith(GYMNASIUM):
        made = resolve(name)
    elif spec := gymnasium.registry.get(name.removeprefix(GYMNASIUM).rpartition(":")[2]):
        made, options = spec.entry_point, repr(spec.kwargs)
    return made if isinstance(made, Hashable) else None, options


def factory_of(name: str) -> Callable[..., Any]:
    """The function that makes environments of a name other than "gymnasium:ID".

    Raises:
        UserError: an unknown module or factory.
    """
    return agents_of(name) if name.startswith(PETTINGZOO) else resolve(name)


def gymnasium_task(name: str, options: Mapping[str, Any] | None = None) -> GymnasiumTask:
    """Finds a Gymnasium environment and its spaces, by building it once and closing it again.

    A factory with a parameter called `num_envs` makes vector environments: it is called once, with
    num_envs=..., and returns a `gymnasium.vector.VectorEnv`. If it returns k when it is asked for
    one, these are agents that come only together, and num_envs must be a multiple of k. Any other
    factory is called once for every environment and returns a `gymnasium.Env`.

    Args:
        name: "gymnasium:ID" (or "gymnasium:module:ID", whose module is imported first),
            "module:factory", or "pettingzoo:MODULE" (or "pettingzoo:MODULE:FACTORY"), see
            `clew.bridges.pettingzoo`; the current folder is searched for modules too.
        options: keyword arguments of `gymnasium.make` or of the factory.

    Raises:
        UserError: an unknown id (with the nearest ones), module, factory or option, a missing
            package (with its name), or an unsupported space.
    """
    options = dict(options or {})
    if not is_gymnasium(name):
        raise UserError(f"expected gymnasium:ID or module:factory, got {name!r}")
    vector = not name.startswith(GYMNASIUM) and "num_envs" in parameters_of(factory_of(name))
    agents = 1
    env: gymnasium.Env | VectorEnv
    with _undoing_changes(name):
        if vector:
            env = make_vector(name, 1, options)
            agents = env.num_envs
            own = env.single_observation_space, env.single_action_space
        else:
            env = build(name, options)
            own = _spaces(env, name)
        close_quietly(env)
    adapt_action(own[1], name)  # refuses unsupported spaces
    return GymnasiumTask(name, adapt_observation(own[0], name), own[1], options, vector, agents)


@contextlib.contextmanager
def _undoing_changes(name: str) -> Iterator[None]:
    """Undoes an environment's changes of the current folder, exits of the process, and changes of
    JAX's precision."""
    x64 = jax.config.values["jax_enable_x64"]
    with contextlib.chdir(os.getcwd()), os_exit_raises():
        yield
    restore_precision(x64, name)


def _spaces(env: gymnasium.Env, name: str) -> tuple[spaces.Space, spaces.Space]:
    """The spaces that an environment's constructor or class declares."""
    try:
        found = env.observation_space, env.action_space
    except AttributeError as error:
        raise UserError(
            f"{name} lacks a space after it was built ({error}): set observation_space and "
            "action_space in the class or in __init__, for example to "
            "gymnasium.spaces.Box(-1, 1, (3,)) and gymnasium.spaces.Discrete(2)"
        ) from error
    for what, space in zip(("observation_space", "action_space"), found, strict=True):
        if not isinstance(space, spaces.Space):
            raise UserError(
                f"the {what} of {name} is {one_line(space)}, expected a space of Gymnasium, such "
                "as gymnasium.spaces.Discrete(2)"
            )
    return found


def option_defaults(name: str) -> dict[str, Any]:
    """The options of a Gymnasium environment that have defaults; see `gymnasium_task` for names."""
    if name.startswith(GYMNASIUM):
        spec = gymnasium.registry.get(name.rpartition(":")[2])
        return {} if spec is None else dict(spec.kwargs)
    parameters = parameters_of(factory_of(name)).values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def make_vector(name: str, num_envs: int, options: Mapping[str, Any]) -> VectorEnv:
    """Calls a factory of vector environments, which may make more if one is asked for.

    Raises:
        UserError: an unknown option, or a return value of another type or size.
    """
    factory = factory_of(name)
    check_call(name, factory, num_envs=num_envs, **options)
    vector = call(name, factory, {"num_envs": num_envs, **options})
    if not isinstance(vector, VectorEnv):
        raise UserError(
            f"{name} has a parameter num_envs, so it must return a gymnasium.vector.VectorEnv; it "
            f"returned a {type(vector).__module__}.{type(vector).__name__}"
        )
    if num_envs > 1 and vector.num_envs != num_envs:
        raise UserError(
            f"{name} was asked for {num_envs} environments, but returned {vector.num_envs}"
        )
    return vector
