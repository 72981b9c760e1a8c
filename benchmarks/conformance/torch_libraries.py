"""The models of libraries in PyTorch: how each is built, reads a chunk, and acts.

Every function imports its library when it is called, in an environment that has the library.
Layouts differ: the adapter's is [batch, time, ...]; `transpose(0, 1)` marks libraries that want
time first.
"""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from benchmarks.conformance.model import BY_CALLER, SIZE, Model
from benchmarks.conformance.torch_modules import (
    Tensors,
    TorchCalls,
    TorchModule,
    chosen,
    cut_at_starts,
    renewed,
)
from torch import nn

from clew.memory.base import AbstractMemory

Step = Callable[[Any, Tensors, torch.Tensor, torch.Tensor], tuple[Sequence, torch.Tensor]]


def made(module: nn.Module, calls: TorchCalls) -> AbstractMemory:
    """The memory of a module, with weights large enough to matter."""
    return TorchModule(module, calls, SIZE, SIZE)


def zeros(*shapes: tuple[int, ...]) -> Callable[[Any, int], Sequence[torch.Tensor]]:
    """A state of zeros, batch first."""
    return lambda module, batch: [torch.zeros(batch, *shape) for shape in shapes]


def layers_first(state: Tensors) -> Any:
    """[batch, layers, size] in the layout of PyTorch's recurrent nets: one tensor or a pair."""
    moved = tuple(t.transpose(0, 1).contiguous() for t in state)
    return moved if len(moved) == 2 else moved[0]


def batch_first(state: Any) -> Tensors:
    """The way back."""
    pair = state if isinstance(state, tuple) else (state,)
    return tuple(t.transpose(0, 1) for t in pair)


def by_steps(
    step: Step, module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor
) -> Any:
    """The state after a chunk, from acting, for a library whose chunk returns none."""
    for x, start in zip(xs.transpose(0, 1), starts.transpose(0, 1), strict=True):
        state = tuple(step(module, state, x, start)[0])
    return state


def torch_rnn(name: str) -> AbstractMemory:
    """PyTorch's own: `nn.LSTM` reads a chunk, `nn.LSTMCell` with its weights one observation."""
    torch.manual_seed(0)
    kind, cell_kind = {
        "LSTM": (nn.LSTM, nn.LSTMCell), "GRU": (nn.GRU, nn.GRUCell), "RNN": (nn.RNN, nn.RNNCell)
    }[name]  # fmt: skip
    module = kind(SIZE, SIZE, batch_first=True)
    shapes = [(1, SIZE)] * (2 if name == "LSTM" else 1)

    def read(module: Any, state: Tensors, xs: torch.Tensor) -> Any:
        ys, after = module(xs, layers_first(state))
        return batch_first(after), ys

    def step(module: Any, state: Tensors, x: torch.Tensor) -> Any:
        cell = cell_kind(SIZE, SIZE)
        weights = {key.removesuffix("_l0"): p for key, p in module.named_parameters()}
        given = tuple(t[:, 0] for t in state)
        after = torch.func.functional_call(
            cell, weights, (x, given if len(given) == 2 else given[0])
        )
        after = after if isinstance(after, tuple) else (after,)
        return [t[:, None] for t in after], after[0]

    return made(module, cut_at_starts(zeros(*shapes), read, step))


def torchrl(kind: str, **options: Any) -> AbstractMemory:
    """TorchRL's modules: `set_recurrent_mode` reads a chunk, else they act; both use is_init."""
    from tensordict import TensorDict
    from torchrl.modules import GRUModule, LSTMModule, set_recurrent_mode

    torch.manual_seed(0)
    keys = ["h", "c"][: 2 if kind == "LSTM" else 1]
    module = (LSTMModule if kind == "LSTM" else GRUModule)(
        input_size=SIZE,
        hidden_size=SIZE,
        in_keys=["x", *keys, "is_init"],
        out_keys=["y", *(("next", key) for key in keys)],
        **options,
    )
    begin = zeros(*[(1, SIZE)] * len(keys))

    def read(module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor) -> Any:
        batch, time = xs.shape[:2]
        # Its chunks may begin in the middle of an episode, so it does not reset at their first
        # is_init: the state stored there is the primer's zero.
        state = renewed(begin, module, state, starts[:, 0])
        carried = {
            key: torch.cat([t[:, None], torch.zeros(batch, time - 1, *t.shape[1:])], 1)
            for key, t in zip(keys, state, strict=True)
        }
        data = TensorDict({"x": xs, "is_init": starts[..., None], **carried}, [batch, time])
        with set_recurrent_mode(True):
            found = module(data)
        return [found["next", key][:, -1] for key in keys], found["y"]

    def step(module: Any, state: Tensors, x: torch.Tensor, start: torch.Tensor) -> Any:
        carried = dict(zip(keys, state, strict=True))
        with set_recurrent_mode(False):
            found = module(TensorDict({"x": x, "is_init": start[:, None], **carried}, [len(x)]))
        return [found["next", key] for key in keys], found["y"]

    return made(module, TorchCalls(begin, read, step))


def sb3_contrib() -> AbstractMemory:
    """RecurrentPPO's LSTM: `_process_sequence` acts and learns, with episode_starts."""
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy

    torch.manual_seed(0)
    process = RecurrentActorCriticPolicy._process_sequence

    def read(module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor) -> Any:
        flat = xs.reshape(-1, SIZE)  # sequence after sequence, as in its buffer
        flags = starts.to(xs.dtype).reshape(-1)
        ys, after = process(flat, layers_first(state), flags, module)
        return batch_first(after), ys.reshape(xs.shape)

    def step(module: Any, state: Tensors, x: torch.Tensor, start: torch.Tensor) -> Any:
        after, ys = read(module, state, x[:, None], start[:, None])
        return after, ys[:, 0]

    shapes = [(1, SIZE)] * 2
    return made(nn.LSTM(SIZE, SIZE), TorchCalls(zeros(*shapes), read, step))


def sample_factory(kind: str, layers: int) -> AbstractMemory:
    """Sample Factory's core: learns from packed sequences between dones; sampling zeroes states."""
    from sample_factory.algo.learning.rnn_utils import build_core_out_from_seq, build_rnn_inputs
    from sample_factory.model.core import ModelCoreRNN

    torch.manual_seed(0)
    config = SimpleNamespace(rnn_type=kind, rnn_size=SIZE, rnn_num_layers=layers)
    module = ModelCoreRNN(config, SIZE)
    width = SIZE * layers * (2 if kind == "lstm" else 1)

    def step(module: Any, state: Tensors, x: torch.Tensor, start: torch.Tensor) -> Any:
        kept = state[0] * (1.0 - start.to(x.dtype))[:, None]  # batched_sampling.py multiplies too
        y, after = module(x, kept)
        return [after], y

    def read(module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor) -> Any:
        batch, time = starts.shape
        flags = starts.to(xs.dtype)
        dones = torch.cat([flags[:, 1:], torch.zeros(batch, 1)], 1)
        first = state[0] * (1.0 - flags[:, :1])
        stored = torch.cat([first[:, None], torch.zeros(batch, time - 1, width)], 1)
        flat = xs.reshape(-1, SIZE), dones.reshape(-1), stored.reshape(-1, width)
        packed, begun, order = build_rnn_inputs(*flat, time)
        ys, _ = module(packed, begun)
        ys = build_core_out_from_seq(ys, order).reshape(xs.shape)
        return by_steps(step, module, state, xs, starts), ys

    return made(module, TorchCalls(zeros((width,)), read, step))


def rl_games(kind: str) -> AbstractMemory:
    """rl_games' layers: done_masks cut a chunk; acting has none, and multiplies states by 0."""
    from rl_games.common.layers import recurrent

    torch.manual_seed(0)
    module = getattr(recurrent, f"{kind}WithDones")(SIZE, SIZE)

    def read(module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor) -> Any:
        masks = starts.to(xs.dtype).transpose(0, 1)[..., None]
        ys, after = module(xs.transpose(0, 1), layers_first(state), masks)
        return batch_first(after), ys.transpose(0, 1)

    def step(module: Any, state: Tensors, x: torch.Tensor, start: torch.Tensor) -> Any:
        kept = tuple(t * (1.0 - start.to(x.dtype))[:, None, None] for t in state)
        ys, after = module(x[None], layers_first(kept))
        return batch_first(after), ys[0]

    shapes = [(1, SIZE)] * (2 if kind == "LSTM" else 1)
    return made(module, TorchCalls(zeros(*shapes), read, step))


def rsl_rl(kind: str) -> AbstractMemory:
    """rsl_rl's RNN: learns from padded trajectories between dones; acting resets its own state."""
    from rsl_rl.modules.rnn import RNN
    from rsl_rl.utils import split_and_pad_trajectories

    torch.manual_seed(0)
    module = RNN(SIZE, SIZE, 1, kind)

    def step(module: Any, state: Tensors, x: torch.Tensor, start: torch.Tensor) -> Any:
        module.hidden_state = layers_first(tuple(t.clone() for t in state))
        module.reset(start.to(x.dtype))
        y = module(x)[0]
        return batch_first(module.hidden_state), y

    def read(module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor) -> Any:
        flags = starts.transpose(0, 1)[..., None].to(xs.dtype)
        dones = torch.cat([flags[1:], torch.zeros(1, *flags.shape[1:])])
        padded, masks = split_and_pad_trajectories(xs.transpose(0, 1), dones)
        opens = torch.cat([torch.ones(1, len(xs), dtype=torch.bool), dones[:-1, :, 0] > 0])
        begun = []
        for t in state:  # a trajectory's stored state: after its reset, so zero within the rollout
            first = torch.where(starts[:, :1, None], 0.0, t)[:, None]
            stored = torch.cat([first, torch.zeros(len(xs), xs.shape[1] - 1, *t.shape[1:])], 1)
            begun.append(stored[opens.transpose(0, 1)].transpose(0, 1).contiguous())
        ys = module(padded, masks, tuple(begun) if len(begun) == 2 else begun[0])
        ys = ys.reshape(xs.shape[1], len(xs), SIZE).transpose(0, 1)
        return by_steps(step, module, state, xs, starts), ys

    shapes = [(1, SIZE)] * (2 if kind == "lstm" else 1)
    return made(module, TorchCalls(zeros(*shapes), read, step))


def min_rnn(kind: str) -> AbstractMemory:
    """minGRU-pytorch: a parallel form for chunks, a sequential one for a single observation."""
    from minGRU_pytorch.minGRU import minGRU
    from minGRU_pytorch.minLSTM import minLSTM

    torch.manual_seed(0)
    module = (minGRU if kind == "minGRU" else minLSTM)(SIZE)

    def read(module: Any, state: Tensors, xs: torch.Tensor) -> Any:
        fresh = (state[0] == 0).flatten(1).all(1)  # a state is positive: zeros stand for None
        parts = []
        for rows in (fresh, ~fresh):
            given = None if rows is fresh else state[0][rows]
            parts.append(
                module(xs[rows], given, True) if rows.any() else (xs[rows], state[0][rows])
            )
        order = torch.argsort(torch.cat([torch.nonzero(fresh)[:, 0], torch.nonzero(~fresh)[:, 0]]))
        ys, after = (torch.cat(pair)[order] for pair in zip(*parts, strict=True))
        return [after], ys

    def step(module: Any, state: Tensors, x: torch.Tensor) -> Any:
        after, ys = read(module, state, x[:, None])
        return after, ys[:, 0]

    return made(module, cut_at_starts(zeros((1, SIZE)), read, step))


def ncps(kind: str) -> AbstractMemory:
    """ncps' liquid networks: a chunk continues from hx, and a chunk of one acts."""
    from ncps.torch import LTC, CfC
    from ncps.wirings import AutoNCP

    torch.manual_seed(0)
    units = AutoNCP(3 * SIZE, SIZE, seed=0) if kind.endswith("NCP") else SIZE
    mixed = kind == "CfC-mixed"
    module = (LTC if kind.startswith("LTC") else CfC)(SIZE, units, mixed_memory=mixed)
    shapes = [(module.state_size,)] * (2 if mixed else 1)

    def read(module: Any, state: Tensors, xs: torch.Tensor) -> Any:
        ys, after = module(xs, state if mixed else state[0])
        return (after if mixed else [after]), ys

    def step(module: Any, state: Tensors, x: torch.Tensor) -> Any:
        after, ys = read(module, state, x[:, None])
        return after, ys[:, 0]

    return made(module, cut_at_starts(zeros(*shapes), read, step))


def from_nothing(
    begin: Callable[[Any, int], Sequence[torch.Tensor]],
    chunk: Callable[[Any, torch.Tensor], torch.Tensor],
    step: Callable[[Any, Tensors, torch.Tensor], tuple[Sequence, torch.Tensor]],
) -> TorchCalls:
    """A library whose chunk starts from nothing and returns no state: it reads whole episodes.

    Members whose episode begins with the chunk are read this way. The others, and all states, come
    from steps. A chunk has no gradient to the state before it, so a step has none to a fresh state.
    """

    def fresh(module: Any, state: Tensors) -> tuple[torch.Tensor, Tensors]:
        """Which members have read nothing yet, and states to which these have no gradient."""
        first = begin(module, len(state[0]))
        same = [(a == b).flatten(1).all(1) for a, b in zip(state, first, strict=True)]
        members = torch.stack(same).all(0)
        return members, chosen(members, first, state)

    def one(module: Any, state: Tensors, x: torch.Tensor) -> Any:
        return step(module, fresh(module, state)[1], x)

    def read(module: Any, state: Tensors, xs: torch.Tensor) -> Any:
        members, state = fresh(module, state)
        outputs = []
        for x in xs.transpose(0, 1):
            after, y = step(module, state, x)
            state = tuple(after)
            outputs.append(y)
        ys = torch.stack(outputs, 1)
        if members.any():
            ys = torch.where(members[:, None, None], chunk(module, xs), ys)
        return state, ys

    return cut_at_starts(begin, read, one)


def mambapy() -> AbstractMemory:
    """mambapy's block: a parallel scan over a fresh chunk, and steps with a cache."""
    from mambapy.mamba import MambaBlock, MambaConfig

    torch.manual_seed(0)
    config = MambaConfig(d_model=SIZE, n_layers=1, d_state=4, expand_factor=1)

    def step(module: Any, state: Tensors, x: torch.Tensor) -> Any:
        y, after = module.step(x, state)
        return after, y

    begin = zeros((SIZE, 4), (SIZE, config.d_conv - 1))
    return made(MambaBlock(config), from_nothing(begin, lambda module, xs: module(xs), step))


def mlstm() -> AbstractMemory:
    """xlstm's mLSTM layer: a parallel form over a fresh chunk, and steps with a state."""
    from xlstm import mLSTMLayer, mLSTMLayerConfig

    torch.manual_seed(0)
    config = mLSTMLayerConfig(
        embedding_dim=SIZE, context_length=128, num_heads=2, proj_factor=1.0, conv1d_kernel_size=4
    )
    module = mLSTMLayer(config)
    for p in module.parameters():  # its initial gates would let it read nothing
        nn.init.normal_(p, std=0.4)

    def step(module: Any, state: Tensors, x: torch.Tensor) -> Any:
        conv = state[3].clone()  # the library changes it in place
        y, after = module.step(x[:, None], tuple(state[:3]), (conv,))
        return [*after["mlstm_state"], *after["conv_state"]], y[:, 0]

    def begin(module: Any, batch: int) -> Sequence[torch.Tensor]:
        _, state = module.step(torch.zeros(batch, 1, SIZE))
        leaves = (*state["mlstm_state"], *state["conv_state"])
        return [torch.zeros_like(leaf) for leaf in leaves]

    return made(module, from_nothing(begin, lambda module, xs: module(xs), step))


def slstm() -> AbstractMemory:
    """xlstm's sLSTM layer: a chunk continues from a state, and steps have their own function."""
    from xlstm import sLSTMLayer, sLSTMLayerConfig

    torch.manual_seed(0)
    module = sLSTMLayer(sLSTMLayerConfig(
        embedding_dim=SIZE, num_heads=2, conv1d_kernel_size=4, backend="vanilla"
    ))  # fmt: skip
    for p in module.parameters():
        nn.init.normal_(p, std=0.4)

    def read(module: Any, state: Tensors, xs: torch.Tensor) -> Any:
        # A chunk keeps the last three inputs, a step four, the oldest of which it drops.
        cells, conv = state[0].transpose(0, 1), state[1]
        ys, after = module(xs, conv[:, 1:], cells, return_last_state=True)
        inputs = torch.cat([conv[:, :1] * 0, after["conv_state"]], 1)
        return [after["slstm_state"].transpose(0, 1), inputs], ys

    def step(module: Any, state: Tensors, x: torch.Tensor) -> Any:
        y, after = module.step(x[:, None], (state[1].clone(),), state[0].transpose(0, 1))
        return [after["slstm_state"].transpose(0, 1), after["conv_state"][0]], y[:, 0]

    begin = zeros((4, SIZE), (4, SIZE))
    return made(module, cut_at_starts(begin, read, step))


def s5_pytorch(whole: bool) -> AbstractMemory:
    """s5-pytorch: a scan over a chunk, and `forward_rnn` for one observation of the bare S5."""
    from s5 import S5, S5Block

    torch.manual_seed(0)
    module = S5Block(SIZE, SIZE, bidir=False) if whole else S5(SIZE, SIZE)
    module.eval()

    def begin(module: Any, batch: int) -> Sequence[torch.Tensor]:
        return [torch.zeros(batch, SIZE, dtype=torch.complex64)]

    def read(module: Any, state: Tensors, xs: torch.Tensor) -> Any:
        ys, after = module(xs, state=state[0], return_state=True)
        return [after], ys

    def step(module: Any, state: Tensors, x: torch.Tensor) -> Any:
        if whole:
            after, ys = read(module, state, x[:, None])
            return after, ys[:, 0]
        pairs = [module.seq.forward_rnn(one, old) for one, old in zip(x, state[0], strict=True)]
        ys, after = zip(*pairs, strict=True)
        return [torch.stack(after)], torch.stack(ys)

    return made(module, cut_at_starts(begin, read, step))


def recurrentgemma(name: str) -> AbstractMemory:
    """recurrentgemma's blocks in PyTorch: prefill by segment_pos, decoding one token."""
    from recurrentgemma.torch import modules

    torch.manual_seed(0)
    if name == "RecurrentBlock":
        module = modules.RecurrentBlock(width=SIZE, num_heads=2, lru_width=SIZE)
        cache_of = lambda batch: module.init_cache(batch, SIZE, torch.float32)  # noqa: E731
    else:
        module = modules.LocalAttentionBlock(width=SIZE, num_heads=2, window_size=4)
        cache_of = lambda batch: module.init_cache(batch, 4, SIZE // 2, torch.float32)  # noqa: E731
    kind = type(cache_of(1))
    types = [leaf.dtype for leaf in cache_of(1)]

    def begin(module: Any, batch: int) -> Sequence[torch.Tensor]:
        return [*(leaf.float() for leaf in cache_of(batch)), torch.zeros(batch, 1)]

    def given(state: Sequence[torch.Tensor]) -> Any:
        leaves = [
            leaf if wanted.is_floating_point else leaf.to(wanted)
            for leaf, wanted in zip(state, types, strict=True)
        ]
        return kind(*leaves)

    def left(cache: Any, position: torch.Tensor, like: torch.Tensor) -> list[torch.Tensor]:
        return [*(leaf.to(like.dtype) for leaf in cache), position.to(like.dtype) + 1]

    def step(module: Any, state: Tensors, x: torch.Tensor, start: torch.Tensor) -> Any:
        state = renewed(begin, module, state, start)  # a new document has a new cache
        y, cache = module(x[:, None], state[-1].long(), given(state[:-1]))
        return left(cache, state[-1], x), y[:, 0]

    def read(module: Any, state: Tensors, xs: torch.Tensor, starts: torch.Tensor) -> Any:
        time = torch.arange(xs.shape[1]).expand_as(starts)
        position = time - torch.where(starts, time, 0).cummax(1).values
        ys, cache = module(xs, position)
        whole = left(cache, position[:, -1:], xs)
        by_one = []
        for x, start in zip(xs.transpose(0, 1), starts.transpose(0, 1), strict=True):
            state, y = step(module, tuple(state), x, start)
            by_one.append(y)
        # Only a chunk that begins an episode can be read as one.
        ys = torch.where(starts[:, :1, None], ys, torch.stack(by_one, 1))
        return chosen(starts[:, 0], whole, state), ys

    return made(module, TorchCalls(begin, read, step))


def models() -> dict[str, Model]:
    """Every model of these libraries, by name."""
    found: dict[str, Model] = {}

    def add(
        name: str, library: str, what: str, make: Any, chunk: str, step: str, *more: Any
    ) -> None:
        row = Model(library, what, make, chunk, step, *more)
        found[name] = row._replace(lengths=(1, 7, 33))  # every step is a call out of JAX

    for name in ("LSTM", "GRU", "RNN"):
        what, make = f"torch.nn.{name}", partial(torch_rnn, name)
        add(f"torch.{name}", "torch", what, make, f"nn.{name}", f"nn.{name}Cell", BY_CALLER)
    for kind in ("LSTM", "GRU"):
        ways = {"": {}, "-scan": {"recurrent_backend": "scan"}, "-python": {"python_based": True}}
        for suffix, options in ways.items():
            make = partial(torchrl, kind, **options)
            what = f"torchrl.modules.{kind}Module"
            add(f"torchrl.{kind}Module{suffix}", "torchrl", what, make,
                "set_recurrent_mode(True)", "set_recurrent_mode(False)")  # fmt: skip
        what, make = f"rl_games.common.layers.recurrent.{kind}WithDones", partial(rl_games, kind)
        add(f"rl-games.{kind}", "rl-games", what, make, "done_masks", "the net, states times 0")
        what, make = f"rsl_rl.modules.rnn.RNN, {kind}", partial(rsl_rl, kind.lower())
        add(f"rsl-rl.{kind}", "rsl-rl-lib", what, make, "split and padded by dones", "reset(dones)")
        for layers in (1, 2):
            make = partial(sample_factory, kind.lower(), layers)
            what = f"sample_factory.model.core.ModelCoreRNN, {kind}, {layers} layer(s)"
            add(f"sample-factory.{kind}-{layers}", "sample-factory", what, make,
                "packed by dones (build_rnn_inputs)", "the core, states times 0")  # fmt: skip
    what = "sb3_contrib.common.recurrent.policies.RecurrentActorCriticPolicy"
    add("sb3-contrib.LSTM", "sb3-contrib", what, sb3_contrib, "_process_sequence", "the same")
    for kind in ("minGRU", "minLSTM"):
        what, make = f"minGRU_pytorch.{kind}.{kind}", partial(min_rnn, kind)
        add(f"minGRU-pytorch.{kind}", "minGRU-pytorch", what, make, "the parallel form",
            "the sequential form", BY_CALLER)  # fmt: skip
    for kind in ("CfC", "CfC-mixed", "CfC-NCP", "LTC", "LTC-NCP"):
        what, make = f"ncps.torch.{kind}", partial(ncps, kind)
        add(f"ncps.{kind}", "ncps", what, make, "a call from hx", "a chunk of one", BY_CALLER)
    nothing = "a call, from nothing"
    add("mambapy.MambaBlock", "mambapy", "mambapy.mamba.MambaBlock", mambapy, nothing, "step",
        BY_CALLER)  # fmt: skip
    add("xlstm.mLSTMLayer", "xlstm", "xlstm.mLSTMLayer", mlstm, nothing, "step", BY_CALLER)
    add("xlstm.sLSTMLayer", "xlstm", "xlstm.sLSTMLayer", slstm, "a call from a state", "step",
        BY_CALLER)  # fmt: skip
    for name in ("S5", "S5Block"):
        way = "forward_rnn" if name == "S5" else "a chunk of one"
        make = partial(s5_pytorch, name == "S5Block")
        add(f"s5-pytorch.{name}", "s5-pytorch", f"s5.{name}", make, "a call from a state", way,
            BY_CALLER)  # fmt: skip
    for name in ("LocalAttentionBlock", "RecurrentBlock"):
        what, make = f"recurrentgemma.torch.modules.{name}", partial(recurrentgemma, name)
        add(f"recurrentgemma.torch.{name}", "recurrentgemma", what, make,
            "prefill by segment_pos", "decoding one token")  # fmt: skip
    return found
