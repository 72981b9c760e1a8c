"""Mistakes in the use of a memory are refused at once, with expectation and actual value."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from clew.errors import UserError
from clew.lab.studies.models import PublishedLSTM
from clew.lab.studies.tmaze.models import PublishedAReLiT, PublishedReLiT
from clew.memory import MEMORIES, AbstractMemory, make_memory, options_of
from memory_samples import DIFFERENT, INPUT_SIZE, SMALL
from slow_cases import fast_only

KEY = jax.random.key(0)
WITH_HEADS = [name for name in MEMORIES if "num_heads" in options_of(name)]
WITH_WINDOW = [name for name in MEMORIES if "window" in options_of(name)]


def build(name: Any, **options: Any) -> AbstractMemory:
    """A small memory with some options."""
    return make_memory(name, input_size=INPUT_SIZE, key=KEY, **{**SMALL.get(name, {}), **options})


@pytest.mark.parametrize("name", fast_only(MEMORIES, *DIFFERENT))
def test_a_wrong_observation_names_both_shapes(name: str) -> None:
    """Too long, with a batch axis, without a time axis, empty, or integers."""
    memory = build(name)
    state, start, starts = memory.init_state(), jnp.array(False), jnp.zeros(3, bool)
    with pytest.raises(UserError, match=r"shape \[5\], got \[6\]"):
        memory.step(state, jnp.zeros(6), start)
    with pytest.raises(UserError, match=r"shape \[5\], got \[2, 5\].*vmap"):
        memory.step(state, jnp.zeros((2, 5)), start)
    with pytest.raises(UserError, match=r"shape \[3, 5\], got \[3, 4\]"):
        memory.unroll(state, jnp.zeros((3, 4)), starts)
    with pytest.raises(UserError, match=r"got \[3, 2, 5\]"):
        memory.unroll(state, jnp.zeros((3, 2, 5)), starts)
    with pytest.raises(UserError, match=r"time >= 1, 5\], got \[0, 5\]"):
        memory.unroll(state, jnp.zeros((0, 5)), jnp.zeros(0, bool))
    with pytest.raises(UserError, match="float.*got int32"):
        memory.step(state, jnp.zeros(5, jnp.int32), start)
    with pytest.raises(UserError, match="float.*got int32"):
        memory.unroll(state, jnp.zeros((3, 5), jnp.int32), starts)


@pytest.mark.parametrize("name", ["gru", "transformer", "universal", "arelit"])
def test_a_wrong_episode_has_no_maps(name: str) -> None:
    """A kernel used to write beyond the end of a single observation."""
    memory = build(name)
    for xs in (jnp.zeros(5), jnp.zeros((3, 4)), jnp.zeros((3, 2, 5)), jnp.zeros((0, 5))):
        with pytest.raises(UserError, match="expected xs of shape"):
            memory.maps(xs)


@pytest.mark.parametrize("name", fast_only(MEMORIES, *DIFFERENT))
def test_a_wrong_start_flag_names_both_shapes(name: str) -> None:
    """Another length, one flag for a whole chunk, or numbers instead of flags."""
    memory = build(name)
    state, xs = memory.init_state(), jnp.zeros((3, 5))
    with pytest.raises(UserError, match=r"starts of shape \[3\], got \[4\]"):
        memory.unroll(state, xs, jnp.zeros(4, bool))
    with pytest.raises(UserError, match=r"starts of shape \[3\], got \[\]"):
        memory.unroll(state, xs, jnp.array(False))
    with pytest.raises(UserError, match="bool.*got float32"):
        memory.unroll(state, xs, jnp.zeros(3))
    with pytest.raises(UserError, match=r"start of shape \[\], got \[1\]"):
        memory.step(state, xs[0], jnp.zeros(1, bool))
    with pytest.raises(UserError, match="bool.*got int32"):
        memory.step(state, xs[0], jnp.array(0, jnp.int32))


@pytest.mark.parametrize("name", ["gtrxl", "transformer", "universal"])
def test_states_of_a_batch_are_refreshed_one_by_one(name: str) -> None:
    """Even if as many heads as members would hide the mistake."""
    memory = build(name, num_heads=2)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), memory.init_state())
    with pytest.raises(UserError, match="no batch axis: use jax.vmap"):
        memory.refresh(states)
    assert jax.tree.map(jnp.shape, jax.vmap(memory.refresh)(states)) == jax.tree.map(
        jnp.shape, states
    )


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "8"])
def test_impossible_sizes_are_refused(name: str, size: Any) -> None:
    """Widths and numbers of layers, by name and with the value, before anything is compiled."""
    for option in ("hidden_size", "num_layers"):
        with pytest.raises(UserError, match=option):
            build(name, **{option: size})
    with pytest.raises(UserError, match="input_size"):
        make_memory(name, input_size=size, key=KEY)


@pytest.mark.parametrize("size", [0, -1, 1.5])
@pytest.mark.parametrize("name", WITH_HEADS)
def test_impossible_heads_are_refused(name: str, size: Any) -> None:
    """The number of heads, their size, and the feed-forward net's."""
    for option in ("num_heads", "head_size", "ffn_size"):
        with pytest.raises(UserError, match=f"{option} must be .*{size}"):
            build(name, **{option: size})


@pytest.mark.parametrize("name", WITH_WINDOW)
def test_a_window_is_at_least_one(name: str) -> None:
    """A window of 0 would not be a memory."""
    with pytest.raises(UserError, match="window must be .* at least 1, got 0"):
        build(name, window=0)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("relit", "eta", 0),
        ("relit", "epsilon", -1e-5),
        ("relit", "epsilon", 0.0),
        ("relit", "epsilon", 1e-30),
        ("relit", "epsilon", float("nan")),
        (PublishedReLiT, "decay", "seperate"),
        (PublishedReLiT, "query", "triple"),
        ("arelit", "eta", 0),
        ("arelit", "r", 0),
        ("arelit", "r", 2.5),
        ("arelit", "epsilon", float("inf")),
        ("arelit", "frequencies", "thesiss"),
        (PublishedAReLiT, "scale", "other"),
        (PublishedAReLiT, "tick", "reset"),
        (PublishedLSTM, "init_per", "role"),
        ("linear_transformer", "epsilon", -1.0),
        ("linear_transformer", "gate", "gruu"),
        ("transformer", "norm", "middle"),
        ("transformer_xl", "norm", "middle"),
        ("gtrxl", "gate", "lstm"),
        ("lstm", "init", "orthogonl"),
        ("gru", "init", "zeros"),
        ("none", "init", "zeros"),
        ("lstm", "forget_bias", float("nan")),
        ("lstm", "forget_bias", "one"),
        ("lstm", "forget_bias", True),
        ("universal", "halting", "no"),
        ("min_lstm", "normalised", "False"),
    ],
)
def test_impossible_values_are_refused(name: Any, option: str, value: Any) -> None:
    """The message names the option and the value."""
    with pytest.raises(UserError, match=f"{option}.* must be .*{value}|{option} '{value}'"):
        build(name, **{option: value})


def test_unknown_names_come_with_the_nearest() -> None:
    """For memories and options alike."""
    with pytest.raises(UserError, match="unknown memory 'lstmm'; did you mean 'lstm'"):
        make_memory("lstmm", input_size=3, key=KEY)
    with pytest.raises(UserError, match="unknown memory.*known: arelit"):
        make_memory("qqqq", input_size=3, key=KEY)
    names: Any = ["lstm"]
    with pytest.raises(UserError, match="unknown memory.*did you mean 'lstm'"):
        make_memory(names, input_size=3, key=KEY)
    with pytest.raises(UserError, match="option of gtrxl 'num_head'; did you mean 'num_heads'"):
        make_memory("gtrxl", input_size=3, key=KEY, num_head=2)
    with pytest.raises(UserError, match="option of lstm 'window'"):
        make_memory("lstm", input_size=3, key=KEY, window=2)
    with pytest.raises(UserError, match="option of lstm 'key_'"):
        make_memory("lstm", input_size=3, key=KEY, key_=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": ["min_gur"]}, "unknown kind of layer 'min_gur'.*min_gru"),
        ({"layers": "min_gru"}, "layers must be a list of names"),
        ({"layers": []}, "layers must be a list of names"),
        ({"layers": 5}, "layers must be a list of names"),
        (
            {"layers": ["lstm"]},
            "lstm is not made of layers .* those are attention, transformer_xl, .*mamba2, .*shm",
        ),
        ({"layers": ["hybrid"]}, "unknown kind of layer 'hybrid'"),
        ({"layer_options": {"attention": 5}}, "layer_options must be .* by kind, got .*5"),
        ({"layer_options": ["attention"]}, "layer_options must be .* by kind, got .*attention"),
        ({"layer_options": {"atention": {}}}, "atention.*attention"),
        ({"layer_options": {"attention": {"windw": 3}}}, "windw.*window"),
        (
            {"layer_options": {"attention": {"embedding": False}}},
            "width, number, input and key are set by the hybrid",
        ),
        (
            {"layer_options": {"attention": {"num_layers": 3}}},
            "width, number, input and key are set by the hybrid",
        ),
        ({"layer_options": {"attention": {"key": 1}}}, "input and key are set by the hybrid"),
    ],
    ids=str,
)
def test_a_hybrid_says_which_layer_is_wrong(options: dict[str, Any], said: str) -> None:
    """It names wrong kinds, their options, and memories that have no layers."""
    with pytest.raises(UserError, match=said):
        make_memory("hybrid", input_size=3, key=KEY, **options)
