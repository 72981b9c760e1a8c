"""A run that starts from another run's agent takes its weights, and nothing else of it."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import clew
from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.ppo import PPOConfig
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.lab import comparison
from clew.run import checkpoint
from clew.run.build import make_parts
from clew.run.lanes import Lane, init_lanes
from clew.run.load import load_run
from clew.run.start import read_start
from clew.run.updates import init_run
from small_run import STEPS_PER_UPDATE, Watch, assert_same_run, replaying_config, small_config

AGENT, LEARNER = "/seed/agent", "/seed/learner"
STEPS = 16 * STEPS_PER_UPDATE


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A run of two seeds."""
    config = small_config(tmp_path_factory.mktemp("source"), steps=STEPS)
    return clew.train(config, progress=Watch()).path


def leaves(path: Path, update: int, part: str = AGENT) -> dict[str, np.ndarray]:
    read = checkpoint.read(path / "checkpoints" / f"update-{update:09d}.clew")
    return {name: leaf for name, leaf in read.leaves.items() if name.startswith(part)}


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys() != set()
    for name, leaf in expected.items():
        np.testing.assert_array_equal(found[name], leaf, err_msg=name)


def begun(config, watch: Watch | None = None) -> Path:
    return clew.train(config, progress=watch or Watch()).path


def first_agents(config, part: str = AGENT) -> dict[str, np.ndarray]:
    """The initial agents of a run's seeds, without the run."""
    parts = make_parts(config)
    state = init_run(parts, start=read_start(parts))
    found = jax.tree_util.tree_leaves_with_path(state)
    named = {checkpoint.path_name(path): leaf for path, leaf in found}
    return {name: np.asarray(leaf) for name, leaf in named.items() if name.startswith(part)}


def test_the_weights_are_its_own_and_the_optimiser_is_new(source, tmp_path):
    """In a longer corridor, seed by seed."""
    longer = {"env_options": {"corridor_length": 5}, "steps": STEPS}
    watch = Watch()
    path = begun(small_config(tmp_path, start_from=str(source), **longer), watch)
    fresh = small_config(tmp_path, "fresh", **longer)
    assert_equal(leaves(path, 0), leaves(source, 16))
    assert_equal(leaves(path, 0, LEARNER), first_agents(fresh, LEARNER))
    assert_equal(leaves(path, 0, "/seed/actor/env"), first_agents(fresh, "/seed/actor/env"))
    assert [line for line in watch.messages if "starting from" in line] == [
        f"starting from the agent of {source} after 16 updates; "
        "env_options was {'corridor_length': 3}, here {'corridor_length': 5}"
    ]


def test_a_checkpoint_is_named_by_its_file(source, tmp_path):
    file = source / "checkpoints" / "update-000000000.clew"
    found = first_agents(small_config(tmp_path, start_from=str(file)))
    assert_equal(found, leaves(source, 0))
    with pytest.raises(UserError, match="start_from: nowhere.clew is not a checkpoint"):
        clew.train(small_config(tmp_path, "other", start_from="nowhere.clew"), progress=Watch())


def test_a_run_is_named_by_its_name(source, tmp_path):
    shutil.copytree(source, tmp_path / "before")
    assert_equal(first_agents(small_config(tmp_path, start_from="before")), leaves(source, 16))
    with pytest.raises(UserError, match=r"unknown run 'befor'.*before"):
        clew.train(small_config(tmp_path, "other", start_from="befor"), progress=Watch())
    assert not (tmp_path / "other").exists()


def test_one_seed_begins_several(tmp_path):
    one = begun(small_config(tmp_path, "one", seeds=1, steps=STEPS))
    found = first_agents(small_config(tmp_path, "two", start_from=str(one)))
    assert_equal(found, {name: np.stack([leaf] * 2) for name, leaf in leaves(one, 16).items()})


def test_other_numbers_of_seeds_are_refused(source, tmp_path):
    config = small_config(tmp_path, start_from=str(source), seeds=3, steps=STEPS)
    with pytest.raises(UserError, match="run with 2 seeds .* for a run with 3: .* 1, or as"):
        clew.train(config, progress=Watch())


def test_what_does_not_fit_is_named(source, tmp_path):
    config = small_config(tmp_path, start_from=str(source), memory_options={"hidden_size": 8})
    with pytest.raises(UserError) as error:
        clew.train(config, progress=Watch())
    assert "does not fit this run: its agent.memory" in str(error.value)
    assert "memory_options was {'hidden_size': 16}, here {'hidden_size': 8}" in str(error.value)
    with pytest.raises(UserError, match=r"memory was 'gru', here 'lstm'"):
        clew.train(small_config(tmp_path, memory="lstm", start_from=str(source)), progress=Watch())
    assert not (tmp_path / "run").exists()


def test_it_goes_on_where_the_other_run_is_gone(source, tmp_path):
    before = shutil.copytree(source, tmp_path / "before")
    whole = small_config(tmp_path / "whole", start_from=str(before), steps=STEPS)
    config = small_config(tmp_path / "cut", start_from=str(before), steps=STEPS)
    clew.train(whole, progress=Watch())
    clew.train(config, progress=Watch(), callbacks=[lambda report: True])  # ends at once
    shutil.rmtree(before)
    clew.train(config, resume=True, progress=Watch())
    assert_same_run(tmp_path / "cut" / "run", tmp_path / "whole" / "run")


@pytest.mark.slow
def test_targets_begin_with_it_too(source, tmp_path):
    before = begun(replaying_config(tmp_path, "before", steps=STEPS))
    config = replaying_config(tmp_path, start_from=str(before), steps=STEPS)
    found = first_agents(config)
    assert_equal(found, leaves(before, 16))
    target = first_agents(config, f"{LEARNER}/others/target")
    assert_equal(
        {n.replace(f"{LEARNER}/others/target", AGENT): v for n, v in target.items()}, found
    )
    with pytest.raises(UserError, match=r"algorithm was 'r2d2', here 'a2c'"):
        clew.train(small_config(tmp_path, "a2c", start_from=str(before)), progress=Watch())


def test_wrappers_keep_what_they_have_learned(tmp_path):
    def config(name: str, **changes):
        return small_config(
            tmp_path,
            name,
            env="gymnasium:CartPole-v1",
            env_options={},
            seeds=1,
            steps=2 * STEPS_PER_UPDATE,
            wrappers=WrapperConfig(normalise_observations=True, **changes.pop("wrap", {})),
            **changes,
        )

    before = begun(config("before"))
    learned = load_run(before).statistics
    path = begun(config("after", start_from=str(before), wrap={"normalise_rewards": True}))
    first = load_run(path, "0").statistics
    assert jax.tree.all(jax.tree.map(np.array_equal, first["observation"], learned["observation"]))
    (moments,) = learned["observation"].values()
    assert float(moments["count"][0]) > STEPS_PER_UPDATE
    assert float(first["reward"]["count"][0]) < 1


def test_agents_of_a_study_begin_with_one(source, tmp_path):
    one = begun(small_config(tmp_path, "one", seeds=1, steps=STEPS))
    config = small_config(tmp_path, start_from=str(one))
    state = init_lanes(make_parts(config), [Lane(config, name="one"), Lane(config, name="two")])
    for found, expected in zip(
        jax.tree.leaves(state.seed.agent), leaves(one, 16).values(), strict=True
    ):
        np.testing.assert_array_equal(found, np.stack([expected] * 2))
    config = small_config(tmp_path, start_from=str(source))
    with pytest.raises(UserError, match="run with 2 seeds .* in a study or sweep all agents"):
        init_lanes(make_parts(config), [Lane(config), Lane(config)])


def test_a_comparison_finds_what_does_not_fit_before_it_trains(source, tmp_path, monkeypatch):
    shutil.copytree(source, tmp_path / "before")
    config = small_config(tmp_path, "beside", start_from="before", steps=STEPS)
    configs = comparison.settings_of(config, ["gru", "lstm"])
    monkeypatch.setattr(comparison, "train_once", lambda *args: pytest.fail("it trains"))
    with pytest.raises(UserError, match="memory was 'gru', here 'lstm'"):
        comparison.compare(configs, lambda name: Watch(), comparison.MEMORY)


def test_another_learner_with_the_same_heads_may_go_on(source, tmp_path):
    config = small_config(tmp_path, start_from=str(source), algorithm="ppo", a2c=A2CConfig())
    settings = PPOConfig(num_envs=8, rollout_length=16, sequence_length=16, minibatches=2)
    found = first_agents(clew.TrainConfig(**{**vars(config), "ppo": settings}))
    assert_equal(found, leaves(source, 16))
