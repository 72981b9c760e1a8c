"""The code shared by all memories in PyTorch, whichever library they are from."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from serve import Arrays, Build, Sizes, Subject

SHORT = 64  # observations in the chunk that decides how many threads pay off


class TorchSubject:
    """A memory as functions of its parameters, batch first, without compilation.

    Args:
        sizes, arrays: as `serve` passes them.
        params: the trainable parameters.
        chunk: (xs, starts) to outputs, batch first, from a fresh state.
        step: (state, x, start) to the state and outputs of one observation each; the first state is
            None.
        gather: the gradients by the names of `arrays`.
        takes_starts: whether `chunk` heeds the starts.
    """

    def __init__(
        self,
        sizes: Sizes,
        arrays: Arrays,
        *,
        params: nn.Module,
        chunk: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        step: Callable[[Any, torch.Tensor, torch.Tensor], tuple[Any, torch.Tensor]],
        gather: Callable[[], Arrays],
        takes_starts: bool,
    ):
        self.takes_starts = takes_starts
        self._params, self._chunk, self._step, self._gather = params, chunk, step, gather
        self._xs = tensor(arrays["inputs"]).transpose(0, 1).contiguous().requires_grad_()
        self._starts = tensor(arrays["starts"]).transpose(0, 1).contiguous()
        self._cotangent = tensor(arrays["cotangent"]).transpose(0, 1).contiguous()
        self._x = torch.zeros(sizes.actors, sizes.width)
        self._going_on = torch.zeros(sizes.actors, dtype=torch.bool)
        self._state: Any = None

    def plan(self, mode: str) -> None:
        """Nothing is compiled, and nothing is known in advance."""

    def facts(self) -> dict[str, Any]:
        """Counted from the parameters; with the number of threads."""
        return count(self._params)

    def learn(self) -> None:
        """Gradients for the parameters and for the inputs."""
        self._params.zero_grad(set_to_none=True)
        self._xs.grad = None
        (self._chunk(self._xs, self._starts) * self._cotangent).sum().backward()

    def act(self) -> None:
        """One observation for every actor."""
        with torch.no_grad():
            self._state, _ = self._step(self._state, self._x, self._going_on)

    def result(self) -> Arrays:
        """Outputs, and gradients by library-independent names."""
        self.learn()
        found = {n: np.asarray(x) for n, x in self._gather().items()}
        found["inputs"] = self._xs.grad.transpose(0, 1).numpy()
        with torch.no_grad():
            outputs = self._chunk(self._xs, self._starts)
        return found | {"outputs": outputs.transpose(0, 1).numpy()}

    def read(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """A chunk from a fresh state."""
        given = (tensor(x).transpose(0, 1).contiguous() for x in (xs, starts))
        with torch.no_grad():
            return self._chunk(*given).transpose(0, 1).numpy()

    def read_by_steps(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The same, one observation at a time."""
        state, outputs = None, []
        with torch.no_grad():
            for x, start in zip(tensor(xs), tensor(starts), strict=True):
                state, y = self._step(state, x, start)
                outputs.append(y.numpy())
        return np.stack(outputs)


def tensor(x: np.ndarray) -> torch.Tensor:
    """A copy."""
    return torch.from_numpy(np.array(x))


def count(model: nn.Module) -> dict[str, Any]:
    """Numbers of parameters, of those in matrices, and of threads."""
    sizes = [(p.numel(), p.dim()) for p in model.parameters()]
    weights = sum(number for number, axes in sizes if axes > 1)
    return {
        "parameters": sum(number for number, _ in sizes),
        "weights": weights,
        "threads": torch.get_num_threads(),
    }


def fill_cell(cell: nn.Module, arrays: Arrays) -> None:
    """Gates are in the same order; recurrent products have biases only where they matter."""
    with torch.no_grad():
        cell.weight_ih_l0.copy_(tensor(arrays["input_weight"].T))
        cell.weight_hh_l0.copy_(tensor(arrays["recurrent_weight"].T))
        cell.bias_ih_l0.copy_(tensor(arrays["bias"]))
        cell.bias_hh_l0.zero_()
        if "candidate_bias" in arrays:
            size = len(arrays["candidate_bias"])
            cell.bias_hh_l0[2 * size :].copy_(tensor(arrays["candidate_bias"]))


def cell_gradients(cell: nn.Module) -> Arrays:
    """The way back."""
    found = {
        "input_weight": cell.weight_ih_l0.grad.numpy().T,
        "recurrent_weight": cell.weight_hh_l0.grad.numpy().T,
        "bias": cell.bias_ih_l0.grad.numpy(),
    }
    if isinstance(cell, nn.GRU):
        found["candidate_bias"] = cell.bias_hh_l0.grad.numpy()[2 * cell.hidden_size :]
    return found


def on_best_threads(build: Build) -> Build:
    """Gives PyTorch one thread or one for every core, whichever learns a short chunk faster.

    For products as small as these, waiting for the other threads often costs more than they save.
    """

    def built(sizes: Sizes, arrays: Arrays) -> Subject:
        over_time = ("inputs", "starts", "cotangent", "actions", "advantages", "returns")
        short = {n: x[:SHORT] if n in over_time else x for n, x in arrays.items()}
        trial = build(sizes._replace(length=len(short["inputs"])), short)
        torch.set_num_threads(min((1, cores()), key=lambda n: seconds(trial, n)))
        return build(sizes, arrays)

    return built


def seconds(trial: Subject, threads: int) -> float:
    """The seconds of one call, the fastest of three after a warm-up call."""
    torch.set_num_threads(threads)
    trial.learn()
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        trial.learn()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
