"""Environments with PettingZoo's interface, whose agents are environments side by side."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew import TrainConfig
from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import NetworkConfig
from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.task import gymnasium_task, option_defaults
from clew.bridges.gymnasium.vector import seeds_of
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from toy_agents import AGENTS, Recall

NAME = "pettingzoo:toy_agents"


@pytest.mark.filterwarnings("ignore")  # of the package's own
@pytest.mark.parametrize(
    ("module", "options", "steps"),
    [
        ("toy_agents", {}, 20),
        ("toy_agents", {"ends": "truncated"}, 20),
        ("mpe2.simple_spread_v3", {}, 1000),  # make test-jaxenvs
        ("mpe2.simple_reference_v3", {}, 1000),
    ],
)
def test_steps_are_those_of_its_own_loop(module: str, options: Any, steps: int) -> None:
    """Observations, rewards, ends, final observations and next episodes of two copies."""
    make = pytest.importorskip(module).parallel_env
    theirs = [make(**options) for _ in range(2)]
    agents = theirs[0].possible_agents
    choices = theirs[0].action_space(agents[0])
    rng, count, opened = np.random.default_rng(3), len(agents), 0
    seeds = seeds_of(7, 2)
    seen = [env.reset(seed=s)[0] for env, s in zip(theirs, seeds, strict=True)]
    with gymnasium_task(f"pettingzoo:{module}", options).open(2 * count, seed=7) as stream:
        step = stream.reset()
        for _ in range(steps):
            np.testing.assert_array_equal(step.observation, rows(seen))
            actions = rng.integers(choices.n, size=2 * count)
            step = stream.step(actions)
            for copy, env in enumerate(theirs):
                own = slice(copy * count, (copy + 1) * count)
                seen[copy], *found, _ = env.step(dict(zip(agents, actions[own], strict=True)))
                rewards, terminated, truncated = (np.array(list(x.values())) for x in found)
                assert step.reward[own].tolist() == rewards.astype(np.float32).tolist()
                assert step.ended[own].tolist() == (terminated | truncated).tolist()
                assert step.discount[own].tolist() == (1.0 - terminated).tolist()
                if truncated.any():
                    assert step.final is not None
                    np.testing.assert_array_equal(step.final[1][own], rows([seen[copy]]))
                if not env.agents:
                    seen[copy], opened = env.reset()[0], opened + 1
    assert opened >= 12


def rows(seen: list[dict[str, Any]]) -> np.ndarray:
    """What all agents see, one row each."""
    return np.stack([x for of_copy in seen for x in of_copy.values()])


def test_a_number_of_environments_holds_whole_copies() -> None:
    """Agents that come only together are counted together."""
    task = gymnasium_task(NAME)
    assert task.agents == 2
    assert option_defaults(NAME).keys() >= {"state", "length", "ends"}
    with pytest.raises(
        UserError, match=r"has 2 agents, so num_envs must be a multiple of 2, such as 4; got 3"
    ):
        task.open(3)
    with pytest.raises(UserError, match="such as 10; got 9"):
        clew.train(config("", num_envs=9, minibatches=1))


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("pettingzoo:toy_agent", {}, "there is no module toy_agent; looked for"),
        (f"{NAME}:recall", {}, "unknown name in toy_agents 'recall'; did you mean 'Recall'"),
        (f"{NAME}:InTurn", {}, "whose agents act in turn, expected a ParallelEnv"),
        (f"{NAME}:nobody", {}, r"must make a pettingzoo.ParallelEnv .*, it made a builtins.str"),
        (f"{NAME}:NoState", {"state": True}, "has no state_space, which state=True would show"),
        (NAME, {"lenght": 3}, "unknown option of .*'lenght'; did you mean 'length'"),
        (NAME, {"sizes": (2, 3)}, r"equal spaces.*observation.*of ann.*\(2,\).*supersuit.pad_obs"),
    ],
)
def test_mistakes(name: str, options: Any, says: str) -> None:
    """The error is one line that says what was expected."""
    with pytest.raises(UserError, match=says) as caught:
        gymnasium_task(name, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("masked", [None, "info", "observation"])
def test_an_agent_that_dies_waits_for_the_others(masked: str | None) -> None:
    """It observes zeros, earns 0 and may do anything; its end is a termination, ann's a time
    limit."""
    place = {"info": "info", "observation": "action_mask"}.get(masked or "")
    wrappers = WrapperConfig(action_mask=place, metrics=("steps",))
    task = gymnasium_task(NAME, {"ends": "died", "masked": masked, "length": 4})
    with task.open(2, seed=0, wrappers=wrappers) as stream:
        steps = [stream.reset(), *(stream.step(np.ones(2, int)) for _ in range(8))]
    seen = [step.observation for step in steps]
    if masked is not None:
        assert all((entries["action_mask"] == 1).all() for entries in seen)
        seen = [next(x for n, x in entries.items() if n != "action_mask") for entries in seen]
    assert [x[1].tolist() for x in seen[1:4]] == [[-1, 1], [0, 0], [0, 0]]
    assert [step.ended.tolist() for step in steps[1:5]] == 3 * [[False, False]] + [[True, True]]
    assert steps[4].discount.tolist() == [1, 0] and steps[3].discount.tolist() == [1, 1]
    assert [step.reward[1] for step in steps[2:5]] == [0, 0, 0]
    assert steps[4].start.tolist() == [True, True]
    assert steps[4].metrics["steps"].tolist() == [4, 1]
    assert steps[4].final is not None and steps[8].ended.all()


def test_an_agent_that_is_truncated_alone_is_refused() -> None:
    """The value of what it would have seen is not known at the end of the others."""
    with gymnasium_task(NAME, {"ends": "left", "length": 2}).open(2, seed=0) as stream:
        stream.reset()
        with pytest.raises(EnvironmentFault, match="bob was truncated, but others continue"):
            stream.step(np.zeros(2, int))


@pytest.mark.parametrize(("masked", "wrapper"), [("info", "info"), ("observation", "action_mask")])
def test_action_masks_are_found(masked: str, wrapper: str) -> None:
    """In each agent's info, or as an entry of its observation."""
    wrappers = WrapperConfig(action_mask=wrapper)
    task = gymnasium_task(NAME, {"masked": masked})
    with task.open(4, seed=0, wrappers=wrappers) as stream:
        step = stream.reset()
        for _ in range(4):
            assert step.observation["action_mask"].tolist() == [[1, 1]] * 4
            step = stream.step(np.zeros(4, int))


def test_info_is_a_metric_of_its_agent() -> None:
    """Numbers of the last info of an episode."""
    wrappers = WrapperConfig(metrics=("steps",))
    with gymnasium_task(NAME).open(4, seed=0, wrappers=wrappers) as stream:
        stream.reset()
        steps = [stream.step(np.zeros(4, int)) for _ in range(3)]
    assert steps[-1].metrics["steps"].tolist() == [3.0] * 4


def config(folder: Any, num_envs: int = 8, minibatches: int = 4, **changes: Any) -> TrainConfig:
    """A short training of agents that share a GRU."""
    ppo = PPOConfig(
        num_envs=num_envs, minibatches=minibatches, rollout_length=32, learning_rate=3e-3
    )
    settings = {"env": NAME, "memory": "gru", "algorithm": "ppo", "ppo": ppo} | changes
    options = {"hidden_size": 16}
    return TrainConfig(
        memory_options=options, run_dir=str(folder), name="agents", steps=20_000, **settings
    )


def test_agents_learn_evaluate_and_act(tmp_path: Path) -> None:
    """The shared memory keeps each agent's own bit: a guess is right half of the time.

    The critic alone sees the state of the whole environment.
    """
    network = NetworkConfig(encoder="auto", critic_only=("state",))
    made = config(tmp_path, env_options={"state": True}, network=network)
    run = clew.train(made)
    assert clew.evaluate(run.path, episodes=41).pooled["return"].mean > 0.95
    assert clew.evaluate(run.path, episodes=1).episodes == 1
    policy = clew.load_policy(run.path, num_envs=2)
    ours = Recall()
    for _ in range(5):
        seen, start, rewards = ours.reset()[0], True, {}
        while ours.agents:
            chosen = policy({"observation": rows([seen])}, start)
            seen, rewards, *_ = ours.step(dict(zip(AGENTS, chosen, strict=True)))
            start = False
        assert rewards == {"ann": 1.0, "bob": 1.0}
