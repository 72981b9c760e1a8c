"""Action masks of Gymnasium environments: where they are read, what is refused, learning."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import NetworkConfig
from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream
from clew.bridges.gymnasium.task import gymnasium_task
from clew.envs.spaces import BARE, MASK, ActionMask
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact.task import PlayConfig
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.build import make_task
from clew.run.config import TrainConfig
from clew.run.load import load_agent
from clew.run.runner import EnvironmentFailed
from masked import Locks
from slow_cases import fast_only
from small_run import Watch

IN_TRIALS = WrapperConfig(action_mask="info", trial_episodes=3)
INFO, ENTRY = WrapperConfig(action_mask="info"), WrapperConfig(action_mask="allowed")
KINDS: dict[str, tuple[str, WrapperConfig, dict[str, Any]]] = {
    "info": ("masked:Locks", INFO, {}),
    "entry": ("masked:Locks", ENTRY, {"where": "entry"}),
    "several": ("masked:Locks", INFO, {"sizes": (3, 2)}),
    "parts": ("masked:Locks", INFO, {"sizes": (3, 2), "where": "parts"}),
    "no last": ("masked:Locks", INFO, {"bare": True}),
    "vector": ("masked:together", INFO, {}),
    "vector, same step": ("masked:together", INFO, {"mode": "SameStep", "bare": True}),
    "vector, same step, final": ("masked:together", INFO, {"mode": "SameStep"}),
    "vector, entry": ("masked:together", ENTRY, {"mode": "SameStep", "where": "entry"}),
}


def play(stream: GymnasiumStream, steps: int = 40) -> list[GymnasiumStep]:
    """Steps with random allowed actions."""
    rng, timesteps = np.random.default_rng(0), [stream.reset(0)]
    space: Any = stream.action_space
    sizes = [space.n] if isinstance(space, spaces.Discrete) else space.nvec
    ends = np.cumsum(sizes)[:-1]
    for _ in range(steps):
        seen: Any = timesteps[-1].observation
        parts = np.split(seen[MASK], ends, axis=1)
        actions = [(part * rng.random(part.shape)).argmax(axis=1) for part in parts]
        timesteps.append(stream.step(actions[0] if len(parts) == 1 else np.stack(actions, axis=1)))
    return timesteps


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_shows_the_mask(kind: str) -> None:
    """The environments raise at a forbidden action; an end without a mask allows all actions."""
    name, wrappers, options = KINDS[kind]
    task = gymnasium_task(name, options)
    with task.open(3, seed=0, wrappers=wrappers) as stream:
        space: Any = task.observed(wrappers)
        assert space == stream.observation_space and isinstance(space[MASK], ActionMask)
        assert space[BARE] == spaces.Box(-1, 1, (2,), np.float32)
        timesteps = play(stream)
    free, ends = 0, []
    for step in timesteps:
        seen: Any = step.observation
        assert seen[MASK].dtype == bool and set(seen) == {BARE, MASK}
        ends.append(seen[MASK][step.last])
        free += seen[MASK].all(axis=1).sum()
        if step.final is not None:
            cut, final = step.final
            ends.append(final[MASK][cut])
    at_ends = np.concatenate(ends)
    assert at_ends.any(axis=1).all() and at_ends.all() == options.get("bare", False)
    assert sum(step.start.sum() for step in timesteps) > 10 and free < 3 * len(timesteps)


def test_wrappers_leave_the_mask_alone() -> None:
    wrappers = replace(INFO, keep=(1,), normalise_observations=True, previous=True)
    with gymnasium_task("masked:Locks").open(2, seed=0, wrappers=wrappers) as stream:
        timesteps = play(stream)
        assert stream.observation_space[BARE].shape == (1,)
    with gymnasium_task("masked:Locks").open(2, seed=0, wrappers=INFO) as stream:
        plain = play(stream)
    for one, other in zip(timesteps, plain, strict=True):
        seen, expected = (step.observation for step in (one, other))
        np.testing.assert_array_equal(seen[MASK], expected[MASK])
        assert set(seen) == {BARE, MASK, "previous_action", "previous_reward"}


@pytest.mark.parametrize("kind", ["info", "entry", "several", "parts", "no last"])
def test_a_forbidden_action_is_not_repeated(kind: str) -> None:
    """The environments raise at a forbidden action; some actions are repeated once."""
    name, wrappers, options = KINDS[kind]
    task = gymnasium_task(name, options)
    with task.open(3, seed=0, wrappers=replace(wrappers, frame_skip=2)) as stream:
        ended = [step for step in play(stream) if step.ended.any()]
    # The t-th step of an episode earns t, so its return shows how many there were.
    steps = [np.sqrt(2 * s.metrics["return"] + 0.25) - 0.5 for s in ended]
    counted = np.concatenate([n[s.ended] for n, s in zip(steps, ended, strict=True)])
    seen = np.concatenate([s.metrics["length"][s.ended] for s in ended])
    assert (seen <= counted).all() and (seen >= counted / 2).all()
    assert (seen > np.ceil(counted / 2)).any() and (seen < counted).any()


@pytest.mark.slow
def test_processes_give_the_same() -> None:
    """The mask is passed through shared memory."""
    task = gymnasium_task("masked:Locks", {"sizes": (3, 2)})
    found = []
    for processes in (0, 2):
        with task.open(4, seed=0, wrappers=INFO, processes=processes) as stream:
            found.append(play(stream, 12))
    for one, other in zip(*found, strict=True):
        for name in (BARE, MASK):
            np.testing.assert_array_equal(one.observation[name], other.observation[name])


WRONG = {
    "nothing": "environment 0 gave an action mask that allows no action, 2 steps into its episode",
    "missing": "environment 0.*info has no 'action_mask', expected 4 numbers",
    "value": "environment 0.*has a value 2, expected zeros and ones",
    "shape": r"environment 0.* has shape \[3\] and type int8, expected 4 numbers",
    "type": r"environment 0.* has shape \[4\] and type <U4, expected 4 numbers",
}
REFUSED = [("masked:Locks", wrong) for wrong in WRONG]
REFUSED += [("masked:together", wrong) for wrong in ("nothing", "missing", "value")]


@pytest.mark.parametrize(("name", "wrong"), REFUSED)
def test_what_is_no_mask_is_refused(name: str, wrong: str) -> None:
    """The error comes at once, with the environment's number."""
    with gymnasium_task(name, {"wrong": wrong}).open(2, seed=0, wrappers=INFO) as stream:
        stream.reset(0)
        stream.step(np.zeros(2, int))
        with pytest.raises(EnvironmentFault, match=WRONG[wrong]) as fault:
            stream.step(np.zeros(2, int))
    assert fault.value.field == MASK and fault.value.env == name


def test_settings_that_do_not_fit_are_refused() -> None:
    locks = gymnasium_task("masked:Locks", {"where": "entry"})
    with pytest.raises(UserError, match="'mask' of the observation, which has allowed, observ"):
        locks.observed(WrapperConfig(action_mask="mask"))
    with pytest.raises(UserError, match=r"'observation' has shape \[2\], expected \[4\]"):
        locks.observed(WrapperConfig(action_mask=BARE))
    with pytest.raises(UserError, match="show_action_mask needs a mask"):
        locks.observed(WrapperConfig(show_action_mask=True))
    with pytest.raises(UserError, match="for Discrete and MultiDiscrete actions"):
        gymnasium_task("gymnasium:Pendulum-v1").observed(INFO)


def config_of(folder: Any, kind: str = "info", **changes: Any) -> TrainConfig:
    """Four updates of a small agent."""
    name, wrappers, options = KINDS[kind]
    settings: dict[str, Any] = {
        "env": name,
        "env_options": options,
        "wrappers": wrappers,
        "memory": "gru",
        "memory_options": {"hidden_size": 4},
        "network": NetworkConfig(head_size=4),
        "algorithm": "ppo",
        "ppo": PPOConfig(num_envs=4, rollout_length=8, sequence_length=8, minibatches=2, epochs=1),
        "steps": 128,
        "log_every": 2,
        "run_dir": str(folder),
        "name": "run",
    }
    return TrainConfig(**settings | changes)


@pytest.mark.parametrize("kind", fast_only(["info", "several", "vector, entry"], "info"))
def test_an_agent_trains_and_plays_in_every_form(tmp_path: Any, kind: str) -> None:
    """The environment raises if a forbidden action is taken."""
    path = clew.train(config_of(tmp_path, kind), progress=Watch()).path
    for greedy in (True, False):
        clew.evaluate(path, episodes=20, greedy=greedy)
    loaded = load_agent(path)
    task = make_task(loaded.config)
    how = PlayConfig(5, greedy=False)
    assert task.episodes(loaded.agent, how, loaded.statistics).number == 5
    films = list(task.recordings(loaded.agent, how, loaded.statistics))
    assert len(films) == 5 and {film.ended for film in films} <= {"terminated", "truncated"}
    if kind != "vector, entry":
        assert play_policy(path, KINDS[kind][2]) > 10


def play_policy(path: Any, options: dict[str, Any]) -> int:
    """Steps of a loaded policy in an environment that raises at a forbidden action."""
    env, steps = Locks(**options), 0
    for greedy in (True, False):
        policy: Any = clew.load_policy(path, greedy=greedy)
        observation, info = env.reset(seed=0)
        for episode in range(6):
            observation, info = env.reset(seed=episode)
            start, ended = True, False
            while not ended:
                action = policy(observation, start=start, action_mask=info[MASK])
                observation, _, terminated, truncated, info = env.step(action)
                start, ended, steps = False, terminated or truncated, steps + 1
        with pytest.raises(UserError, match=r'action_mask=info\["action_mask"\]'):
            policy(observation, start=True)
        with pytest.raises(UserError, match="the policy got an action mask that allows no action"):
            policy(observation, start=True, action_mask=0 * info[MASK])
        with pytest.raises(UserError, match=r"has shape \[1\]"):
            policy(observation, start=True, action_mask=np.ones(1, bool))
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("wrappers", [INFO, IN_TRIALS], ids=["episodes", "trials"])
def test_asynchronous_actors_mask(tmp_path: Any, wrappers: WrapperConfig) -> None:
    """In trials, too; in turns mode they train exactly as one process does."""
    ways: dict[str, Any] = {"sync": {}, "async": {"asynchronous": AsyncConfig(serial=True)}}
    found = [
        clew.train(
            config_of(tmp_path, name=n, runner=n, wrappers=wrappers, **how), progress=Watch()
        )
        for n, how in ways.items()
    ]
    first, second = (run.summary["final"] for run in found)
    assert first["return"]["mean"] == second["return"]["mean"]
    assert ("return_3" in first) == wrappers.trials


@pytest.mark.slow
def test_within_a_trial_the_mask_is_that_of_the_next_episode(tmp_path: Any) -> None:
    """The environments raise at an action that is forbidden in the running episode."""
    with gymnasium_task("masked:Locks").open(3, seed=0, wrappers=IN_TRIALS) as stream:
        timesteps = play(stream)
    opened = [step.observation["previous_ended"][:, 0].astype(bool) for step in timesteps]
    allowed = np.concatenate(
        [s.observation[MASK][o] for s, o in zip(timesteps, opened, strict=True)]
    )
    assert len(allowed) > 10 and not allowed.all(axis=1).all()
    assert sum(step.ended.sum() for step in timesteps) > 3
    path = clew.train(config_of(tmp_path, wrappers=IN_TRIALS), progress=Watch()).path
    for greedy in (True, False):
        clew.evaluate(path, episodes=5, greedy=greedy)


def test_a_run_ends_at_once_with_a_mask_of_nothing(tmp_path: Any) -> None:
    config = config_of(tmp_path, env_options={"wrong": "nothing"})
    with pytest.raises(EnvironmentFailed, match="Locks: environment .* allows no action, 2 steps"):
        clew.train(config, progress=Watch())
