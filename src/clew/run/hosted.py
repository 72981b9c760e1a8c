"""The training loop for Gymnasium environments: acting on the host, learning compiled."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from clew.agents.devices import place_on_devices
from clew.agents.learners.base import LearnerState
from clew.agents.trajectory import Rollout
from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream
from clew.errors import notes_of
from clew.interact.host_rollout import (
    HostActor,
    HostRollout,
    environment_seed,
    of_seeds,
    packed,
    unpacked,
)
from clew.interact.hosted_task import HostedTask
from clew.interact.rollout import Experience
from clew.names import MASK
from clew.run.build import Parts
from clew.run.compiled import Program
from clew.run.machine import require_room
from clew.run.updates import RunState, SeedState, learn, state_layouts

WRONG_VALUES = ("answer", "info", "observation", "reward", "terminated", "truncated", MASK)
"""Fields of faults in returned values, which reopening the environment would not fix."""


class FaultBudget:
    """Counts faults of Gymnasium environments, logs those that the run survives, raises the others.

    A fault that recurs at the same step, before the environments were stepped for a whole rollout,
    is regarded as systematic and raised. Lost processes are an exception, since they can have
    external causes, such as a system that is out of memory. The traceback of a cause is logged
    once.

    Args:
        allowed: how many faults the run survives.
        log: called with a line for each of them.
    """

    def __init__(self, allowed: int, log: Callable[[str], None]):
        self.allowed, self.used = allowed, 0
        self._log = log
        self._last: dict[int | None, tuple[str, int]] = {}
        self._seen: set[str] = set()

    def spend(
        self,
        fault: EnvironmentFault,
        mended: str = "reopened",
        text: str | None = None,
        actor: int | None = 0,
    ) -> None:
        """Logs a fault and the remedy, or raises it.

        Args:
            mended: the remedy.
            text: replaces the fault's message.
            actor: the actor that it belongs to; None if it does not count as a repeated fault.
        """
        if text is not None:
            fault.args = (text,)
        self.used += 1
        cause = re.sub(r"0x[0-9a-f]+|\d+", "", fault.cause)
        last, self._last[actor] = self._last.get(actor), (cause, fault.steps)
        again = last == (cause, fault.steps) and actor is not None and not fault.lost
        if cause in self._seen:
            vars(fault).pop("__notes__", None)  # its traceback has been logged
        self._seen.add(cause)
        if again:
            fault.args = (f"{fault}. It happened twice at the same step, so it is not tried again",)
        if again or fault.field.split(" ")[0] in WRONG_VALUES or self.used > self.allowed:
            raise fault
        line = f"{fault}; {mended} ({self.used} of at most {self.allowed} times)"
        self._log("\n".join([line, *notes_of(fault)]))

    def stepped(self, actor: int = 0) -> None:
        """Records that an actor's environments were stepped for a whole rollout."""
        self._last.pop(actor, None)


class HostProgram(Program):
    """A run's loop over Gymnasium environments, as a `Program`.

    Environments are opened at the first call, and again after a fault. A checkpoint does not
    contain them: a resumed run begins new episodes, with seeds that follow from the run's seed and
    the number of the update.

    Once `stopped()` is true, a rollout in progress is dropped, since it may take minutes and a
    resumed run begins new episodes anyway. `log` is as in `FaultBudget`.
    """

    def __init__(
        self,
        parts: Parts,
        task: HostedTask,
        log: Callable[[str], None] = lambda line: None,
        stopped: Callable[[], bool] = lambda: False,
    ):
        self._parts, self._task = parts, task
        config = parts.config
        self._actor = host_actor(parts, range(config.learning.num_envs), stopped)
        self._budget = FaultBudget(config.host.restarts, log)
        self._learn = make_learn(parts)
        self._layouts = state_layouts(parts)
        split: Callable = partial(jax.random.split, num=3)
        self._split = jax.jit(jax.vmap(split, out_axes=1) if config.seeds > 1 else split)
        self._streams: list[GymnasiumStream] = []
        self._steps: list[GymnasiumStep] = []
        self.state: RunState | None = None

    def __call__(self, state: RunState, count: Int[Array, ""]) -> RunState:
        self.state = place_on_devices(state, self._layouts)
        for _ in range(int(count)):
            self.state = self._update(self.state)
            if not np.all(self.state.seed.finite):
                break
        return self.state

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams, self._steps = [], []

    def _open(self, state: RunState) -> None:
        config = self._parts.config
        statistics = unpacked(state.seed.actor.statistics)
        for number in range(config.seeds):
            seed = environment_seed(config.seed + number, int(state.update), self._budget.used)
            count = self._parts.learner.config.num_envs
            stream = self._task.open(count, seed=seed, processes=config.host.processes)
            self._streams.append(stream)
            one = statistics
            if config.seeds > 1:
                one = jax.tree.map(lambda x, i=number: x[i], statistics)
            stream.restore(one)
        self._steps = [stream.reset(timeout=config.host.timeout) for stream in self._streams]

    def _update(self, state: RunState) -> RunState:
        seed = state.seed
        next_key, rollout_key, learn_key = self._split(seed.key)
        first_step = int(state.update) * self._parts.learner.config.rollout_length
        while True:
            try:
                if not self._streams:
                    self._open(state)
                # Acting donates the memory's state; after a fault that of the last update must
                # still be there.
                memory = jax.tree.map(jnp.copy, seed.actor.memory)
                acted, steps = self._actor.rollout(
                    self._streams, self._steps, seed.agent, memory, rollout_key, first_step
                )
                break
            except EnvironmentFault as fault:
                self.close()
                self._budget.spend(fault)
        self._budget.stepped()
        self._steps = list(steps)
        made = self._learn(seed._replace(key=next_key), acted, learn_key, np.int32(state.update))
        statistics = packed(of_seeds([stream.state() for stream in self._streams]))
        whole = made.actor._replace(statistics=statistics)
        return RunState(state.update + 1, made._replace(actor=whole))


def host_actor(
    parts: Parts, environments: range, stopped: Callable[[], bool] = lambda: False
) -> HostActor:
    """The actor for all seeds of a run, on its devices, in some of its environments."""
    config = parts.config
    return HostActor(
        parts.static,
        parts.learner,
        parts.sharding.compile,
        seeds=config.seeds,
        timeout=config.host.timeout,
        environments=environments,
        stopped=stopped,
    )


def make_learn(parts: Parts) -> Callable[[SeedState, HostRollout, Array, np.int32], SeedState]:
    """`learn_seed` for all seeds, on the run's devices; compiled at the first call.

    The learner's state is donated. The first call raises a `UserError` if the program needs more
    RAM than this machine has.
    """
    sharding, layouts = parts.sharding, state_layouts(parts).seed
    jitted: Any = sharding.compile(partial(learn_seed, parts), (0, 0, 0, 0, None), donate_argnums=0)
    compiled: Any = None
    batch: Any = sharding.environments(0)
    steps: Any = sharding.environments(1)
    of_seed: Any = sharding.of_seed
    of_acted = HostRollout(steps, batch, batch, of_seed)

    def learn_all(seed: SeedState, acted: HostRollout, key: Array, number: np.int32) -> SeedState:
        nonlocal compiled
        seed, acted = place_on_devices(seed, layouts), place_on_devices(acted, of_acted)
        args = seed.learner, seed._replace(learner=LearnerState()), acted, key, number
        if compiled is None:
            compiled = jitted.lower(*args).compile()
            require_room(parts.config, compiled)
        return place_on_devices(compiled(*args), layouts)

    return learn_all


def learn_seed(
    parts: Parts,
    state: LearnerState,
    seed: SeedState,
    acted: HostRollout,
    key: PRNGKeyArray,
    number: Int[Array, ""],
) -> SeedState:
    """One seed's update from a rollout, after `number` updates. Its state comes in two parts, the
    learner's and the rest."""
    agent = eqx.combine(seed.agent, parts.static)
    experience, states, memory, episodes = acted
    rollout = Rollout.cut(experience, states, memory)
    gathered = Experience(seed.actor, rollout, cast(Any, episodes))
    made = learn(agent, state, gathered, key, parts.learner)
    return seed.after(made, seed.key, number % parts.config.log_every == 0)
