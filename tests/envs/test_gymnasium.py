"""The Gymnasium form of the T-Maze passes Gymnasium's checker and follows the same rules."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from clew.bridges.make import make_env
from clew.envs import ENVS, TMaze
from clew.envs.gymnasium_api import JaxTaskEnv, register, task_ids
from clew.envs.tmaze import DISTRACTOR_BITS, DOWN, LEFT, RIGHT, UP
from clew.errors import UserError
from oracles.tmaze import TMazeOracle
from slow_cases import fast_only

ENV_ID = "clew/TMaze-v0"
COMPILE_LONG = {"clew/PixelMaze-v0", "clew/LabyrinthExplore-v0"}


def make(**options: Any) -> gymnasium.Env:
    """The registered environment."""
    return gymnasium.make(ENV_ID, **options)


@pytest.mark.parametrize("rule", ["terminate", "truncate"])
@pytest.mark.parametrize("length", [2, 120, 300])
def test_gymnasium_finds_nothing_to_complain_about(length, rule):
    # Warnings are errors here, so a warning of the checker fails too.
    check_env(make(corridor_length=length, on_time_limit=rule).unwrapped)


def test_registered_once_and_by_the_one_line_form():
    register()
    env = gymnasium.make(f"clew.envs.gymnasium_api:{ENV_ID}", corridor_length=300)
    assert isinstance(env.unwrapped, JaxTaskEnv) and isinstance(env.unwrapped.task, TMaze)
    assert env.observation_space.shape == (17,)


@pytest.mark.parametrize("rule", ["terminate", "truncate"])
def test_random_episodes_equal_the_transcription(rule):
    env = make(corridor_length=6, time_limit=17, on_time_limit=rule)
    rng = np.random.default_rng(0)
    ends = set()
    for episode in range(60):
        observation, info = env.reset(seed=episode)
        oracle = TMazeOracle(6, 17, rule == "truncate", info["cue"])
        assert not observation[-DISTRACTOR_BITS:].any()
        expected = (0.0, False, False, {})
        while not (expected[1] or expected[2]):
            np.testing.assert_array_equal(observation[:-DISTRACTOR_BITS], oracle.observation())
            action = rng.choice(4, p=[0.15, 0.15, 0.1, 0.6])
            expected = oracle.step(int(action))
            observation, *answer, info = env.step(action)
            assert tuple(answer) == expected[:3]
            assert {name: float(info[name]) for name in expected[3]} == expected[3]
        ends.add(tuple(expected[3].values()))
    assert len(ends) == 4, "success, wrong turn, time-out in the corridor and at the junction"


@pytest.mark.parametrize("cue", [0, 1, np.int64(1)])
def test_the_cue_can_be_forced(cue):
    env = make(corridor_length=4)
    for seed in range(8):
        observation, info = env.reset(seed=seed, options={"cue": cue})
        assert info["cue"] == cue
        assert observation[:2].tolist() == ([0.0, 1.0] if cue == 0 else [1.0, 0.0])
    for _ in range(3):
        env.step(RIGHT)
    *_, reward, terminated, truncated, info = env.step(UP if cue == 0 else DOWN)
    assert (reward, terminated, truncated, info["success"]) == (4.0, True, False, True)


def test_the_seed_decides_cue_and_distractors():
    env = make()
    first, _ = env.reset(seed=3)
    assert first[:2].tolist() == [1.0, 0.0]  # as in the authors' published code
    drawn = [env.step(LEFT)[0] for _ in range(20)]
    env.reset(seed=3, options={"cue": 0})
    forced = [env.step(LEFT)[0] for _ in range(20)]
    np.testing.assert_array_equal(drawn, forced)
    assert 0.3 < np.array(drawn)[:, -DISTRACTOR_BITS:].mean() < 0.7
    cues = [env.reset()[1]["cue"] for _ in range(200)]
    assert 70 < sum(cues) < 130


@pytest.mark.parametrize(
    ("rule", "flags"), [("terminate", (True, False)), ("truncate", (False, True))]
)
def test_the_time_limit_ends_the_episode_by_its_rule(rule, flags):
    env = make(on_time_limit=rule)
    env.reset(seed=0)
    for _ in range(999):
        _, reward, terminated, truncated, info = env.step(LEFT)
        assert (reward, terminated, truncated, info["timeout"]) == (-0.1, False, False, False)
    _, _, terminated, truncated, info = env.step(LEFT)
    assert (terminated, truncated) == flags
    assert (info["timeout"], info["junction"], info["success"]) == (True, False, False)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(LEFT)


def test_vector_environments_open_the_next_episode():
    envs = gymnasium.make_vec(ENV_ID, num_envs=3, corridor_length=2, vectorization_mode="sync")
    observation, _ = envs.reset(seed=0)
    assert observation.shape == (3, 16)
    envs.step(np.full(3, RIGHT))
    _, _, terminated, _, _ = envs.step(np.full(3, UP))
    observation, *_ = envs.step(np.full(3, UP))
    assert terminated.all() and (observation[:, :2].sum(1) == 1).all()
    envs.close()


def test_a_process_forked_from_one_that_stepped_is_refused():
    """It would wait forever for JAX's threads, which a fork does not copy."""
    make().reset(seed=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)  # as a forked child sees its parent's record
        with pytest.raises(UserError, match="start it with 'spawn' or 'forkserver'"):
            make().reset(seed=0)


@pytest.mark.filterwarnings("ignore:.*Box observation space")  # a task may not know its bounds
@pytest.mark.filterwarnings("ignore:.*symmetric and normalized")  # Pendulum's torque is up to 2
@pytest.mark.filterwarnings("ignore:.*rendering should produce")  # a task may draw nothing
@pytest.mark.parametrize("name", fast_only(task_ids(), *(set(task_ids()) - COMPILE_LONG)))
def test_every_task_has_a_gymnasium_form(name):
    env = gymnasium.make(name)
    assert env.spec is not None and env.spec.max_episode_steps is None
    check_env(env.unwrapped)
    assert env.unwrapped.task == ENVS[task_ids()[name]]()  # type: ignore[attr-defined]


def test_it_draws_a_line_of_text():
    env = make(corridor_length=5, render_mode="ansi")
    env.reset(seed=0, options={"cue": 1})
    assert env.render() == "|A---T| position 0 of 4, step 0, cue down\n"
    for _ in range(4):
        env.step(RIGHT)
    assert env.render() == "|----A| position 4 of 4, step 4, cue hidden\n"
    assert JaxTaskEnv("tmaze").render() is None


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("tmase", {}, "unknown task 'tmase'; did you mean 'tmaze'"),
        ("tmaze", {"corridor_length": 1}, "corridor_length must be an integer of at least 2"),
        ("tmaze", {"corridor": 3}, "option of tmaze 'corridor'; did you mean 'corridor_length'"),
        ("tmaze", {"render_mode": "human"}, "unknown render_mode 'human'"),
    ],
)
def test_impossible_settings_are_refused(task, options, message):
    with pytest.raises(UserError, match=message):
        JaxTaskEnv(task, **options)


def test_a_task_that_is_already_made():
    """Also one of another package, which has no name in `ENVS`."""
    env, named = (
        JaxTaskEnv(make_env("memory_chain", memory_length=3)),
        JaxTaskEnv("memory_chain", memory_length=3),
    )
    for played in (env, named):
        played.reset(seed=3)
    for action in (0, 1, 0, 1):
        for found, expected in zip(env.step(action), named.step(action), strict=True):
            np.testing.assert_equal(found, expected)
    with pytest.raises(UserError, match="already made takes no options, got {'memory_length': 3}"):
        JaxTaskEnv(make_env("memory_chain"), memory_length=3)


@pytest.mark.parametrize("cue", [2, -1, "up", 0.5, True])
def test_impossible_cues_are_refused(cue):
    with pytest.raises(UserError, match="cue must be 0 .turn up. or 1 .turn down., got"):
        make().reset(options={"cue": cue})


def test_impossible_options_and_actions_are_refused():
    env = JaxTaskEnv("tmaze")
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(RIGHT)
    with pytest.raises(UserError, match="reset option of tmaze 'kue'; did you mean 'cue'"):
        env.reset(options={"kue": 1})
    env.reset()
    for action in (4, -1, 1.5, "up", None):
        with pytest.raises(UserError, match="action must be an integer from 0 to 3 .* got"):
            env.step(action)  # type: ignore[arg-type]


UNEVEN = [[1], [1, 2]]


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("endless_tmaze", "cues"),
        ("bandit", "probabilities"),
        ("battleship", "ships"),
        ("mine_sweeper", "mines"),
        ("multiarmed_bandit", "probabilities"),
    ],
)
@pytest.mark.parametrize("given", [UNEVEN, "some"])
def test_what_is_no_array_forces_no_episode(task, name, given):
    with pytest.raises(UserError, match=f"{name} must be .*, got"):
        JaxTaskEnv(task).reset(options={name: given})


@pytest.mark.parametrize(
    ("task", "actions", "fits"),
    [
        ("position_only_pendulum", ([1.0, 2.0], "up", None, [np.nan], UNEVEN), [5.0]),
        ("mine_sweeper", (3, [1, 2, 3], [0.5, 1.0], "up", None), [99, -1]),
    ],
)
def test_actions_that_are_no_choice_have_their_shape_and_kind(task, actions, fits):
    """They gave NaN, truncated values or tracebacks; those beyond the limits are clipped."""
    env = JaxTaskEnv(task)
    env.reset(seed=0)
    for action in actions:
        with pytest.raises(UserError, match="action must have .* numbers, shape .*, got"):
            env.step(action)
    observation, *_ = env.step(fits)
    assert np.isfinite(observation).all()
