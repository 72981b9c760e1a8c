"""A package that looks like gymnax 1.0, with environments that label every observation."""

import sys
import types
from importlib import metadata
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest


class Space:
    """A space as in gymnax: no Gymnasium, only attributes."""

    def __init__(self, **fields: Any):
        self.__dict__.update(fields)


def box(shape, low=-jnp.inf, high=jnp.inf, dtype=jnp.float32):
    return Space(low=low, high=high, shape=shape, dtype=dtype)


def discrete(n):
    return Space(n=n, shape=(), dtype=jnp.int32)


class State(NamedTuple):
    """The episode's number, drawn from a key, and the time in it."""

    label: Any
    time: Any


class Params(eqx.Module):
    """Settings; Python numbers, as in gymnax."""

    ends: int = 3
    max_steps_in_episode: int = 1000
    reward: float = 1.0
    mirrored: bool = False


class Base:
    """gymnax's base class: the defaults of every environment."""

    default_params = Params()

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def is_terminal(self, state, params):
        return self.is_terminated(state, params)

    def is_terminated(self, state, params):
        raise NotImplementedError

    def observation_space(self, params):
        return box((2,))

    def action_space(self, params):
        return discrete(3)


class Labelled(Base):
    """Shows its episode's label and the time; ends at params.ends."""

    def __init__(self, scale: float = 1.0):
        self.scale = scale

    def observe(self, state):
        return jnp.stack([state.label, jnp.float32(state.time)])

    def reset(self, key, params):
        state = State(self.scale * jax.random.uniform(key), 0)
        return self.observe(state), state

    def step_env(self, key, state, action, params):
        state = State(state.label, state.time + 1)
        reward = params.reward * jnp.float32(state.time + action)
        info = {"discount": 1.0, "bonus": jnp.int32(7), "map": jnp.zeros(3)}
        return self.observe(state), state, reward, self.is_terminated(state, params), info

    def is_terminated(self, state, params):
        return state.time >= params.ends


class Older(Labelled):
    """Written for a gymnax before 1.0: its end includes the time limit."""

    def is_terminal(self, state, params):
        return (state.time >= params.ends) | (state.time >= params.max_steps_in_episode)

    def step_env(self, key, state, action, params):
        answer = super().step_env(key, state, action, params)
        return *answer[:3], self.is_terminal(answer[1], params), answer[4]


class Bare:
    """Without a base class; reports truncation itself and observes a dict."""

    default_params = None

    def reset(self, key, params):
        return {"image": jnp.zeros((2, 2, 1), bool), "place": 0}, jnp.zeros((1,))

    def step_env(self, key, state, action, params):
        observation = {"image": jnp.ones((2, 2, 1), bool), "place": jnp.int32(1)}
        reward = action.sum()[None]
        return observation, state + 1, reward, state[0] > 8, state[0] >= 1, {}

    def observation_space(self, params):
        image = box((2, 2, 1), 0, 1, jnp.bool_)
        return Space(spaces={"image": image, "place": discrete(4)})

    def action_space(self, params):
        return box((2,), -1.0, jnp.asarray([1.0, 2.0]), jnp.float32)


def bare(size=3, **options):
    """A factory of an environment and its params, which takes any options."""
    env: Any = Bare()
    env.given = {"size": size, **options}
    return env, Params()


KINDS = {"Labelled-v0": Labelled, "Older-v0": Older, "Bare-v0": Bare}


@pytest.fixture
def pretended_gymnax(monkeypatch):
    """Puts the package in place of the real one, whether that is installed or not."""
    module: Any = types.ModuleType("gymnax")
    module.registered_envs = list(KINDS)

    def make(env_id, **options):
        env = KINDS[env_id](**options)
        return env, env.default_params

    module.make = make
    monkeypatch.setitem(sys.modules, "gymnax", module)
    others = metadata.version
    version = lambda name: "1.0.9" if name == "gymnax" else others(name)  # noqa: E731
    monkeypatch.setattr("importlib.metadata.version", version)
