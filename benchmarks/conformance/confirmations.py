"""Breaches shown with the libraries' own functions, without clew and without an adapter."""

import importlib
from collections.abc import Callable
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0)
SIZE = 8


class Confirmation(NamedTuple):
    """One breach."""

    file: str
    """A file of the library, relative to the folder of its package."""
    number: int
    """The number of the line that causes it."""
    text: str
    """Text on that line, to notice when the file has changed."""
    says: str
    """The effect, in a sentence."""
    measure: Callable[[], float]
    """The difference of two ways that should agree, relative to the largest number."""

    def line(self) -> str:
        """File and line, after checking that the line still has the text.

        Raises:
            AssertionError: if it does not.
        """
        package = PathFinder.find_spec(self.file.split("/")[0])
        assert package is not None and package.submodule_search_locations, self.file
        root = Path(next(iter(package.submodule_search_locations))).parent
        found = (root / self.file).read_text().splitlines()[self.number - 1]
        assert self.text in found, f"{self.file}:{self.number} is {found!r}, not {self.text!r}"
        return f"{self.file}:{self.number}"


def apart(actual: Any, expected: Any) -> float:
    """The largest difference of two arrays, relative to the largest number that was expected."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def observations(*shape: int) -> np.ndarray:
    """Random arrays, the same every time."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def memorax_of(name: str) -> tuple[Any, Any, Any]:
    """A sequence model of memorax, its parameters and its first carry."""
    from benchmarks.conformance.jax_libraries import MEMORAX
    from benchmarks.peers.import_parts import import_memorax

    model = MEMORAX[name](import_memorax())
    carry = model.initialize_carry(KEY, (1, SIZE))
    return model, model.init(KEY, observations(1, 2, SIZE), jnp.zeros((1, 2), bool), carry), carry


def memorax_split(name: str) -> float:
    """One episode of eight observations, in one call and in two calls of four."""
    model, params, carry = memorax_of(name)
    xs, starts = observations(1, 8, SIZE), np.arange(8)[None] == 0
    _, whole = model.apply(params, xs, starts, carry)
    carry, first = model.apply(params, xs[:, :4], starts[:, :4], carry)
    _, second = model.apply(params, xs[:, 4:], starts[:, 4:], carry)
    return apart(jnp.concatenate([first, second], 1), whole)


def memorax_first(name: str) -> float:
    """The very first observation, with a start and without one, from a fresh carry."""
    model, params, carry = memorax_of(name)
    x = observations(1, 1, SIZE)
    ys = [model.apply(params, x, np.full((1, 1), flag), carry)[1] for flag in (False, True)]
    return apart(*ys)


def memorax_gradient(name: str) -> float:
    """Whether a gradient with observations of size 1,000 is a number; infinite if it is not."""
    model, params, carry = memorax_of(name)
    xs, starts = 1000 * observations(1, 16, SIZE), np.arange(16)[None] % 4 == 0

    def loss(params: Any) -> Any:
        return model.apply(params, xs, starts, carry)[1].sum()

    finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.grad(loss)(params))]
    return 0.0 if all(finite) else np.inf


def memax_of(name: str) -> Any:
    """A layer of memax."""
    from benchmarks.conformance.jax_libraries import MEMAX

    module, sizes, options = MEMAX[name]
    return getattr(importlib.import_module(f"memax.equinox.{module}"), name)(
        *sizes, key=KEY, **options
    )


def memax_associates(module: str, name: str, decay: str) -> float:
    """A semigroup's operation on three elements, bracketed in both ways; decays of 0.9."""
    import equinox as eqx

    operate = getattr(importlib.import_module(f"memax.equinox.semigroups.{module}"), name)(SIZE)
    operate = eqx.tree_at(lambda op: getattr(op, decay), operate, replace_fn=lambda old: 0.9 * old)
    shape = operate.initialize_carry().shape
    a, b, c = (jnp.asarray(x) for x in observations(3, *shape))
    return apart(operate(a, operate(b, c)), operate(operate(a, b), c))


def memax_zero_by_zero() -> float:
    """NMax on an observation without a positive number; infinite if the output is not a number."""
    model = memax_of("NMax")
    xs = -jnp.abs(observations(1, SIZE))
    _, ys = model(model.initialize_carry(), (xs, jnp.ones(1, bool)))
    return 0.0 if bool(jnp.isfinite(ys).all()) else np.inf


def memax_zero_gradient(name: str) -> float:
    """The gradient where an observation is zero; infinite if it is not a number."""
    model = memax_of(name)
    xs, starts = jnp.asarray(observations(3, SIZE)).at[1].set(0.0), jnp.arange(3) == 0
    gradient = jax.grad(lambda xs: model(model.initialize_carry(), (xs, starts))[1].sum())(xs)
    return 0.0 if bool(jnp.isfinite(gradient).all()) else np.inf


def memax_nan() -> float:
    """A GRU's output at a start, after a state of NaN; infinite if it is not a number."""
    model = memax_of("GRU")
    state = jax.tree.map(lambda leaf: leaf * jnp.nan, model.initialize_carry()[0])
    _, ys = model((state, jnp.zeros((), bool)), (observations(1, SIZE), jnp.ones(1, bool)))
    return 0.0 if bool(jnp.isfinite(ys).all()) else np.inf


POSITIONS = np.array([[0, 1, 2, 3, 0, 1, 2]])
"""Two documents; the second starts within the range that the convolution reads."""


def recurrentgemma_jax() -> float:
    """Two documents, prefilled at once, and decoding after a prefill that ends behind a start."""
    from recurrentgemma.jax.modules import RecurrentBlock

    block = RecurrentBlock(width=SIZE, num_heads=2, lru_width=SIZE)
    xs = jnp.asarray(observations(1, 7, SIZE))
    positions = jnp.asarray(POSITIONS, jnp.int32)
    params = block.init(KEY, xs, positions)
    whole, _ = block.apply(params, xs, positions)
    _, cache = block.apply(params, xs[:, :5], positions[:, :5])
    y, _ = block.apply(params, xs[:, 5:6], positions[:, 5:6], cache)
    return apart(y, whole[:, 5:6])


def min_lstm() -> float:
    """A chunk of four after two observations, in parallel and one by one."""
    import torch
    from minGRU_pytorch.minLSTM import minLSTM

    torch.manual_seed(0)
    model, xs = minLSTM(SIZE), torch.from_numpy(observations(1, 6, SIZE))
    with torch.no_grad():
        _, before = model(xs[:, :2], None, True)
        chunk, state, ys = model(xs[:, 2:], before), before, []
        for t in range(2, 6):
            y, state = model(xs[:, t : t + 1], state, True)
            ys.append(y)
    return apart(chunk, torch.cat(ys, 1))


def min_gru() -> float:
    """The gradient of a chunk after an observation of size 1,000; infinite if not a number."""
    import torch
    from minGRU_pytorch.minGRU import minGRU

    torch.manual_seed(0)
    model, xs = minGRU(SIZE), torch.from_numpy(observations(1, 6, SIZE))
    large = (1000 * xs[:, :1]).requires_grad_()
    _, before = model(large, None, True)
    model(xs[:, 1:], before).sum().backward()
    return 0.0 if bool(torch.isfinite(large.grad).all()) else np.inf


def rl_games_alone(kind: str) -> float:
    """An episode that ends in a chunk, as the only member and as one of two equal members."""
    import torch
    from rl_games.common.layers import recurrent

    torch.manual_seed(0)
    model = getattr(recurrent, f"{kind}WithDones")(SIZE, SIZE)
    xs = torch.from_numpy(observations(6, 1, SIZE))
    dones = (torch.arange(6) == 3).float()[:, None, None]
    state = torch.zeros(1, 1, SIZE)

    def read(members: int) -> Any:
        first = state.repeat(1, members, 1)
        given = (first, first) if kind == "LSTM" else first
        ys, _ = model(xs.repeat(1, members, 1), given, dones.repeat(1, members, 1))
        return ys.detach()[:, :1]

    return apart(read(1), read(2))


NEURAL = "memorax/networks/sequence_models"
SHIFTED = Confirmation(
    f"{NEURAL}/self_attention.py",
    44,
    "jnp.ones",
    "A fresh cache counts as open: without a start the first observation attends to an empty slot. "
    "memorax's PPO always begins with a start",
    partial(memorax_first, "SelfAttention"),
)
ROTATED = Confirmation(
    f"{NEURAL}/self_attention.py",
    107,
    "self.positional_embedding(query, key",
    "Keys are cached with their rotation and rotated again by the next call",
    partial(memorax_split, "SelfAttention-RoPE"),
)


def of_norm(name: str, file: str, number: int) -> Confirmation:
    """A confirmation for memax's delta rules."""
    says = "The norm of a key of zeros, which an observation of zeros has, has no gradient"
    place = f"memax/equinox/semigroups/{file}"
    measure = partial(memax_zero_gradient, name)
    return Confirmation(place, number, "jnp.linalg.norm(k)", says, measure)


def of_one_member(kind: str) -> Confirmation:
    """A confirmation for rl_games' layers."""
    says = "squeeze() drops the axis of a single member: starts are then any or none"
    place = "rl_games/common/layers/recurrent.py"
    return Confirmation(place, 35, "squeeze()[1:]", says, partial(rl_games_alone, kind))


def of_cache(place: str, number: int, measure: Callable[[], float]) -> Confirmation:
    """A confirmation for recurrentgemma's convolution, in both languages."""
    says = "The cache of a prefill holds inputs of the document before, which decoding reads"
    return Confirmation(place, number, "new_cache = x[:, 1 - self.temporal_width", says, measure)


CONFIRMATIONS: dict[str, tuple[Confirmation, ...]] = {
    "memax.DLSE": (
        Confirmation(
            "memax/equinox/semigroups/dlse.py",
            37,
            "self.gamma @ carry",
            "The decay is applied to a composed element once, so the operation is not associative",
            partial(memax_associates, "dlse", "DLSESemigroup", "gamma"),
        ),
    ),
    "memax.DeltaProduct": (of_norm("DeltaProduct", "deltap.py", 115),),
    "memax.GDN": (of_norm("GDN", "gdn.py", 117),),
    "memax.GRU": (
        Confirmation(
            "memax/equinox/groups.py",
            124,
            "current_state * jnp.logical_not(start)",
            "A reset by multiplication lets NaN through",
            memax_nan,
        ),
    ),
    "memax.NMax": (
        Confirmation(
            "memax/equinox/semigroups/nmax.py",
            39,
            "self.decay * carry",
            "The decay is applied to a composed element once, so the operation is not associative; "
            "it begins at 1, where gradients alone differ",
            partial(memax_associates, "nmax", "NMaxSemigroup", "decay"),
        ),
        Confirmation(
            "memax/equinox/semigroups/nmax.py",
            94,
            "jnp.linalg.norm(state, ord=1)",
            "0 / 0 until some number was positive",
            memax_zero_by_zero,
        ),
    ),
    "memorax.FFM": (
        Confirmation(
            f"{NEURAL}/ffm.py",
            102,
            "jnp.arange(T",
            "Time begins at 0 with every chunk, the carry's goes on: decays of negative times",
            partial(memorax_split, "FFM"),
        ),
    ),
    "memorax.SelfAttention": (SHIFTED,),
    "memorax.SelfAttention-ALiBi": (
        SHIFTED._replace(measure=partial(memorax_first, "SelfAttention-ALiBi")),
    ),
    "memorax.SelfAttention-RoPE": (
        ROTATED,
        SHIFTED._replace(measure=partial(memorax_first, "SelfAttention-RoPE")),
    ),
    "memorax.sLSTM": (
        Confirmation(
            f"{NEURAL}/slstm.py",
            168,
            "jnp.minimum(jnp.exp(log_f",
            "An exponential overflows before its minimum with 1 is taken: 0 times infinity",
            partial(memorax_gradient, "sLSTM"),
        ),
    ),
    "minGRU-pytorch.minGRU": (
        Confirmation(
            "minGRU_pytorch/minGRU.py",
            63,
            "prev_hidden.log()",
            "A chunk takes the logarithm of the state, which is exactly 0 after large observations",
            min_gru,
        ),
    ),
    "minGRU-pytorch.minLSTM": (
        Confirmation(
            "minGRU_pytorch/minLSTM.py",
            48,
            "log_g(prev_hidden)",
            "A chunk takes g of the state that it goes on from, once more than a step",
            min_lstm,
        ),
    ),
    "recurrentgemma.RecurrentBlock": (
        of_cache("recurrentgemma/jax/layers.py", 624, recurrentgemma_jax),
    ),
    "rl-games.GRU": (of_one_member("GRU"),),
    "rl-games.LSTM": (of_one_member("LSTM"),),
}
"""By model."""
