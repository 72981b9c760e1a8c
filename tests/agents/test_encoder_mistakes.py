"""Encoders refuse unsupported spaces, impossible settings, and observations of other spaces."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from gymnasium import spaces

from clew.agents.encoders import EncoderConfig, make_encoder
from clew.errors import UserError


def made_of(space: spaces.Space, **settings: Any) -> Any:
    config = EncoderConfig(**settings)
    config.validate_encoder()
    return make_encoder(space, config, key=jax.random.key(0))


BOX = spaces.Box(-1.0, 1.0, (3,))
MISTAKES = {
    "a small picture": (
        lambda: made_of(spaces.Box(0, 1, (6, 9, 3)), encoder="impala"),
        "8 x 8.*6 x 9",
    ),
    "too small": (
        lambda: made_of(spaces.Box(0, 1, (40, 35, 3)), encoder="nature"),
        "36 x 36.*40 x 35",
    ),
    "no picture": (
        lambda: made_of(BOX, encoder="nature"),
        r"\[height, width, channels\], got \[3\]",
    ),
    "text": (
        lambda: made_of(spaces.Dict(a=BOX, mission=spaces.Text(9))),
        "entry 'mission'.*Text.*Filter",
    ),
    "a tuple": (lambda: made_of(spaces.Tuple([BOX])), "Tuple.*expected Box"),
    "nothing": (lambda: made_of(spaces.Dict()), "at least one entry"),
    "no numbers": (
        lambda: made_of(spaces.Box(0, 1, (0, 2))),
        r"at least one number, got shape \[0, 2\]",
    ),
    "two rewards": (
        lambda: made_of(spaces.Dict(previous_reward=spaces.Box(0, 1, (2,)))),
        r"'previous_reward'.*one number, got shape \[2\]",
    ),
    "another shape": (lambda: made_of(BOX)(jnp.ones((2, 4))), r"shape \[3\].*got \[2, 4\]"),
    "another entry": (
        lambda: made_of(spaces.Dict(a=BOX))({"b": jnp.ones(3)}),
        r"\['a'\], got \['b'\]",
    ),
    "no dict": (lambda: made_of(spaces.Dict(a=BOX))(jnp.ones(3)), r"\['a'\], got"),
    "an unknown encoder": (lambda: made_of(BOX, encoder="imapla"), "'impala'"),
    "an unknown precision": (lambda: made_of(BOX, precision="float64"), "precision"),
    "two channels": (
        lambda: made_of(BOX, encoder="nature", picture_channels=(1, 2)),
        "three numbers",
    ),
    "no channels": (lambda: made_of(BOX, picture_channels=(0,)), "picture_channels"),
    "a negative size": (lambda: made_of(BOX, embedding_size=-1), "embedding_size.*got -1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    """The error is one line with the value and the expectation."""
    mistake, message = MISTAKES[name]
    with pytest.raises(UserError, match=message) as error:
        mistake()
    assert "\n" not in str(error.value)
