"""Training on Gymnasium environments learns every step once, correctly, and loses none."""

import contextlib
import itertools
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import clew
from clew.agents.learners import LEARNERS
from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.ppo import PPOConfig
from clew.agents.learners.pqn import PQNConfig
from clew.agents.learners.r2d2 import R2D2Config
from clew.agents.learners.sac import SACConfig
from clew.agents.network import NetworkConfig
from clew.bridges.gymnasium.task import GymnasiumTask
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact.host_rollout import RolloutStopped
from clew.interact.task import HostConfig
from clew.run import checkpoint
from clew.run.build import build_agent, make_parts, make_task
from clew.run.config import TrainConfig
from clew.run.evaluate import evaluate
from clew.run.hosted import HostProgram, make_learn
from clew.run.progress import Quiet
from clew.run.runner import EnvironmentFailed, TrainingDiverged
from clew.run.train import resume_run, train
from clew.run.updates import init_run
from slow_cases import fast_only
from small_run import BRIEF_REPLAY, Watch, newest

GAMMA = 0.5


class Counting(gymnasium.Env):
    """Shows the number of past steps, pays 1 a step, and ends after `length` of them."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 3, terminate: bool = False, fault: str = "", at: int = 5):
        self.length, self.terminate, self.fault, self.at = length, terminate, fault, at
        self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        over = self.time >= self.length
        if self.fault and self.np_random.random() < 1 / self.at:
            if self.fault == "raise":
                raise RuntimeError("the cart left its rails")
            return np.full(1, np.nan, np.float32), 1.0, False, False, {}
        observation = np.full(1, self.time, np.float32)
        return observation, 1.0, over and self.terminate, over and not self.terminate, {}


def counting(**options):
    return Counting(**options)


def counting_same_step(num_envs: int, **options):
    return SyncVectorEnv(
        [lambda: Counting(**options)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )


ON_POLICY: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 8,
    "learning_rate": 1e-2,
    "gamma": GAMMA,
    "lam": 0.0,
}
REPLAY: dict[str, Any] = BRIEF_REPLAY | {
    "burn_in": 0,
    "replay_steps": 512,
    "batch_size": 8,
    "learning_rate": 1e-2,
    "gamma": GAMMA,
}
STEADY = REPLAY | {"learning_rate": 3e-3}
"""Of the action that is rarely taken, and so rarely learned, the value would otherwise wander."""
REPLAYED = R2D2Config(**STEADY, adam_eps=1e-8, target_period=5, n_step=1)
SOFT = SACConfig(
    **REPLAY, gradient_steps=2, polyak=0.2, initial_temperature=1e-6, temperature_rate=0.0
)
"""Without a reward for its entropy, which these values do not include."""


def config_of(folder, factory: str = "counting", algorithm: str = "a2c", **changes) -> TrainConfig:
    settings = {
        "env": f"test_host_training:{factory}",
        "env_options": {},
        "memory": "none",
        "memory_options": {},
        "network": NetworkConfig(head_size=16),
        "algorithm": algorithm,
        "a2c": A2CConfig(**ON_POLICY),
        "ppo": PPOConfig(**ON_POLICY, sequence_length=4, minibatches=1),
        "pqn": PQNConfig(**ON_POLICY, sequence_length=4, minibatches=1),
        "r2d2": REPLAYED,
        "sac": SOFT,
        "steps": 32 * 200,
        "run_dir": str(folder),
        "log_every": 100,
    }
    settings |= changes
    others = {*LEARNERS} - {algorithm}
    return TrainConfig(**{name: value for name, value in settings.items() if name not in others})


def values_of(path, times) -> list[float]:
    agent = clew.load(path)
    shown = jnp.asarray(times, jnp.float32)[:, None]
    starts = jnp.asarray([t == 0 for t in times])
    return np.asarray(agent.unroll(agent.init_state(), shown, starts)[1].value).tolist()


def test_a_program_that_does_not_fit_is_refused_before_it_runs(tmp_path, monkeypatch):
    """It has more arrays than the parameters and the state, which are counted beforehand."""
    config = config_of(tmp_path)
    make_parts(config)
    monkeypatch.setattr("clew.run.machine.physical_memory", lambda: 300_000)
    make_parts(config)
    with pytest.raises(UserError, match="GB of memory, .* the compiled program holds that much"):
        train(config, progress=Quiet())


QUICK = [("ppo", False, "counting")]
UPDATES = {"async": 500, "r2d2": 400}
"""Lagging actors, on a busy machine, and the steady rate of R2D2 learn more slowly."""


@pytest.mark.parametrize(
    ("learner", "terminate", "factory"),
    fast_only(
        itertools.product((*LEARNERS, "async"), (False, True), ("counting", "counting_same_step")),
        *QUICK,
    ),
)
def test_values_tell_truncation_from_termination(tmp_path, learner, terminate, factory):
    """One more step always pays 1, at GAMMA: 1 + 1/2 + 1/4 + ... unless the episode terminates.

    Truncated after three steps, the value is 2 at all times that are used in learning; after a
    termination it is 1 + 1/2 + 1/4, 1 + 1/2, 1. A learner that confuses the two, or learns from the
    step between two episodes, whose reward is 0, has other values.
    """
    config = config_of(
        tmp_path,
        factory,
        "ppo" if learner == "async" else learner,
        env_options={"length": 3, "terminate": terminate},
        runner="async" if learner == "async" else "sync",
        steps=32 * UPDATES.get(learner, 200),
    )
    result = train(config, progress=Quiet())
    assert result.summary["final"]["return"]["mean"] == 3
    assert result.summary["final"]["length"]["mean"] == 3
    found = values_of(result.path, [0, 1, 2])
    if terminate:
        np.testing.assert_allclose(found, [1.75, 1.5, 1.0], atol=0.1)
    else:
        # The value of the final observation is no target itself: the others depend on it.
        last = values_of(result.path, [3])[0]
        expected = [1 + GAMMA * (1 + GAMMA * (1 + GAMMA * last)), 1 + GAMMA * (1 + GAMMA * last)]
        np.testing.assert_allclose(found, [*expected, 1 + GAMMA * last], atol=0.1)


@pytest.mark.parametrize("algorithm", fast_only(["a2c", "ppo"], "ppo"))
def test_a_resumed_run_goes_on(tmp_path, algorithm):
    wrappers = WrapperConfig(normalise_observations=True, normalise_rewards=True)
    config = config_of(tmp_path, algorithm=algorithm, wrappers=wrappers, steps=32 * 20, name="run")
    first = train(config, progress=Quiet())
    again = resume_run(first.path, steps=32 * 40, progress=Quiet())
    assert again.summary["steps"] == 32 * 40
    statistics = init_run(make_parts(config)).seed.actor.statistics
    assert statistics["observation"]  # there are statistics to keep
    played = evaluate(first.path, episodes=20)
    assert played.pooled["return"].mean == 3 and played.episodes == 20


@pytest.mark.slow
def test_seeds_have_environments_and_statistics_of_their_own(tmp_path):
    wrappers = WrapperConfig(normalise_observations=True)
    config = config_of(tmp_path, seeds=2, wrappers=wrappers, steps=32 * 6, memory="gru")
    result = train(config, progress=Quiet())
    both = [clew.load(result.path, index) for index in range(2)]
    leaves = [jax.tree.leaves(agent.heads) for agent in both]
    assert any((a != b).any() for a, b in zip(*leaves, strict=True))
    assert len(evaluate(result.path, episodes=3).per_seed["return"]) == 2


def test_environments_that_raise_are_opened_anew(tmp_path):
    options = {"fault": "raise", "at": 300}
    config = config_of(tmp_path, env_options=options, steps=32 * 40, host=HostConfig(restarts=100))
    watch = Watch()
    result = train(config, progress=watch)
    assert result.summary["steps"] == 32 * 40
    faults = [line for line in watch.messages if "the cart left its rails" in line]
    assert len(faults) >= 1 and "reopened (1 of at most 100 times)" in faults[0]


@pytest.mark.parametrize("fault", ["raise", "nan"])
def test_a_fault_that_is_not_survived_saves_the_run(tmp_path, fault):
    host = HostConfig(restarts=0)
    options = {"fault": fault, "at": 200}
    config = config_of(tmp_path, env_options=options, host=host, name="run")
    with pytest.raises(EnvironmentFailed) as error:
        train(config, progress=Quiet())
    text = str(error.value)
    assert "test_host_training:counting" in text and "resume with: clew train --resume" in text
    assert ("the cart left its rails" if fault == "raise" else "observation") in text
    agent = clew.load(tmp_path / "run")
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(agent) if hasattr(x, "shape"))


class Loud(Counting):
    """Shows a number that float16 cannot hold, and pays the action."""

    observation_space = gymnasium.spaces.Box(0, 2e5, (1,), np.float32)

    def __init__(self, action_space):
        super().__init__()
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0] + 1e5, {}

    def step(self, action):
        _, _, terminated, truncated, info = super().step(action)
        return np.full(1, 1e5, np.float32), float(np.sum(action)), terminated, truncated, info


def loud(continuous: bool = False):
    box = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    return Loud(box if continuous else gymnasium.spaces.Discrete(2))


@pytest.mark.parametrize("continuous", [False, True])
def test_what_half_precision_cannot_hold_is_named(tmp_path, continuous):
    """Whether the loss or, before it, an action is NaN."""
    network = NetworkConfig(encoder="mlp", precision="float16")
    options = {"continuous": continuous}
    config = config_of(tmp_path, "loud", env_options=options, network=network, name="run")
    expected = EnvironmentFailed if continuous else TrainingDiverged
    with pytest.raises(expected, match="beyond 65,504, the limit of network.precision=float16"):
        train(config, progress=Quiet())


@pytest.mark.slow
def test_a_fault_leaves_the_state_of_the_last_update(tmp_path):
    config = config_of(tmp_path, env_options={"fault": "raise", "at": 120}, memory="gru")
    parts = make_parts(config)
    program = HostProgram(parts, parts.task)
    state = init_run(parts)
    try:
        state = program(state, 30)
    finally:
        program.close()
    assert int(state.update) == 30 and program._budget.used > 0
    assert bool(state.seed.finite)


def test_playing_takes_the_processes_of_the_run(tmp_path, monkeypatch):
    """As many as divide the environments equally; the results are those without processes."""
    found, opened = [], []
    plain = GymnasiumTask.open

    def open_stream(task, num_envs, *, processes=0, **how):
        opened.append((num_envs, processes))
        return plain(task, num_envs, processes=processes, **how)

    monkeypatch.setattr(GymnasiumTask, "open", open_stream)
    for processes in (0, 6):
        config = config_of(tmp_path, host=HostConfig(processes=processes))
        task = make_task(config)
        params, static = eqx.partition(build_agent(config, task, jax.random.key(0)), eqx.is_array)
        play = task.evaluator(static, greedy=True, max_steps=100)
        found.append(play(params, task.statistics(), 4, (3, 0)))
    assert opened == [(4, 0), (4, 2)]
    np.testing.assert_array_equal(found[0]["return"], found[1]["return"])


@pytest.mark.parametrize("factory", ["counting", "counting_same_step"])
def test_moments_of_one_environment_are_those_of_a_vector_of_one(tmp_path, factory):
    """An export's golden episode needs one environment, whatever builds it."""
    moments = make_task(config_of(tmp_path, factory)).moments(lambda *_, **__: 0, longest=9)
    found = list(itertools.islice(moments, 30))
    assert sum(moment.start for moment in found) > 2
    assert [m.observation.tolist() for m in found] == [
        m.observation.tolist()
        for m in itertools.islice(
            make_task(config_of(tmp_path)).moments(lambda *_, **__: 0, longest=9), 30
        )
    ]


def test_a_stop_drops_the_rollout_in_progress(tmp_path):
    """Finishing it may take minutes; the state is that of the last complete update."""
    parts = make_parts(config_of(tmp_path))
    asked = itertools.count(1)
    length = parts.config.learning.rollout_length
    program = HostProgram(parts, parts.task, stopped=lambda: next(asked) > 2 * length + 3)
    with contextlib.closing(program), pytest.raises(RolloutStopped):
        program(init_run(parts), 30)
    assert int(program.state.update) == 2 and next(asked) == 2 * length + 5


def test_learning_that_raises_leaves_the_newest_checkpoint(tmp_path, monkeypatch):
    """The learner's state was donated; the error says from where the run can be resumed."""

    def failing(parts):
        learn, calls = make_learn(parts), itertools.count(1)

        def once(*given):
            made = learn(*given)
            if next(calls) == 7:
                raise RuntimeError("the device was lost")
            return made

        return once

    config = config_of(tmp_path, name="run", steps=32 * 12, log_every=4, checkpoint_seconds=0.0)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="was lost") as caught:
        patch.setattr("clew.run.hosted.make_learn", failing)
        train(config, progress=Quiet())
    kept = newest(tmp_path / "run")
    steps = 32 * checkpoint.read(kept).meta["update"]
    said = f"The run is saved after {steps} steps; resume with: clew train --resume"
    assert caught.value.__notes__[0].startswith(said)
    assert train(resume=tmp_path / "run", progress=Quiet()).summary["steps"] == 32 * 12


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"host": HostConfig(processes=3)}, "host.processes must divide num_envs, got 3"),
        (
            {"env": "labelled:Blind", "wrappers": WrapperConfig(video_every=1)},
            "video_every needs the render mode",
        ),
        ({"host": HostConfig(timeout=0)}, "timeout must be a finite number above 0"),
        ({"a2c": A2CConfig(whole_episodes=True)}, "whole_episodes needs a task written in JAX"),
        ({"env": "tmaze", "wrappers": WrapperConfig(frame_skip=2)}, "tmaze is a JAX task"),
        ({"env": "gymnasium:CartPol-v1"}, "CartPole"),
    ],
)
def test_impossible_settings_are_named(tmp_path, changes, text):
    with pytest.raises(UserError, match=text):
        make_parts(config_of(tmp_path, **changes))


class Stubborn(Counting):
    """Cannot be opened at the first attempt."""

    tries = 0

    def reset(self, *, seed=None, options=None):
        Stubborn.tries += 1
        if Stubborn.tries == 1:
            raise RuntimeError("the rails are frozen")
        return super().reset(seed=seed, options=options)


def stubborn():
    return Stubborn()


def test_a_fault_at_the_very_first_opening_is_survived_too(tmp_path):
    Stubborn.tries = 0
    parts = make_parts(config_of(tmp_path, "stubborn"))
    program = HostProgram(parts, parts.task)
    try:
        assert int(program(init_run(parts), 1).update) == 1
    finally:
        program.close()
    assert program._budget.used == 1 and Stubborn.tries > 1
