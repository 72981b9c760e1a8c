"""Training as a whole: it learns, records its progress, and stops at NaN or infinity."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew.agents.network import NetworkConfig
from clew.envs.tmaze import TMaze
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact.task import HostConfig
from clew.report.curves import plot_runs
from clew.run import checkpoint, train
from clew.run.build import Parts, make_parts
from clew.run.config import TrainConfig, config_from_json
from clew.run.evaluate import EvalResult, interval
from clew.run.progress import Lines
from clew.run.runner import TrainingDiverged
from clew.run.updates import init_run
from clew.stats import Interval
from clew.stats.intervals import over_seeds
from slow_cases import fast_only
from small_run import STEPS_PER_UPDATE, Watch, last_state, small_config

SEQUENCES = {"sequence_length": 4}
REPLAYED = SEQUENCES | {"period": 4, "learning_starts": 8, "replay_steps": 100, "batch_size": 2}
SMALLEST: dict[str, dict[str, int]] = {
    "a2c": {},
    "ppo": SEQUENCES | {"minibatches": 1},
    "pqn": SEQUENCES | {"minibatches": 1},
    "r2d2": REPLAYED | {"burn_in": 4, "gradient_steps": 1},
    "sac": REPLAYED | {"gradient_steps": 1},
}
"""Settings of each learner beside two environments and four steps."""


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    watch = Watch()
    config = small_config(tmp_path_factory.mktemp("runs"), "learned")
    return clew.train(config, progress=watch), watch


class Warned(Exception):
    """Ends a training at its first message, before anything is compiled."""


def assert_says_first(config: TrainConfig, says: str) -> None:
    def warn(text: str) -> None:
        raise Warned(text)

    watch = Watch()
    watch.message = warn
    with pytest.raises(Warned, match=says):
        clew.train(config, progress=watch)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"env_options": {"memory_length": 16_000_000}},
            "16,000,001 steps, but each of 8 .* 1,024",
        ),
        ({"env_options": {"memory_length": 1_024}}, "at least 1,025 steps"),
        ({"wrappers": clew.WrapperConfig(trial_episodes=100)}, "at least 1,100 steps"),
        (
            {"env": "tmaze", "env_options": {"corridor_length": 1_025, "time_limit": 2_000}},
            "one of tmaze .* 1,025 steps",
        ),
    ],
)
def test_a_run_within_which_no_episode_ends_says_so(tmp_path, settings, says):
    defaults = {"env": "memory_chain", "env_options": {"memory_length": 10}}
    config = small_config(tmp_path, **defaults | settings, steps=64 * STEPS_PER_UPDATE)
    assert_says_first(config, f"no episode ends within this run: .*{says}")


def test_a_run_that_ends_before_it_learns_says_so(tmp_path):
    config = clew.TrainConfig(
        env="memory_chain",
        memory="none",
        algorithm="r2d2",
        steps=5000,
        run_dir=str(tmp_path),
    )
    said = "nothing is learned in this run: r2d2 begins after 10,000 steps, but the run has 5,1"
    assert_says_first(config, said)


def test_settings_of_environments_that_are_compiled_are_said_to_change_nothing(tmp_path):
    config = small_config(tmp_path, host=HostConfig(processes=4))
    assert_says_first(config, "host settings change nothing: .* is written in JAX")


def test_settings_of_wrappers_without_the_one_that_they_need_are_said_to_change_nothing(tmp_path):
    config = small_config(
        tmp_path,
        env="gymnasium:CartPole-v1",
        env_options={},
        wrappers=clew.WrapperConfig(reward_gamma=0.9),
    )
    assert_says_first(config, "wrappers.reward_gamma changes nothing without wrappers.normalise_r")


def test_wrappers_in_place_of_those_that_normalise_rewards_are_said(tmp_path):
    """By default those of Gymnasium environments do; not where the algorithm was chosen too."""
    own = WrapperConfig(keep=(0, 2))
    config = clew.TrainConfig(env="gymnasium:CartPole-v1", wrappers=own, run_dir=str(tmp_path))
    said = r"rewards are not normalised, .*: WrapperConfig\(\.\.\., normalise_rewards=True\)"
    assert_says_first(config, said)
    wrappers = [dataclasses.replace(own, normalise_rewards=True), WrapperConfig()]
    wrappers.append(dataclasses.replace(own, reward_scale=0.1))
    others = [dataclasses.replace(config, wrappers=other) for other in wrappers]
    named = clew.TrainConfig(env=config.env, wrappers=own, algorithm="ppo")
    in_jax = clew.TrainConfig(env="memory_chain", wrappers=WrapperConfig(noise=0.1))
    for other in (*others, named, in_jax):
        parts = cast(Parts, SimpleNamespace(config=other))
        assert not list(train._no_scale(parts))


def test_the_same_script_begins_a_run_and_goes_on_with_it(tmp_path):
    config = small_config(tmp_path, steps=2 * STEPS_PER_UPDATE)
    for updates in (2, 3):
        more = dataclasses.replace(config, steps=updates * STEPS_PER_UPDATE)
        assert clew.train(more, resume=True, progress=Watch()).summary["updates"] == updates


def test_what_jax_is_set_to_around_a_training_holds_for_its_program(tmp_path, monkeypatch):
    """JAX confines a `with` to its thread; a resumed run has always compiled on the caller's."""
    make, seen = train.make_program, []

    def noted(*args: Any) -> Any:
        seen.append(jax.config.values["jax_default_matmul_precision"])
        return make(*args)

    monkeypatch.setattr(train, "make_program", noted)
    with jax.default_matmul_precision("float32"):
        clew.train(small_config(tmp_path, steps=STEPS_PER_UPDATE), progress=Watch())
    assert seen[-1] == "float32"


@pytest.mark.parametrize("algorithm", fast_only(SMALLEST, "a2c"))
def test_a_training_goes_on_with_64_bit_types(tmp_path, algorithm):
    """Its sums stay in single precision, like the parameters."""
    config = small_config(tmp_path, algorithm=algorithm, a2c=clew.A2CConfig(), seeds=1, steps=64)
    own = {"num_envs": 2, "rollout_length": 4} | SMALLEST[algorithm]
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        result = clew.train(config.with_learning(**own), progress=Watch())
    (row,) = clew.read_metrics(result.path)
    assert np.isfinite(row["loss"]).all()


def test_an_unknown_name_is_said_before_settings_that_nothing_uses(tmp_path):
    for changes, said in (
        ({"algorithm": "PPO"}, "unknown value of algorithm 'PPO'; did you mean 'ppo'"),
        ({"env": "CartPole-v1"}, "did you mean 'gymnasium:CartPole-v1'"),
    ):
        config = small_config(tmp_path, ppo=clew.PPOConfig(num_envs=2), **changes)
        with pytest.raises(UserError, match=said):
            clew.train(config, progress=Watch())


class Suggesting(gymnasium.Env):
    """Offers a mask that is not used, a text, a picture, or actions in other units."""

    def __init__(self, kind: str):
        box = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict({"seen": box, "moves_mask": spaces.MultiBinary(3)})
        self.action_space = spaces.Discrete(3)
        if kind == "text":
            self.observation_space = spaces.Dict(a=spaces.Tuple((box, spaces.Text(9))))
        elif kind == "small":
            self.observation_space = spaces.Dict(a=spaces.Box(0, 255, (16, 16, 1), np.uint8))
        elif kind == "picture":
            self.observation_space = spaces.Dict(a=spaces.Box(0, 1, (32, 40, 3), np.float32))
        elif kind == "stack":
            self.observation_space = spaces.Box(0, 255, (4, 36, 36, 3), np.uint8)
        elif kind == "wide":
            self.observation_space, self.action_space = box, spaces.Box(-500, 500, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """One observation."""
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        """An episode of one step."""
        return self.observation_space.sample(), 0.0, True, False, {}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("mask", "which actions are allowed: --wrappers.action-mask moves_mask"),
        ("text", "'a.1' is text, which the agent does not see"),
        ("small", "'a', bytes .16, 16, 1., is read as numbers up to 255.*encoder impala"),
        ("picture", "'a' is a picture, .32, 40, 3., .*--network.encoder auto"),
        ("stack", "'observation', .4, 36, 36, 3., is read as a flat vector: a picture has three"),
        ("wide", "actions reach 500 to 500 .*--network.continuous tanh"),
    ],
)
def test_what_the_spaces_suggest_is_said(tmp_path, kind, says):
    config = small_config(tmp_path, env="test_train:Suggesting", env_options={"kind": kind})
    assert_says_first(config, says)


def test_a_mask_in_info_that_nothing_reads_is_said(tmp_path):
    config = small_config(tmp_path, env="masked:Locks", env_options={})
    assert_says_first(config, r'info\["action_mask"\] .*: --wrappers.action-mask info')
    read = dataclasses.replace(config, wrappers=WrapperConfig(action_mask="info"))
    in_entry = dataclasses.replace(config, env_options={"where": "entry"})
    for other in (read, in_entry):
        assert not list(train._unread(make_parts(other)))


def test_a_memory_learns_a_short_corridor(learned):
    result, _ = learned
    first, *_, last = clew.read_metrics(result.path)
    assert np.mean(first["success"]) < 0.7
    final = result.summary["final"]["success"]
    assert min(final["per_seed"]) > 0.95
    assert final["interval"][0] <= final["mean"] <= final["interval"][1]
    assert last["update"] == 320 and last["steps"] == 40_960


def test_greedy_and_sampled_evaluation(learned):
    result, _ = learned
    greedy = clew.evaluate(result.path, episodes=70)
    assert greedy.per_seed["success"] == [1.0, 1.0]
    assert greedy.per_seed["length"] == [3.0, 3.0]
    np.testing.assert_allclose(greedy.per_seed["return"], 3.8, rtol=1e-6)
    assert greedy == clew.evaluate(result.path, episodes=70)
    sampled = clew.evaluate(result.path, episodes=70, greedy=False, seed=1)
    assert sampled.success is not None and 0.9 < sampled.success.mean <= 1.0
    with pytest.raises(UserError, match="did not end within 2 steps"):
        clew.evaluate(result.path, episodes=1, max_steps=2)


def test_evaluation_on_another_task(learned):
    """The run's task with other options, or a task that looks the same; nothing else."""
    path = learned[0].path
    longer = clew.evaluate(path, episodes=4, env_options={"corridor_length": 6}, max_steps=2000)
    assert min(longer.per_seed["length"]) > 6
    same = clew.evaluate(path, episodes=4, env="tmaze", env_options={"corridor_length": 3})
    assert same.per_seed["length"] == [3.0, 3.0]
    with pytest.raises(UserError, match=r"do not fit this task: action was .* observation was"):
        clew.evaluate(path, episodes=1, env="memory_chain")
    with pytest.raises(UserError, match="unknown option of tmaze 'corridor'"):
        clew.evaluate(path, episodes=1, env_options={"corridor": 6})


@pytest.mark.slow
def test_evaluation_stays_in_its_kind_of_task(learned):
    with pytest.raises(UserError, match="one is written in JAX"):
        clew.evaluate(learned[0].path, episodes=1, env="gymnasium:clew/TMaze-v0")


def test_runs_and_scores_are_printed_in_a_few_lines() -> None:
    """As in the commands' output, not as long tuples."""
    final = {"per_seed": [0.5, 1.0], "mean": 0.75, "interval": [0.5, 1.0]}
    summary = {"memory": "gru", "env": "tmaze", "steps": 1280, "seeds": 2, "seconds": 2.0}
    summary |= {"rate": 1280.0, "final": {"return": final}, "best": []}
    said = str(train.RunResult(Path("runs/a b"), summary)).splitlines()
    assert said[0] == "gru on tmaze: 1,280 steps x 2 seeds in 2s (1,280 steps/s)"
    assert said[1] == "last tenth of training: return 0.75 [0.50, 1.00]"
    assert said[2:] == [
        f"[..] 95% interval, over {over_seeds(2)}",
        "next: clew evaluate 'runs/a b'",
    ]
    pooled = {"return": Interval(0.75, 0.5, 1.0), "success": Interval(0.5, 0.2, 0.8)}
    score = EvalResult(9, True, 1280, {"return": [0.75], "success": [0.5]}, pooled)
    assert str(score).splitlines() == [
        "9 episodes, greedy actions",
        "success: 0.500 [0.200, 0.800]",
        "return: 0.750 [0.500, 1.000]",
        "[..] 95% interval, over episodes",
    ]


def test_lengths_are_no_rates() -> None:
    """Even if all episodes have one step; successes have Wilson's interval."""
    ones = [np.ones(5)]
    assert interval("length", ones)[:] == (1.0, 1.0, 1.0)
    assert interval("success", ones).low == pytest.approx(0.566, abs=1e-3)


def test_a_loaded_policy_solves_the_gymnasium_form(learned):
    result, _ = learned
    import gymnasium

    import clew.envs.gymnasium_api

    policy = clew.Policy(clew.load(result.path, seed_index=1))
    env = gymnasium.make("clew/TMaze-v0", corridor_length=3)
    for cue in (0, 1):
        observation, _ = env.reset(seed=cue, options={"cue": cue})
        terminated, start, reward = False, True, 0.0
        while not terminated:
            action = policy(observation, start=start)
            observation, reward, terminated, _, _ = env.step(action)
            start = False
        assert reward == 4.0
    env.close()


def test_rows_hold_one_number_for_every_seed(learned):
    result, watch = learned
    rows = clew.read_metrics(result.path)
    assert watch.rows == rows
    assert [row["update"] for row in rows] == list(range(8, 321, 8))
    for row in rows:
        assert row["steps"] == row["update"] * STEPS_PER_UPDATE
        for name in ("loss", "policy_loss", "value_loss", "entropy", "value", "grad_norm"):
            assert len(row[name]) == 2 and np.isfinite(row[name]).all()
        for name in ("episodes", "success", "junction", "timeout", "return", "length"):
            assert len(row[name]) == 2
        weights = 0.5 * np.array(row["value_loss"]) - 0.01 * np.array(row["entropy"])
        np.testing.assert_allclose(row["loss"], row["policy_loss"] + weights, rtol=1e-3, atol=1e-5)


def test_a_folder_says_everything_about_its_run(learned, tmp_path):
    result, _ = learned
    text = json.loads((result.path / "config.json").read_text())
    chosen = {"devices": 1, "device_threads": "one"}
    assert config_from_json(text["config"]) == small_config(result.path.parent, "learned", **chosen)
    assert {"python", "clew", "jax", "jaxlib", "equinox", "optax", "numpy"} <= set(text["versions"])
    assert text["git_commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", text["git_commit"])
    assert json.loads((result.path / "summary.json").read_text()) == result.summary
    assert (result.path / "curve.png").is_file()
    # The fast tests do not draw curve.png itself.
    painted = plot_runs({"learned": clew.read_metrics(result.path)}, tmp_path / "painted.png")
    assert painted.stat().st_size > 1000
    assert len(list((result.path / "checkpoints").iterdir())) <= checkpoint.KEEP


def test_seeds_start_as_they_would_alone(learned):
    result, _ = learned
    both = init_run(make_parts(small_config(result.path, seed=5))).seed
    alone = init_run(make_parts(small_config(result.path, seed=6, seeds=1))).seed
    for a, b in zip(jax.tree.leaves(both), jax.tree.leaves(alone), strict=True):
        if jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a[1], b)


def test_numbers_that_are_none_stop_the_run_at_their_update(tmp_path):
    a2c = clew.A2CConfig(
        num_envs=2, rollout_length=4, learning_rate=1e30, max_grad_norm=None, value_cost=1e20
    )
    settings = {"memory": "none", "seeds": 1, "a2c": a2c, "checkpoint_seconds": 0.0}
    config = small_config(tmp_path, **settings, steps=8000)
    with pytest.raises(TrainingDiverged, match="learning_rate.*1e[+]30.*max_grad_norm") as stop:
        clew.train(config, progress=Watch())
    found = re.search(
        r"no longer finite at update (\d+); .*checkpoint is (\S+\.clew)", str(stop.value)
    )
    assert found is not None
    bad, kept = int(found[1]), checkpoint.read(Path(found[2]))
    assert 1 <= bad < 1000 and kept.meta["update"] < bad
    assert all(np.isfinite(x).all() for n, x in kept.leaves.items() if n.startswith("/seed/agent"))
    assert all(row["update"] < bad for row in clew.read_metrics(tmp_path / "run"))
    # The named update is the first: a run that ends before it is sound, and resumes into it.
    steps = (bad - 1) * config.steps_per_update
    if steps:
        sound = dataclasses.replace(config, name="sound", steps=steps)
        clew.train(sound, progress=Watch())
        state = last_state(tmp_path / "sound")
        assert all(np.isfinite(x).all() for n, x in state.items() if n.startswith("/seed/agent"))
        with pytest.raises(TrainingDiverged, match=f"at update {bad};"):
            clew.resume_run(tmp_path / "sound", steps=config.steps, progress=Watch())


def boundless(input_size: int, *, key: Any) -> clew.AbstractMemory:
    """A memory whose outputs are not finite."""
    memory = clew.make_memory("gru", input_size=input_size, key=key, hidden_size=4)
    return jax.tree.map(lambda weight: weight * jax.numpy.inf, memory)


def test_a_memory_of_ones_own_is_among_what_may_not_be_finite(tmp_path):
    memory = f"{__name__}:boundless"
    config = small_config(tmp_path, seeds=1, memory=memory, memory_options={})
    with pytest.raises(TrainingDiverged, match=f"outputs of {memory} that are not finite .clew ch"):
        clew.train(config, progress=Watch())


class Unseen(TMaze):
    """Half of its observations are NaN."""

    def step(self, state: Any, action: Any, key: Any) -> Any:
        after, transition = super().step(state, action, key)
        none = jax.random.bernoulli(key)
        seen = jax.numpy.where(none, jax.numpy.inf, transition.observation)
        return after, transition._replace(observation=seen)


def test_a_task_whose_observations_are_none_is_named_in_place_of_the_settings(tmp_path):
    task = f"{__name__}:Unseen"
    config = small_config(tmp_path, env=task, seeds=1, memory="none", steps=STEPS_PER_UPDATE)
    with pytest.raises(TrainingDiverged) as stop:
        clew.train(config, progress=Watch())
    said = str(stop.value)
    assert re.search(
        rf"; {task}: environment \d gave inf in its observation, \d+ steps into its episode$", said
    )
    assert "learning_rate" not in said


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"memory": "gruu"}, "unknown memory 'gruu'; did you mean 'gru'"),
        ({"memory_options": {"hiden_size": 3}}, "did you mean 'hidden_size'"),
        ({"memory_options": {"hidden_size": 0}}, "hidden_size must be .* at least 1, got 0"),
        ({"env": "tmase"}, "did you mean 'tmaze'"),
        ({"env_options": {"corridor_length": 1}}, "corridor_length .* at least 2, got 1"),
        ({"steps": 127}, "one rollout, 8 environments x 16 steps = 128, got 127"),
        ({"steps": 0}, "steps"),
        ({"seeds": 0}, "seeds"),
        ({"seed": -1}, "seed"),
        ({"log_every": 0}, "log_every"),
        ({"network": NetworkConfig(head_size=-1)}, "head_size"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds"),
        ({"a2c": clew.A2CConfig(learning_rate=-1.0)}, "learning_rate"),
        ({"name": "../elsewhere"}, "a folder name without a path"),
    ],
)
def test_impossible_settings_are_refused_before_anything_is_made(tmp_path, changes, told):
    with pytest.raises(UserError, match=told):
        clew.train(small_config(tmp_path / "runs", **changes), progress=Watch())
    assert not (tmp_path / "runs").exists()


def test_a_program_that_does_not_fit_is_refused_before_it_runs(tmp_path, monkeypatch):
    """XLA's plan of the program counts more than the memory's state alone."""
    plain = small_config(tmp_path, memory="none", memory_options={}, log_every=5)
    make_parts(plain)
    monkeypatch.setattr("clew.run.machine.physical_memory", lambda: 10**6)
    make_parts(plain)  # 10,000 parameters fit a megabyte
    with pytest.raises(
        UserError, match="at least .* GB of memory, .* has 0.0 GB: the compiled program"
    ):
        clew.train(plain, progress=Watch())


def test_a_run_without_a_name_gets_the_next_number(tmp_path):
    from clew.run.folder import new_folder

    config = small_config(tmp_path, "")
    assert [new_folder(config).name for _ in range(2)] == ["tmaze-gru-1", "tmaze-gru-2"]


def test_a_setting_of_a_newer_version_is_named():
    values = clew.TrainConfig().to_json() | {"planet": 1}
    with pytest.raises(UserError, match="unknown setting 'planet'"):
        config_from_json(values)


def test_plain_lines_tell_steps_rate_time_left_and_success(tmp_path, capsys):
    clew.train(small_config(tmp_path, steps=20 * STEPS_PER_UPDATE), progress=Lines(every=0.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{tmp_path / 'run'}: gru on tmaze, 2 seeds, 2560 steps"
    assert lines[1] == "compiling"
    assert re.fullmatch(r"compiled in \d+s", lines[2])
    assert re.fullmatch(
        r"2560/2560 steps \(100%\)  [\d,]+ steps/s  0s left  return -?\d+\.\d\d  success \d\.\d\d",
        lines[-1],
    )


def test_another_task_has_none_of_the_default_ones_options():
    assert TrainConfig().env_options == {"corridor_length": 20}
    assert TrainConfig(env="memory_chain").env_options == {}
    assert dataclasses.replace(TrainConfig(), env="memory_chain").env_options == {}
    asked = TrainConfig(env="memory_chain", env_options={"corridor_length": 20})
    with pytest.raises(UserError, match="corridor_length"):
        make_parts(asked)
