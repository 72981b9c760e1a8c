"""Initial parameters: bit for bit as JAX draws them, with the right statistics."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Space
from jaxtyping import Array

from clew.agents.heads import ActorCritic, DuelingValues
from clew.agents.network import NetworkConfig, make_agent
from clew.errors import UserError
from clew.memory import MEMORIES, AbstractMemory, make_memory, options_among
from clew.memory.gru import GRU
from clew.memory.lstm import LSTM
from clew.memory.parts import initial
from clew.memory.parts.mixers import MixerStack
from memory_samples import SMALL
from slow_cases import fast_only

prng_key = jax.dtypes.prng_key
SHAPES = ((7, 128), (300, 400), (3, 3, 4, 8))
DRAWS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "orthogonal": (
        lambda key, shape: initial.orthogonal(key, shape, 0.7),
        lambda key, shape: jax.nn.initializers.orthogonal(0.7)(key, shape, jnp.float32),
    ),
    "lecun": (initial.lecun, jax.nn.initializers.lecun_normal()),
    "uniform": (
        lambda key, shape: initial.uniform(key, shape, 0.3),
        lambda key, shape: jax.random.uniform(key, shape, jnp.float32, -0.3, 0.3),
    ),
    "normal": (initial.normal, jax.random.normal),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_jax(name: str) -> None:
    """Outside of compiled functions, where the draws of all shapes share programs."""
    own, of_jax = DRAWS[name]
    for number, shape in enumerate(SHAPES):
        key = jax.random.key(number)
        drawn = own(key, shape)
        assert drawn.dtype == jnp.float32
        assert np.array_equal(drawn, of_jax(key, shape))


def test_draws_within_a_compiled_function_are_the_same() -> None:
    """Also for a key in the function's closure."""
    key, shape = jax.random.key(0), SHAPES[0]
    expected = initial.orthogonal(key, shape)
    assert np.array_equal(jax.jit(lambda k: initial.orthogonal(k, shape))(key), expected)
    assert np.array_equal(jax.jit(lambda: initial.orthogonal(key, shape))(), expected)


def test_weights_are_narrow_where_jax_is_wide() -> None:
    """With JAX's 64-bit types enabled they are the same as without."""
    key = jax.random.key(0)
    narrow = initial.orthogonal(key, (7, 128))
    with jax.enable_x64(True):
        wide = initial.orthogonal(key, (7, 128))
        assert wide.dtype == initial.normal(key, (2,)).dtype == jnp.float32
        assert np.array_equal(wide, narrow)


def test_draws_of_other_keys_are_those_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """For these, the numbers depend on how many are drawn."""
    key = jax.random.key(3, impl="rbg")
    assert np.array_equal(initial.normal(key, (5, 6)), jax.random.normal(key, (5, 6)))
    with jax.threefry_partitionable(False):
        key = jax.random.key(3)
        assert np.array_equal(initial.normal(key, (5, 6)), jax.random.normal(key, (5, 6)))


@pytest.mark.parametrize("shape", [(96, 160), (160, 96), (3, 3, 16, 32)])
def test_orthogonal_weights_are_orthonormal_times_the_gain(shape: tuple[int, ...]) -> None:
    """Rows or columns are, and entries have mean 0 and deviation gain / sqrt(longer side)."""
    weight = np.asarray(initial.orthogonal(jax.random.key(0), shape, 1.5), np.float64)
    matrix = weight.reshape(-1, shape[-1])
    fewer = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    assert np.allclose(fewer @ fewer.T, 2.25 * np.eye(len(fewer)), atol=1e-5)
    deviation = 1.5 / math.sqrt(max(matrix.shape))
    assert matrix.std() == pytest.approx(deviation, rel=1e-2)
    assert abs(matrix.mean()) < 4 * deviation / math.sqrt(matrix.size)


def test_shapes_share_programs(capfd: pytest.CaptureFixture[str]) -> None:
    """A new shape compiles nothing."""
    key = jax.random.key(0)
    initial.orthogonal(key, (11, 13))
    with jax.log_compiles():
        initial.orthogonal(key, (17, 23))
        initial.constant((29, 31))
    assert "Compiling" not in capfd.readouterr().err


def test_constants_are_arrays_of_their_own() -> None:
    """The training loop donates every array of a state, each of them once."""
    first, second = initial.constant(3), initial.constant(3)
    assert first.unsafe_buffer_pointer() != second.unsafe_buffer_pointer()
    assert np.array_equal(initial.constant((2, 2), 2.0), np.full((2, 2), 2.0))


def leaves(memory: AbstractMemory) -> dict[str, np.ndarray]:
    """Every parameter by its path."""
    pairs = jax.tree_util.tree_leaves_with_path(memory)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in pairs}


@pytest.mark.parametrize("name", ["relit", "arelit"])
def test_chrono_moves_the_biases_of_gates_alone(name: str) -> None:
    """The memory lasts from 2 to `chrono` steps, evenly; the other parameters are unchanged."""
    sizes = {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "head_size": 64}
    made = [
        make_memory(name, input_size=3, key=jax.random.key(1), **sizes, chrono=chrono)
        for chrono in (0, 100)
    ]
    plain, long = (leaves(memory) for memory in made)
    changed = [path for path in plain if not np.array_equal(plain[path], long[path])]
    assert changed == [f".layers[{n}].attention.features.inputs.bias" for n in (0, 1)]
    for path in changed:
        assert np.array_equal(plain[path][: 3 * 128], long[path][: 3 * 128])
        lasting = 1 + np.exp(-long[path][3 * 128 :].astype(np.float64))
        assert 2 <= lasting.min() < 10 and 90 < lasting.max() <= 100
        assert abs(lasting.mean() - 51) < 5 * 98 / math.sqrt(12 * 256)
    assert not np.array_equal(long[changed[0]], long[changed[1]])
    with pytest.raises(UserError, match="chrono must be an integer of at least 2, got 1"):
        make_memory(name, input_size=3, key=jax.random.key(1), chrono=1)


@pytest.mark.slow
def test_gates_of_cells_begin_open() -> None:
    """An LSTM forgets and a GRU moves within 2 to `chrono` steps; other weights are unchanged."""
    key, size = jax.random.key(0), 300
    for kind in (LSTM, GRU):
        plain, lasting = (kind(3, key=key, hidden_size=size, chrono=c).cells[0] for c in (0, 100))
        steps = 1.0 + np.exp(np.asarray(lasting.inputs.bias)[size : 2 * size])
        assert 2.0 <= steps.min() and steps.max() <= 100.0 and abs(steps.mean() - 51.0) < 3.0
        assert np.array_equal(plain.recurrent.weight, lasting.recurrent.weight)
        assert np.array_equal(plain.inputs.weight, lasting.inputs.weight)
    with pytest.raises(UserError, match="chrono must be an integer of at least 2, got 1"):
        make_memory("gru", input_size=3, key=key, chrono=1)
    with pytest.raises(UserError, match="forget_bias needs chrono=0"):
        make_memory("lstm", input_size=3, key=key, chrono=10, forget_bias=1.0)


STACKS = [name for name, kind in MEMORIES.items() if issubclass(kind, MixerStack)]


@pytest.mark.parametrize("name", fast_only(STACKS, "s5"))
def test_layers_with_a_residual_weight_begin_as_the_identity(name: str) -> None:
    """The output is then the embedding, whose weights are those of a memory without."""
    memory, plain = (
        make_memory(name, input_size=3, key=jax.random.key(1), residual_weight=weight)
        for weight in (True, False)
    )
    assert isinstance(memory, MixerStack) and isinstance(plain, MixerStack)
    assert [layer.weight for layer in plain.layers] == [None, None]
    xs, starts = jax.random.normal(jax.random.key(2), (5, 3)), jnp.arange(5) == 2
    _, outputs = memory.unroll(memory.init_state(), xs, starts)
    assert np.array_equal(outputs, plain.embed(xs))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Records the keys of all draws of weights from here on."""
    keys: list[bytes] = []

    def recorded(draw: Callable[..., Array]) -> Callable[..., Array]:
        def draw_and_keep(*args: Any) -> Array:
            (key,) = (
                a for a in args if isinstance(a, Array) and a.dtype == jax.random.key(0).dtype
            )
            keys.append(np.asarray(jax.random.key_data(key)).tobytes())
            return draw(*args)

        return draw_and_keep

    for name in ("_draw", "lecun"):
        monkeypatch.setattr(initial, name, recorded(getattr(initial, name)))
    return keys


WAYS: tuple[dict[str, Any], ...] = (
    {"init": "orthogonal"},
    {"init": "uniform"},
    {"init": "uniform", "chrono": 16, "num_blocks": 2},
    {"init": "orthogonal", "chrono": 16, "init_per": "role"},
    {"init": "orthogonal", "chrono": 16, "init_per": "head"},
)


@pytest.mark.parametrize("name", MEMORIES)
def test_no_two_draws_are_of_one_key(name: str, drawn: list[bytes]) -> None:
    """Two draws from one key are equal, or one is part of the other."""
    ways: list[dict[str, Any]] = []
    for way in (options_among(name, way) for way in WAYS):
        if way in ways:
            continue
        ways.append(way)
        drawn.clear()
        options = SMALL[name] | way
        make_memory(name, input_size=5, key=jax.random.key(0), **options)
        assert len(set(drawn)) == len(drawn) > 0, way


@pytest.mark.parametrize(
    "space", [Box(-1, 1, (4,)), Discrete(4), Dict({"a": Discrete(3), "b": Box(0, 1, (3,))})]
)
def test_nor_of_an_agent(space: Space, drawn: list[bytes]) -> None:
    network = NetworkConfig(
        encoder="mlp",
        encoder_size=8,
        encoder_layers=4,
        embedding_size=3,
        encoder_projection=8,
        projection="affine",
        init="uniform",
    )
    spaces = {"observation_space": space, "action_space": Discrete(2)}
    for heads in (ActorCritic, partial(DuelingValues, epsilon=jnp.ones_like)):
        drawn.clear()
        make_agent(
            "gru",
            {"hidden_size": 8, "init": "uniform"},
            network=network,
            make_heads=heads,
            key=jax.random.key(0),
            **spaces,
        )
        assert len(set(drawn)) == len(drawn) > 10
