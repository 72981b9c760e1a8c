"""The models of libraries in JAX: how each is built, reads a chunk, and acts.

Every function imports its library when it is called, in an environment that has the library.
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.conformance.jax_modules import (
    Calls,
    JaxModule,
    alone,
    batch_of_one,
    cut_at_starts,
)
from benchmarks.conformance.model import BY_CALLER, SIZE, Model
from jaxtyping import Array

from clew.memory.base import AbstractMemory, State, select

KEY = jax.random.key(0)


def memax(module: str, name: str, *sizes: int, **options: Any) -> AbstractMemory:
    """memax's layers in Equinox: a chunk and a step are one call, which returns every state."""
    model = getattr(importlib.import_module(f"memax.equinox.{module}"), name)(
        *sizes, key=KEY, **options
    )

    def read(model: Any, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
        states, ys = model(state, (xs, starts))
        return model.latest_recurrent_state(states), ys

    calls = Calls(lambda model: model.initialize_carry(), read)
    return JaxModule(model, calls, SIZE, SIZE)


def memax_linen(module: str, name: str, **sizes: int) -> AbstractMemory:
    """memax's layers in Flax, which are called in the same way."""
    kind = getattr(importlib.import_module(f"memax.linen.{module}"), name)
    algebra = kind.default_algebra(recurrent_size=SIZE)
    model = kind(algebra=algebra, scan=kind.default_scan(), recurrent_size=SIZE, **sizes)
    carry = model.zero_carry()
    xs, starts = jnp.zeros((2, SIZE)), jnp.zeros(2, bool)
    variables = model.init(KEY, carry, (xs, starts))

    def read(variables: Any, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
        states, ys = model.apply(variables, state, (xs, starts))
        return model.latest_recurrent_state(states), ys

    calls = Calls(lambda variables: model.zero_carry(), read)
    return JaxModule(variables, calls, SIZE, SIZE)


MEMAX: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "Attention": ("semigroups.attn", (SIZE, 4), {"positional_embedding": None}),
    "Attention-ALiBi": ("semigroups.attn", (SIZE, 4), {"positional_embedding": "alibi"}),
    "Attention-RoPE": ("semigroups.attn", (SIZE, 4), {"positional_embedding": "rope"}),
    "DLSE": ("semigroups.dlse", (SIZE,), {}),
    "DeltaNet": ("semigroups.delta", (SIZE, 4), {}),
    "DeltaProduct": ("semigroups.deltap", (SIZE, 4, 2), {}),
    "Elman": ("set_actions.elman", (SIZE, SIZE), {}),
    "FART": ("semigroups.fart", (SIZE, 4), {}),
    "FFM": ("semigroups.ffm", (SIZE, 2, 4), {}),
    "FWP": ("semigroups.fwp", (SIZE, 4), {}),
    "GDN": ("semigroups.gdn", (SIZE, 4), {}),
    "GRU": ("set_actions.gru", (SIZE,), {}),
    "LRU": ("semigroups.lru", (SIZE, SIZE), {}),
    "LSTM": ("set_actions.lstm", (SIZE,), {}),
    "LinearRecurrent": ("semigroups.lrnn", (SIZE,), {}),
    "MGU": ("set_actions.mgu", (SIZE,), {}),
    "MLP": ("semigroups.mlp", (SIZE,), {}),
    "NMax": ("semigroups.nmax", (SIZE,), {}),
    "PSpherical": ("semigroups.spherical", (4, SIZE), {}),
    "S6": ("semigroups.s6", (SIZE, SIZE), {}),
    "Spherical": ("set_actions.spherical", (SIZE, SIZE), {}),
    "Stack": ("semigroups.stack", (SIZE, 4), {}),
}
"""Maps a name to module, sizes and options."""

MEMAX_LINEN: dict[str, tuple[str, dict[str, int]]] = {
    "FART": ("semigroups.fart", {"hidden_size": SIZE}),
    "GRU": ("set_actions.gru", {}),
    "LRU": ("semigroups.lru", {"hidden_size": SIZE}),
    "S6": ("semigroups.s6", {"hidden_size": SIZE}),
}


def memorax(make: Callable[[Any], Any], length: int = 0) -> AbstractMemory:
    """memorax's sequence models: a chunk and a step are one call, with a batch axis."""
    from benchmarks.peers.import_parts import import_memorax

    model = make(import_memorax())
    shape = (1, SIZE)

    def begin(params: Any) -> State:
        return alone(model.initialize_carry(KEY, shape))

    def read(params: Any, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
        data = batch_of_one((xs, starts, state))
        return alone(model.apply(params, data[0], data[1], data[2]))

    xs, starts = jnp.zeros((1, 2, SIZE)), jnp.zeros((1, 2), bool)
    params = model.init(KEY, xs, starts, model.initialize_carry(KEY, shape))
    return JaxModule(params, Calls(begin, read), SIZE, SIZE)


def _attention(library: Any, **options: Any) -> Any:
    from flax.linen import initializers

    return library.SelfAttention(
        features=SIZE,
        num_heads=2,
        context_length=96,
        dtype=jnp.float32,
        param_dtype=jnp.float32,
        kernel_init=initializers.lecun_normal(),
        bias_init=initializers.zeros_init(),
        **options,
    )


def _rope(library: Any) -> Any:
    embeddings = importlib.import_module("memorax.networks.positional_embeddings")
    return _attention(library, positional_embedding=embeddings.RoPE(SIZE // 2))


def _alibi(library: Any) -> Any:
    embeddings = importlib.import_module("memorax.networks.positional_embeddings")
    return _attention(library, positional_embedding=embeddings.ALiBi(2))


def _linear_attention(library: Any) -> Any:
    from flax.linen import initializers

    cell = library.LinearAttentionCell(
        head_dim=4,
        num_heads=2,
        kernel_init=initializers.lecun_normal(),
        bias_init=initializers.zeros_init(),
        param_dtype=jnp.float32,
    )
    return library.Memoroid(cell)


def _of_cell(name: str, *sizes: int, **options: Any) -> Callable[[Any], Any]:
    def make(library: Any) -> Any:
        cell = getattr(library, name)(*sizes, **options)
        return (library.RNN if name in ("SHMCell", "sLSTMCell") else library.Memoroid)(cell)

    return make


def _of_flax_cell(name: str) -> Callable[[Any], Any]:
    def make(library: Any) -> Any:
        import flax.linen as nn

        return library.RNN(getattr(nn, name)(SIZE))

    return make


MEMORAX: dict[str, Callable[[Any], Any]] = {
    "FFM": _of_cell("FFMCell", SIZE, 4, 2),
    "GRU": _of_flax_cell("GRUCell"),
    "LRU": _of_cell("LRUCell", SIZE, SIZE),
    "LSTM": _of_flax_cell("OptimizedLSTMCell"),
    "LinearAttention": _linear_attention,
    "Mamba": _of_cell("MambaCell", SIZE, num_heads=2, head_dim=4, hidden_dim=4),
    "MinGRU": _of_cell("MinGRUCell", SIZE),
    "S5": _of_cell("S5Cell", SIZE, SIZE),
    "SHM": _of_cell("SHMCell", SIZE, SIZE, sample_theta=False),
    "SelfAttention": _attention,
    "SelfAttention-ALiBi": _alibi,
    "SelfAttention-RoPE": _rope,
    "mLSTM": _of_cell("mLSTMCell", SIZE, SIZE, num_heads=2),
    "sLSTM": _of_cell("sLSTMCell", SIZE, SIZE, num_heads=2),
}
"""Maps a name to the function that builds it from memorax's package of sequence models."""


def flax_cell(name: str, **options: Any) -> AbstractMemory:
    """Flax's cells: `nn.RNN` reads a chunk from a carry, and the cell one observation."""
    import flax.linen as nn

    cell = getattr(nn, name)(SIZE, **options)
    rnn = nn.RNN(getattr(nn, name)(SIZE, **options), return_carry=True)
    params = rnn.init(KEY, jnp.zeros((1, 2, SIZE)))["params"]

    def begin(params: Any) -> State:
        return cell.initialize_carry(KEY, (SIZE,))

    def read(params: Any, state: State, xs: Array) -> tuple[State, Array]:
        return rnn.apply({"params": params}, xs, initial_carry=state)

    def step(params: Any, state: State, x: Array) -> tuple[State, Array]:
        return cell.apply({"params": params["cell"]}, state, x)

    return JaxModule(params, cut_at_starts(begin, read, step), SIZE, SIZE)


def nnx_cell(name: str) -> AbstractMemory:
    """The cells of flax's NNX, which has its own `RNN`."""
    from flax import nnx

    rnn = nnx.RNN(getattr(nnx, name)(SIZE, SIZE, rngs=nnx.Rngs(0)), return_carry=True)
    graph, params, rest = nnx.split(rnn, nnx.Param, ...)

    def merge(params: Any) -> Any:
        return nnx.merge(graph, params, rest, copy=True)

    def begin(params: Any) -> State:
        return merge(params).cell.initialize_carry((SIZE,), nnx.Rngs(0))

    def read(params: Any, state: State, xs: Array) -> tuple[State, Array]:
        return merge(params)(xs, initial_carry=state)

    def step(params: Any, state: State, x: Array) -> tuple[State, Array]:
        return merge(params).cell(state, x)

    return JaxModule(params, cut_at_starts(begin, read, step), SIZE, SIZE)


def recurrentgemma(name: str) -> AbstractMemory:
    """recurrentgemma's blocks: prefill reads a chunk from a fresh state, decoding reads one token.

    A chunk cannot continue from a cache, so a chunk whose first observation is not a start is read
    by decoding.
    """
    from recurrentgemma.jax import modules

    sizes = {"width": SIZE, "num_heads": 2}
    options = {"LocalAttentionBlock": {"window_size": 4}, "RecurrentBlock": {"lru_width": SIZE}}
    block = getattr(modules, name)(**sizes, **options[name])
    params = block.init(KEY, jnp.zeros((1, 2, SIZE)), jnp.arange(2)[None])

    def begin(params: Any) -> State:
        if name == "RecurrentBlock":
            cache = block.init_cache(1, SIZE, jnp.float32)
        else:
            cache = block.init_cache(1, 4, SIZE // 2, jnp.float32)
        return alone(cache), jnp.zeros((), jnp.int32)

    def step(params: Any, state: State, x: Array, start: Array) -> tuple[State, Array]:
        cache, position = select(start, begin(params), state)  # a new document has a new cache
        positions = position[None, None]
        y, cache = block.apply(params, x[None, None], positions, batch_of_one(cache))
        return (alone(cache), position + 1), y[0, 0]

    def read(params: Any, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
        time = jnp.arange(len(xs))
        first = jax.lax.cummax(jnp.where(starts, time, 0))
        like = jax.tree.map(lambda leaf: leaf.dtype, state)

        def prefill(state: State) -> tuple[State, Array]:
            y, cache = block.apply(params, xs[None], (time - first)[None])
            after = alone(cache), (time - first)[-1] + 1
            return jax.tree.map(lambda leaf, kind: leaf.astype(kind), after, like), y[0]

        def decode(state: State) -> tuple[State, Array]:
            return jax.lax.scan(lambda s, data: step(params, s, *data), state, (xs, starts))

        return jax.lax.cond(starts[0], prefill, decode, state)

    return JaxModule(params, Calls(begin, read, step), SIZE, SIZE)


CELLS = ("GRUCell", "LSTMCell", "MGUCell", "OptimizedLSTMCell", "SimpleCell")


def models() -> dict[str, Model]:
    """Every model of these libraries, by name."""
    found = {}
    call, one = "a call on [time, in] with starts", "the same call on one observation"
    for name, (module, sizes, options) in MEMAX.items():
        kind = name.split("-")[0]
        what, make = (
            f"memax.equinox.{module}.{kind}",
            partial(memax, module, kind, *sizes, **options),
        )
        found[f"memax.{name}"] = Model("memax", what, make, call, one)
    for name, (module, more) in MEMAX_LINEN.items():
        what, make = f"memax.linen.{module}.{name}", partial(memax_linen, module, name, **more)
        found[f"memax.linen.{name}"] = Model("memax", what, make, call, one)
    for name, make_model in MEMORAX.items():
        what, make = f"memorax.networks.sequence_models, {name}", partial(memorax, make_model)
        found[f"memorax.{name}"] = Model("memorax", what, make, call, one)
    for name in CELLS:
        what, make = f"flax.linen.{name}", partial(flax_cell, name)
        found[f"flax.{name}"] = Model("flax", what, make, "nn.RNN", "the cell", BY_CALLER)
        if name != "MGUCell":
            what, make = f"flax.nnx.{name}", partial(nnx_cell, name)
            found[f"flax.nnx.{name}"] = Model("flax", what, make, "nnx.RNN", "the cell", BY_CALLER)
    for name in ("LocalAttentionBlock", "RecurrentBlock"):
        what, make = f"recurrentgemma.jax.modules.{name}", partial(recurrentgemma, name)
        row = Model("recurrentgemma", what, make, "prefill by segment_pos", "decoding one token")
        found[f"recurrentgemma.{name}"] = row
    return found
