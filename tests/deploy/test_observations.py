"""Invalid observations: a run's policy and its export give the same error."""

import itertools
import re
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from exports import encoding_agent, model_of
from gymnasium import spaces

import clew
from clew.agents.encoders import EncoderConfig
from clew.deploy import runner
from clew.deploy.export import export_agent
from clew.deploy.policy import PolicyStep, trained_wrappers
from clew.envs.base import Environment, Transition
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact.compiled_task import CompiledTask
from clew.interact.policy import Policy
from clew.interact.task import PlayConfig
from clew.watch.pictures import picture_of
from memory_samples import quick_compilation
from small_run import Watch

__all__ = ["quick_compilation"]
SPACE = spaces.Dict(
    {
        "speed": spaces.Box(-9.0, 9.0, (2,)),
        "cue": spaces.Discrete(3, start=4),
        "arm": spaces.Tuple([spaces.Box(0, 255, (1,), np.uint8), spaces.MultiDiscrete([2, 3])]),
        "mission": spaces.Text(9),
    }
)
GOOD = {"speed": np.zeros(2), "cue": 5, "arm": (np.zeros(1), [1, 2]), "mission": "go"}


class Everything(gymnasium.Env):
    """Observes something of every kind, for three steps."""

    observation_space = SPACE
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return GOOD, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return GOOD, float(action), self.time == 3, False, {}


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A run's policy, and that of its export."""
    config = clew.TrainConfig(
        env=f"{__name__}:Everything",
        memory="gru",
        memory_options={"hidden_size": 4},
        algorithm="a2c",
        a2c=clew.A2CConfig(num_envs=2, rollout_length=4),
        wrappers=clew.WrapperConfig(previous_action=True),
        steps=16,
        run_dir=str(tmp_path_factory.mktemp("runs")),
        name="run",
    )
    path = clew.train(config, progress=Watch()).path
    return clew.load_policy(path), clew.load_policy(clew.export(path).folder)


def but(**changes: Any) -> dict[str, Any]:
    """The valid observation with other entries."""
    return GOOD | changes


def without(name: str) -> dict[str, Any]:
    """The valid observation without an entry."""
    return {key: value for key, value in GOOD.items() if key != name}


WHOLE = "a whole number from"
WRONG: dict[str, tuple[Any, str]] = {
    "nan": (but(speed=[0, np.nan]), "observation speed is not finite: nan at [1]"),
    "too large": (but(speed=[1e300, 0]), "observation speed is not finite: inf at [0]"),
    "shape": (but(speed=np.zeros(3)), "observation speed has shape [3], expected numbers of shape"),
    "ragged": (but(speed=[[0], [1, 2]]), "speed is [[0], [1, 2]], expected numbers of shape [2]"),
    "none": (but(speed=None), "observation speed is None, expected numbers of shape [2]"),
    "text": (but(speed="fast"), "observation speed is 'fast', expected numbers of shape [2]"),
    "complex": (but(speed=np.zeros(2, complex)), "expected numbers of shape [2]"),
    "category": (but(cue=7), f"observation cue is 7, expected {WHOLE} 4 to 6"),
    "low category": (but(cue=3), f"observation cue is 3, expected {WHOLE} 4 to 6"),
    "fraction": (but(cue=4.5), f"observation cue is 4.5, expected {WHOLE} 4 to 6"),
    "category nan": (but(cue=np.nan), f"observation cue is nan, expected {WHOLE} 4 to 6"),
    "beyond 32 bits": (but(cue=2**32 + 5), f"expected {WHOLE} 4 to 6"),
    "several": (but(arm=([0], [1, 3])), f"observation arm.1 is 3 at [1], expected {WHOLE} 0 to 2"),
    "byte": (but(arm=([256], [1, 2])), "arm.0 is 256 at [0], expected a value of uint8"),
    "missing": (without("cue"), "the observation entry 'cue' is missing"),
    "misspelt": (without("cue") | {"cues": 5}, "entry 'cues'; did you mean 'cue'? known: arm"),
    "long": (but(arm=([0], [1, 2], 3)), "there is no observation arm entry 2; known: 0, 1"),
    "short": (but(arm=([0],)), "the observation arm entry 1 is missing"),
    "no tuple": (but(arm=3), "observation arm is 3, expected the entries 0, 1"),
    "no dict": ([1, 2], "observation is [1, 2], expected the entries arm, cue, speed"),
    "nothing": (None, "observation is None, expected the entries arm, cue, speed"),
    "of reset": ((GOOD, {}), "looks like what reset returns: its first part is the observation"),
}


@pytest.mark.parametrize("name", WRONG)
def test_both_say_the_same(name: str, policies: tuple[Any, Any]) -> None:
    """With the entry, its value and the expectation; a refused observation starts no episode."""
    observation, expected = WRONG[name]
    said = []
    for policy, kind in zip(policies, (UserError, runner.PolicyError), strict=True):
        policy.reset()
        with pytest.raises(kind) as error:
            policy(observation)
        said.append(str(error.value))
        assert policy(GOOD) == policy(GOOD, start=True)
    assert said[0] == said[1] and expected in said[0]


def test_texts_and_what_a_dict_has_besides_are_not_read(policies: tuple[Any, Any]) -> None:
    """As in training: wherever they are, and whether or not they are present."""
    for policy in policies:
        for observation in (but(mission=np.str_("come")), without("mission"), but(z=[1, None])):
            assert policy(observation, start=True) == policy(GOOD, start=True)


def test_an_export_of_before(tmp_path: Path) -> None:
    """Its manifest does not list the categories."""
    agent = encoding_agent(spaces.Discrete(3), EncoderConfig())
    found = export_agent(agent, spaces.Discrete(3), spaces.Discrete(3), tmp_path / "own")
    model = runner.Model(found.folder)
    with pytest.raises(runner.PolicyError, match="observation is 3, expected"):
        runner.Policy(model=model)(3)
    del model.inputs["observation"]["categories"]
    policy = runner.Policy(model=model)
    assert policy(3) in range(3)
    with pytest.raises(runner.PolicyError, match=r"observation is 2\.5, expected a value of int32"):
        policy(2.5)


class Shelves(Environment):
    """A JAX task that shows places on four shelves; none are counted from 0."""

    space = spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 2], [3, 4]])
    observation_size = 4
    num_actions = 3
    metric_names = ()

    @property
    def observation_space(self) -> spaces.Space:
        return self.space

    def reset(self, key: Any) -> Any:
        return jnp.zeros((), jnp.int32), jnp.asarray(self.space.start, jnp.int32)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        places = jnp.asarray(self.space.start + (state + 1) % self.space.nvec, jnp.int32)
        no = jnp.zeros((), jnp.bool_)
        return state + 1, Transition(places, jnp.zeros(()), state == 4, no, {})


def test_categories_of_a_task_in_jax_are_read_as_training_read_them() -> None:
    """Whatever their first value is, an agent of such a task sees them as the task shows them."""
    task = CompiledTask("shelves", Shelves())
    agent, adapter = encoding_agent(task.observation_space, EncoderConfig()), task.adapter()
    policy, step = Policy(agent, wrappers=trained_wrappers(adapter)), PolicyStep(agent, adapter)
    recording, model = next(task.recordings(agent, PlayConfig())), model_of(step)
    state, start = model.init_state(1), True
    for places, action in zip(recording.observations, recording.actions, strict=True):
        outputs, state = model.step(
            state, {"observation": places[None], "start": np.array([start])}
        )
        assert policy(places, start=start) == outputs["action"][0] == action
        start = False
    assert np.ptp(recording.values) > 0  # the agent saw them
    with pytest.raises(
        UserError, match=re.escape("is 0 at [0, 0], expected a whole number from 1")
    ):
        policy(np.zeros((2, 2), int))


class Cupboard(Shelves):
    """The same shelves in a Dict within a Dict, with an action that is never allowed."""

    @property
    def observation_space(self) -> spaces.Space:
        box = spaces.Box(0.0, 9.0, (1,))
        return spaces.Dict({"in.it": spaces.Dict({"b": self.space, "a": box}), "in": box})

    def action_mask(self, state: Any) -> Any:
        return jnp.array([True, False, True])

    def reset(self, key: Any) -> Any:
        state, places = super().reset(key)
        return state, self.shown(state, places)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        state, then = super().step(state, action, key)
        return state, then._replace(observation=self.shown(state, then.observation))

    def shown(self, state: Any, places: Any) -> Any:
        time = jnp.float32(state)[None]
        return {"in.it": {"b": places, "a": time}, "in": -time}


@pytest.mark.parametrize("previous", [False, True])
def test_dicts_within_dicts_of_a_task_in_jax(previous: bool) -> None:
    """An agent reads them unchanged; exports and inspections use one name for each entry."""
    task = CompiledTask("cupboard", Cupboard(), WrapperConfig(previous=previous))
    agent, adapter = encoding_agent(task.observation_space, EncoderConfig()), task.adapter()
    policy, step = Policy(agent, wrappers=trained_wrappers(adapter)), PolicyStep(agent, adapter)
    recording, exported = (
        next(task.recordings(agent, PlayConfig())),
        runner.Policy(model=model_of(step)),
    )
    chosen = []

    def both(observation: Any, **how: Any) -> Any:
        chosen.append(policy(observation, **how))
        assert exported(observation, **how) == chosen[-1]
        return chosen[-1]

    list(itertools.islice(task.moments(both, longest=9), recording.length + 1))
    assert chosen == recording.actions.tolist()
    assert np.ptp(recording.values) > 0  # the agent saw them
    assert picture_of(recording, 0).ndim == 3
    names = task.episodes(agent, PlayConfig(episodes=1)).entries
    assert {"in", "in.it.a", "in.it.b[3]"} < set(names)
    assert ("previous_reward" in names) == previous
