"""How an observation is read: the settings of an encoder."""

from dataclasses import dataclass

from clew.errors import UserError, require_at_least, require_choice
from clew.memory.parts.blocks import INITS

ENCODERS = ("none", "mlp", "impala", "nature", "auto")
NONLINEARITIES = ("relu", "elu")
PRECISIONS = ("float32", "bfloat16", "float16")
CHANNELS = {"impala": (16, 32, 32), "nature": (32, 64, 64)}
"""Published channels of the stages of an IMPALA ResNet, and of the layers of a Nature CNN."""
FEATURES = {"impala": 256, "nature": 512}
"""Published widths of the layer after the convolutions."""


@dataclass(frozen=True)
class EncoderConfig:
    """What reads the observation before the memory; see `make_encoder`."""

    encoder: str = "none"
    """What reads the observation before the memory: none; mlp, layers of x W + b with a relu;
    impala or nature, convolutions for pictures; or auto, impala for pictures and mlp for the
    rest."""
    encoder_size: int = 64
    """Width of the mlp's layers (Makkink, 2021, section 3.4: 64)."""
    encoder_layers: int = 2
    """Number of the mlp's layers (Makkink, 2021, section 3.4: 2)."""
    picture_channels: tuple[int, ...] = ()
    """Channels of the convolutional stages; none given takes the published ones, 16 32 32 for
    impala (Espeholt et al., 2018, Figure 3), 32 64 64 for nature (Mnih et al., 2015)."""
    picture_size: int = 0
    """Width of the layer after the convolutions; 0 takes the published one, 256 for impala, 512
    for nature (Sample Factory takes 512 for both)."""
    embedding_size: int = 0
    """Learned numbers for each value of a Discrete or MultiDiscrete observation; 0 for one-hot."""
    encoder_projection: int = 0
    """Width of a product x W + b after all of it; 0 for none."""
    encoder_norm: bool = False
    """Layer normalisation of what the encoder gives."""
    nonlinearity: str = "relu"
    """Between the encoder's layers: relu, or elu as in Sample Factory."""
    precision: str = "float32"
    """What the encoder's mlp and convolutions compute in: float32, bfloat16 or float16.
    Parameters and outputs are float32 in any case; for a GPU, where float16 needs small losses."""
    init: str = "orthogonal"
    """How its weights begin: orthogonal, lecun or uniform."""

    def validate(self) -> None:
        """Refuses impossible settings.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """
        require_choice("encoder", self.encoder, ENCODERS)
        require_choice("nonlinearity", self.nonlinearity, NONLINEARITIES)
        require_choice("precision", self.precision, PRECISIONS)
        require_choice("init", self.init, INITS)
        for name in ("encoder_size", "encoder_layers"):
            require_at_least(name, getattr(self, name), 1)
        for name in ("picture_size", "embedding_size", "encoder_projection"):
            require_at_least(name, getattr(self, name), 0)
        for channels in self.picture_channels:
            require_at_least("every number of picture_channels", channels, 1)
        if self.encoder == "nature" and len(self.picture_channels) not in (0, 3):
            raise UserError(
                f"picture_channels must be three numbers for nature, got {self.picture_channels}"
            )
