"""Gymnasium environments by name: ids, factories, seeds, and one line for every mistake."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.processes import start_method
from clew.bridges.gymnasium.task import GymnasiumTask, gymnasium_task, is_gymnasium
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact import make_task
from clew.interact.hosted_task import HostedTask
from clew.names import install_hint
from labelled import Echo, Labelled


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("gymnasium:CartPole-v1", True),
        ("gymnasium:package.module:Space/Id-v0", True),
        ("my_module:factory", True),
        ("my.module:Factory.make", True),
        ("tmaze", False),
        ("gymnax:CartPole-v1", False),
        ("my-module:factory", False),
        ("module:", False),
    ],
)
def test_names(name: str, host: bool) -> None:
    """Names resolve to the intended environment."""
    assert is_gymnasium(name) == host


def test_a_registered_environment() -> None:
    """Spaces and metrics are known before it is opened."""
    task = gymnasium_task("gymnasium:Pendulum-v1", {"g": 9.0})
    assert task.observation_space == spaces.Box(
        np.float32([-1, -1, -8]), np.float32([1, 1, 8]), dtype=np.float32
    )
    assert task.action_space == spaces.Box(-2.0, 2.0, (1,), np.float32)
    assert task.metric_names == ("return", "length")
    assert not task.vector and task.options == {"g": 9.0}


def by_hand(env: gymnasium.Env, seed: int, actions: np.ndarray) -> list[np.ndarray]:
    """Observations of one environment under given actions, one episode after another."""
    seen = [env.reset(seed=seed)[0]]
    over = False
    for action in actions:
        if over:
            seen.append(env.reset()[0])
            over = False
            continue
        observation, _, terminated, truncated, _ = env.step(action)
        seen.append(observation)
        over = terminated or truncated
    return seen


@pytest.mark.parametrize(
    ("name", "processes"),
    [("CartPole-v1", 0), ("CartPole-v1", 2), ("Pendulum-v1", 0), ("Acrobot-v1", 0)],
)
def test_a_stream_is_what_gymnasium_plays(name: str, processes: int) -> None:
    """It is bit for bit the same, and each environment has its own seed, derived from one."""
    task = gymnasium_task(f"gymnasium:{name}")
    task.action_space.seed(0)
    actions = np.stack([[task.action_space.sample() for _ in range(4)] for _ in range(230)])
    with task.open(4, processes=processes, seed=5) as stream:
        timesteps = [stream.reset(), *(stream.step(row) for row in actions)]
        with task.open(4, seed=5) as same:
            np.testing.assert_array_equal(same.reset().observation, timesteps[0].observation)
    seeds = np.random.SeedSequence(5).generate_state(4).tolist()
    for i, seed in enumerate(seeds):
        seen = by_hand(gymnasium.make(name), seed, actions[:, i])
        np.testing.assert_array_equal([step.observation[i] for step in timesteps], seen)
    assert any(step.ended.any() for step in timesteps) == (name != "Acrobot-v1")


def test_streams_go_on_without_a_seed() -> None:
    """A second reset opens other episodes; the stream's seed only matters for the first reset."""
    with gymnasium_task("gymnasium:CartPole-v1").open(2, seed=0) as stream:
        first, second = stream.reset().observation, stream.reset().observation
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(stream.reset(0).observation, first)
    assert len(np.unique(first, axis=0)) == 2


def test_factories() -> None:
    """A factory is called once per environment; or once for all if it takes num_envs."""
    single = gymnasium_task("labelled:Labelled", {"lengths": (2,)})
    assert not single.vector and single.open(3).num_envs == 3
    several = gymnasium_task("labelled:together", {"mode": "NextStep"})
    assert several.vector
    with several.open(3) as stream:
        assert np.shape(stream.reset().observation) == (3, 3)
    hosted = HostedTask(several, WrapperConfig())
    with pytest.raises(UserError, match="makes vector .*leave host.processes at 0, got 2"):
        hosted.check_training(2, 4)
    with pytest.raises(UserError, match="frame_skip wraps single environments"):
        HostedTask(several, WrapperConfig(frame_skip=2))


def test_a_factory_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes find it as well."""
    source = "from labelled import Labelled\ndef lamp(): return Labelled(4)\n"
    (tmp_path / "clew_test_lamps.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    with gymnasium_task("clew_test_lamps:lamp").open(2, processes=2) as stream:
        assert (stream.reset().observation[:, 2] == 4).all()


def test_an_environment_of_the_old_gym() -> None:
    assert "write import gymnasium as gym" in install_hint("gym.spaces")


def test_a_reset_without_seed() -> None:
    with gymnasium_task("slips_of_envs:Former").open(2) as stream:
        with pytest.raises(EnvironmentFault, match="reset takes no seed; expected reset.self, .,"):
            stream.reset(seed=0)


def test_an_observation_outside_of_its_space() -> None:
    """It is used for learning, with a warning."""
    with gymnasium_task("slips_of_envs:Outside").open(2) as stream:
        with pytest.warns(UserWarning, match="gave 50 in its observation, outside its declared"):
            assert np.all(np.asarray(stream.reset(seed=0).observation) == 50)


def test_rewards_that_are_arrays_of_one_number() -> None:
    """A stream and a policy accept them."""
    task = gymnasium_task("slips_of_envs:Rewarding")
    with task.open(2, wrappers=WrapperConfig(frame_skip=2)) as stream, pytest.warns(match="50"):
        stream.reset(seed=0)
        assert stream.step([0, 0]).reward.tolist() == [2, 2]
    moments = HostedTask(task, WrapperConfig()).moments(lambda *_, **__: 0, longest=3)
    assert [moment.reward for moment in itertools.islice(moments, 3)] == [None, 1.0, 1.0]


def test_an_id_that_only_this_process_knows() -> None:
    """An id that a notebook registers is passed on to worker processes."""
    gymnasium.register("clew-test/Lamp-v0", entry_point=lambda number: Labelled(number))
    try:
        task = gymnasium_task("gymnasium:clew-test/Lamp-v0", {"number": 3})
        with task.open(2, processes=2) as stream:
            assert (stream.reset().observation[:, 2] == 3).all()
    finally:
        del gymnasium.registry["clew-test/Lamp-v0"]


def test_an_environment_that_is_defined_anew() -> None:
    """When a notebook redefines it under its id, its spaces are read again."""
    name, found = "clew-test/Wide-v0", []
    try:
        for width in (2, 2, 3):
            gymnasium.registry.pop(name, None)
            gymnasium.register(
                name, entry_point=lambda width=width: Echo(spaces.Box(0, 1, (width,)))
            )
            task = make_task(f"gymnasium:{name}", {}, WrapperConfig())
            found.append(task.observation_space.shape)
    finally:
        del gymnasium.registry[name]
    assert found == [(2,), (2,), (3,)]


def test_an_entry_point_that_has_no_hash() -> None:
    """Such as an instance of a dataclass with `__call__`."""
    name = "clew-test/Unhashable-v0"
    make = type("Make", (), {"__call__": lambda self: Echo(), "__hash__": None})()
    gymnasium.register(name, entry_point=make)
    try:
        task = make_task(f"gymnasium:{name}", {}, WrapperConfig())
    finally:
        del gymnasium.registry[name]
    assert task.observation_space.shape == Echo().observation_space.shape


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "gymnasium:CartPol-v1",
            {},
            "unknown Gymnasium environment 'CartPol-v1'; did you mean Car",
        ),
        ("gymnasium:CartPole", {}, "did you mean CartPole-v"),
        ("gymnasium:Qwxyz", {}, r"unknown Gymnasium environment 'Qwxyz' \(for an id that a"),
        ("gymnasium:CartPole-v1", {"lenght": 1}, "CartPole-v1 does not take these options.*lenght"),
        ("gymnasium:CartPole-v1", {"self": 1}, "CartPole-v1 does not take these options.*'self'"),
        ("no_such_module:make", {}, "there is no module no_such_module; looked for"),
        ("labelled:Labeled", {}, "unknown name in labelled 'Labeled'; did you mean 'Labelled'"),
        ("labelled:LENGTHS", {}, r"labelled:LENGTHS is .*; expected a class, or a function"),
        ("slips_of_envs:nothing", {}, "nothing is .*, of Nothing; expected a class, or a function"),
        ("slips_of_envs:Nothing", {"size": 3}, "unknown option of .*'size'; known: none"),
        ("slips_of_envs:Nothing", {}, "it returned a slips_of_envs.Nothing: derive the class from"),
        ("slips_of_envs:forgotten", {}, "it returned None: does it lack a return"),
        ("slips_of_envs:Spaceless", {}, "lacks a space .*no attribute 'observation_space'"),
        ("slips_of_envs:Numbered", {}, "the action_space of .*:Numbered is 4, expected a space of"),
        ("slips_of_envs:Raising", {}, "Raising raised while it was built: RuntimeError: no robot"),
        (
            "labelled:Labelled",
            {"lenghts": 1},
            "unknown option of .*'lenghts'; did you mean 'lengths'",
        ),
        ("labelled:no_environment", {}, "must return a gymnasium.Env, it returned a builtins.str"),
        ("labelled:hidden_vector", {}, "a factory of vector environments takes a parameter num_e"),
        (
            "labelled:few",
            {},
            "must return a gymnasium.vector.VectorEnv; it returned a builtins.int",
        ),
        ("maze", {}, "expected gymnasium:ID or module:factory, got 'maze'"),
        ("gymnasium:MemoryMaze-9x9-v0", {}, "did you mean clew/MemoryMaze-9x9-v0"),
    ],
)
def test_mistakes(name: str, options: Any, says: str) -> None:
    """The error is one line, with the nearest valid name or the remedy."""
    with pytest.raises(UserError, match=says) as caught:
        gymnasium_task(name, options)
    assert "\n" not in str(caught.value)


def test_another_number_of_environments_is_refused() -> None:
    """A factory may make more than the one that it is asked for, but no other number."""
    task = gymnasium_task("labelled:too_many")
    assert task.agents == 2
    with pytest.raises(UserError, match="was asked for 4 environments, but returned 5"):
        task.open(4)


@pytest.mark.parametrize(
    ("name", "module", "says"),
    [
        ("gymnasium:MiniGrid-MemoryS7-v0", "minigrid", "needs minigrid: pip install minigrid"),
        ("gymnasium:popgym-RepeatFirstEasy-v0", "popgym", "needs popgym: pip install popgym"),
        ("gymnasium:ALE/Pong-v5", "ale_py", "needs ale_py: pip install ale-py"),
        ("memory_maze:make", "memory_maze", r"pip install 'clew\[memory-maze\]'"),
    ],
)
def test_missing_packages(
    name: str, module: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=says):
        gymnasium_task(name)


def test_what_an_environment_itself_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """These are Gymnasium's own extras, or a module that the environment's code imports."""

    def without(error: Exception) -> Any:
        def make(*_: Any, **__: Any) -> Any:
            raise error

        return make

    needs = gymnasium.error.DependencyNotInstalled("Box2D is not installed,\n run pip install X")
    monkeypatch.setattr(gymnasium, "make", without(needs))
    says = "CartPole-v1 needs a package that is not installed: Box2D is not installed, run pip"
    with pytest.raises(UserError, match=says):
        gymnasium_task("gymnasium:CartPole-v1")
    monkeypatch.setattr(gymnasium, "make", without(ModuleNotFoundError("no", name="mujoco.gl")))
    with pytest.raises(UserError, match="CartPole-v1 needs mujoco: pip install mujoco"):
        gymnasium_task("gymnasium:CartPole-v1")


def test_sizes_are_checked() -> None:
    """The numbers of environments and processes are checked."""
    task = gymnasium_task("labelled:Labelled")
    with pytest.raises(UserError, match="num_envs must be an integer of at least 1, got 0"):
        task.open(0)
    with pytest.raises(UserError, match="must divide num_envs, got 2 processes for 3 environments"):
        task.open(3, processes=2)
    with pytest.raises(UserError, match="processes must be an integer of at least 0"):
        task.open(3, processes=-1)


def test_environments_that_differ_are_named() -> None:
    """All environments must have the spaces of the first one."""
    task = gymnasium_task("labelled:Labelled")
    other = GymnasiumTask("labelled:DictLabelled", task.observations, task.own_action_space)
    with pytest.raises(UserError, match="environment 0 .and 1 others. raised in reset.*its spaces"):
        other.open(2).reset()


def test_without_a_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows: processes are spawned; on Windows pipes have no `poll`."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr("select.poll")
    assert start_method() == "spawn"
    with gymnasium_task("labelled:Labelled").open(2, processes=2) as stream:
        assert stream.reset(0, timeout=60).start.all()
        assert not stream.step([0, 0], timeout=60).start.any()


@pytest.mark.slow  # imports everything twice, in 13 s on two busy cores
def test_an_unguarded_script_is_told_what_to_do(tmp_path: Path) -> None:
    """A worker process imports the script; if that opened workers again, none would start."""
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from clew.bridges.gymnasium.task import gymnasium_task\n"
        "gymnasium_task('gymnasium:CartPole-v1').open(1, processes=1)\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 1
    assert "must put its work under `if __name__ == '__main__':`" in ran.stderr.splitlines()[-1]


def test_workers_import_no_jax() -> None:
    """A worker process loads only small modules."""
    code = (
        "import sys, clew.bridges.gymnasium.group; "
        "print('jax' in sys.modules, 'matplotlib' in sys.modules)"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.split() == ["False", "False"]
