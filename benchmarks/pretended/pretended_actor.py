"""An actor that computes nothing, and the library's own pool of such actors."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from clew import TrainConfig
from clew.run.asynchronous import ray_pool
from clew.run.asynchronous.actor import ActorSpec
from clew.run.asynchronous.ray_actor import Made, RayActor
from clew.run.asynchronous.settings import AsyncConfig


class PretendedActor(RayActor):
    """Answers at once with as many bytes as the newest parameters ask for."""

    def rollout(self, version: int, latest: Any, opening: int) -> Any:
        """The stand-in for the result of `RayActor.rollout`."""
        self.receive(version, latest)
        version, newest = self._newest
        size: Any = newest
        return Made(version, np.ones(size[1], np.uint8), 1.0, 0.0)


class Pool(ray_pool.RayPool):
    """The library's pool, with its version."""

    @property
    def version(self) -> int:
        """The newest."""
        return self._newest[0]


def make_pool(actors: int) -> Pool:
    """Actors that are all busy."""
    config = TrainConfig(asynchronous=AsyncConfig(actors=actors, queue=1, ray="auto"))
    task: Any = SimpleNamespace(environment=SimpleNamespace(vector=False))
    modules: Any = ray_pool
    modules.RayActor, modules.pickle = PretendedActor, SimpleNamespace(dumps=lambda spec: b"")
    specs = [ActorSpec(config, task, number, 1) for number in range(actors)]
    pool, nothing = Pool(specs, lambda line: None), (np.zeros(0, np.uint8), 0)
    version: Any = 0
    while version == 0 or not all(actor.started for actor in pool.actors):
        pool.publish(version := version + 1, nothing)  # pyright: ignore[reportArgumentType]
        pool.take(actors)
    return pool
