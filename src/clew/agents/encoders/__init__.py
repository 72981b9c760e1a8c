"""What reads an observation before the memory, by the space that an environment declares."""

from clew.agents.encoders.config import ENCODERS, EncoderConfig
from clew.agents.encoders.make import Entries, Finished, make_encoder
from clew.agents.encoders.parts import AbstractEncoder
from clew.agents.encoders.pictures import Frame, Impala, Nature
from clew.agents.encoders.vectors import Chain, Dense, Embedding, OneHot, PreviousReward

__all__ = [
    "ENCODERS",
    "AbstractEncoder",
    "Chain",
    "Dense",
    "Embedding",
    "EncoderConfig",
    "Entries",
    "Finished",
    "Frame",
    "Impala",
    "Nature",
    "OneHot",
    "PreviousReward",
    "make_encoder",
]
