"""Streams over vector environments yield every transition once, in both autoreset modes."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import DictInfoToList

from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream
from clew.bridges.gymnasium.task import gymnasium_task
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from labelled import ENDS, LENGTHS, DictLabelled, Labelled, makers

ENVS, STEPS = 6, 60


def sync(mode: AutoresetMode, kind: type[Labelled] = Labelled) -> VectorEnv:
    """Gymnasium's vector environment within one process."""
    return SyncVectorEnv(makers(ENVS, kind), autoreset_mode=mode)


def over_processes(mode: AutoresetMode) -> VectorEnv:
    """Gymnasium's vector environment over processes."""
    return AsyncVectorEnv(makers(ENVS), autoreset_mode=mode, context="forkserver")


def as_lists(mode: AutoresetMode) -> VectorEnv:
    """Gymnasium's, with infos in its older form."""
    return DictInfoToList(sync(mode))


def as_dicts(mode: AutoresetMode) -> VectorEnv:
    """Gymnasium's, of nested dicts of observations."""
    return sync(mode, DictLabelled)


class Compiled(SyncVectorEnv):
    """Returns final observations as one batch, as vector environments in compiled code do."""

    def step(self, actions: Any) -> Any:
        """Gymnasium's step."""
        observations, *rest, infos = super().step(actions)
        if "final_obs" in infos:
            batch = np.full_like(observations, np.nan)
            for i in np.flatnonzero(infos["_final_obs"]):
                batch[i] = infos["final_obs"][i]
            infos = {"final_obs": batch}
        return observations, *rest, infos


def compiled(mode: AutoresetMode) -> VectorEnv:
    """Environments whose final observations come in batches."""
    return Compiled(makers(ENVS), autoreset_mode=mode)


def labels(observation: Any) -> np.ndarray:
    """The labels [B, 3] of a batch of observations."""
    if not isinstance(observation, dict):
        return observation
    columns = (observation["episode"], observation["more.step"][:, 0], observation["number"])
    return np.stack(columns, axis=1).astype(np.float64)


def record(stream: GymnasiumStream, steps: int = STEPS, seed: int = 0) -> list[GymnasiumStep]:
    """A reset and some steps with random actions."""
    random = np.random.default_rng(0)
    timesteps = [stream.reset(seed)]
    timesteps += [stream.step(random.integers(2, size=stream.num_envs)) for _ in range(steps)]
    return timesteps


def transitions(timesteps: list[GymnasiumStep], i: int) -> Iterator[tuple[Any, ...]]:
    """The learner's view of environment i: label, reward, discount, label that completes it.

    The last is None if nothing follows. It is the learner's rule, written once for both modes.
    """
    for before, after in zip(timesteps, timesteps[1:], strict=False):
        if before.last[i]:
            continue
        follows = labels(after.observation)[i]
        if after.final is not None and after.final[0][i]:
            follows = labels(after.final[1])[i]
        discount = float(after.discount[i])
        label = tuple(labels(before.observation)[i][:2])
        yield label, float(after.reward[i]), discount, tuple(follows[:2]) if discount else None


def expected(first: int) -> Iterator[tuple[Any, ...]]:
    """The transitions of an environment whose first episode is `first`, from its rules."""
    for episode in range(first, first + 2 * STEPS):
        length, end = LENGTHS[episode % len(LENGTHS)], ENDS[episode % len(ENDS)]
        for time in range(length):
            terminated = time == length - 1 and end != "truncated"
            follows = None if terminated else (episode, time + 1)
            yield (episode, time), 10.0 * episode + time + 1, 1.0 - terminated, follows


NEXT, SAME = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
VECTORS: list[tuple[Callable[..., VectorEnv], AutoresetMode]] = [
    (make, mode) for make in (sync, as_lists, as_dicts) for mode in (NEXT, SAME)
]
PROCESSES = [(over_processes, NEXT), (over_processes, SAME)]


@pytest.mark.parametrize(("make", "mode"), [*VECTORS, *PROCESSES, (compiled, SAME)])
def test_every_transition_is_learned_once(make: Callable[..., Any], mode: AutoresetMode) -> None:
    """They come in order, with their own reward and the value of the correct next observation."""
    with GymnasiumStream(make(mode)) as stream:
        timesteps = record(stream)
    for i in range(ENVS):
        learned = list(transitions(timesteps, i))
        assert len(learned) > STEPS / 2
        assert learned == [t for t, _ in zip(expected(i), learned, strict=False)]
        assert all(labels(step.observation)[i, 2] == i for step in timesteps)


@pytest.mark.parametrize(("make", "mode"), VECTORS)
def test_starts_ends_and_metrics(make: Callable[..., Any], mode: AutoresetMode) -> None:
    """A start is step 0 and nothing else; returns and lengths are the episode's own."""
    with GymnasiumStream(make(mode)) as stream:
        timesteps = record(stream)
    for step in timesteps:
        np.testing.assert_array_equal(step.start, labels(step.observation)[:, 1] == 0)
        assert not (step.start & step.last).any()
        if mode is SAME:
            assert not step.last.any()
        else:
            assert step.final is None
            np.testing.assert_array_equal(step.last, step.ended)
        assert step.reward.dtype == step.discount.dtype == np.float32
        assert all(array.dtype == np.float32 for array in step.metrics.values())
    for i in range(ENVS):
        ends = [step for step in timesteps if step.ended[i]]
        assert len(ends) > 10
        for episode, step in enumerate(ends, start=i):
            length = LENGTHS[episode % len(LENGTHS)]
            assert step.metrics["length"][i] == length
            total = sum(10 * episode + time + 1 for time in range(length))
            assert step.metrics["return"][i] == total
        for step in timesteps:
            if not step.ended[i]:
                assert step.metrics["length"][i] == step.metrics["return"][i] == 0


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_dummy_steps_and_finals(mode: AutoresetMode) -> None:
    """The step after a final observation earns nothing; only truncated episodes have finals."""
    timesteps = record(GymnasiumStream(sync(mode)))
    for before, after in zip(timesteps, timesteps[1:], strict=False):
        assert (after.reward[before.last] == 0).all()
        assert (after.discount[before.last] == 1).all()
        assert after.start[before.last].all()
        if mode is SAME:
            cut = after.ended & (after.discount == 1)
            assert (after.final is not None) == cut.any()
            if after.final is not None:
                np.testing.assert_array_equal(after.final[0], cut)


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_our_own_vector_environments(processes: int) -> None:
    """The transitions are the same for any processes, and every environment has its own seed."""
    task = gymnasium_task("labelled:Labelled", {"lengths": LENGTHS, "ends": ENDS})
    with task.open(ENVS, processes=processes, seed=3) as stream:
        timesteps = record(stream, seed=3)
        again = stream.reset(3)
    numbers = timesteps[0].observation[:, 2]
    assert len(set(numbers.tolist())) == ENVS
    for i in range(ENVS):
        learned = list(transitions(timesteps, i))
        assert learned == [t for t, _ in zip(expected(0), learned, strict=False)]
        assert all(step.observation[i, 2] == numbers[i] for step in timesteps)
    np.testing.assert_array_equal(again.observation[:, 2], numbers)
    assert again.start.all() and not again.last.any()


def test_our_own_dicts_and_processes() -> None:
    """A nested Dict arrives through shared memory flat, shifted and without its Text."""
    task = gymnasium_task("labelled:DictLabelled", {"lengths": LENGTHS, "ends": ENDS})
    with task.open(ENVS, processes=2) as stream:
        timesteps = record(stream)
    first = timesteps[0].observation
    assert isinstance(first, dict) and set(first) == {"episode", "more.step", "number"}
    assert first["episode"].dtype == np.int32 and first["more.step"].dtype == np.uint8
    for i in range(ENVS):
        learned = list(transitions(timesteps, i))
        assert learned == [t for t, _ in zip(expected(0), learned, strict=False)]


def test_steps_are_kept_as_they_were() -> None:
    """Later steps change nothing that was returned."""
    for processes in (0, 2):
        with gymnasium_task("labelled:Labelled").open(2, processes=processes) as stream:
            first = stream.reset(0)
            copies = [np.array(field) for field in first[:6]]
            for _ in range(3):
                stream.step([0, 1])
        for kept, field in zip(copies, first[:6], strict=True):
            np.testing.assert_array_equal(kept, field)


def test_a_mode_that_opens_no_episodes_is_refused() -> None:
    """Whether it is disabled, unknown or not declared."""
    with pytest.raises(UserError, match=r"DISABLED.*NEXT_STEP and SAME_STEP work"):
        GymnasiumStream(sync(AutoresetMode.DISABLED), name="maze")
    for declared in ({}, {"autoreset_mode": "sometimes"}):
        vector = sync(NEXT)
        vector.metadata = declared
        with pytest.raises(UserError, match=r"maze: metadata\['autoreset_mode'\].*it is"):
            GymnasiumStream(vector, name="maze")
    vector.metadata = {"autoreset_mode": "NextStep"}
    assert GymnasiumStream(vector).num_envs == ENVS


def test_a_missing_final_observation_is_named() -> None:
    """Without it the return of a truncated episode cannot be completed."""

    class Silent(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], {}

    stream = GymnasiumStream(Silent(makers(ENVS), autoreset_mode=SAME), name="maze")
    with pytest.raises(UserError, match=r'maze: environment 1 was truncated.*"final_obs"'):
        record(stream)


def test_calls_out_of_order_are_refused() -> None:
    """A step before the reset, two at once, and a wait without a step are refused."""
    stream = GymnasiumStream(sync(NEXT), name="maze")
    with pytest.raises(UserError, match="maze: call reset before the next step"):
        stream.step([0] * ENVS)
    stream.reset(0)
    with pytest.raises(UserError, match="step_wait without step_async"):
        stream.step_wait()
    stream.step_async([0] * ENVS)
    with pytest.raises(UserError, match="call step_wait before"):
        stream.step_async([0] * ENVS)
    assert labels(stream.step_wait().observation).shape == (ENVS, 3)


@pytest.mark.parametrize("processes", [0, 1])
def test_actions_of_another_shape_send_nothing(processes: int) -> None:
    """The error names them, and the stream continues as if they had not been given."""
    task = gymnasium_task("labelled:Labelled", {"lengths": LENGTHS, "ends": ENDS})
    with task.open(ENVS, processes=processes) as stream:
        stream.reset(0)
        for wrong in (np.zeros((ENVS, 2), int), np.zeros(ENVS - 1, int)):
            with pytest.raises(UserError, match=rf"must have the shape \[{ENVS}\], got"):
                stream.step(wrong)
        stream.step([0] * ENVS)
        stream.reset(0)


class Scored(gymnasium.Env):
    """Succeeds in its only step; its first observation is no success, and a trial continues."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, **options: Any) -> Any:
        """Opens an episode."""
        return np.zeros(1, np.float32), {"success": 0.0}

    def step(self, action: Any) -> Any:
        """Ends it."""
        return np.ones(1, np.float32), 1.0, True, False, {"success": 1.0}


@pytest.mark.parametrize("mode", [SAME, NEXT])
@pytest.mark.parametrize("lists", [False, True])
def test_metrics_are_of_the_step_that_ended_an_episode(mode: AutoresetMode, lists: bool) -> None:
    """In every form that `info` can have."""
    vector: VectorEnv = SyncVectorEnv([Scored] * 2, autoreset_mode=mode)
    vector = DictInfoToList(vector) if lists else vector
    stream = GymnasiumStream(vector, wrappers=WrapperConfig(metrics=("success",)))
    stream.reset(0)
    assert stream.step([0, 0]).metrics["success"].tolist() == [1, 1]


@pytest.mark.parametrize("processes", [0, 1])
def test_a_reset_has_ended_nothing(processes: int) -> None:
    task = gymnasium_task("test_host_stream:Scored")
    with task.open(2, processes=processes, wrappers=WrapperConfig(metrics=("success",))) as stream:
        stream.reset(0)
        assert stream.step([0, 0]).metrics["success"].tolist() == [1, 1]
        again = stream.reset(0)
    assert not again.ended.any() and again.metrics["success"].tolist() == [0, 0]
