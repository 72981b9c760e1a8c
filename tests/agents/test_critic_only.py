"""A critic that reads entries of the observation which the actor does not see."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from clew import TrainConfig
from clew.agents.encoders import Dense
from clew.agents.learners.ppo import PPOConfig, Sequences, ppo_loss
from clew.agents.learners.pqn import PQN, PQNConfig
from clew.agents.network import Agent, NetworkConfig, make_agent
from clew.agents.trajectory import empty_memories
from clew.envs.spaces import ActionMask
from clew.errors import UserError

ACTIONS = spaces.Discrete(3)
SEEN = spaces.Box(-1.0, 1.0, (4,), np.float32)
SPACE = spaces.Dict(
    {
        "observation": SEEN,
        "room": spaces.Discrete(5),
        "speed.left": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "speed.right": spaces.Box(-1.0, 1.0, (2,), np.float32),
    }
)
ONLY = ("speed", "room")
TIME, BATCH = 6, 2


def agent_of(space: spaces.Space = SPACE, only: tuple[str, ...] = ONLY, **network: Any) -> Agent:
    """A GRU of 8 with small heads."""
    config = NetworkConfig(head_size=8, critic_only=only, **network)
    return make_agent(
        "gru",
        {"hidden_size": 8},
        observation_space=space,
        action_space=ACTIONS,
        network=config,
        key=jax.random.key(0),
    )


def chunk(seed: int = 0) -> dict[str, Any]:
    """Observations [TIME, BATCH, ...]."""
    draw = np.random.default_rng(seed)
    boxes = {n: s.shape for n, s in SPACE.items() if isinstance(s, spaces.Box)}
    found = {n: draw.normal(size=(TIME, BATCH, *s)).astype(np.float32) for n, s in boxes.items()}
    return {**found, "room": draw.integers(5, size=(TIME, BATCH)).astype(np.int32)}


def one(observations: dict[str, Any]) -> dict[str, Any]:
    """The first environment's."""
    return {name: x[:, 0] for name, x in observations.items()}


STARTS = jnp.arange(TIME) == 0


def test_the_value_is_computed_from_the_memory_s_output_and_the_entries() -> None:
    agent, seen = agent_of(), one(chunk())
    _, outputs = agent.unroll(agent.init_state(), seen, STARTS)
    _, h = agent.memory.unroll(agent.init_state(), seen["observation"], STARTS)
    room = np.eye(5, dtype=np.float32)[seen["room"]]
    read = np.concatenate([np.asarray(h), room, seen["speed.left"], seen["speed.right"]], axis=-1)
    heads: Any = agent.heads
    (w, b), (v, c) = (
        (np.asarray(part.weight), np.asarray(part.bias))
        for part in (heads.critic.hidden, heads.critic.output)
    )
    expected = (np.tanh(read @ w + b) @ v + c)[:, 0]
    np.testing.assert_allclose(outputs.value, expected, rtol=1e-5, atol=1e-6)
    states, stepped = agent.init_state(), []
    for t in range(TIME):
        now = {name: x[t] for name, x in seen.items()}
        states, found = agent.step(states, now, STARTS[t])
        stepped.append(found.value)
    np.testing.assert_allclose(outputs.value, np.stack(stepped), rtol=1e-5, atol=1e-6)


def test_the_actor_is_the_one_that_has_never_heard_of_the_entries() -> None:
    """Its weights and outputs are those of an agent for the rest, with and without the entries."""
    agent, plain = agent_of(), agent_of(SEEN, ())
    assert isinstance(plain.encoder, Dense)
    seen, other = one(chunk()), one(chunk(1))
    _, outputs = plain.unroll(plain.init_state(), seen["observation"], STARTS)
    for given in (
        seen,
        other | {"observation": seen["observation"]},
        {"observation": seen["observation"]},
        {name: seen[name] for name in ("observation", "speed.left")},
        seen["observation"],
    ):
        _, found = agent.unroll(agent.init_state(), given, STARTS)
        np.testing.assert_array_equal(found.logits, outputs.logits)
        assert (found.value is None) == ("room" not in given)
    for part in ("memory", "projection"):
        same = jax.tree.map(np.array_equal, getattr(agent, part), getattr(plain, part))
        assert all(jax.tree.leaves(same))


def test_the_policy_s_gradient_does_not_depend_on_the_entries() -> None:
    agent, observations, other = agent_of(encoder="mlp", encoder_size=4), chunk(), chunk(1)
    ones, advantage = jnp.ones((TIME, BATCH)), np.random.default_rng(2).normal(size=(TIME, BATCH))
    batch = Sequences(
        observation=observations,
        start=jnp.broadcast_to(STARTS[:, None], (TIME, BATCH)),
        action=ones.astype(jnp.int32),
        log_prob=-ones,
        value=ones,
        advantage=jnp.asarray(advantage, jnp.float32),
        target=ones,
        valid=ones > 0,
        state0=empty_memories(agent, BATCH),
    )

    @eqx.filter_jit
    def gradient(observation: Any, term: str) -> Any:
        def loss(agent: Agent) -> Any:
            return ppo_loss(agent, batch._replace(observation=observation), PPOConfig())[1][term]

        return eqx.filter_grad(loss)(agent)

    def size(gradient: Any) -> float:
        return sum(float(abs(leaf).sum()) for leaf in jax.tree.leaves(gradient))

    of_policy, of_value = (gradient(observations, term) for term in ("policy_loss", "value_loss"))
    again = gradient(other | {"observation": observations["observation"]}, "policy_loss")
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, of_policy, again)))
    assert size(of_policy.memory) > 0 and size(of_value.memory) > 0
    assert size(of_policy.critic_only) == 0 and size(of_value.critic_only) > 0


def test_unset_it_is_in_no_digest() -> None:
    assert "critic_only" not in TrainConfig().identity()["network"]
    config = TrainConfig(network=NetworkConfig(critic_only=("state",)))
    assert config.identity()["network"]["critic_only"] == ["state"]
    assert config.digest() != TrainConfig().digest()


def test_an_action_mask_stays_with_the_actor() -> None:
    space = spaces.Dict({**SPACE, "action_mask": ActionMask(ACTIONS)})
    agent = agent_of(space)
    seen = one(chunk()) | {"action_mask": np.tile([True, False, True], (TIME, 1))}
    _, outputs = agent.unroll(agent.init_state(), seen, STARTS)
    assert (np.asarray(outputs.logits)[:, 1] < -1e8).all() and outputs.value is not None


@pytest.mark.parametrize(
    ("space", "only", "message"),
    [
        (SPACE, ("spead",), "'spead'; did you mean 'speed"),
        (SPACE, ("observation.x",), "unknown entry of the observation in critic_only"),
        (SPACE, (*ONLY, "observation"), r"must leave the actor an entry, got \('speed', 'r"),
        (SEEN, ONLY, r"of a Dict observation .*got \('speed', 'room'\) of Box"),
    ],
)
def test_what_does_not_fit_is_refused(space: Any, only: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        agent_of(space, only)


def test_heads_without_such_a_critic_are_refused() -> None:
    with pytest.raises(UserError, match=r"a2c or ppo .*got critic_only=\('room', "):
        make_agent(
            "gru",
            {"hidden_size": 8},
            observation_space=SPACE,
            action_space=ACTIONS,
            network=NetworkConfig(critic_only=ONLY),
            key=jax.random.key(0),
            make_heads=PQN(PQNConfig()).make_heads,
        )
