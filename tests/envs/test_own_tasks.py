"""Mistakes in a user's own task are reported before it is compiled."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew.envs.base import Environment, Transition
from clew.errors import UserError


class Sound(Environment):
    """Counts to five; `with_` names the mistake that it makes."""

    observation_size = 3
    num_actions = 2
    metric_names = ("success",)
    with_: str = eqx.field(static=True)

    def __init__(self, with_: str = ""):
        self.with_ = with_

    def reset(self, key: Any) -> Any:
        state = (jax.random.uniform(key), jnp.int32(0))
        seen = jnp.zeros(2 if self.with_ == "a short first observation" else 3)
        return seen if self.with_ == "no first state" else (state, seen)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        count = state[1] + 1
        if self.with_ == "a state that becomes a float":
            count = count.astype(jnp.float32)
        if self.with_ == "an if" and action == 1:
            count = state[1]
        changed: dict[str, Any] = {
            "a list for an observation": {"observation": [0.0, 0.0, 0.0]},
            "a vector of rewards": {"reward": jnp.ones(1)},
            "an end of Python": {"terminated": False},
            "an end in floats": {"truncated": jnp.zeros(())},
            "no metrics": {"metrics": {}},
        }
        usual: dict[str, Any] = {
            "observation": jnp.zeros(3),
            "reward": 1,
            "terminated": count >= 5,
            "truncated": np.bool_(False),
            "metrics": {"success": True},
        }
        if self.with_ == "five values":
            return (state[0], count), *usual.values()
        return (state[0], count), Transition(**usual | changed.get(self.with_, {}))


class Named(Sound):
    """Observes a dict."""

    @property
    def observation_space(self) -> spaces.Space:
        return spaces.Dict(place=spaces.Discrete(3), speed=spaces.Box(-1, 1, (2,)))

    def reset(self, key: Any) -> Any:
        state, _ = super().reset(key)
        return state, {"place": jnp.int32(0), "speed": jnp.zeros(3)}


class Unlisted(Sound):
    """Has no actions."""

    num_actions = 0


@pytest.mark.parametrize(
    "slip, said",
    [
        ("no first state", r"reset returns float32\[3\], expected a tuple of state and observ"),
        ("a short first observation", r"observation of reset is float32\[2\], expected .* \[3\]"),
        ("a list for an observation", r"observation of step is \[float32\[\], .*shape \[3\]"),
        ("a vector of rewards", r"the reward has shape \[1\], expected one number"),
        ("an end of Python", r"terminated is False of Python, expected an array bool\[\]"),
        ("an end in floats", r"truncated is float32\[\], expected an array bool\[\]"),
        ("no metrics", "the metrics lack 'success', which metric_names has"),
        (
            "a state that becomes a float",
            r"the state becomes \(float32\[\], float32\[\]\), expected \(float32\[\], int32\[\]\)",
        ),
        ("an if", r"raised in step\(state, action, key\) .*jnp.where\(condition, a, b\) in place"),
        ("five values", r"step returns \(.*\), expected a tuple of state and Transition"),
    ],
)
def test_a_slip_is_named_before_anything_is_compiled(slip: str, said: str) -> None:
    with pytest.raises(UserError, match=f"{__name__}:Sound .*{said}") as error:
        clew.make_env(f"{__name__}:Sound", with_=slip)
    assert "\n" not in str(error.value) and "For simplicity" not in str(error.value)


def test_what_compiles_is_taken() -> None:
    """Python and NumPy numbers are accepted where they do no harm."""
    assert clew.make_env(f"{__name__}:Sound").num_actions == 2


def test_spaces_count_too() -> None:
    with pytest.raises(UserError, match=r"entry 'speed' of reset is float32\[3\], expected .*\[2"):
        clew.make_env(f"{__name__}:Named")
    with pytest.raises(UserError, match="Unlisted raised when asked for its spaces: .*positive"):
        clew.make_env(f"{__name__}:Unlisted")
