"""What an agent remembers: influence equals closed forms, and is zero where no memory reaches."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.agents.network import Agent, NetworkConfig
from clew.errors import UserError
from clew.inspect import (
    Episodes,
    Influence,
    Questions,
    by_lag,
    choose_labels,
    gradient_influence,
    inspect_agent,
    memory_length,
    occlusion_influence,
)
from clew.inspect.run import with_whole_gradient
from clew.memory import MEMORIES, AbstractMemory
from clew.memory.base import scan_steps, select
from clew.memory.laws.runs import unroll
from clew.memory.parts.maps import MemoryMap, left
from clew.run.build import build_agent, make_task
from clew.run.config import TrainConfig
from memory_samples import DIFFERENT, INPUT_SIZE, quick_compilation, sample
from slow_cases import fast_only

__all__ = ["quick_compilation"]

LINEAR = NetworkConfig(head_size=0)
KEY = jax.random.key(0)
FORGETTING = ("none", "position_mlp")
"""The memories that remember no observation."""
WITHOUT_MAPS = (*FORGETTING, "frame_stack", "elman")
"""Those, and the ones without gates."""


class Average(AbstractMemory):
    """s_t = rate s_{t-1} + (1 - rate) x_t, and s_t is the output."""

    rate: float = eqx.field(static=True)
    input_size: int = INPUT_SIZE
    output_size: int = INPUT_SIZE

    def init_state(self) -> Any:
        return jnp.zeros(INPUT_SIZE)

    def step(self, state: Any, x: Any, start: Any) -> Any:
        state = self.rate * select(start, self.init_state(), state) + (1 - self.rate) * x
        return state, state

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        return scan_steps(self, state, xs, starts)


def chunk(time: int, *starts: int) -> tuple[Any, Any, Any]:
    """Observations, start flags and actions of one chunk."""
    xs = jax.random.normal(jax.random.key(time), (time, INPUT_SIZE))
    flags = np.isin(np.arange(time), (0, *starts))
    return xs, jnp.asarray(flags), jnp.asarray(np.arange(time) % 3, jnp.int32)


def gradient(memory: AbstractMemory, time: int, at: list[int], *starts: int) -> Influence:
    agent = Agent(memory, 3, key=KEY, network=LINEAR)
    return jax.jit(gradient_influence)(agent, *chunk(time, *starts), jnp.array(at, jnp.int32))


def test_an_average_has_the_influence_of_its_closed_form() -> None:
    """d s_t / d x_s = (1 - rate) rate^(t - s), so influence is the readout's norm times that;
    by occlusion it is also multiplied by the observation's distance from the reference."""
    rate, time, at = 0.8, 12, [4, 11]
    agent = Agent(Average(rate), 3, key=KEY, network=LINEAR)
    xs, starts, actions = chunk(time, 2)
    found = jax.jit(gradient_influence)(agent, xs, starts, actions, jnp.array(at, jnp.int32))
    heads: Any = agent.heads
    policy, value = (np.asarray(head.output.weight) for head in (heads.actor, heads.critic))
    centred = policy - policy.mean(axis=1, keepdims=True)
    steps, share = np.arange(time), np.zeros(time)
    for row, t in enumerate(at):
        share = np.where((steps >= 2) & (steps <= t), (1 - rate) * rate ** (t - steps * 1.0), 0.0)
        np.testing.assert_allclose(found.policy[row], share * np.linalg.norm(centred), atol=1e-6)
        np.testing.assert_allclose(found.value[row], share * np.linalg.norm(value), atol=1e-6)
        logits = np.asarray(agent.unroll(agent.init_state(), xs, starts)[1].logits)[t]
        expected = policy[:, int(actions[t])] - policy @ np.asarray(jax.nn.softmax(logits))
        np.testing.assert_allclose(found.log_prob[row], share * np.linalg.norm(expected), atol=1e-6)
    reference = jnp.ones(INPUT_SIZE)
    away = jax.jit(occlusion_influence)(
        agent, xs, starts, actions, jnp.array(at, jnp.int32), reference
    )
    moved = np.linalg.norm((1.0 - np.asarray(xs)) @ centred, axis=1)
    np.testing.assert_allclose(away.policy[1], share * moved, atol=1e-5)
    assert np.all(np.asarray(away.policy)[0, 5:] == 0)
    lags = by_lag(np.asarray(found.policy)[1:], np.array([11]))
    reached = 1 - rate ** np.arange(1, 11)
    length = memory_length(lags).lengths[0]
    assert length == np.argmax(reached >= 0.9 * reached[9])


@pytest.mark.parametrize("layers", [1, 2])
def test_nothing_beyond_the_window_has_influence(layers: int) -> None:
    """A layer sees `window` steps back, and two layers see twice as many."""
    found = gradient(sample("gtrxl", layers, window=3), 12, [11])
    reach = 11 - 3 * layers
    for values in found:
        assert np.all(np.asarray(values)[0, :reach] == 0)
        assert np.all(np.asarray(values)[0, reach:] > 0)


@pytest.mark.parametrize("name", fast_only(MEMORIES, *DIFFERENT))
def test_every_memory_is_explained(name: str) -> None:
    """Gradients end at the episode's start and at the decision; maps keep to their kinds."""
    memory = sample(name, num_layers=1)
    agent = Agent(memory, 3, key=KEY, network=LINEAR)
    xs, starts, actions = chunk(7, 2)
    at = jnp.array([5, -1], jnp.int32)

    @eqx.filter_jit
    def run(agent: Agent) -> tuple[Influence, dict[str, MemoryMap]]:
        return gradient_influence(agent, xs, starts, actions, at), agent.memory.maps(xs)

    found, maps = run(agent)
    for values in map(np.asarray, found):
        assert np.all(values[0, [0, 1, 6]] == 0) and values[0, 5] > 0
        assert np.all(values[1] == 0)
        assert np.all(values[0, 2:5] == 0) if name in FORGETTING else np.any(values[0, 2:5] > 0)
    assert bool(maps) == (name not in WITHOUT_MAPS)
    for told in maps.values():
        values = np.asarray(told.values)
        assert np.all(np.isfinite(values))
        if told.kind == "attention":
            assert values.shape[1:] == (7, 7) and np.all(np.triu(values, 1) == 0)
            np.testing.assert_allclose(values.sum(axis=-1), 1.0, rtol=1e-3)
        else:
            assert values.shape[0] == 7
        if told.kind == "keep":
            assert values.min() >= 0 and values.max() <= 1


@pytest.mark.parametrize("name", ["gtrxl", "transformer", "linear_transformer"])
def test_attention_maps_are_the_weights_that_were_used(name: str) -> None:
    """Weighting the values by them gives the output of `unroll`."""
    memory: Any = sample(name, num_layers=1)
    layer = memory.layers[0]
    xs = jax.random.normal(KEY, (9, 12))
    maps = eqx.filter_jit(lambda attention, xs: attention.maps(xs)["attention"].values)
    weights = maps(layer.attention, xs)
    if name == "linear_transformer":
        values = jnp.moveaxis(layer.attention._heads(xs)[2], 1, 0)
    else:
        values = layer.attention.keys_values(xs)[1]
    attended = jnp.einsum("htj,hjm->thm", weights, values).reshape(9, -1)
    state = layer.attention.init_state()
    expected = eqx.filter_jit(unroll)(layer.attention, state, xs, jnp.zeros(9, bool))[1]
    np.testing.assert_allclose(layer.attention.output(attended), expected, atol=2e-5)


def test_what_is_left_is_the_product_of_what_is_kept() -> None:
    keep = np.random.default_rng(0).random((6, 3)).astype(np.float32)
    keep[3, 0] = 0.0
    found = np.asarray(left(jnp.asarray(keep)))
    for t in range(6):
        for s in range(6):
            expected = keep[s + 1 : t + 1].prod(axis=0).mean() if s <= t else 0.0
            assert found[t, s] == pytest.approx(expected, abs=1e-6)


HEAD = {"num_heads": 1, "head_size": 4, "window": 4, "gradient": "current"}
STOPPED = {
    "gtrxl": HEAD | {"hidden_size": 8, "num_layers": 1},
    "hybrid": {"hidden_size": 8, "layers": ["attention"], "layer_options": {"attention": HEAD}},
}


@pytest.mark.parametrize("name", STOPPED)
def test_stopped_gradients_do_not_hide_the_past(name: str) -> None:
    """Learning stops gradients into the past, but inspection lets them through."""
    config = TrainConfig(memory=name, memory_options=STOPPED[name])
    task = make_task(config)
    agent = build_agent(config, task, KEY)
    whole = with_whole_gradient(agent, config, task)
    xs = jax.random.normal(KEY, (4, agent.memory.input_size))
    given = (xs, jnp.arange(4) == 0, jnp.zeros(4, jnp.int32), jnp.array([3], jnp.int32))
    run = eqx.filter_jit(gradient_influence)
    before, after = (np.asarray(run(a, *given).policy)[0] for a in (agent, whole))
    assert np.all(before[:3] == 0) and np.all(after[:3] > 0)
    assert with_whole_gradient(whole, TrainConfig(), task) is whole


def made_up(count: int, time: int) -> Episodes:
    """Episodes of random numbers, whose first observation shows a cue."""
    random = np.random.default_rng(0)
    xs = random.standard_normal((count, time, INPUT_SIZE)).astype(np.float32)
    cue = (xs[:, 0, 0] > 0).astype(int)
    lengths = np.where(np.arange(count) % 4 == 0, time - 1, time)
    return Episodes(xs, random.integers(0, 3, (count, time)), lengths, {"cue": cue}, {}, 0)


def test_labels_are_the_tasks_or_the_first_observations() -> None:
    episodes = made_up(30, 3)
    assert list(choose_labels(episodes)) == ["cue"]
    assert list(choose_labels(episodes._replace(labels={})))[0] == "observation[0]"
    assert list(choose_labels(episodes, ["observation[2]"])) == ["observation[2]"]
    with pytest.raises(UserError, match="did you mean 'cue'"):
        choose_labels(episodes, ["cu"])


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_every_memory_is_inspected_whole(name: str) -> None:
    """From recorded episodes to all figures; the control remembers nothing of the cue."""
    agent = Agent(sample(name), 3, key=KEY, network=LINEAR)
    found = inspect_agent(agent, made_up(60, 8), Questions(influence_episodes=4))
    assert found.gradient.policy.shape == (4, 8)
    assert found.probes[0].steps == list(range(8))
    length = found.memory_lengths["gradient", "policy"]
    assert (length.quartiles[2] == 0) == (name in FORGETTING)
    first, last = found.probes[0].accuracy[0], found.probes[0].accuracy[-1]
    assert last.low < 0.6 if name in FORGETTING else first.mean > 0.6
