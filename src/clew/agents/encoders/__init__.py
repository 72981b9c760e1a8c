"""Encoders, which read an observation before the memory, by the environment's space."""

from dataclasses import replace
from typing import Any, cast

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import PRNGKeyArray

from clew.agents.encoders.base import (
    ENCODERS,
    AbstractEncoder,
    DictEncoder,
    EncoderConfig,
    Projected,
    SideBySideEncoders,
    WithoutEntries,
)
from clew.agents.encoders.pictures import Frame, Impala, Nature
from clew.agents.encoders.vectors import Chain, Dense, Embedding, OneHot, PreviousReward
from clew.envs.spaces import MASK, PREVIOUS_ACTION, PREVIOUS_REWARD, without_mask
from clew.errors import UserError, call_own, require_at_least
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear
from clew.names import is_reference, resolve

__all__ = [
    "ENCODERS",
    "AbstractEncoder",
    "Chain",
    "Dense",
    "Embedding",
    "EncoderConfig",
    "DictEncoder",
    "Projected",
    "Frame",
    "Impala",
    "Nature",
    "OneHot",
    "PreviousReward",
    "SideBySideEncoders",
    "WithoutEntries",
    "is_flattened",
    "is_stack",
    "make_encoder",
    "taken_for_symbols",
]

CONVOLUTIONAL = {"impala": Impala, "nature": Nature}
PICTURE = 32  # pixels; smaller grids are mostly symbols, such as MiniGrid's 7 x 7 x 3
SMALLEST = 8  # pixels, of which the stages of impala leave one
EXPECTED = "Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these"


def make_encoder(
    space: spaces.Space[Any], config: EncoderConfig, *, key: PRNGKeyArray
) -> AbstractEncoder:
    """The encoder of a space's observations.

    | space | none | mlp | impala, nature | auto |
    |---|---|---|---|---|
    | Box | as it is | layers | as it is | layers |
    | picture | as it is | layers | convolutions | impala |
    | Discrete, MultiDiscrete | one-hot or embedded | then layers | as none | then layers |
    | MultiBinary | as it is | layers | as it is | layers |
    | Dict | its entries, concatenated in order of their names | | | |

    joint reads everything together: as none, but pictures by impala, and then layers.

    A picture is a Box of 3 axes, or of 2 if it is bytes, with both sides at least 32, or 8 with
    impala; with impala or nature an observation that is not a dict is always a picture. Bytes of
    pictures are always divided by 255. In a dict the entry `previous_action` is one-hot, or
    unchanged if it is a Box, and `previous_reward` is sign(r) log(1 + |r|), both without layers. An
    action mask is left out unless it should be shown; an unnamed rest is then not a dict.
    "module:Class" names an encoder of your own, which reads the whole observation: it is called as
    `Class(space, key=key, **encoder_options)`.

    Raises:
        UserError: for a space that is not supported or empty, or a picture that is too small.
    """
    rest, mask = without_mask(space)
    if mask is not None and not mask.shown:
        return WithoutEntries(make_encoder(rest, config, key=key), (MASK,))
    if is_reference(config.encoder):
        encoder = _make_own(space, config, key)
    else:
        encoder = _make(space, config, key, "the observation", alone=True)
    if config.encoder == "joint":
        deep = replace(config, encoder="mlp")
        layers = _dense((encoder.output_size,), deep, initial.beside(key, 2), 1.0)
        encoder = Chain(encoder, layers)
    projection = norm = None
    size = encoder.output_size
    if config.encoder_projection > 0:
        init = cast(Init, config.init)
        projection = Linear(size, config.encoder_projection, key=initial.beside(key), init=init)
        size = config.encoder_projection
    if config.encoder_norm:
        norm = LayerNorm(size)
    if projection is None and norm is None:
        return encoder
    return Projected(encoder, projection, norm, size)


def _make_own(
    space: spaces.Space[Any], config: EncoderConfig, key: PRNGKeyArray
) -> AbstractEncoder:
    """The encoder that "module:Class" names."""
    name, kind = config.encoder, resolve(config.encoder)
    if isinstance(kind, type) and not issubclass(kind, AbstractEncoder):
        raise UserError(f"{name} is not an encoder: expected a class derived from AbstractEncoder")
    made = call_own(name, kind, space, key=key, **config.encoder_options)
    if not isinstance(made, AbstractEncoder):
        raise UserError(f"{name} returned {type(made).__name__}, expected an AbstractEncoder")
    require_at_least(f"output_size of {name}", made.output_size, 1)
    return made


def _make(
    space: spaces.Space[Any], config: EncoderConfig, key: PRNGKeyArray, name: str, *, alone: bool
) -> AbstractEncoder:
    if isinstance(space, spaces.Dict):
        return _make_entries(space, config, key, name)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _make_choices(space, config, key)
    if not isinstance(space, spaces.Box | spaces.MultiBinary):
        raise UserError(
            f"{name} of type {type(space).__name__} is not supported; expected {EXPECTED}, so "
            "leave it out (gymnasium.wrappers.FilterObservation) or turn it into numbers"
        )
    if 0 in space.shape:
        raise UserError(f"{name} must have at least one number, got shape {list(space.shape)}")
    least = SMALLEST if config.encoder == "impala" else PICTURE
    picture = isinstance(space, spaces.Box) and _is_picture(space, least)
    if config.encoder in CONVOLUTIONAL and (picture or alone):
        return _make_convolutional(space, config, key, config.encoder)
    if config.encoder in ("auto", "joint") and picture:
        return _make_convolutional(space, config, key, "impala")
    scale = 1.0 / 255.0 if picture and space.dtype == np.uint8 else 1.0
    return _dense(space.shape, config, key, scale)


def _make_entries(
    space: spaces.Dict, config: EncoderConfig, key: PRNGKeyArray, name: str
) -> AbstractEncoder:
    if not space.spaces:
        raise UserError(f"{name} must have at least one entry, got an empty Dict")
    bare = EncoderConfig(init=config.init)
    made = {}
    for index, (entry, inner) in enumerate(sorted(space.spaces.items())):
        inner_key, what = jax.random.fold_in(key, index), f"the entry {entry!r} of {name}"
        if entry == PREVIOUS_REWARD:
            if inner.shape is None or np.prod(inner.shape) != 1:
                found = (
                    type(inner).__name__ if inner.shape is None else f"shape {list(inner.shape)}"
                )
                raise UserError(f"{what} must be one number, got {found}")
            made[entry] = PreviousReward(inner.shape)
        elif entry == PREVIOUS_ACTION:
            made[entry] = _make(inner, bare, inner_key, what, alone=False)
        else:
            made[entry] = _make(inner, config, inner_key, what, alone=False)
    return DictEncoder(made)


def _make_choices(space: Any, config: EncoderConfig, key: PRNGKeyArray) -> AbstractEncoder:
    several = isinstance(space, spaces.MultiDiscrete)
    sizes = np.ravel(space.nvec if several else space.n).tolist()
    if not sizes:
        raise UserError("the observation must have at least one number, got an empty MultiDiscrete")
    encoder: AbstractEncoder = OneHot(sizes, np.ravel(space.start).tolist(), space.shape)
    if config.embedding_size > 0:
        encoder = Embedding(encoder, config.embedding_size, key=initial.beside(key, 1))
    layers = _dense((encoder.output_size,), config, key, 1.0)
    return Chain(encoder, layers) if layers.layers else encoder


def _make_convolutional(
    space: Any, config: EncoderConfig, key: PRNGKeyArray, name: str
) -> AbstractEncoder:
    return CONVOLUTIONAL[name](
        Frame(space.shape, is_bytes=space.dtype == np.uint8),
        key=key,
        channels=config.picture_channels,
        features=config.picture_size,
        nonlinearity=config.nonlinearity,
        precision=config.precision,
        init=cast(Init, config.init),
    )


def _dense(shape: tuple[int, ...], config: EncoderConfig, key: PRNGKeyArray, scale: float) -> Dense:
    deep = config.encoder in ("mlp", "auto")
    return Dense(
        shape,
        [config.encoder_size] * config.encoder_layers if deep else [],
        key=key,
        scale=scale,
        nonlinearity=config.nonlinearity,
        precision=config.precision,
        init=cast(Init, config.init),
    )


def taken_for_symbols(space: spaces.Space[Any], config: EncoderConfig) -> bool:
    """Whether bytes that impala would read as a picture are read as numbers up to 255."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    if config.encoder == "impala" or is_reference(config.encoder):
        return False
    return _is_picture(space, SMALLEST) and not _is_picture(space, PICTURE)


def is_flattened(space: spaces.Space[Any], config: EncoderConfig) -> bool:
    """Whether the agent reads a picture as a flat vector of its numbers."""
    picture = isinstance(space, spaces.Box) and _is_picture(space, PICTURE)
    return picture and config.encoder == "none"


def is_stack(space: spaces.Space[Any], config: EncoderConfig) -> bool:
    """Whether pictures with an axis too many, such as stacked colour frames, are read flat."""
    if not isinstance(space, spaces.Box) or len(space.shape) < 4 or is_reference(config.encoder):
        return False
    return _is_picture(spaces.Box(0, 255, space.shape[-3:], np.uint8), PICTURE)


def _is_picture(space: spaces.Box, least: int) -> bool:
    """Whether a Box has three axes, or two of bytes, and both sides are long enough."""
    if len(space.shape) != 3 and not (len(space.shape) == 2 and space.dtype == np.uint8):
        return False
    return min(Frame(space.shape, is_bytes=False).size[:2]) >= least
