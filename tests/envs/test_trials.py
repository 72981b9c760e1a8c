"""Trials of JAX tasks, and the two tasks that are made for them."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from task_values import dark_room_return

from clew.agents.trajectory import reread
from clew.bridges.make import make_env
from clew.envs import AutoReset, Bandit, DarkRoom, Environment
from clew.envs.trials import SeparateEpisodes, Trials, episode_groups, return_names
from clew.envs.wrappers import KeptEntries, WrapperConfig, wrap
from clew.errors import UserError
from clew.interact import make_task
from clew.interact.episodes import Rendered
from clew.interact.rollout import init_actor, rollout
from oracles import bandit
from oracles.dark_room import DarkRoomOracle, TrialOracle
from streams import agent_on, roll

ACTIONS = np.random.default_rng(0).integers(0, 5, 60)


def play(env: Environment, actions: np.ndarray, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """States before each step, and transitions; the last state is the one after all of them."""
    step, key = jax.jit(env.step), jax.random.key(seed)
    state, observation = env.reset(key)
    states, told = [state], [observation]
    for time, action in enumerate(actions):
        state, transition = step(state, jnp.int32(action), jax.random.fold_in(key, time))
        states.append(state)
        told.append(transition)
    return jax.device_get(states), jax.device_get(told)


def room(goal: Any, place: Any, size: int = 3, limit: int = 5) -> DarkRoomOracle:
    return DarkRoomOracle(size, limit, tuple(map(int, goal)), tuple(map(int, place)))


@pytest.mark.parametrize("start", ["centre", "random"])
def test_the_dark_room_is_the_oracle_s(start):
    env = DarkRoom(4, time_limit=60, start=start)
    states, (seen, *told) = play(env, ACTIONS, seed=3)
    oracle = room(states[0].goal, states[0].place, 4, 60)
    assert oracle.goal != oracle.place
    assert start == "random" or oracle.place == (1, 1)
    np.testing.assert_array_equal(seen, oracle.observation())
    for action, then in zip(ACTIONS, told, strict=True):
        reward, terminated, metrics = oracle.step(int(action))
        assert (then.reward, then.terminated, then.truncated) == (reward, terminated, False)
        assert then.metrics == metrics
        np.testing.assert_array_equal(then.observation, oracle.observation())
    assert oracle.found


def test_goals_and_starts_are_uniform_over_all_places_but_each_other():
    env = DarkRoom(3, start="random")
    state, _ = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 7200))
    pairs = np.asarray(state.place) @ [27, 9] + np.asarray(state.goal) @ [3, 1]
    counts = np.bincount(pairs, minlength=81)
    assert (counts[[10 * i for i in range(9)]] == 0).all()
    assert counts[counts > 0].size == 72 and counts[counts > 0].min() > 60


def test_what_a_known_goal_earns():
    assert dark_room_return(3, 5) == pytest.approx((4 * 5 + 4 * 4) / 8)
    assert dark_room_return(2, 1) == pytest.approx(2 / 3)
    assert round(dark_room_return(9, 20), 2) == 16.5


def test_the_bandit_is_the_oracle_s():
    env, key = Bandit(3), jax.random.key(5)
    state, seen = env.reset_to(np.array([0.2, 0.9, 0.5], np.float32))
    arms = np.asarray(state.probabilities).tolist()
    assert not seen.any()
    paid = []
    for time, action in enumerate(ACTIONS):
        now = jax.random.fold_in(key, time)
        after, then = env.step(state, jnp.int32(action), now)
        reward, metrics = bandit.pull(arms, int(action), float(jax.random.uniform(now)))
        assert then.reward == reward and then.terminated and not then.truncated
        assert jax.device_get(then.metrics) == pytest.approx(metrics)
        np.testing.assert_array_equal(after.probabilities, state.probabilities)
        paid.append(reward)
    assert 0 < sum(paid) < len(paid)


@pytest.mark.parametrize("start", ["centre", "random"])
def test_a_trial_is_one_episode_with_one_draw(start):
    """More than two trials equal the oracle step by step."""
    config = WrapperConfig(trial_episodes=4)
    env = wrap(DarkRoom(3, time_limit=5, start=start), config)
    states, (seen, *told) = play(env, ACTIONS[:20], seed=1)
    goal = states[0].env.goal
    places = iter([s.env.place for s in states if s.env.time == 0])
    oracle = TrialOracle(lambda: room(goal, next(places)), 4)
    taken, reward, ended = np.zeros(5), 0.0, False
    for time, action in enumerate(ACTIONS[:20]):
        np.testing.assert_array_equal(seen["observation"], oracle.observation())
        np.testing.assert_array_equal(seen["previous_action"], taken)
        assert (seen["previous_reward"], seen["previous_ended"]) == (reward, ended)
        np.testing.assert_array_equal(states[time].env.goal, goal)
        reward, over, ended, metrics = oracle.step(int(action))
        then, taken = told[time], np.eye(5)[action]
        assert (then.reward, then.terminated, then.truncated) == (reward, over, False)
        if over:
            assert then.metrics == pytest.approx(metrics)
        seen = then.observation
    assert told[-1].terminated and not np.any([then.terminated for then in told[:-1]])
    starts = [tuple(s.env.place) for s in states[:-1] if s.env.time == 0]
    assert len(starts) == 4 and (len(set(starts)) > 1) == (start == "random")


def test_a_stream_of_trials():
    """`start` only at a trial's beginning, no discount in between, a new draw for each trial."""
    env = wrap(DarkRoom(3, time_limit=2), WrapperConfig(trial_episodes=3))
    told = roll(env, np.zeros((24, 4), np.int64))
    assert told.start[:, 0].nonzero()[0].tolist() == [0, 6, 12, 18, 24]
    np.testing.assert_array_equal(told.discount[1:] == 0, told.start[1:])
    np.testing.assert_array_equal(told.ended[1:], told.start[1:])
    assert not told.last.any()
    flags = np.asarray(told.observation["previous_ended"])[..., 0]
    assert flags[:, 0].nonzero()[0].tolist() == [2, 4, 8, 10, 14, 16, 20, 22]
    assert set(told.metrics["length"][told.ended].tolist()) == {6.0}
    rewards = np.asarray(told.reward[1:]).reshape(4, 3, 2, 4).sum(2)
    for place in range(3):
        np.testing.assert_array_equal(told.metrics[f"return_{place + 1}"][6::6], rewards[:, place])
    np.testing.assert_array_equal(told.metrics["return"][6::6], rewards.sum(1))
    assert len({tuple(row) for row in rewards.sum(1)}) > 1


def test_separate_episodes_have_the_same_trials():
    config = WrapperConfig(trial_episodes=3, trial_memory=False)
    env = wrap(Bandit(2), config)
    assert type(env) is SeparateEpisodes and env.observation_space == Bandit(2).observation_space
    stream = AutoReset(env)
    step, key = jax.jit(stream.step), jax.random.key(0)
    state, told = stream.reset(key)
    arms = []
    for time in range(12):
        arms.append(tuple(state.env.env.probabilities.tolist()))
        assert told.start and state.env.episode == time % 3
        state, told = step(state, jnp.int32(0), jax.random.fold_in(key, time))
        assert told.ended and told.discount == 0 and set(told.metrics) >= {"regret", "length"}
    assert [len(set(arms[t : t + 3])) for t in (0, 3, 6, 9)] == [1, 1, 1, 1] and len(set(arms)) == 4


def test_other_wrappers_go_around():
    config = WrapperConfig(trial_episodes=2, keep=(1, 2), reward_scale=0.5, reward_clip=0.4)
    env = wrap(DarkRoom(2, time_limit=1), config)
    plain = wrap(DarkRoom(2, time_limit=1), WrapperConfig(trial_episodes=2))
    actions = np.random.default_rng(1).integers(0, 5, (12, 6))
    ours, theirs = roll(env, actions), roll(plain, actions)
    np.testing.assert_allclose(ours.reward, np.minimum(theirs.reward * 0.5, 0.4))
    np.testing.assert_array_equal(ours.metrics["return"], theirs.metrics["return"])
    np.testing.assert_array_equal(ours.metrics["return_2"], theirs.metrics["return_2"])
    assert theirs.metrics["return"].max() == 2.0
    np.testing.assert_array_equal(
        ours.observation["observation"], theirs.observation["observation"][..., [1, 2]]
    )
    assert env.observation_space["previous_reward"].high == np.float32(0.4)  # type: ignore[index]


@pytest.mark.parametrize("name", ["tmaze", "memory_chain", "distributed_memory"])
def test_every_task_takes_them(name):
    """The task itself need not know trials: its first episode is opened again."""
    task = make_task(name, {}, WrapperConfig(trial_episodes=2))
    stream = task.require_stream()
    state, _ = stream.reset(jax.random.key(0))
    first = jax.tree.map(jnp.array_equal, state.env.env, state.env.first[0])
    assert jax.tree.all(first)
    assert set(task.metric_names) >= {"return_1", "return_2", "return", "length"}
    shapes = jax.eval_shape(stream.step, state, jnp.int32(0), jax.random.key(0))[0]
    assert jax.tree.map(jnp.shape, state) == jax.tree.map(lambda s: s.shape, shapes)


@pytest.mark.slow
def test_ratio_law():
    """Before the first update the learner's log-probabilities are the actor's, also across ends."""
    env = wrap(DarkRoom(3, time_limit=3), WrapperConfig(trial_episodes=3))
    stream = AutoReset(env)
    agent = agent_on(stream)
    actor = init_actor(agent, stream, 3, jax.random.key(1))
    for seed in range(2):  # the second rollout begins within a trial
        actor, trajectory, _ = rollout(agent, stream, actor, 14, jax.random.key(seed))
        (logits, values), _ = reread(agent, trajectory)
        found = agent.distribution.log_prob(logits[:-1], trajectory.action)
        np.testing.assert_allclose(found, trajectory.log_prob, atol=2e-5)
        np.testing.assert_allclose(values[:-1], trajectory.value, atol=2e-5)
        ends = trajectory.observation["previous_ended"][..., 0] == 1
        assert ends.any() and not (ends & trajectory.start).any()


def test_a_film_s_lines_of_a_trial():
    """The task draws them from its own part of the agent's observation."""
    env = wrap(DarkRoom(3, time_limit=2), WrapperConfig(trial_episodes=2))
    state, seen = env.reset(jax.random.key(0))
    rows = jax.tree.map(lambda leaf: np.stack([leaf] * 4), (state, seen))
    lines = Rendered(env.render_text, *rows)
    assert len(lines) == 4 and lines[3] == env.render_text(state, seen)
    with pytest.raises(IndexError):
        lines[4]


def test_returns_are_reported_by_place_in_groups():
    assert return_names(3) == ("return_1", "return_2", "return_3")
    assert return_names(100)[:2] == ("return_1_10", "return_11_20")
    assert [len(group) for group in episode_groups(23)] == [3, 3, 3, 2, 2, 2, 2, 2, 2, 2]
    told = roll(wrap(Bandit(2), WrapperConfig(trial_episodes=20)), np.zeros((20, 64), np.int64))
    pairs = np.asarray(told.reward[1:]).reshape(10, 2, 64).mean(1)
    means = [told.metrics[name][20] for name in return_names(20)]
    np.testing.assert_allclose(means, pairs)


def test_what_the_tasks_say():
    env = wrap(DarkRoom(3), WrapperConfig(trial_episodes=2))
    state, seen = env.reset(jax.random.key(0))
    goal = np.asarray(state.env.goal)
    assert env.remembered(state) == {"row": goal[0], "column": goal[1]}
    drawn = env.render_text(jax.device_get(state), jax.device_get(seen))
    assert drawn.count("A") == drawn.count("G") == 1 and drawn.splitlines()[1][1] == "A"
    state, seen = Bandit(2).reset_to(np.array([0.5, 1.0]))
    lines = Bandit(2).render_text(jax.device_get(state), np.zeros(1)).splitlines()
    assert lines == [f"arm 0: {'#' * 10:<20} 0.50", f"arm 1: {'#' * 20} 1.00"]
    assert Bandit(2).remembered(state) == {"best arm": 1}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Bandit(1), "arms must be an integer of at least 2, got 1"),
        (lambda: DarkRoom(1), "size must be an integer of at least 2, got 1"),
        (lambda: DarkRoom(time_limit=0), "time_limit must be an integer of at least 1"),
        (lambda: DarkRoom(start="corner"), "unknown value of start 'corner'"),
        (lambda: make_env("bandit", arm=2), "did you mean 'arms'"),
        (lambda: Trials(Bandit(), 1), "trial_episodes must be an integer of at least 2, got 1"),
        (lambda: Trials(KeptEntries(Bandit(), (0,)), 2), "trials go around the task itself"),
        (partial(WrapperConfig(trial_episodes=0).validate), "trial_episodes must be an integer of"),
        (partial(WrapperConfig(trial_memory=False).validate), "trial_memory=False needs trials"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises(UserError, match=message):
        build()


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (Bandit(2), {"probabilities": [0.5]}, "2 numbers from 0 to 1"),
        (Bandit(2), {"probabilities": [0.5, 1.5]}, "2 numbers from 0 to 1"),
        (DarkRoom(2), {"goal": (0, 2)}, "goal must be a row and a column from 0 to 1"),
        (DarkRoom(2), {"place": 1}, "place must be a row and a column"),
    ],
)
def test_draws_that_cannot_be_forced(env, options, message):
    with pytest.raises(UserError, match=message):
        env.force(env.draw(np.random.default_rng(0), 0), options)


def test_draws_are_forced():
    env = DarkRoom(3, start="random")
    drawn = env.draw(np.random.default_rng(0), 0)
    assert not np.array_equal(drawn["goal"], drawn["place"])
    state, _ = env.reset_to(**env.force(drawn, {"goal": (2, 1)}))
    assert (state.goal.tolist(), state.place.tolist()) == ([2, 1], drawn["place"].tolist())
