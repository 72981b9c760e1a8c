"""The settings of Pramanik (2023), "Recurrent linear transformers for reinforcement learning".

The thesis gives the architectures (Table A.2), the constants of A2C and the values swept over
(Table A.1), and not which values won. The learning rates and entropy costs here are those of the
authors' published configurations, as is the clipping of the gradient.
"""

from typing import Any

from clew.agents.learners.a2c import A2CConfig
from clew.agents.network import NetworkConfig
from clew.run.config import TrainConfig

_LAYERS = {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "head_size": 64}

_ARELIT = _LAYERS | {
    "eta": 4,
    # The code counts vectors, and its 2 are Table A.2's r = 1, though at other frequencies.
    "r": 2,
    "frequencies": "code",
    "scale": "code",
    "tick": "carried",
    "epsilon": 1e-5,
}
_RELIT = _LAYERS | {
    "query": "double",
    "decay": "joint",
    "embedding_relu": False,
    "epsilon": 1e-10,
}
# The band stays: without it the learner is another function than the actor.
_GTRXL = _LAYERS | {"query_norm": False, "init": "lecun"}


def _tmaze(
    name: str, memory: str, options: dict[str, Any], learning_rate: float, entropy_cost: float
) -> TrainConfig:
    return TrainConfig(
        env="tmaze",
        env_options={"corridor_length": 120},
        memory=memory,
        memory_options=options,
        network=NetworkConfig(head_size=128),
        a2c=A2CConfig(
            num_envs=8,
            rollout_length=256,
            learning_rate=learning_rate,
            gamma=0.99,
            lam=0.95,
            entropy_cost=entropy_cost,
            value_cost=0.5,
            max_grad_norm=0.5,
        ),
        steps=10_000_000,
        preset=f"pramanik/{name}",
    )


PRESETS: dict[str, TrainConfig] = {
    config.preset: config
    for config in (
        _tmaze("lstm", "lstm", {"hidden_size": 600}, 1e-4, 1e-3),
        _tmaze("gru", "gru", {"hidden_size": 680}, 5e-4, 1e-2),
        _tmaze("gtrxl-128", "gtrxl", _GTRXL | {"window": 128}, 5e-4, 1e-2),
        _tmaze("gtrxl-256", "gtrxl", _GTRXL | {"window": 256}, 5e-4, 1e-3),
        _tmaze("relit-2", "relit", _RELIT | {"eta": 2}, 1e-4, 1e-3),
        _tmaze("relit-4", "relit", _RELIT | {"eta": 4}, 1e-4, 1e-3),
        _tmaze("arelit", "arelit", _ARELIT, 1e-4, 1e-3),
        # A control that the thesis does not have: AReLiT's width and depth, and no memory.
        _tmaze("none", "none", {"hidden_size": 128, "num_layers": 4}, 1e-4, 1e-3),
    )
}
"""Name to settings of the T-Maze experiments (section 5.1, Tables A.1 and A.2), as coded."""
