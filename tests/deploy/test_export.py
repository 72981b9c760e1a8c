"""Exports act like the policies they are made from: memories, encoders, actions, wrappers."""

import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import (
    IN_FLOAT64,
    LeakyMean,
    agent_of,
    encoding_agent,
    in_float64,
    largest_deviation,
    memory_of,
    model_of,
    steps_of,
)
from gymnasium import spaces

import clew
from clew.agents.encoders import EncoderConfig
from clew.agents.network import NetworkConfig
from clew.cli import run
from clew.deploy import runner
from clew.deploy.export import export_agent, verify
from clew.deploy.graph import GraphBuilder, Ref
from clew.deploy.lower import lower
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.memory import MEMORIES
from clew.run.progress import Quiet
from memory_samples import DIFFERENT, INPUT_SIZE, LAWS_AT_ONCE, quick_compilation
from own_lru import LRU
from slow_cases import fast_only

__all__ = ["quick_compilation"]
TOLERANCE = 1e-5


@pytest.mark.parametrize("name", fast_only(MEMORIES, *DIFFERENT))
def test_every_memory_is_itself(name: str) -> None:
    """NumPy and JAX agree in 60 steps of three environments with starts anywhere."""
    step = steps_of(agent_of(memory_of(name)))
    model = model_of(step)
    assert largest_deviation(step, (model, model.step), batch=3, time=60) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3, 64])
@pytest.mark.parametrize("name", MEMORIES)
def test_every_memory_for_long(name: str, batch: int) -> None:
    """They agree in 1,000 steps in float64, for any number of environments."""
    with in_float64(name) as step:
        model = model_of(step)
        found = largest_deviation(step, (model, model.step), batch, time=1000)
    assert found <= IN_FLOAT64


OPTIONS: dict[str, Any] = {
    "gtrxl": {"gate": "temporal_gru"},
    "transformer_xl": {"gradient": "current"},
    "universal": {"halting": False, "blend": "running"},
    "integrated": {"gate": "temporal_gru", "unreached": "zero", "inner_residual": True},
    "linear_transformer": {"summation": "compensated"},
    "arelit": {"frequencies": "full_wave", "tick": "carried"},
}


@pytest.mark.parametrize(
    "name",
    fast_only(OPTIONS, *(name for name in OPTIONS if name in LAWS_AT_ONCE)),
)
def test_options_of_memories(name: str) -> None:
    """Other gates, other halting and other sums agree too."""
    step = steps_of(agent_of(memory_of(name, num_layers=1, **OPTIONS[name])))
    model = model_of(step)
    assert largest_deviation(step, (model, model.step), batch=2, time=40) <= TOLERANCE


def test_a_memory_of_ones_own() -> None:
    """It has a counter in its state and is not registered."""
    step = steps_of(agent_of(LeakyMean(INPUT_SIZE, key=jax.random.key(0))))
    model = model_of(step)
    assert list(model.leaves) == ["count", "mean"]
    assert largest_deviation(step, (model, model.step), batch=3, time=60) <= TOLERANCE


def test_a_complex_memory(ordinary_promotion: None) -> None:
    """Its state is stored as pairs; what does not depend on observations is precomputed."""
    step = steps_of(agent_of(LRU(INPUT_SIZE, key=jax.random.key(0))))
    model = model_of(step)
    assert model.leaves["state"]["shape"] == [8, 2]
    assert model.leaves["state"]["complex"] == ["real", "imag"]
    assert largest_deviation(step, (model, model.step), batch=3, time=60) <= TOLERANCE
    operations = [node.op for node in step.trace().graph.nodes]
    assert not {"exp", "cos", "sin"} & {*operations}
    assert operations.count("linear") == 4 + 4  # B x and Re(C h), and the heads


ACTION_KINDS: dict[str, tuple[spaces.Space, dict[str, Any]]] = {
    "discrete": (spaces.Discrete(4, start=2), {}),
    "several": (spaces.MultiDiscrete([3, 2], start=[1, 0]), {}),
    "bits": (spaces.MultiBinary(3), {}),
    "gaussian": (spaces.Box(-1.0, 2.0, (2,)), {}),
    "gaussian with a head": (spaces.Box(-np.inf, np.inf, (2,)), {"log_std": "head"}),
    "tanh": (spaces.Box(-1.0, 2.0, (2,)), {"continuous": "tanh"}),
}


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_actions_of_every_kind(kind: str) -> None:
    """The greedy action in the environment's form, and the distribution's parameters by name."""
    space, network = ACTION_KINDS[kind]
    agent = agent_of(memory_of("gru", num_layers=1), space, NetworkConfig(head_size=0, **network))
    step = steps_of(agent, actions=space)
    model = model_of(step)
    assert largest_deviation(step, (model, model.step), batch=3, time=20) <= TOLERANCE
    assert model.outputs[1:-1] == (["log_std", "mean"] if "Box" in str(space) else ["logits"])
    inputs = {"observation": np.ones((1, INPUT_SIZE), np.float32), "start": np.ones(1, bool)}
    action = model.step(model.init_state(1), inputs)[0]["action"][0]
    assert space.contains(action.astype(space.dtype))


PICTURE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
OBSERVATIONS: dict[str, tuple[spaces.Space, EncoderConfig]] = {
    "layers": (spaces.Box(-1, 1, (2, 3)), EncoderConfig("mlp", encoder_norm=True)),
    "elu": (spaces.Box(-1, 1, (4,)), EncoderConfig("mlp", nonlinearity="elu")),
    "numbers": (spaces.MultiDiscrete([3, 2], start=[1, 5]), EncoderConfig(embedding_size=4)),
    "one number": (spaces.Discrete(5, start=3), EncoderConfig()),
    "nature": (PICTURE, EncoderConfig("nature", picture_channels=(4, 4, 4), picture_size=8)),
    "impala": (
        spaces.Dict(
            {"eye": spaces.Box(0, 255, (3, 17, 16), np.uint8), "x": spaces.Box(0, 1, (2,))}
        ),
        EncoderConfig(
            "impala",
            picture_channels=(2, 3),
            picture_size=8,
            encoder_projection=6,
            encoder_norm=True,
        ),
    ),
}


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_encoders(kind: str) -> None:
    """Vectors, categories, pictures, and a dictionary of several."""
    space, config = OBSERVATIONS[kind]
    step = steps_of(encoding_agent(space, config), observations=space)
    model = model_of(step)
    assert largest_deviation(step, (model, model.step), batch=3, time=10) <= TOLERANCE


def test_what_no_export_has_is_named() -> None:
    """An unsupported operation, a loop without a bound, and an unsupported type."""

    def export_of(function: Any) -> None:
        builder, x = GraphBuilder(), jax.ShapeDtypeStruct((3,), jnp.float32)
        lower(function, (x,), (Ref("x", (3,), np.dtype(np.float32)),), builder)

    with pytest.raises(UserError, match=r"cannot export: operation 'sort' \(of float32\[3\]\)"):
        export_of(jnp.sort)
    with pytest.raises(UserError, match="a loop's length is not known"):
        export_of(lambda x: jax.lax.while_loop(lambda y: y[0] < 5, lambda y: y + 1, x))
    with pytest.raises(UserError, match="bfloat16; exports support .*network.precision=float32"):
        export_of(lambda x: x.astype(jnp.bfloat16))
    with pytest.raises(UserError, match="a scan has 5000 steps"):
        export_of(lambda x: jax.lax.scan(lambda c, _: (c * x, None), x, None, 5000)[0])


def test_ordinary_operations() -> None:
    """Operations that a user's own memory may use equal JAX's."""

    def function(x: Any, i: Any) -> Any:
        table = jnp.arange(12.0).reshape(4, 3)
        y = table[i] + x[::-1] ** 3 - jnp.cumsum(x) / jnp.sqrt(1 + jnp.square(x))
        y = y.at[i].add(jnp.max(x)).at[0:2].set(x[1:])
        z = jax.lax.dynamic_update_slice(table, y[None], (i, jnp.array(0)))
        w = jax.lax.cond(i > 1, lambda: z * 2.0, lambda: z - 1.0)
        taken = jnp.take_along_axis(w, i[None, None], 1)
        picked = jax.lax.dynamic_slice(w, (i, i), (2, 2))
        total = jax.lax.fori_loop(0, 5, lambda k, c: c + jnp.sin(c) * k, y)
        yield from (jnp.tile(w, (2, 3)), jnp.tile(x[:1], 4))
        out = jnp.linalg.norm(w, axis=1), jax.nn.softmax(w), jnp.tril(w[:3]), jax.nn.gelu(w)
        yield from (*out, taken, picked, total, jnp.clip(y, -1, 1), jnp.sinh(x), w[i, 1])
        yield jnp.flip(w, 0)
        slope = jax.grad(lambda v: jnp.sum(jnp.tanh(v)))
        yield from (*jnp.unstack(w, axis=1), slope(x), jnp.log2(1 + x**2))
        yield jnp.polyval(jnp.array([2.0, -1.0, 0.5]), x)

    assert_lowered(lambda x, i: list(function(x, i)))


def test_the_edges_of_operations(ordinary_promotion: None) -> None:
    """Out-of-range, empty, halfway and divide-by-zero cases are as in JAX."""
    far = np.array([3e9, np.inf, -np.inf, np.nan, 300.7, -1.5, 2.0**31, -(2.0**31)], np.float32)
    least, bits = np.array([3, -(2**31), 5], np.int32), np.array([4, 5, 3, 4], np.uint8)
    narrow = np.array([[100, 100]], np.int8)
    halves = np.array([0.5, 2.5, -2.5, -0.5, 1.4, -1.6], np.float32)

    def function(x: Any, i: Any) -> Any:
        zero, no, table = i * 0, x[:1] * 0, jnp.arange(300.0)
        for dtype in ("int32", "uint8", "int8", "uint32"):
            yield (far + no).astype(dtype)
        yield from (jnp.argmin(least + zero), jnp.argmin(bits + zero.astype("uint8")))
        yield from (
            jnp.argmin(x > 0),
            jnp.argmax(x < 0),
            jax.lax.round(halves + no),
            jnp.round(halves + no),
        )
        whole = np.array([-7, 5, 0, -(2**31)], np.int32) + zero
        for by in (zero, zero - 2):
            yield from (jax.lax.div(whole, by + 0 * whole), jax.lax.rem(whole, by + 0 * whole))
        yield jax.lax.div(whole, jnp.array([3, 3, 3, 3]))
        wide = jnp.int32
        yield jnp.matmul(narrow + zero.astype("int8"), narrow.T, preferred_element_type=wide)
        yield from (
            table[(i * 80).astype("uint8")],
            table[bits + zero.astype("uint8")],
            x.at[i.astype("int8")].set(5.0),
        )
        yield from (x.at[i].subtract(2.0), jax.lax.dynamic_slice(x, (i.astype("uint8"),), (2,)))
        for cut in ((-1, 1, 0), (-3, 5, 0), (2, -4, 0), (-1, -1, 0)):
            yield jax.lax.pad(x, 9 + no[0], [cut])
        yield jax.lax.pad(x[:1], 9 + no[0], [(-1, 1, 0)])
        empty = (jnp.any(x[3:] > 0), jnp.all(x[3:] > 0), jnp.any(x[:1][1:] > 0))
        yield from (jnp.where(nothing, x, -x) for nothing in empty)
        yield jax.lax.scan(lambda c, y: (c + y, c), x[0], x[3:])[0]

    assert_lowered(lambda x, i: list(function(x, i)))
    with pytest.raises(UserError, match="cannot export: operation 'scatter'"):
        assert_lowered(lambda x, i: [x.at[i].apply(jnp.sin)])


def test_ordinary_operations_of_complex_numbers(ordinary_promotion: None) -> None:
    """As pairs of real numbers they equal JAX's; unsupported ones are named in the error."""

    def function(x: Any, i: Any) -> Any:
        z = jax.lax.complex(x, jnp.sin(x)) * (2 - 1j)
        w = jnp.outer(z, z.conj()) @ jnp.stack([z, z * x, 1j * x])
        y = jnp.where(x > 0, z / (z + 3j), jnp.exp(z)) - jnp.cumsum(z) ** -2
        y = y.at[i].set(w[i, 0])
        total, each = jax.lax.scan(lambda c, row: (0.5j * c + row, c), y, w)
        taken = jnp.take(jnp.concatenate([total, each.sum(0)]), i)
        ends = jnp.abs(w), jnp.abs(0 * z), taken.real, total.imag, (1e30 * z / (1e30j * z)).imag
        return *ends, jnp.real(x), jax.lax.square(y).astype(complex).real

    assert_lowered(function)
    with pytest.raises(UserError, match="cannot export: 'sqrt' of complex numbers"):
        assert_lowered(lambda x, i: [jnp.sqrt(jax.lax.complex(x, x)).real])


def assert_lowered(function: Any) -> None:
    """Checks that a function of three floats and an index is the same in an export and in JAX."""
    builder = GraphBuilder()
    shapes = jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    refs = Ref("x", (3,), np.dtype(np.float32)), Ref("i", (), np.dtype(np.int32))
    results = lower(function, shapes, refs, builder)
    names = {str(n): value for n, value in enumerate(results)}
    graph = builder.finish(dict(zip("xi", refs, strict=True)), {}, names, {})
    for number in range(4):
        x = np.random.default_rng(number).standard_normal(3).astype(np.float32)
        values = {"x": x[None], "i": np.array([number], np.int32)} | graph.constants
        for node in graph.nodes:
            arrays = [values[value.name] for value in node.inputs]
            assert node.op != "argmax" or arrays[0].dtype != bool, "none in ONNX"
            values[node.out.name] = runner.evaluate(node.op, node.attributes, *arrays)
        for name, expected in enumerate(function(jnp.asarray(x), jnp.asarray(number))):
            found = values[names[str(name)].name][0]
            assert runner.deviation(found, np.asarray(expected)) < TOLERANCE, name


WRAPPERS = WrapperConfig(
    keep=(2, 0, 3),
    normalise_observations=True,
    previous=True,
    normalise_rewards=True,
    reward_scale=0.5,
    reward_clip=0.4,
    time_limit=30,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on CartPole with every wrapper."""
    config = clew.TrainConfig(
        env="gymnasium:CartPole-v1",
        memory="gru",
        memory_options={"hidden_size": 8},
        wrappers=WRAPPERS,
        a2c=clew.A2CConfig(num_envs=4, rollout_length=16),
        algorithm="a2c",
        steps=3 * 4 * 16,
        run_dir=str(tmp_path_factory.mktemp("runs")),
        name="cart",
    )
    return clew.train(config, progress=Quiet()).path


def test_a_run_and_its_export_act_alike(trained: Path, capsys: Any) -> None:
    """With all wrappers inside, from the folder and from the zip; its own runner verifies it."""
    assert run(["export", str(trained), "--value", "--episodes", "3"]) == 0
    said = capsys.readouterr().out
    assert "golden episode" in said and "left to the caller: time_limit = 30" in said
    folder = trained / "export"
    whole, files = clew.load_policy(trained), clew.load_policy(folder)
    zipped, env = clew.load_policy(trained / "export.zip"), clew_cartpole()
    for seed in range(2):
        (observation, _), start, reward = env.reset(seed=seed), True, None
        for _ in range(30):
            action = whole(observation, start=start, reward=reward)
            for policy in (files, zipped):
                assert policy(observation, start=start, reward=reward) == action
            observation, reward, terminated, _, _ = env.step(action)
            start = False
            if terminated:
                break
    continues_from_a_state(files, clew.load_policy(folder), env.reset(seed=0)[0])
    with pytest.raises(runner.PolicyError, match="previous reward"):
        files(env.reset(seed=0)[0])
    with pytest.raises(UserError, match="is an export, which has one policy with greedy actions"):
        clew.load_policy(folder, greedy=False)
    with pytest.raises(UserError, match=r"plays one environment; for 3 .*runner\.Model"):
        clew.load_policy(folder, num_envs=3)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["memory"]["name"] == "gru" and manifest["control_rate"] is None
    assert manifest["provenance"]["score"]["metrics"]["return"]["low"] > 0
    assert "keep" in manifest["wrappers"]["inside"]
    alone = subprocess.run(
        [sys.executable, "-S", "-c", _ALONE, str(folder / "runner.py"), str(folder)],
        capture_output=True,
        text=True,
    )
    assert alone.returncode == 0, alone.stderr
    assert "largest deviation" in alone.stdout
    assert run(["export", str(trained / "export.zip"), "--verify"]) == 0
    assert "deviates by" in capsys.readouterr().out


def continues_from_a_state(policy: Any, other: Any, observation: Any) -> None:
    """A state that is set before the first call counts, the previous action with it."""
    begun, kept = other.state, pickle.dumps(policy.state)
    other.state = pickle.loads(kept)
    policy(observation, reward=1.0)
    other(observation, reward=1.0)
    assert all(np.array_equal(policy.outputs[name], other.outputs[name]) for name in policy.outputs)
    assert all(np.array_equal(policy.state[name], other.state[name]) for name in policy.state)
    other.state = begun
    other(observation)  # opens an episode: no reward is missing
    bare = runner.State(policy.state.policy, policy.state)
    other.state = bare
    with pytest.raises(runner.PolicyError, match="its previous action, which the state lacks"):
        other(observation, reward=1.0)
    wide = runner.State(bare.policy, {n: np.repeat(x, 2, axis=0) for n, x in bare.items()})
    with pytest.raises(runner.PolicyError, match=r"leaf of the state .* has shape \[2, "):
        other.state = wide


_ALONE = f"""
import runpy, sys
sys.path[:] = [p for p in sys.path if "site-packages" not in p] + [{np.__path__[0]!r}[:-6]]
class Refuse:
    def find_spec(self, name, *rest):
        assert name.split(".")[0] not in ("jax", "clew", "equinox", "gymnasium"), name
sys.meta_path.insert(0, Refuse())
sys.argv = [sys.argv[1], sys.argv[2], "--verify"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def clew_cartpole() -> Any:
    """The run's environment without wrappers."""
    import gymnasium

    return gymnasium.make("CartPole-v1")


@pytest.mark.slow
def test_no_more_is_asked_of_an_export_than_of_its_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tolerance grows if float32 itself deviates from float64; not for a module without float64."""
    monkeypatch.setattr(runner, "TOLERANCE", 1e-12)
    space = spaces.Box(-1.0, 1.0, (INPUT_SIZE,), np.float32)
    given = (space, spaces.Discrete(3), tmp_path / "own")
    found = export_agent(agent_of(memory_of("arelit")), *given)
    (rounding,) = runner.read_golden(runner.Model(found.folder))["rounding"]
    assert 1e-12 < found.deviation <= 3 * rounding < 1e-5
    step = LeakyMean.step

    def single(memory: LeakyMean, state: Any, x: Any, start: Any) -> Any:
        if x.dtype != np.float32:
            raise TypeError("float32 alone")
        return step(memory, state, x, start)

    monkeypatch.setattr(LeakyMean, "step", single)
    with pytest.raises(UserError, match="at most 1e-12"):
        export_agent(agent_of(LeakyMean(INPUT_SIZE, key=jax.random.key(0))), *given)


def test_an_agent_of_no_run(tmp_path: Path) -> None:
    """Golden observations are samples of the space; NaN before a start changes nothing after it."""
    agent = agent_of(LeakyMean(INPUT_SIZE, key=jax.random.key(0)))
    space = spaces.Box(-1.0, 1.0, (INPUT_SIZE,), np.float32)
    found = export_agent(agent, space, spaces.Discrete(3), tmp_path / "own")
    assert found.deviation <= TOLERANCE
    golden = runner.read_golden(runner.Model(found.folder))
    poisoned = np.isnan(golden["input/observation"]).any(axis=(1, 2))
    assert poisoned.sum() == 1 and golden["input/start"][1:][poisoned[:-1]].all()
    assert not golden["compared"][poisoned].any() and golden["compared"].sum() > 100
    assert not golden["input/start"][0].any() and np.any(golden["before/mean"])
    with zipfile.ZipFile(found.archive) as whole:
        assert sorted(whole.namelist()) == sorted(path.name for path in found.folder.iterdir())
    assert verify(found.archive)[1] == found.deviation
    again = export_agent(agent, space, spaces.Discrete(3), tmp_path / "own")
    assert again.manifest == found.manifest
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("keep me")
    with pytest.raises(UserError, match="already exists and is not from an export"):
        export_agent(agent, space, spaces.Discrete(3), tmp_path / "other")
