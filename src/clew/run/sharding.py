"""Which devices compute what of a run: whole agents, or each a share of the environments."""

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
from clew.agents.learners.base import Gathering
from clew.errors import UserError
from clew.interact.task import Task
from clew.memory import MEMORIES
from clew.memory.base import AbstractMemory
from clew.names import find
from clew.run.machine import available_cores, use_threads

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

Layout = NamedSharding | None
"""Where the parts of an array are; None with one device, where there is nothing to lay out."""


_COUNT_FLAG = "xla_force_host_platform_device_count"
_ONE_THREAD: dict[str, Any] = {"xla_cpu_multi_thread_eigen": False}
_OWN_SUMS: dict[str, Any] = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
}
"""Sums in XLA's own loops, together with what is summed. By default JAX 0.10 hands them to a
library, which writes the summands to memory first: on two cores AReLiT trained 17% more slowly,
on one as fast."""


class Sharding(NamedTuple):
    """How a run is divided.

    With several seeds, if the number of devices divides theirs, each device has some of the
    agents with all that is theirs, and the devices have nothing to tell each other. Else each has
    all agents, and of every agent's environments a share; the gradients are summed.
    """

    mesh: Mesh | None
    """None for one device."""
    by_seed: bool
    seeds: int
    one_thread: bool = False
    """Whether a processor's device computes with one thread."""

    @property
    def whole(self) -> Layout:
        """Of what every device has."""
        return self._layout(PartitionSpec())

    @property
    def of_seed(self) -> Layout:
        """Of what every seed has one of; with several seeds their axis is the first."""
        return self._layout(spec_of(0 if self.by_seed else None))

    def environments(self, axis: int) -> Layout:
        """Of what every environment has one of.

        Args:
            axis: of the environments, in the arrays of one seed.
        """
        return self._layout(spec_of(0 if self.by_seed else axis + (self.seeds > 1)))

    def each_seed(self, function: Callable, in_axes: tuple[int | None, ...]) -> Callable:
        """A function of one seed for all of them; for use within `jit_over`.

        Args:
            function: of the arrays of one seed.
            in_axes: of the seeds in the arguments, one for each; they are the results' first.
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
        """What XLA compiles the run's programs with; None for its defaults."""
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
    """Refuses a number of devices that a run cannot be divided between.

    Raises:
        UserError: naming the numbers that do not fit each other.
    """
    if config.devices <= 1:
        return
    if not _is_shardable(config):
        raise UserError(
            f"{config.memory} cannot be trained on several devices: devices must be 1, got "
            f"{config.devices}"
        )
    if not _by_seed(config):
        _check_environments(config, learner.gathering)
    make_mesh(config.devices)


def choose_devices(config: "TrainConfig", task: Task) -> "TrainConfig":
    """The settings with devices and threads chosen where they are left to the library.

    A task written in JAX computes on a processor with one thread for each device: with XLA's own
    threads no agent measured was faster by more than the measurements differ (`results/speed`).
    Several seeds get as many devices as JAX has and there are cores, or the largest number below
    that divides the seeds. Environments are divided on request alone: that made AReLiT and ReLiT
    faster, LSTM and GRU slower. Everything else gets one device as JAX has it.

    Args:
        config: of a run; `devices` 0 and `device_threads` "auto" are replaced.
        task: of the run.
    """
    on_processor = task.acts_on_device and jax.default_backend() == "cpu"
    kind: object = find("memory", config.memory, MEMORIES)
    known = isinstance(kind, type)  # else whether it can be is not said
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
    """Makes JAX take every core of this process for a device, if it has not begun to compute.

    For a program of its own, such as the command line: it changes JAX for the whole process. Where
    the user has said how many devices a processor is, by JAX's setting or in XLA_FLAGS, nothing
    is changed.

    Args:
        wanted: devices that are needed, even if there are fewer cores.
        threads: to compute on, and devices to have; 0 takes one of each for every core.
    """
    if not count_is_given():
        with contextlib.suppress(RuntimeError):  # JAX has its devices already
            jax.config.update("jax_num_cpu_devices", max(threads or available_cores(), wanted))
    if threads:
        use_threads(threads)


def count_is_given() -> bool:
    """Whether the user has said how many devices a processor is."""
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
        return True  # a function of a user's own; what is no memory is refused where it is made
    return kind.shardable


def _check_environments(config: "TrainConfig", gathering: Gathering) -> None:
    count, learning = config.devices, config.learning
    if learning.num_envs % count:
        raise UserError(
            f"devices must divide num_envs ({learning.num_envs}) or seeds ({config.seeds}), got "
            f"{count}"
        )
    length = gathering.sequence_length or learning.rollout_length
    sequences = learning.num_envs * learning.rollout_length // length
    per_step = gathering.sequences_per_step or sequences
    if per_step % count:
        raise UserError(
            f"devices must divide the {per_step} sequences of a gradient step (of {sequences} in a "
            f"rollout; see minibatches, gradient_accumulation), got {count}"
        )


def _by_seed(config: "TrainConfig") -> bool:
    return config.devices > 1 and config.seeds > 1 and config.seeds % config.devices == 0
