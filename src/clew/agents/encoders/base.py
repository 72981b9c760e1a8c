"""The interface and settings of encoders, and how several are combined."""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from clew.envs.spaces import without_entries
from clew.errors import LARGEST_SIZE, UserError, require_at_least, require_choice
from clew.memory.parts.blocks import INITS, LayerNorm, Linear
from clew.names import is_reference, recorded_name

Module = TypeVar("Module", bound=eqx.Module)

ENCODERS = ("none", "mlp", "impala", "nature", "auto", "joint")
NONLINEARITIES = ("relu", "elu")
PRECISIONS = ("float32", "bfloat16", "float16")
CHANNELS = {"impala": (16, 32, 32), "nature": (32, 64, 64)}
"""Published channels of the stages of an IMPALA ResNet, and of the layers of a Nature CNN."""
FEATURES = {"impala": 256, "nature": 512}
"""Published widths of the layer after the convolutions."""


@dataclass(frozen=True)
class EncoderConfig:
    """Settings of the encoder, which reads the observation before the memory; see
    `make_encoder`."""

    encoder: str = "none"
    """The encoder before the memory: none; mlp, layers of x W + b with a relu; impala or nature,
    convolutions for pictures; auto, impala for pictures and mlp for the rest; joint, one mlp over
    all entries of a dict, with impala for pictures before it; or module:Class, an encoder of your
    own, called with the space of the whole observation and a key."""
    encoder_options: dict[str, Any] = field(default_factory=dict)
    """Options of an encoder of your own."""
    encoder_size: int = 64
    """Width of the mlp's layers (Makkink, 2021, section 3.4: 64)."""
    encoder_layers: int = 2
    """Number of the mlp's layers (Makkink, 2021, section 3.4: 2)."""
    picture_channels: tuple[int, ...] = ()
    """Channels of the convolutional stages; by default the published ones, 16 32 32 for impala
    (Espeholt et al., 2018, Figure 3), 32 64 64 for nature (Mnih et al., 2015)."""
    picture_size: int = 0
    """Width of the layer after the convolutions; 0 for the published one, 256 for impala, 512 for
    nature (Sample Factory has 512 for both)."""
    embedding_size: int = 0
    """Size of the learned embedding of each value of a Discrete or MultiDiscrete observation; 0 for
    one-hot."""
    encoder_projection: int = 0
    """Width of a final product x W + b; 0 for none."""
    encoder_norm: bool = False
    """Layer normalisation of the encoder's output."""
    nonlinearity: str = "relu"
    """Between the encoder's layers: relu, or elu as in Sample Factory."""
    precision: str = "float32"
    """Precision of the encoder's mlp and convolutions: float32, bfloat16 or float16. Parameters and
    outputs are always float32. For a GPU; float16 needs small losses."""
    init: str = "orthogonal"
    """Initialisation of the encoder's weights: orthogonal, lecun or uniform."""

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, str):  # the class itself
            object.__setattr__(self, "encoder", recorded_name("encoder", self.encoder))

    def validate_encoder(self) -> None:
        """Refuses impossible settings.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """
        if not is_reference(self.encoder):
            require_choice("encoder", self.encoder, ENCODERS)
            if self.encoder_options:
                raise UserError(
                    f"encoder_options are for an encoder of your own (module:Class); "
                    f"{self.encoder} has none, got {self.encoder_options}"
                )
        require_choice("nonlinearity", self.nonlinearity, NONLINEARITIES)
        require_choice("precision", self.precision, PRECISIONS)
        require_choice("init", self.init, INITS)
        for name in ("encoder_size", "encoder_layers"):
            require_at_least(name, getattr(self, name), 1, LARGEST_SIZE)
        for name in ("picture_size", "embedding_size", "encoder_projection"):
            require_at_least(name, getattr(self, name), 0)
        for channels in self.picture_channels:
            require_at_least("every number of picture_channels", channels, 1)
        if self.encoder == "nature" and len(self.picture_channels) not in (0, 3):
            raise UserError(
                f"picture_channels must be three numbers for nature, got {self.picture_channels}"
            )


class AbstractEncoder(eqx.Module):
    """Maps an observation, an array or a dict of arrays, to a vector, on any leading axes.

    A chunk [time, batch, ...] is encoded in one call. Outputs are float32 [*lead, output_size].
    """

    output_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, x: PyTree[Array]) -> Float[Array, "*lead out"]:
        """Encodes observations."""


class DictEncoder(AbstractEncoder):
    """A dict of observations: one encoder per entry, concatenated in the order of the names.

    Raises:
        UserError: if it is called with other entries.
    """

    encoders: tuple[AbstractEncoder, ...]
    names: tuple[str, ...] = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(self, encoders: Mapping[str, AbstractEncoder]):
        self.names = tuple(sorted(encoders))
        self.encoders = tuple(encoders[name] for name in self.names)
        self.output_size = sum(encoder.output_size for encoder in self.encoders)

    def __call__(self, x: Mapping[str, Any]) -> Float[Array, "*lead out"]:
        if not isinstance(x, Mapping) or set(x) != set(self.names):
            got = sorted(x) if isinstance(x, Mapping) else type(x).__name__
            raise UserError(f"the encoder expected the entries {list(self.names)}, got {got}")
        pairs = zip(self.encoders, self.names, strict=True)
        return jnp.concatenate([encoder(x[name]) for encoder, name in pairs], axis=-1)


class WithoutEntries(AbstractEncoder):
    """An encoder of an observation without some entries of its dict, which may also be missing.

    Args:
        encoder: of the rest, which is an array if its only name is "observation".
        names: of the entries.
    """

    encoder: AbstractEncoder
    names: tuple[str, ...] = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(self, encoder: AbstractEncoder, names: tuple[str, ...]):
        self.encoder, self.names, self.output_size = encoder, names, encoder.output_size

    def __call__(self, x: PyTree[Array]) -> Float[Array, "*lead out"]:
        return self.encoder(without_entries(x, self.names))


class SideBySideEncoders(AbstractEncoder):
    """Several encoders of the same observation; their outputs, one after the other's.

    Args:
        encoders: from first to last.
    """

    encoders: tuple[AbstractEncoder, ...]
    output_size: int = eqx.field(static=True)

    def __init__(self, *encoders: AbstractEncoder):
        self.encoders = encoders
        self.output_size = sum(encoder.output_size for encoder in encoders)

    def __call__(self, x: PyTree[Array]) -> Float[Array, "*lead out"]:
        return jnp.concatenate([encoder(x) for encoder in self.encoders], axis=-1)


class Projected(AbstractEncoder):
    """An encoder with a product x W + b, a layer normalisation, or both after it."""

    encoder: AbstractEncoder
    projection: Linear | None
    norm: LayerNorm | None
    output_size: int = eqx.field(static=True)

    def __init__(
        self, encoder: AbstractEncoder, projection: Linear | None, norm: LayerNorm | None, size: int
    ):
        self.encoder, self.projection, self.norm = encoder, projection, norm
        self.output_size = size

    def __call__(self, x: Any) -> Float[Array, "*lead out"]:
        """Projected first, then normalised, in float32."""
        y = self.encoder(x)
        y = y if self.projection is None else self.projection(y)
        return y if self.norm is None else self.norm(y)


def leading_axes(x: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The leading axes of observations of one shape.

    Raises:
        UserError: if they have another shape.
    """
    split = x.ndim - len(shape)
    if split < 0 or x.shape[split:] != shape:
        raise UserError(
            f"the encoder expected observations of shape {list(shape)} after any leading axes, "
            f"got {list(x.shape)}"
        )
    return x.shape[:split]


def flat(x: Array, shape: tuple[int, ...]) -> Array:
    """Observations of one shape with that shape flattened to one axis."""
    return x.reshape(*leading_axes(x, shape), math.prod(shape))


def activate(x: Array, nonlinearity: str) -> Array:
    """relu(x) = max(x, 0), or elu(x) = x above 0 and exp(x) - 1 below."""
    return jax.nn.relu(x) if nonlinearity == "relu" else jax.nn.elu(x)


def in_precision(module: Module, precision: str) -> Module:
    """The module with its parameters in another dtype; gradients are float32."""
    dtype = np.dtype(jnp.dtype(precision))
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, module
    )
