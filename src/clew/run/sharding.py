"""Divides a run between devices: whole agents, or a share of the environments for each device."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from clew.agents.devices import jit_over, make_mesh, shard_batch, spec_of
from clew.agents.learners import Learner
from clew.errors import UserError
from clew.interact.task import Task
from clew.memory import MEMORIES
from clew.memory.base import AbstractMemory
from clew.names import find
from clew.run.machine import available_cores, use_threads

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

Layout = NamedSharding | None
"""The placement of an array's parts on devices; None with a single device."""


_COUNT_FLAG = "xla_force_host_platform_device_count"
_ONE_THREAD: dict[str, Any] = {"xla_cpu_multi_thread_eigen": False}
_OWN_SUMS: dict[str, Any] = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
}
"""Options that keep sums in XLA's own loops, fused with the computation of the summands. By default
JAX 0.10 passes them to a library, for which the summands are first written to memory. That made
AReLiT's training 17% slower on two cores, and no slower on one."""


class Sharding(NamedTuple):
    """How a run is divided.

    With several seeds, if the number of devices divides the number of seeds, each device has some
    of the agents with all their data, and devices need not communicate. Otherwise each device has
    all agents and a share of every agent's environments; the gradients are summed.
    """

    mesh: Mesh | None
    """None for one device."""
    by_seed: bool
    seeds: int
    one_thread: bool = False
    """Whether a CPU device computes with one thread."""

    @property
    def whole(self) -> Layout:
        """Layout of arrays that every device has completely."""
        return self._layout(PartitionSpec())

    @property
    def of_seed(self) -> Layout:
        """Layout of arrays with one entry for every seed; with several seeds on the first axis."""
        return self._layout(spec_of(0 if self.by_seed else None))

    def environments(self, axis: int) -> Layout:
        """Layout of arrays with one entry for every environment.

        Args:
            axis: of the environments, in the arrays of one seed.
        """
        return self._layout(spec_of(0 if self.by_seed else axis + (self.seeds > 1)))

    def each_seed(self, function: Callable, in_axes: tuple[int | None, ...]) -> Callable:
        """Maps a function of one seed over all seeds; for use within `jit_over`.

        Args:
            function: of the arrays of one seed.
            in_axes: the axis of the seeds in each argument; in results it is the first.
        """
        if self.seeds == 1:
            return function
        every = jax.vmap(function, in_axes)
        if not self.by_seed:
            return every
        return lambda *args: shard_batch(every, in_axes, 0)(*args)

    def compile(
        self, function: Callable, in_axes: tuple[int | None, ...], **options: Any
    ) -> Callable:
        """`each_seed` compiled for the run's devices; `options` are those of `jax.jit`."""
        options["compiler_options"] = self.compiler_options
        return jit_over(self.mesh, self.each_seed(function, in_axes), **options)

    @property
    def compiler_options(self) -> dict[str, Any] | None:
        """XLA's options for the run's programs; None for its defaults."""
        if jax.default_backend() != "cpu":
            return None
        options = _OWN_SUMS if _knows_own_sums() else {}
        return options | _ONE_THREAD if self.one_thread else options or None

    def _layout(self, spec: PartitionSpec) -> Layout:
        return None if self.mesh is None else NamedSharding(self.mesh, spec)


def sharding_of(config: "TrainConfig") -> Sharding:
    """How a run is divided.

    Raises:
        UserError: if there are fewer devices.
    """
    mesh = make_mesh(config.devices) if config.devices > 1 else None
    return Sharding(mesh, _by_seed(config), config.seeds, config.device_threads == "one")


def check_devices(config: "TrainConfig", learner: Learner) -> None:
    """Refuses a number of devices between which a run cannot be divided.

    Raises:
        UserError: naming the numbers that do not fit.
    """
    if config.devices <= 1:
        return
    if not _is_shardable(config):
        raise UserError(
            f"{config.memory} cannot be trained on several devices: devices must be 1, got "
            f"{config.devices}"
        )
    if not _by_seed(config):
        count, learning, gathering = config.devices, config.learning, learner.gathering
        if learning.num_envs % count:
            raise UserError(
                f"devices must divide num_envs ({learning.num_envs}) or seeds ({config.seeds}), "
                f"got {count}"
            )
        length = gathering.sequence_length or learning.rollout_length
        sequences = learning.num_envs * learning.rollout_length // length
        per_step = gathering.sequences_per_step or sequences
        if per_step % count:
            raise UserError(
                f"devices must divide the {per_step} sequences of a gradient step (of {sequences} "
                f"in a rollout; see minibatches, gradient_accumulation), got {count}"
            )
    make_mesh(config.devices)


def choose_devices(config: "TrainConfig", task: Task) -> "TrainConfig":
    """The settings with devices and threads chosen, unless they are given.

    A task written in JAX computes on a CPU with one thread for each device: with XLA's own threads
    no measured agent was faster beyond the noise of the measurements (`results/speed`). Several
    seeds get as many devices as JAX has and there are cores, or the next lower number that divides
    the seeds. Environments are divided only on request: that made AReLiT and ReLiT faster, but LSTM
    and GRU slower. Everything else gets one device, with XLA's own threads unless it is such a task
    on a CPU.
    """
    on_processor = task.acts_on_device and jax.default_backend() == "cpu"
    kind: object = find("memory", config.memory, MEMORIES)
    known = isinstance(kind, type)  # a function does not say whether its memory is shardable
    count, threads = config.devices, config.device_threads
    if not count:
        most = min(len(jax.devices()), available_cores())
        divided = on_processor and known and _is_shardable(config)
        numbers = range(most, 1, -1) if divided else ()
        fitting = (n for n in numbers if _by_seed(replace(config, devices=n)))
        count = next(fitting, 1)
    if threads == "auto":
        threads = "one" if on_processor else "all"
    return replace(config, devices=count, device_threads=threads)


def open_devices(wanted: int = 0, threads: int = 0) -> None:
    """Makes JAX use every core of this process as a device, if it has not yet begun to compute.

    For programs such as the command line, because it changes JAX for the whole process. If the
    user has set the number of CPU devices, by JAX's setting or in XLA_FLAGS, nothing is changed.

    Args:
        wanted: number of devices needed, even if there are fewer cores.
        threads: number of threads and of devices; 0 takes one of each for every core.
    """
    if not count_is_given():
        with contextlib.suppress(RuntimeError):  # JAX already has its devices
            jax.config.update("jax_num_cpu_devices", max(threads or available_cores(), wanted))
    if threads:
        use_threads(threads)


def count_is_given() -> bool:
    """Whether the user has set the number of CPU devices."""
    flags = os.environ.get("XLA_FLAGS", "")
    return jax.config.values["jax_num_cpu_devices"] != -1 or _COUNT_FLAG in flags


@cache
def _knows_own_sums() -> bool:
    """Whether this version of XLA has the option."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.jit(lambda x: x, compiler_options=_OWN_SUMS).lower(0.0).compile()
        return True
    return False


def _is_shardable(config: "TrainConfig") -> bool:
    kind = find("memory", config.memory, MEMORIES)
    if not (isinstance(kind, type) and issubclass(kind, AbstractMemory)):
        return True  # a user's function; if it returns no memory, that is refused later
    return kind.shardable


def _by_seed(config: "TrainConfig") -> bool:
    return config.devices > 1 and config.seeds > 1 and config.seeds % config.devices == 0
