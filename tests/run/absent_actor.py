"""An actor whose module is not where nodes look for one."""

from clew.run.asynchronous.ray_actor import RayActor


class AbsentActor(RayActor):
    """The same as any other."""
