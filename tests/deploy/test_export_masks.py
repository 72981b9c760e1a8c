"""Exports of policies with action masks: the mask is an input, in every form."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from exports import NETWORK, VECTOR, largest_deviation, model_of, onnx_form, steps_of
from gymnasium import spaces
from test_header import header_deviation

import clew
from clew.agents.network import Agent, make_agent
from clew.deploy import runner
from clew.deploy.export import export_agent
from clew.deploy.golden import record_golden
from clew.deploy.onnx_file import is_installed
from clew.envs.spaces import MASK, ActionMask, with_mask
from clew.interact.policy import Moment
from masked import Locks, masks
from memory_samples import quick_compilation
from slow_cases import fast_only
from small_run import Watch

__all__ = ["quick_compilation"]
SIZES = (3, 2)
ACTIONS = spaces.MultiDiscrete(SIZES)
OBSERVED = with_mask(VECTOR, ActionMask(ACTIONS))
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def agent() -> Agent:
    """An agent with two choices and a small GRU."""
    return make_agent(
        "gru",
        {"hidden_size": 8},
        observation_space=OBSERVED,
        action_space=ACTIONS,
        network=NETWORK,
        key=jax.random.key(0),
    )


def test_every_form_equals_the_agent(agent: Agent, tmp_path: Path) -> None:
    """With random masks, some of which allow nothing; a forbidden action has a logit of -inf."""
    step = steps_of(agent, OBSERVED, ACTIONS)
    model = model_of(step)
    assert largest_deviation(step, (model, model.step), batch=3, time=20) <= TOLERANCE
    assert header_deviation(step, tmp_path, batch=2, time=10) <= TOLERANCE
    if is_installed("onnx") and is_installed("onnxruntime"):
        assert largest_deviation(step, onnx_form(step), batch=3, time=10) <= TOLERANCE
    given = masks(SIZES, 64)
    seen = np.random.default_rng(0).standard_normal((64, *VECTOR.shape)).astype(np.float32)
    inputs = {"observation": seen, "start": np.ones(64, bool), MASK: given}
    outputs, _ = model.step(model.init_state(64), inputs)
    np.testing.assert_array_equal(np.isneginf(outputs["logits"]), ~given)
    rows = np.arange(64)
    assert given[rows, outputs["action"][:, 0]].all()
    assert given[rows, SIZES[0] + outputs["action"][:, 1]].all()


def test_an_environment_may_give_a_mask_for_each_choice(agent: Agent) -> None:
    """In the golden episode as well."""
    parts = np.ones(3, np.int8), np.array([0, 1], np.int8)
    met = (Moment(np.zeros(VECTOR.shape), t == 0, None, action_mask=parts) for t in range(200))
    golden = record_golden(steps_of(agent, OBSERVED, ACTIONS), met, 0)
    assert (golden[f"input/{MASK}"] == [True, True, True, False, True]).all()


def test_a_policy_of_files_asks_for_its_mask(agent: Agent, tmp_path: Path) -> None:
    """Its manifest names the mask."""
    found = export_agent(agent, OBSERVED, ACTIONS, tmp_path / "export")
    (entry,) = (e for e in found.manifest["inputs"] if e["name"] == MASK)
    assert entry == {"name": MASK, "kind": MASK, "shape": [5], "dtype": "bool", "splits": [3]}
    policy: Any = clew.load_policy(found.folder)
    observation = np.zeros(VECTOR.shape)
    for mask in masks(SIZES, 20):
        first, second = policy(observation, action_mask=mask.astype(np.int8))
        assert mask[first] and mask[3 + second]
        policy.reset()
        parts = tuple(np.split(mask.astype(np.int8), [3]))  # in the form of MultiDiscrete.sample
        np.testing.assert_array_equal(policy(observation, action_mask=parts), (first, second))
        policy.reset()
    for given, message in (
        (None, "sees its action mask: give action_mask=..."),
        ([1, 1, 0, 0, 0], "action_mask allows no action"),
        (np.ones(4), r"action_mask has shape \[4\], expected numbers of shape \[5\]"),
        ([1, 2, 0, 1, 0], r"action_mask is 2 at \[1\], expected a value of bool"),
    ):
        with pytest.raises(runner.PolicyError, match=message):
            policy(observation, action_mask=given)


@pytest.mark.parametrize("where", fast_only(["info", "entry"], "entry"))
def test_a_run_and_its_export_act_alike(where: str, tmp_path: Path) -> None:
    """In an environment that raises at a forbidden action, with and without rewards."""
    options = {"where": where}
    config = clew.TrainConfig(
        env="masked:Locks",
        env_options=options,
        memory="gru",
        memory_options={"hidden_size": 8},
        algorithm="a2c",
        wrappers=clew.WrapperConfig(
            action_mask="info" if where == "info" else "allowed",
            previous=where == "info",
            previous_action=where == "entry",
        ),
        a2c=clew.A2CConfig(num_envs=4, rollout_length=16),
        steps=128,
        run_dir=str(tmp_path),
        name="locks",
    )
    path = clew.train(config, progress=Watch()).path
    exported = clew.export(path)
    golden = runner.read_golden(runner.Model(exported.folder))
    name = MASK if where == "info" else "observation/allowed"
    assert not golden[f"input/{name}"].all() and golden[f"input/{name}"].any(axis=-1).all()
    whole: Any = clew.load_policy(path)
    files: Any = clew.load_policy(exported.folder)
    env, steps = Locks(**options), 0
    for episode in range(10):
        (observation, info), start, reward = env.reset(seed=episode), True, None
        ended = False
        while not ended:
            given = {"start": start, "reward": reward, "action_mask": info.get(MASK)}
            action = whole(observation, **given)
            assert files(observation, **given) == action
            observation, reward, terminated, truncated, info = env.step(action)
            start, ended, steps = False, terminated or truncated, steps + 1
    assert steps > 15
