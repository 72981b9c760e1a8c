"""The asynchronous training loop, in which actors act while the learner learns."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int

from clew.interact.host_rollout import HostRollout, packed, unpacked
from clew.interact.hosted_task import HostedTask
from clew.run.asynchronous.actor import ActorParams, ActorSpec, Gathered
from clew.run.asynchronous.pool import ActorPool, ActorRollout, SerialPool
from clew.run.asynchronous.processes import ProcessPool
from clew.run.build import Parts
from clew.run.compiled import Program
from clew.run.hosted import make_learn
from clew.run.updates import RunState


class AsyncProgram(Program):
    """A run's asynchronous loop, as a `Program`.

    An update learns from the first rollouts to arrive, as many as there are actors. Its losses,
    trajectory and state have the same form as in the synchronous runner, and each may resume the
    other's checkpoints. A checkpoint does not contain the environments: a resumed run begins new
    episodes. `log` is as in `FaultBudget`.
    """

    def __init__(
        self, parts: Parts, task: HostedTask, log: Callable[[str], None] = lambda line: None
    ):
        self._parts, self._task, self._log = parts, task, log
        self._learn = make_learn(parts)
        self._split = jax.jit(partial(jax.random.split, num=3))
        self._pool: ActorPool | None = None
        self._count = 1 if parts.config.asynchronous.serial else parts.config.asynchronous.actors
        self._measures = _Measures()
        self.state: RunState | None = None

    def __call__(self, state: RunState, count: Int[Array, ""]) -> RunState:
        self.state = state
        for _ in range(int(count)):
            pool = self._pool or self._begin(state)
            self.state = state = self._update(pool, state)
            if not np.all(state.seed.finite):
                break
            self._publish(pool, state)
        return state

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def measured(self) -> dict[str, float]:
        """Measures of actors and learner since the last call, for a row of metrics.

        Returns:
            "lag" and "lag_max", mean and greatest number of updates between the parameters that
            gathered a rollout and those that learned from it; "actor_wait" and "learner_wait", the
            fractions of time that actors and learner waited for each other; "dropped", the number
            of rollouts that were too old.
        """
        return self._measures.take(self._pool.dropped if self._pool else 0)

    def _begin(self, state: RunState) -> ActorPool:
        config, task = self._parts.config, self._task
        if config.asynchronous.serial:
            spec = ActorSpec(config, task, 0, config.learning.num_envs)
            self._pool = SerialPool(spec, self._log)
        else:
            each = config.learning.num_envs // self._count
            specs = [ActorSpec(config, task, number, each) for number in range(self._count)]
            if config.asynchronous.ray:
                from clew.run.asynchronous.ray_pool import RayPool  # optional: ray

                self._pool = RayPool(specs, self._log)
            else:
                self._pool = ProcessPool(specs, self._actor_params(state), self._log)
        self._publish(self._pool, state)
        return self._pool

    def _publish(self, pool: ActorPool, state: RunState) -> None:
        pool.publish(int(state.update), self._actor_params(state))

    def _actor_params(self, state: RunState) -> ActorParams:
        _, rollout_key, _ = self._split(state.seed.key)
        return ActorParams(
            jax.tree.map(np.asarray, state.seed.agent),
            unpacked(state.seed.actor.statistics),
            np.asarray(jax.random.key_data(rollout_key)),
        )

    def _update(self, pool: ActorPool, state: RunState) -> RunState:
        began = time.perf_counter()
        rollouts = pool.take(self._count)
        waited = time.perf_counter() - began
        seed = state.seed
        next_key, _, learn_key = self._split(seed.key)
        acted = together([rollout.gathered for rollout in rollouts])
        made = self._learn(seed._replace(key=next_key), acted, learn_key, np.int32(state.update))
        statistics = unpacked(seed.actor.statistics)
        for rollout in rollouts:
            statistics = merged(statistics, rollout.gathered.begin, rollout.gathered.end)
        actor = made.actor._replace(statistics=packed(statistics))
        made = jax.block_until_ready(made._replace(actor=actor))
        self._measures.add(int(state.update), rollouts, waited, time.perf_counter() - began)
        return RunState(state.update + 1, made)


def together(gathered: Sequence[Gathered]) -> HostRollout:
    """Joins rollouts of several actors into one of all their environments, in new memory."""

    def joined(axis: int) -> Callable[..., np.ndarray]:
        return lambda *leaves: np.concatenate(leaves, axis)

    acted = [one.acted for one in gathered]
    experience, states, memory, sums = zip(*acted, strict=True)
    return HostRollout(
        jax.tree.map(joined(1), *experience),
        jax.tree.map(joined(0), *states),
        jax.tree.map(joined(0), *memory),
        jax.tree.map(lambda *leaves: np.sum(leaves, 0, dtype=np.float32), *sums),
    )


def merged(base: dict[str, Any], begin: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
    """`base` with the statistics that an actor added between `begin` and `end`.

    This merges the wrappers' running statistics of several actors into one set.

    Counts n, sums n mean and sums of squares m2 + n mean^2 add up, so with differences d over the
    actor's rollout

        n'    = n + dn
        mean' = (n mean + d(n mean)) / n'
        m2'   = m2 + n mean^2 + d(m2 + n mean^2) - n' mean'^2

    and the mean square of returns is merged like a mean. All three are trees as
    `GymnasiumStream.state` gives them, in float64.
    """
    if "count" not in end:
        return {name: merged(base[name], begin[name], end[name]) for name in end}
    if all(np.array_equal(base[name], begin[name]) for name in end):
        return end  # exact, without rounding, if no other actor has added anything
    count = np.asarray(base["count"] + (end["count"] - begin["count"]), np.float64)
    n = np.maximum(count, 1.0)

    def total(name: str) -> Any:
        base_sum, begin_sum, end_sum = (s["count"] * s[name] for s in (base, begin, end))
        return base_sum + (end_sum - begin_sum)

    if "mean_square" in end:
        return {"count": count, "mean_square": np.asarray(total("mean_square") / n)}
    mean = np.asarray(total("mean") / n)
    base_sum, begin_sum, end_sum = (
        s["m2"] + s["count"] * np.square(s["mean"]) for s in (base, begin, end)
    )
    m2 = np.asarray(base_sum + (end_sum - begin_sum) - n * np.square(mean))
    return {"count": count, "mean": mean, "m2": np.maximum(m2, 0.0)}


class _Measures:
    """Measures of actors and learner since the last call of `take`."""

    def __init__(self) -> None:
        self._dropped = 0
        self._clear()

    def _clear(self) -> None:
        self._lags: list[int] = []
        self._acting, self._actors_waited = 0.0, 0.0
        self._learning, self._learner_waited = 0.0, 0.0

    def add(
        self, version: int, rollouts: Sequence[ActorRollout], waited: float, seconds: float
    ) -> None:
        """Counts an update."""
        self._lags += [version - rollout.version for rollout in rollouts]
        self._acting += sum(rollout.seconds for rollout in rollouts)
        self._actors_waited += sum(rollout.waited for rollout in rollouts)
        self._learning += seconds
        self._learner_waited += waited

    def take(self, dropped: int) -> dict[str, Any]:
        """Returns the measures, see `AsyncProgram.measured`, and resets them."""
        measured = {
            "lag": round(float(np.mean(self._lags or [0])), 3),
            "lag_max": max(self._lags or [0]),
            "actor_wait": round(self._actors_waited / (self._acting or 1.0), 3),
            "learner_wait": round(self._learner_waited / (self._learning or 1.0), 3),
            "dropped": dropped - self._dropped,
        }
        self._dropped = dropped
        self._clear()
        return measured
