"""Exports of policies whose critic saw more: no form asks for what only the critic read."""

from pathlib import Path

import jax
import numpy as np
from exports import ACTIONS, largest_deviation, model_of, onnx_form
from gymnasium import spaces
from test_header import header_deviation

from clew.agents.network import NetworkConfig, make_agent
from clew.deploy.onnx_file import is_installed
from clew.deploy.policy import PolicyStep, adapter_of_spaces
from memory_samples import quick_compilation

__all__ = ["quick_compilation"]
OBSERVED = spaces.Dict(
    {
        "eye": spaces.Box(0, 255, (3, 9, 8), np.uint8),
        "critic.height": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "critic.room": spaces.Discrete(4),
    }
)
ONLY = ("critic",)
TOLERANCE = 1e-5


def test_every_form_equals_the_agent_without_its_critic(tmp_path: Path) -> None:
    """A picture for the actor, numbers for the critic."""
    agent = make_agent(
        "gru",
        {"hidden_size": 8},
        observation_space=OBSERVED,
        action_space=ACTIONS,
        network=NetworkConfig(
            encoder="impala", picture_channels=(2,), picture_size=4, head_size=8, critic_only=ONLY
        ),
        key=jax.random.key(0),
    )
    step = PolicyStep(agent, adapter_of_spaces(OBSERVED, ACTIONS).without(ONLY))
    traced = step.trace()
    assert {entry["name"] for entry in traced.inputs} == {"observation/eye", "start"}
    assert {entry["name"] for entry in traced.outputs} == {"action", "logits"}
    model = model_of(step)
    assert largest_deviation(step, (model, model.step), batch=3, time=10) <= TOLERANCE
    assert header_deviation(step, tmp_path, batch=2, time=5) <= TOLERANCE
    if is_installed("onnx") and is_installed("onnxruntime"):
        assert largest_deviation(step, onnx_form(step), batch=3, time=10) <= TOLERANCE
