"""Which devices compute what of a run: whole agents, or each a share of the environments."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from clew.agents.devices import jit_over, make_mesh, shard_batch, spec_of
from clew.errors import UserError, require_at_least
from clew.memory import MEMORIES

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

Tree = TypeVar("Tree")
Layout = NamedSharding | None
"""Where the parts of an array are; None with one device, where there is nothing to lay out."""


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
        return jit_over(self.mesh, self.each_seed(function, in_axes), **options)

    def _layout(self, spec: PartitionSpec) -> Layout:
        return None if self.mesh is None else NamedSharding(self.mesh, spec)


def sharding_of(config: "TrainConfig") -> Sharding:
    """How a run is divided.

    Raises:
        UserError: if there are fewer devices.
    """
    mesh = make_mesh(config.devices) if config.devices > 1 else None
    return Sharding(mesh, _by_seed(config), config.seeds)


def place_on_devices(tree: Tree, layouts: Any) -> Tree:
    """The arrays of a tree where they belong.

    Args:
        tree: of arrays.
        layouts: a tree of `Layout`, of which a leaf may stand for a whole branch.
    """
    if not jax.tree.leaves(layouts):
        return tree
    return jax.device_put(tree, layouts)


def check_devices(config: "TrainConfig") -> None:
    """Refuses a number of devices that a run cannot be divided between.

    Raises:
        UserError: naming the numbers that do not fit each other.
    """
    require_at_least("devices", config.devices, 0)
    if config.devices <= 1:
        return
    kind = MEMORIES.get(config.memory)
    if isinstance(kind, type) and not kind.shardable:  # a user's own may be a function
        raise UserError(
            f"devices must be 1 with {config.memory}, which cannot be differentiated on several "
            f"devices, got {config.devices}"
        )
    if not _by_seed(config):
        _check_environments(config)
    make_mesh(config.devices)


def _check_environments(config: "TrainConfig") -> None:
    count, learning = config.devices, config.learning
    if learning.num_envs % count:
        raise UserError(
            f"devices must divide num_envs, or the number of seeds, got {count} devices for "
            f"{learning.num_envs} environments and seeds {config.seeds}"
        )
    sequences = learning.num_envs * learning.rollout_length // config.sequence_length
    per_step = config.learner.sequences_per_step
    if per_step % count:
        raise UserError(
            f"devices must divide what is read for a gradient step, got {count} devices for "
            f"{sequences} sequences in {sequences // per_step} minibatches"
        )


def _by_seed(config: "TrainConfig") -> bool:
    return config.devices > 1 and config.seeds > 1 and config.seeds % config.devices == 0
