"""A critic with an encoder and a memory of its own, beside the actor's."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew import TrainConfig
from clew.agents.learners.ppo import PPO
from clew.agents.learners.r2d2 import R2D2
from clew.agents.learners.sac import SAC
from clew.agents.network import Agent, NetworkConfig, make_agent
from clew.deploy.policy import PolicyStep, adapter_of_spaces
from clew.errors import UserError
from clew.memory import make_memory
from clew.memory.laws import check
from clew.memory.none import NoMemory
from clew.memory.parts.side_by_side import SideBySide
from clew.run.progress import Quiet
from slow_cases import fast_only
from small_run import BRIEF_REPLAY, assert_same_run, small_config

SEEN = spaces.Box(-1.0, 1.0, (4,), np.float32)
ACTIONS = spaces.Discrete(3)
TIME = 6
STARTS = jnp.arange(TIME) % 4 == 0


def agent_of(memory_of_critic: str, kind: type = PPO, **changes: Any) -> Agent:
    """A GRU of width 8, behind an encoder of 4, with the heads of this learner."""
    network = {"encoder": "mlp", "encoder_size": 4, "head_size": 8} | changes
    return make_agent(
        "gru",
        {"hidden_size": 8},
        observation_space=SEEN,
        action_space=ACTIONS,
        network=NetworkConfig(memory_of_critic=memory_of_critic, **network),
        key=jax.random.key(0),
        make_heads=kind(kind.settings()).make_heads,
    )


def observations(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(TIME, 4)).astype(np.float32)


def size(tree: Any) -> float:
    return sum(float(abs(leaf).sum()) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("beside", fast_only(["gru gtrxl", "universal none"], "gru gtrxl"))
def test_memories_side_by_side_obey_the_laws(beside: str) -> None:
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "head_size": 4, "window": 4}
    made = [
        make_memory(
            name,
            input_size=3 + i,
            key=jax.random.key(i),
            **clew.memory.options_among(name, sizes),
        )
        for i, name in enumerate(beside.split())
    ]
    check(SideBySide(*made), lengths=(1, 7))


CASES = [("separate", PPO), ("none", PPO), ("separate", SAC)]


@pytest.mark.parametrize(("memory_of_critic", "kind"), CASES)
def test_the_actor_is_the_one_of_an_agent_with_one_memory(
    memory_of_critic: str, kind: type
) -> None:
    """Its first weights and its outputs are the same, and without the critic nothing changes."""
    shared, agent = agent_of("shared", kind), agent_of(memory_of_critic, kind)
    _, expected = shared.unroll(shared.init_state(), observations(), STARTS)
    for of_actor in (agent, agent.without_critic()):
        _, found = of_actor.unroll(of_actor.init_state(), observations(), STARTS)
        np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-6)
    assert found.value is None
    alone = agent.without_critic()
    assert eqx.tree_equal(alone.memory, shared.memory) and alone.without_critic() is alone
    assert eqx.tree_equal(alone.encoder, shared.encoder)
    assert shared.without_critic() is shared


@pytest.mark.parametrize("memory_of_critic", ["separate", "none"])
def test_gradients_stay_with_actor_or_critic(memory_of_critic: str) -> None:
    """Those of SAC's losses are tested beside its equations."""
    agent = agent_of(memory_of_critic)

    @eqx.filter_jit
    def gradient(agent: Agent, output: str) -> Any:
        def total(agent: Agent) -> Any:
            _, outputs = agent.unroll(agent.init_state(), observations(), STARTS)
            return jnp.sum(getattr(outputs, output))

        return eqx.filter_grad(total)(agent)

    for output, reads in (("logits", (True, False)), ("value", (False, True))):
        found: Any = gradient(agent, output)
        for parts in (found.memory.memories, found.encoder.encoders):
            assert tuple(size(part) > 0 for part in parts) == reads


def test_none_is_a_critic_without_memory() -> None:
    """What was seen before does not change the value; it changes the logits."""
    agent = agent_of("none")
    memory: Any = agent.memory
    assert isinstance(memory.memories[1], NoMemory) and memory.memories[1].output_size == 8
    before = observations(1)
    before[-1] = observations()[-1]
    starts = jnp.arange(TIME) == 0
    (_, one), (_, other) = (
        agent.unroll(agent.init_state(), x, starts) for x in (observations(), before)
    )
    np.testing.assert_allclose(one.value[-1], other.value[-1], rtol=1e-6)
    assert not np.allclose(one.logits[-1], other.logits[-1])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="'seperate'; did you mean 'separate'"):
        agent_of("seperate")
    with pytest.raises(UserError, match="projection needs memory_of_critic=shared"):
        agent_of("separate", projection="affine")
    network = NetworkConfig(memory_of_critic="separate")
    with pytest.raises(UserError, match=r"needs two memories, .*got GRU"):
        Agent(
            make_memory("gru", input_size=4, key=jax.random.key(0)),
            3,
            network=network,
            key=jax.random.key(1),
        )
    with pytest.raises(UserError, match=r"a2c, ppo or sac .*got memory_of_critic=separate"):
        agent_of("separate", R2D2)


def test_unset_it_is_in_no_digest() -> None:
    assert "memory_of_critic" not in TrainConfig().identity()["network"]
    config = TrainConfig(network=NetworkConfig(memory_of_critic="separate"))
    assert config.identity()["network"]["memory_of_critic"] == "separate"


def test_an_export_has_the_critic_only_if_its_value_is_wanted() -> None:
    agent, adapter = agent_of("separate"), adapter_of_spaces(SEEN, ACTIONS)
    whole, alone = (
        PolicyStep(each, adapter, value=value).trace()
        for each, value in ((agent, True), (agent.without_critic(), False))
    )
    assert {entry["name"] for entry in alone.outputs} == {"action", "logits"}
    assert {entry["name"] for entry in whole.outputs} == {"action", "logits", "value"}


TRAINED = [("separate", "a2c"), ("none", "a2c"), ("separate", "sac"), ("none", "sac")]


@pytest.mark.parametrize(("memory_of_critic", "algorithm"), fast_only(TRAINED, ("separate", "a2c")))
def test_it_trains_resumes_and_plays(tmp_path: Path, memory_of_critic: str, algorithm: str) -> None:
    network = clew.NetworkConfig(memory_of_critic=memory_of_critic, head_size=4)

    brief = {
        "a2c": clew.A2CConfig(num_envs=4, rollout_length=32),
        "sac": clew.SACConfig(
            **BRIEF_REPLAY | {"rollout_length": 32, "replay_steps": 256}, gradient_steps=2
        ),
    }

    def trained(name: str, updates: int) -> Path:
        learner = {"a2c": clew.A2CConfig(), "sac": clew.SACConfig(), algorithm: brief[algorithm]}
        config = small_config(
            tmp_path,
            name,
            network=network,
            algorithm=algorithm,
            steps=updates * 128,
            log_every=1,
            **learner,
        )
        return clew.train(config, progress=Quiet()).path

    whole, cut = trained("whole", 4), trained("cut", 2)
    clew.resume_run(cut, steps=4 * 128, progress=Quiet())
    assert_same_run(whole, cut)
    policy = clew.load_policy(whole, seed_index=1)
    policy(np.zeros(16, np.float32), start=True)
    assert policy.outputs is not None and {"logits", "value"} <= set(policy.outputs)
