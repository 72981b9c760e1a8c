"""The memory chain equals that of the installed bsuite package, bit for bit."""

import importlib
import sys
from collections.abc import Iterator
from importlib import util
from types import ModuleType
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import clew.envs.gymnasium_api  # noqa: F401
from clew.envs import MemoryChain
from slow_cases import fast_only
from streams import roll

JAX_EPISODES, GYMNASIUM_EPISODES = 12, 60
EXPERIMENTS = {"memory_len": 23, "memory_size": 17}
SETTINGS = [(name, index) for name, count in EXPERIMENTS.items() for index in range(count)]
Episode = list[tuple[list[float], float | None, bool]]


def bsuite_experiment(name: str) -> Any:
    """A module of the installed bsuite, unmodified.

    Only `bsuite/__init__.py` is skipped: it imports every experiment's figures, and with them
    570 MB of packages that `make venv` leaves out.
    """
    if "bsuite" not in sys.modules:
        spec = util.find_spec("bsuite")
        assert spec is not None, "bsuite is not installed: run `make venv`"
        package = ModuleType("bsuite")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["bsuite"] = package
    return importlib.import_module(f"bsuite.experiments.{name}.{name}")


def bsuite_episodes(env: Any, actions: np.ndarray) -> Iterator[Episode]:
    """Plays episodes under actions [episodes, decisions]: observation, reward, ended."""
    for chosen in actions:
        first = env.reset()
        episode: Episode = [(first.observation[0].tolist(), None, False)]
        for action in chosen:
            step = env.step(int(action))
            episode.append((step.observation[0].tolist(), step.reward, step.last()))
            assert step.discount == (0.0 if step.last() else 1.0)
        yield episode


def load(name: str, index: int) -> tuple[Any, dict[str, int]]:
    """bsuite's task with its own default seed, and the same settings by clew's names."""
    experiment = bsuite_experiment(name)
    assert len(experiment.sweep.SETTINGS) == EXPERIMENTS[name]
    given = experiment.sweep.SETTINGS[index]
    return experiment.load(**given), {"memory_length": 2, "num_bits": 1} | given


@pytest.mark.parametrize(("name", "index"), fast_only(SETTINGS, *SETTINGS[::5]))
def test_streams_in_jax_equal_bsuite_bit_for_bit(name, index):
    theirs, options = load(name, index)
    decisions = options["memory_length"] + 1
    # Including 2, which is not an action: bsuite counts it as a wrong answer.
    actions = np.random.default_rng(index).choice(3, (JAX_EPISODES, decisions), p=[0.45, 0.45, 0.1])
    steps = roll(MemoryChain(**options, stream_seed=0), actions.reshape(-1, 1))
    at = jax.tree.map(lambda leaf: leaf[:, 0], steps)
    for number, episode in enumerate(bsuite_episodes(theirs, actions)):
        begin = number * decisions
        assert at.observation[begin].tolist() == episode[0][0]
        for t, (observation, reward, ended) in enumerate(episode[1:], begin + 1):
            assert (float(at.reward[t]), bool(at.ended[t])) == (reward, ended)
            assert at.metrics["success"][t] == (reward == 1.0)
            if not ended:  # after an end, clew's stream shows the next episode's first observation
                assert at.observation[t].tolist() == observation
    perfect = theirs.bsuite_info()["total_perfect"]
    assert perfect == at.metrics["success"].sum() and 0 < perfect < JAX_EPISODES


@pytest.mark.parametrize(("name", "index"), fast_only(SETTINGS, *SETTINGS[2::5]))
def test_the_gymnasium_form_equals_bsuite_bit_for_bit(name, index):
    theirs, options = load(name, index)
    shape = (GYMNASIUM_EPISODES, options["memory_length"] + 1)
    actions = np.random.default_rng(index).integers(2, size=shape)
    env = gymnasium.make("clew/MemoryChain-v0", **options, stream_seed=0)
    for chosen, episode in zip(actions, bsuite_episodes(theirs, actions), strict=True):
        observation, info = env.reset()
        assert observation.tolist() == episode[0][0]
        assert (info["context"].tolist(), info["query"]) == (
            theirs._context.tolist(),
            theirs._query,
        )
        for action, expected in zip(chosen, episode[1:], strict=True):
            observation, reward, terminated, truncated, info = env.step(action)
            assert (observation.tolist(), reward, terminated) == expected
            assert not truncated and info["success"] == (reward == 1.0)
