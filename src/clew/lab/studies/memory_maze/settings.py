"""The settings of Pramanik's (2023) second study: Memory Maze from pixels, Tables A.3 and A.4.

The thesis trained by asynchronous proximal policy optimisation in Sample Factory and says neither
which step size and entropy cost of Table A.3's sweep won, nor what stood before the memory. So here
both are in the middle of their sweeps, and the encoder and what else the tables leave out are
Sample Factory's own for DMLab, which the thesis began with: an IMPALA network with 512 features
and relus, Adam's epsilon of 1e-6, and a ratio that stops counting at 1 / (1 + clip). Deviations:
pictures are divided by 255 and no more, where Sample Factory also normalises them, and what the
value learns is not normalised.
"""

from typing import Any

from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import NetworkConfig
from clew.run.config import TrainConfig

SIZES = (9, 11, 13, 15)
"""Sides of the mazes of Figure 5.5."""
LEARNING_RATES = (2.5e-3, 2.5e-4, 2.5e-5)
"""Table A.3's sweep."""
ENTROPY_COSTS = (0.03, 0.003, 0.0003)
"""Table A.3's sweep."""

_LAYERS = {"hidden_size": 256, "num_layers": 4, "num_heads": 8, "head_size": 64}
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("lstm", {"hidden_size": 768}),
    "gtrxl-64": ("gtrxl", _LAYERS | {"window": 64}),
    "gtrxl-128": ("gtrxl", _LAYERS | {"window": 128}),
    "gtrxl-256": ("gtrxl", _LAYERS | {"window": 256}),
    "arelit": ("arelit", _LAYERS | {"eta": 4, "r": 7, "frequencies": "thesis"}),
    # A control that the thesis does not have.
    "none": ("none", {"hidden_size": 256, "num_layers": 4}),
}


def maze(size: int) -> str:
    """The task's name for a maze of that side."""
    return f"gymnasium:clew/MemoryMaze-{size}x{size}-v0"


def _preset(name: str, memory: str, options: dict[str, Any]) -> TrainConfig:
    return TrainConfig(
        env=maze(9),
        env_options={},
        memory=memory,
        memory_options=options,
        network=NetworkConfig(encoder="impala", picture_size=512, head_size=0),
        algorithm="ppo",
        ppo=PPOConfig(
            num_envs=64,
            rollout_length=200,
            sequence_length=100,
            minibatches=4,
            epochs=1,
            learning_rate=2.5e-4,
            gamma=0.99,
            lam=0.95,
            clip_ratio=0.1,
            lower_clip="reciprocal",
            value_clip=1.0,
            entropy_cost=0.003,
            value_cost=0.5,
            max_grad_norm=4.0,
            adam_eps=1e-6,
        ),
        steps=100_000_000,
        preset=f"memory-maze/{name}",
    )


PRESETS: dict[str, TrainConfig] = {
    config.preset: config for config in (_preset(n, *what) for n, what in _MODELS.items())
}
"""Name to settings of the Memory Maze experiments (section 5.2); `--env` chooses another maze."""
