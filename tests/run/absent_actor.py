"""An actor whose module is not on the path of the nodes."""

from clew.run.asynchronous.ray_actor import RayActor


class AbsentActor(RayActor):
    """An ordinary actor."""
