"""The settings of Makkink (2021), "Transformers as memory systems in reinforcement learning".

The thesis gives the sizes (Table 3.1) and the algorithm; the published code decides the rest, and
is what the settings here follow, with what it does otherwise than the text: gates that are
recurrent nets, a residual connection and a norm inside every attention, no gradient into earlier
inputs, no coordinates, returns scaled within every episode, and the same episodes in every run.
"""

from typing import Any

from clew.agents.a2c import A2CConfig
from clew.agents.network import NetworkConfig
from clew.run.config import TrainConfig

MEMORY_LENGTH = 20
"""Of the presets' task; another one needs a rollout_length of one more than it."""

EPISODES = 10_000

_WINDOW: dict[str, Any] = {
    "hidden_size": 64,
    "num_layers": 1,
    "num_heads": 1,
    "head_size": 64,
    "window": 100,
    "ffn_size": 32,
    "attention_bias": False,
    "embedding": False,
    "inner_residual": True,
    "gradient": "current",
    "init": "uniform",
}
_HALTING: dict[str, Any] = {
    "max_steps": 6,
    "threshold": 0.9,
    "coordinates": False,
    "blend": "running",
    "unreached": "zero",
}
_LSTM = {"hidden_size": 64, "num_layers": 1, "all_biases": True, "init": "uniform"}
_GTRXL = _WINDOW | {"gate": "temporal_gru", "norm": "around"}
_INTEGRATED = _WINDOW | _HALTING | {"gate": "temporal_gru", "crossed_states": True}


def _chain(name: str, memory: str, options: dict[str, Any], projection: str) -> TrainConfig:
    length = MEMORY_LENGTH + 1  # decisions of an episode
    return TrainConfig(
        env="memory_chain",
        env_options={"memory_length": MEMORY_LENGTH, "num_bits": 1, "stream_seed": 0},
        memory=memory,
        memory_options=options,
        network=NetworkConfig(
            encoder="mlp",
            encoder_size=64,
            encoder_layers=2,
            projection=projection,
            skip=True,
            head_size=0,
            init="uniform",
        ),
        a2c=A2CConfig(
            num_envs=1,
            rollout_length=length,
            learning_rate=1e-3,
            gamma=0.99,
            lam=1.0,
            entropy_cost=0.0,
            value_cost=0.5,
            max_grad_norm=None,
            whole_episodes=True,
            return_normalisation=True,
            loss_over_time="sum",
        ),
        steps=EPISODES * length,
        log_every=100,
        preset=f"makkink/{name}",
    )


PRESETS: dict[str, TrainConfig] = {
    config.preset: config
    for config in (
        _chain("lstm", "lstm", _LSTM, "affine"),
        _chain("transformer-xl", "transformer_xl", _WINDOW, "linear"),
        _chain("gtrxl", "gtrxl", _GTRXL, "linear"),
        _chain("rezero", "rezero", _WINDOW, "linear"),
        _chain("universal", "universal", _WINDOW | _HALTING, "affine"),
        _chain("integrated", "integrated", _INTEGRATED, "affine"),
    )
}
"""Name to settings of the memory-length experiment at length 20 (section 4.1), as coded."""
