"""Recurrences in plain PyTorch: flash-linear-attention's chunks, mambapy's parallel scan.

flash-linear-attention's kernels are for GPUs; for its tests it also has a chunk form in PyTorch
alone, in a file that is read here without the package, whose other files need Triton. mambapy has
none of clew's memories, but a parallel scan, on which a minGRU is built here. Neither has an input
for starts. Runs in .venv-peers.
"""

import importlib.util
from pathlib import Path
from typing import Any

import torch
from mambapy.pscan import pscan
from torch import nn
from torch.nn.functional import logsigmoid, silu

from serve import Arrays, Sizes, Subject, serve
from torch_subject import TorchSubject, on_best_threads, tensor


def import_naive() -> Any:
    """flash-linear-attention's gated delta rule in PyTorch alone."""
    package = importlib.util.find_spec("fla")
    path = Path(package.submodule_search_locations[0], "ops", "gated_delta_rule", "naive.py")
    spec = importlib.util.spec_from_file_location("naive_gated_delta_rule", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


naive = import_naive()


def gated_delta_net(sizes: Sizes, arrays: Arrays) -> Subject:
    """One head."""
    names = ("query", "key", "value", "rate", "keep", "output")
    p = weights(arrays, names)

    def terms(x: torch.Tensor) -> dict[str, torch.Tensor]:
        query, key = silu(x @ p["query"]), silu(x @ p["key"])
        query, key = (y / (y.norm(dim=-1, keepdim=True) + 1e-6) for y in (query, key))
        of_heads = {"q": query, "k": key, "v": x @ p["value"]}
        found: dict[str, Any] = {name: y[:, :, None] for name, y in of_heads.items()}
        beta, g = 2 * torch.sigmoid(x @ p["rate"]), logsigmoid(x @ p["keep"] + 4.0)
        return found | {"beta": beta, "g": g, "scale": 1.0}

    def chunk(xs: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        return naive.naive_chunk_gated_delta_rule(**terms(xs))[0][:, :, 0] @ p["output"]

    def step(state: Any, x: torch.Tensor, start: torch.Tensor) -> tuple[Any, torch.Tensor]:
        read, state = naive.naive_recurrent_gated_delta_rule(
            **terms(x[:, None]), initial_state=state, output_final_state=True
        )
        return state, read[:, 0, 0] @ p["output"]

    return subject(sizes, arrays, p, chunk, step)


def min_gru(sizes: Sizes, arrays: Arrays) -> Subject:
    """The recurrence of a minGRU by `pscan`; a step is written out."""
    p = weights(arrays, ("gate", "candidate"))

    def terms(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z, h = x @ p["gate"], x @ p["candidate"]
        h = torch.where(h >= 0.0, h + 0.5, torch.sigmoid(h))
        return torch.sigmoid(-z), torch.sigmoid(z) * h

    def chunk(xs: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        keep, add = terms(xs)
        return pscan(keep[..., None], add[..., None])[..., 0]

    def step(state: Any, x: torch.Tensor, start: torch.Tensor) -> tuple[Any, torch.Tensor]:
        keep, add = terms(x)
        state = add if state is None else keep * state + add
        return state, state

    return subject(sizes, arrays, p, chunk, step)


def weights(arrays: Arrays, names: tuple[str, ...]) -> nn.ParameterDict:
    """The arrays with these names, as trainable parameters."""
    return nn.ParameterDict({name: nn.Parameter(tensor(arrays[name])) for name in names})


def subject(sizes: Sizes, arrays: Arrays, p: nn.ParameterDict, chunk: Any, step: Any) -> Subject:
    """Without starts."""
    return TorchSubject(
        sizes,
        arrays,
        params=p,
        chunk=chunk,
        step=step,
        gather=lambda: {name: w.grad.numpy() for name, w in p.items()},
        takes_starts=False,
    )


if __name__ == "__main__":
    serve(
        ("fla-core", "mambapy", "torch"),
        {
            "fla.gated_delta_net": on_best_threads(gated_delta_net),
            "mambapy.min_gru": on_best_threads(min_gru),
        },
    )
