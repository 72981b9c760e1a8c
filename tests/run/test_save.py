"""An agent that was changed outside of its run is saved beside the run's checkpoints."""

from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import clew
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.run import checkpoint
from clew.run.build import make_parts
from clew.run.load import load_run
from clew.run.start import read_start
from small_run import STEPS_PER_UPDATE, Watch, small_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run of two seeds and two updates."""
    config = small_config(tmp_path_factory.mktemp("runs"), steps=2 * STEPS_PER_UPDATE)
    return clew.train(config, progress=Watch()).path


def moved(agent: clew.Agent) -> clew.Agent:
    """Another agent of the same shapes."""
    return jax.tree.map(lambda leaf: leaf + 1 if eqx.is_inexact_array(leaf) else leaf, agent)


def test_it_is_found_by_its_name_and_begins_a_run(trained, tmp_path):
    agents = [moved(clew.load(trained, seed)) for seed in (0, 1)]
    file = clew.save(trained, agents, "cloned")
    assert file == trained / "checkpoints" / "cloned.clew"
    for seed, agent in enumerate(agents):
        for name in ("cloned", "cloned.clew"):
            assert eqx.tree_equal(clew.load(trained, seed, checkpoint=name), agent)
    start = read_start(make_parts(small_config(tmp_path, start_from=str(file))))
    assert start is not None
    assert start.message == f"starting from the agent in cloned.clew of {trained} after 2 updates"
    params = [eqx.filter(agent, eqx.is_array) for agent in agents]
    assert all(eqx.tree_equal(start.of_seed(i)[0], p) for i, p in enumerate(params))
    with pytest.raises(UserError, match=r"unknown checkpoint 'clone'; did you mean 'cloned.clew'"):
        clew.load(trained, checkpoint="clone")


def test_the_run_itself_does_not_change(trained):
    """Neither its newest checkpoint nor what is kept of it; a name is used again."""
    before, newest = clew.load(trained), checkpoint.list_checkpoints(trained / "checkpoints")
    agents = [clew.load(trained, seed) for seed in (0, 1)]
    for changed in (agents, [moved(agent) for agent in agents]):
        clew.save(trained, changed, "again")
        assert eqx.tree_equal(clew.load(trained, 1, checkpoint="again"), changed[1])
    assert eqx.tree_equal(clew.load(trained), before)
    assert checkpoint.list_checkpoints(trained / "checkpoints") == newest
    longer = clew.resume_run(trained, steps=3 * STEPS_PER_UPDATE, progress=Watch()).path
    assert eqx.tree_equal(clew.load(longer, 1, checkpoint="again"), changed[1])


@pytest.mark.parametrize("name", ["best", "12", "update-000000001", "a/b", "", ".hidden"])
def test_names_of_other_files_are_refused(trained, name):
    with pytest.raises(UserError, match="the name of a saved agent must be"):
        clew.save(trained, [clew.load(trained)] * 2, name)


def test_what_does_not_fit_is_refused(trained):
    agent = clew.load(trained)
    with pytest.raises(UserError, match="has 2 seeds, got 1 agents"):
        clew.save(trained, agent, "one")
    wide = eqx.tree_at(lambda a: a.heads.actor.output.bias, agent, np.zeros(9, np.float32))
    wide = jax.tree.map(jax.numpy.asarray, wide)
    with pytest.raises(UserError, match=r"its agent.heads.* is float32\[9\], but here it is"):
        clew.save(trained, [agent, wide], "wide")
    assert not list((trained / "checkpoints").glob("wide*"))


def test_statistics_are_the_newest(tmp_path):
    """Of one seed, with the running moments of its observations."""
    config = small_config(
        tmp_path,
        env="gymnasium:CartPole-v1",
        env_options={},
        seeds=1,
        steps=2 * STEPS_PER_UPDATE,
        wrappers=WrapperConfig(normalise_observations=True),
    )
    path = clew.train(config, progress=Watch()).path
    agent = moved(clew.load(path))
    clew.save(path, agent, "moved")
    assert eqx.tree_equal(clew.load(path, checkpoint="moved"), agent)
    found = [load_run(path, wanted).statistics for wanted in ("", "moved")]
    assert jax.tree.all(jax.tree.map(np.array_equal, *found))
