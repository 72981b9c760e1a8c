"""Encoders of every space: their outputs, on any leading axes, and what they refuse."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from clew.agents.encoders import (
    ENCODERS,
    Dense,
    DictEncoder,
    EncoderConfig,
    Frame,
    Impala,
    Nature,
    OneHot,
    is_flattened,
    is_stack,
    make_encoder,
    taken_for_symbols,
)
from clew.memory.parts.blocks import Linear
from oracles import convolutional as oracle
from slow_cases import fast_only

KEY = jax.random.key(0)
PICTURE = spaces.Box(0, 255, (40, 37, 3), np.uint8)
SMALL: dict[str, Any] = {"encoder_size": 6, "picture_channels": (2, 3, 2), "picture_size": 5}
MIXED = spaces.Dict(
    camera=PICTURE,
    direction=spaces.Discrete(4, start=1),
    speed=spaces.Box(-1.0, 1.0, (2, 2)),
    keys=spaces.MultiBinary(3),
    inner=spaces.Dict(cards=spaces.MultiDiscrete([2, 3], start=[1, 0])),
    previous_action=spaces.Discrete(5, start=-1),
    previous_reward=spaces.Box(-9.0, 9.0, (1,)),
)


def numbers_of(module: Any) -> int:
    """How many parameters a module has."""
    return sum(leaf.size for leaf in jax.tree.leaves(module))


def sample(space: spaces.Space, lead: tuple[int, ...], seed: int = 0) -> Any:
    """Observations of a space, in NumPy."""
    space.seed(seed)
    drawn = [space.sample() for _ in range(int(np.prod(lead)))]
    return jax.tree.map(lambda *xs: np.stack(xs).reshape(*lead, *np.shape(xs[0])), *drawn)


@pytest.mark.parametrize("encoder", ["none", "mlp"])
def test_a_vector_is_read_as_it_always_was(encoder: str) -> None:
    """Layers of 64 have the parameters of earlier versions; without layers the bits are equal."""
    made: Any = make_encoder(spaces.Box(-1.0, 1.0, (5,)), EncoderConfig(encoder), key=KEY)
    x = jax.random.normal(KEY, (3, 2, 5))
    y = x
    if encoder == "mlp":
        first, second, _ = jax.random.split(KEY, 3)
        layers = (Linear(5, 64, key=first), Linear(64, 64, key=second))
        for layer in layers:
            y = jax.nn.relu(layer(y))
        assert (made.layers[1].weight == layers[1].weight).all()
    assert (made(x) == y).all() and made.output_size == y.shape[-1]


@pytest.mark.parametrize("encoder", ["impala", "nature"])
def test_convolutional_encoders_against_plain_loops(encoder: str) -> None:
    """They agree for bytes, odd and even sides, and different axes."""
    shape = (37, 40, 2) if encoder == "nature" else (10, 13, 2)
    made = make_encoder(
        spaces.Box(0, 255, shape, np.uint8), EncoderConfig(encoder, **SMALL), key=KEY
    )
    # Biases start at 0, so a missing one would not be noticed.
    arrays, rest = eqx.partition(made, eqx.is_array)
    made = eqx.combine(jax.tree.map(lambda a: a + 0.1, arrays), rest)
    pictures = sample(spaces.Box(0, 255, shape, np.uint8), (2,))
    expected = [getattr(oracle, encoder)(made, picture) for picture in pictures]
    np.testing.assert_allclose(eqx.filter_jit(made)(pictures), expected, rtol=2e-4, atol=1e-4)
    assert np.abs(expected).max() > 0.1


def test_parameters_are_as_many_as_published() -> None:
    """By hand: 97,600 in the convolutions of IMPALA's network; the layer reads 8 x 8 x 32."""

    def count(kind: Any, shape: tuple[int, ...], **options: Any) -> int:
        frame = Frame(shape, is_bytes=True)
        return numbers_of(eqx.filter_eval_shape(lambda: kind(frame, key=KEY, **options)))

    assert count(Impala, (64, 64, 3)) == 97_600 + 2048 * 256 + 256 == 622_144
    assert count(Impala, (64, 64, 3), features=512) == 1_146_688  # about 1.2M in Sample Factory
    assert count(Nature, (84, 84, 4)) == 1_684_128
    assert count(Nature, (4, 84, 84)) == 1_684_128


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_dict_on_any_leading_axes(encoder: str) -> None:
    """Every entry is read by name; a chunk equals its elements, in one call and under vmap."""
    config = EncoderConfig(encoder, **SMALL)
    made: Any = make_encoder(MIXED, config, key=KEY)
    chunk = sample(MIXED, (3, 2))
    call = eqx.filter_jit(lambda encoder, x: encoder(x))
    y = call(made, chunk)
    assert y.shape == (3, 2, made.output_size) and y.dtype == jnp.float32
    one = call(made, jax.tree.map(lambda x: x[2, 1], chunk))
    np.testing.assert_allclose(one, y[2, 1], rtol=1e-4, atol=1e-5)
    mapped = call(eqx.filter_vmap(made, in_axes=1, out_axes=1), chunk)
    np.testing.assert_allclose(mapped, y, rtol=1e-4, atol=1e-5)
    picture, layers = 40 * 37 * 3, 6
    deep = {"camera": 5, "direction": layers, "speed": layers, "keys": layers, "cards": layers}
    plain = {"camera": picture, "direction": 4, "speed": 4, "keys": 3, "cards": 5}
    sizes = deep if encoder in ("auto", "mlp") else plain
    sizes |= {"camera": {"mlp": layers, "none": picture}.get(encoder, 5)}
    size = sum(sizes.values()) + 5 + 1
    read = made.first if encoder == "joint" else made
    assert read.output_size == size
    assert made.output_size == (layers if encoder == "joint" else size)


def test_joint_layers_read_all_entries() -> None:
    """They read one vector of all entries, in the order of their names."""
    space = spaces.Dict(speed=spaces.Box(-1.0, 1.0, (2,)), previous_action=spaces.Discrete(3))
    made: Any = make_encoder(space, EncoderConfig("joint", encoder_size=6), key=KEY)
    first, second = (np.asarray(layer.weight) for layer in made.second.layers)
    assert first.shape == (5, 6) and second.shape == (6, 6)
    y = made({"speed": jnp.array([0.5, -1.0]), "previous_action": jnp.array(1)})
    x = np.array([0.0, 1.0, 0.0, 0.5, -1.0])
    expected = np.maximum(np.maximum(x @ first, 0) @ second, 0)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_entries_stand_in_the_order_of_their_names() -> None:
    """Without layers the outputs show it: cards, direction, keys, action, reward, speed."""
    space = spaces.Dict({name: s for name, s in MIXED.spaces.items() if name != "camera"})
    x = {
        "direction": np.int64(3),
        "speed": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        "keys": np.array([0, 1, 1], np.int8),
        "inner": {"cards": np.array([2, 0])},
        "previous_action": np.int64(-1),
        "previous_reward": np.array([-3.0], np.float32),
    }
    y = make_encoder(space, EncoderConfig(), key=KEY)(jax.tree.map(jnp.asarray, x))
    ones = [0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0]  # direction 3 of 1 to 4, keys, cards
    expected = ones[:4] + [0, 1, 1, 0, 0] + [0, 1, 1] + [1, 0, 0, 0, 0] + [-np.log(4.0), 1, 2, 3, 4]
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_numbers_out_of_range_are_no_number() -> None:
    """One-hot and embedding give zeros; neighbours in the same table are unaffected."""
    one_hot = OneHot((2, 3), (0, 0), (2,))
    assert one_hot(jnp.array([-1, 3])).tolist() == [0.0] * 5
    assert one_hot(jnp.array([2, -1])).tolist() == [0.0] * 5
    space = spaces.MultiDiscrete([2, 3])
    embedded: Any = make_encoder(space, EncoderConfig(embedding_size=4), key=KEY)
    y = embedded(jnp.array([[1, 2], [-1, 2], [1, 3]]))
    table = embedded.tables
    np.testing.assert_allclose(y[0], jnp.concatenate([table[1], table[4]]))
    np.testing.assert_allclose(y[1], jnp.concatenate([jnp.zeros(4), table[4]]))
    np.testing.assert_allclose(y[2], jnp.concatenate([table[1], jnp.zeros(4)]))


@pytest.mark.parametrize("precision", fast_only(["bfloat16", "float16"], "bfloat16"))
@pytest.mark.parametrize("encoder", fast_only(["mlp", "impala", "nature"], "nature"))
def test_half_precision_is_near_and_its_gradients_are_whole(encoder: str, precision: str) -> None:
    """Outputs, parameters and gradients stay float32; bytes lose nothing before the weights."""
    shape = (37, 36, 3) if encoder == "nature" else (10, 9, 3)
    space = spaces.Box(0, 255, shape, np.uint8)
    whole, half = (
        make_encoder(space, EncoderConfig(encoder, precision=p, **SMALL), key=KEY)
        for p in ("float32", precision)
    )
    x = sample(space, (16,))
    value = eqx.filter_jit(eqx.filter_value_and_grad(lambda m: jnp.mean(m(x) ** 2)))
    (expected, slopes), (found, half_slopes) = value(whole), value(half)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=0.05)
    leaves = [jax.tree.leaves(tree) for tree in (slopes, half_slopes)]
    assert {leaf.dtype for leaf in leaves[1]} == {np.dtype(np.float32)}
    # Rounding moves some maxima, so directions are compared instead of numbers.
    a, b = (np.concatenate([np.ravel(leaf) for leaf in tree]) for tree in leaves)
    assert a @ b > 0.98 * np.linalg.norm(a) * np.linalg.norm(b)
    assert abs(np.linalg.norm(b) / np.linalg.norm(a) - 1.0) < 0.1


def test_channels_first_and_missing_channels_are_the_same_pictures() -> None:
    """An axis shorter than both others is the channel axis; bytes with two axes are grey."""
    x = sample(spaces.Box(0, 255, (2, 7, 6), np.uint8), (3,))

    def read(shape: tuple[int, ...], x: np.ndarray) -> np.ndarray:
        encoder = Impala(Frame(shape, is_bytes=True), key=KEY, channels=(2,), features=3)
        return np.asarray(eqx.filter_jit(encoder)(x))

    assert (read((2, 7, 6), x) == read((7, 6, 2), np.moveaxis(x, 1, -1))).all()
    assert (read((7, 6), x[:, 0]) == read((7, 6, 1), x[:, 0, ..., None])).all()
    assert isinstance(make_encoder(spaces.Box(0, 255, (40, 36), np.uint8), AUTO, key=KEY), Impala)


AUTO = EncoderConfig("auto", **SMALL)


@pytest.mark.parametrize(
    ("shape", "kind"), [((7, 7, 3), Dense), ((32, 32, 3), Impala), ((9,), Dense)]
)
def test_auto_takes_what_fits(shape: tuple[int, ...], kind: Any) -> None:
    """A small grid of symbols is not a picture, and its bytes stay unchanged."""
    made = make_encoder(spaces.Box(0, 255, shape, np.uint8), AUTO, key=KEY)
    assert isinstance(made, kind)
    assert not isinstance(made, Dense) or made.scale == 1.0


@pytest.mark.parametrize(
    ("shape", "kind", "encoder", "symbols"),
    [
        ((16, 16, 1), Impala, "impala", False),
        ((16, 16, 1), Dense, "auto", True),
        ((7, 7, 3), Dense, "impala", False),
        ((7, 7, 3), Dense, "auto", False),
        ((32, 32, 3), Impala, "auto", False),
    ],
)
def test_a_small_picture_in_a_dict(
    shape: tuple[int, ...], kind: Any, encoder: str, symbols: bool
) -> None:
    """It is a picture if impala is asked for and can read it; the dict may be a wrapper's."""
    config = EncoderConfig(encoder, **SMALL)
    box = spaces.Box(0, 255, shape, np.uint8)
    made = make_encoder(spaces.Dict(a=box, b=spaces.Discrete(2)), config, key=KEY)
    assert isinstance(made, DictEncoder) and isinstance(made.encoders[0], kind)
    assert taken_for_symbols(box, config) == symbols
    assert not taken_for_symbols(spaces.Box(0, 1, shape), config)
    assert is_flattened(box, EncoderConfig("none")) == (shape[0] >= 32)
    assert not is_flattened(box, config)


@pytest.mark.parametrize(
    ("shape", "stacked"),
    [((4, 84, 84, 3), True), ((4, 84, 84), False), ((2, 3, 4, 5), False), ((84, 84, 3), False)],
)
def test_stacked_colour_frames_are_no_picture(shape: tuple[int, ...], stacked: bool) -> None:
    """A run says so, since they are read as one long vector."""
    assert is_stack(spaces.Box(0, 255, shape, np.uint8), EncoderConfig("auto")) == stacked


def test_a_projection_and_a_norm_after_all_of_it() -> None:
    config = EncoderConfig(encoder_projection=7, encoder_norm=True)
    made: Any = make_encoder(spaces.Box(-1.0, 1.0, (5,)), config, key=KEY)
    x = np.asarray(jax.random.normal(KEY, (4, 5)))
    y = x @ np.asarray(made.projection.weight)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(made(jnp.asarray(x)), y, rtol=1e-4, atol=1e-5)
    assert made.output_size == 7 and numbers_of(made) == 5 * 7 + 7 + 14
