"""Tasks with masked actions: several choices at once, and invalid masks."""

from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array

from clew.envs import Environment, Transition


class Doors(NamedTuple):
    """The state of an episode."""

    time: Array
    allowed: Array


class Masked(Environment):
    """Two choices with random masks; an episode ends after 1 to 4 steps, in either way.

    A forbidden action earns NaN.

    Args:
        wrong: "nothing" allows nothing in the third step, "shape" and "dtype" are invalid masks.
    """

    wrong: str = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    observation_size = 3
    num_actions = 0
    metric_names = ()

    def __init__(self, wrong: str = "", sizes: tuple[int, ...] = (4, 2)):
        self.wrong, self.sizes = wrong, sizes

    @property
    def action_space(self) -> spaces.Space:
        """Two choices."""
        return spaces.MultiDiscrete(self.sizes)

    def _draw(self, key: Array, time: Array) -> tuple[Doors, Array]:
        allowed = jax.random.bernoulli(key, 0.4, (sum(self.sizes),))
        begins = np.cumsum([0, *self.sizes])[:-1]
        allowed = allowed.at[begins + 1].set(True)
        if self.wrong == "nothing":
            allowed = allowed & (time != 2)
        return Doors(time, allowed), jax.random.normal(key, (3,), jnp.float32)

    def reset(self, key: Array) -> tuple[Doors, Array]:
        """Draws a mask."""
        return self._draw(key, jnp.zeros((), jnp.int32))

    def action_mask(self, state: Doors) -> Array:
        """The mask that was drawn."""
        if self.wrong == "shape":
            return state.allowed[1:]
        return state.allowed.astype(jnp.float32) if self.wrong == "dtype" else state.allowed

    def step(self, state: Doors, action: Array, key: Array) -> tuple[Doors, Transition]:
        """Ends in one of four cases, by termination or truncation."""
        after, observation = self._draw(key, state.time + 1)
        kind = jax.random.randint(key, (), 0, 8)
        over = after.time >= 4
        begins = jnp.asarray(np.cumsum([0, *self.sizes])[:-1], jnp.int32)
        fine = jnp.all(state.allowed[begins + action]) | (self.wrong == "nothing")
        return after, Transition(
            observation=observation,
            reward=jnp.where(fine, observation[0], jnp.nan),
            terminated=over | (kind == 0),
            truncated=kind == 1,
            metrics={},
        )


class Entry(Environment):
    """The same with the mask as an entry of the observation, "legal"."""

    task: Masked
    observation_size = 9
    num_actions = 0
    metric_names = ()

    def __init__(self):
        self.task = Masked()

    @property
    def observation_space(self) -> spaces.Space:
        """Numbers and the mask."""
        numbers = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        return spaces.Dict({"observation": numbers, "legal": spaces.MultiBinary(6)})

    @property
    def action_space(self) -> spaces.Space:
        """Two choices."""
        return self.task.action_space

    def reset(self, key: Array) -> tuple[Doors, Any]:
        """Draws a mask."""
        state, observation = self.task.reset(key)
        return state, {"observation": observation, "legal": state.allowed.astype(jnp.int8)}

    def step(self, state: Doors, action: Array, key: Array) -> tuple[Doors, Transition]:
        """The other task's step."""
        after, then = self.task.step(state, action, key)
        seen: Any = {"observation": then.observation, "legal": after.allowed.astype(jnp.int8)}
        return after, then._replace(observation=seen)


def masks(sizes: tuple[int, ...], count: int, seed: int = 0) -> np.ndarray:
    """Random masks [count, n] that allow something of every choice."""
    rng = np.random.default_rng(seed)
    parts: list[Any] = []
    for n in sizes:
        part = rng.random((count, n)) < 0.5
        part[np.arange(count), rng.integers(n, size=count)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1)


class Locks(gymnasium.Env):
    """Random masks in every step; raises if a forbidden action is taken.

    Args:
        where: "info", "parts" (in info, one mask for each choice) or "entry" of the observation.
        sizes: numbers of actions of every choice; a single one makes a Discrete.
        wrong: the error of the mask after two steps: "nothing" is allowed, it is "missing", or has
            another "shape", "type" or "value".
        bare: whether the last observation of an episode comes without a mask.
    """

    def __init__(
        self,
        where: str = "info",
        sizes: tuple[int, ...] = (4,),
        wrong: str = "",
        bare: bool = False,
    ):
        self.where, self.sizes, self.wrong, self.bare = where, tuple(sizes), wrong, bare
        one = len(self.sizes) == 1
        self.action_space = (
            spaces.Discrete(self.sizes[0], start=1) if one else spaces.MultiDiscrete(self.sizes)
        )
        self.observation_space: spaces.Space = spaces.Box(-1.0, 1.0, (2,), np.float64)
        if where == "entry":
            inner = spaces.MultiBinary(sum(self.sizes))
            named = {"observation": self.observation_space, "allowed": inner}
            self.observation_space = spaces.Dict(named)
        self.time = self.length = 0
        self.mask = np.zeros(0, np.int8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Opens an episode of 1 to 4 steps, or of 4 with a wrong mask."""
        super().reset(seed=seed)
        self.time, self.length = 0, 4 if self.wrong else int(self.np_random.integers(1, 5))
        return self._shown(False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes a step; every other end is a truncation."""
        begins = np.cumsum([0, *self.sizes])[:-1]
        chosen = np.atleast_1d(np.asarray(action)) - (1 if len(self.sizes) == 1 else 0)
        assert self.wrong or self.mask[begins + chosen].all(), f"{action} is forbidden"
        self.time += 1
        over = self.time == self.length
        cut = over and bool(self.np_random.integers(2))
        observation, info = self._shown(over)
        return observation, float(self.time), over and not cut, cut, info

    def _shown(self, over: bool) -> tuple[Any, dict[str, Any]]:
        self.mask = masks(self.sizes, 1, int(self.np_random.integers(2**31)))[0].astype(np.int8)
        observation, mask = self.np_random.uniform(-1, 1, 2), self._given()
        if self.where == "entry":
            return {"observation": observation, "allowed": mask}, {}
        if mask is None or (over and self.bare):
            return observation, {}
        if self.where == "parts":
            mask = tuple(np.split(mask, np.cumsum(self.sizes)[:-1]))
        return observation, {"action_mask": mask}

    def _given(self) -> Any:
        if self.time != 2 or not self.wrong:
            return self.mask
        given = {"nothing": 0 * self.mask, "shape": self.mask[1:], "value": 2 * self.mask}
        return (given | {"type": self.mask.astype(str), "missing": None})[self.wrong]


def together(num_envs: int, mode: str = "NextStep", **options: Any) -> Any:
    """A factory of vector environments."""
    kind = gymnasium.vector.AutoresetMode(mode)
    makers = [lambda: Locks(**options)] * num_envs
    return gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=kind)
