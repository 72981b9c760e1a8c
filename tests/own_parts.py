"""A user's own memory, encoder, task, learner, logger and study, by module:Class.

Tests copy this file as `mine.py` into a folder and name its contents: `mine:Average` and so on.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from clew import A2CConfig, AbstractMemory, Environment, TrainConfig
from clew.agents.encoders import AbstractEncoder
from clew.agents.learners.a2c import A2C
from clew.agents.learners.base import Gathering
from clew.envs import Transition
from clew.lab.grid import Evaluation, Setting, Study
from clew.memory import scan_steps, select
from clew.memory.parts.blocks import Linear


class Average(AbstractMemory):
    """An exponential average, h_t = d h_{t-1} + (1 - d) W x_t."""

    product: Linear
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    decay: float = eqx.field(static=True)

    def __init__(
        self, input_size: int, *, key: PRNGKeyArray, hidden_size: int = 8, decay: float = 0.5
    ):
        self.product = Linear(input_size, hidden_size, key=key, init="orthogonal")
        self.input_size, self.output_size, self.decay = input_size, hidden_size, decay

    def init_state(self) -> Array:
        return jnp.zeros(self.output_size)

    def step(self, state: Any, x: Any, start: Any) -> tuple[Any, Any]:
        state = select(start, self.init_state(), state)
        state = self.decay * state + (1 - self.decay) * self.product(x)
        return state, state

    def unroll(self, state: Any, xs: Any, starts: Any) -> tuple[Any, Any]:
        return scan_steps(self, state, xs, starts)


class Scaled(AbstractEncoder):
    """A vector times a number."""

    output_size: int = eqx.field(static=True)
    factor: float = eqx.field(static=True)

    def __init__(self, space: gymnasium.Space, *, key: PRNGKeyArray, factor: float = 2.0):
        assert space.shape is not None
        self.output_size, self.factor = space.shape[0], factor

    def __call__(self, x: Any) -> Array:
        return self.factor * jnp.asarray(x, jnp.float32)


class Cue(Environment):
    """A cue at the beginning, 1 for the action that names it at the end."""

    delay: int = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    metric_names: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, delay: int = 3):
        self.delay, self.observation_size, self.num_actions = delay, 2, 2
        self.metric_names = ("success",)

    def reset(self, key: Any) -> tuple[Any, Array]:
        cue = jax.random.randint(key, (), 0, 2)
        return (cue, jnp.int32(0)), jax.nn.one_hot(cue, 2)

    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Transition]:
        cue, time = state[0], state[1] + 1
        ended = time >= self.delay
        success = (ended & (action == cue)).astype(jnp.float32)
        observation, never = jnp.zeros(2), jnp.zeros((), bool)
        return (cue, time), Transition(observation, success, ended, never, {"success": success})


@dataclass(frozen=True)
class HalvedConfig(A2CConfig):
    """Settings of A2C, and the divisor of its rewards."""

    divisor: float = 2.0
    """The divisor of rewards."""


@dataclass(frozen=True)
class Halved:
    """A2C on divided rewards, with a metric of its own."""

    settings: ClassVar[type] = HalvedConfig
    metrics: ClassVar[tuple[str, ...]] = (*A2C.metrics, "divided_by")
    config: HalvedConfig
    updates: int = 1

    @property
    def inner(self) -> A2C:
        return A2C(self.config, self.updates)

    @property
    def gathering(self) -> Gathering:
        return Gathering(sequences_per_step=self.inner.gathering.sequences_per_step)

    @property
    def make_heads(self) -> Any:
        return self.inner.make_heads

    def init(self, agent: Any, template: Any) -> Any:
        return self.inner.init(agent, template)

    def learn(self, agent: Any, state: Any, rollout: Any, key: Any) -> Any:
        rollout = eqx.tree_at(
            lambda r: r.chunks.reward, rollout, rollout.chunks.reward / self.config.divisor
        )
        agent, state, metrics = self.inner.learn(agent, state, rollout, key)
        return agent, state, metrics | {"divided_by": jnp.float32(self.config.divisor)}


def halving(rate: float, steps: int) -> Any:
    """A schedule: half of the learning rate after half of the run."""
    return lambda count: jnp.where(count < steps // 2, rate, rate / 2)


class Kept:
    """A logger that keeps the rows of the newest run."""

    rows: ClassVar[list[dict[str, Any]]] = []

    def start(self, path: Any, config: TrainConfig, rows: Any) -> None:
        Kept.rows[:] = rows

    def row(self, row: dict[str, Any]) -> None:
        Kept.rows.append(row)

    def close(self) -> None:
        pass


STUDY = Study(
    name="mine",
    models={
        "average": TrainConfig(
            memory="mine:Average",
            memory_options={"hidden_size": 4},
            a2c=A2CConfig(num_envs=2, rollout_length=8),
        )
    },
    settings={"delay 2": Setting("mine:Cue", {"delay": 2})},
    seeds=(0, 1),
    steps=160,
    evaluation=Evaluation(episodes=8),
    score="success",
)
