"""Peers in PyTorch, on processors: its own LSTM and GRU, and sb3-contrib's recurrent policy.

Runs in .venv-peers.
"""

import os
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import nn

from serve import Arrays, Build, Sizes, Subject, serve

SHORT = 64  # observations that decide how many threads pay


class Cell:
    """`torch.nn.LSTM` or `torch.nn.GRU`, which have no input for starts."""

    takes_starts = False

    def __init__(self, kind: type[nn.Module], sizes: Sizes, arrays: Arrays):
        self._model = kind(sizes.width, sizes.width)
        fill_cell(self._model, arrays)
        self._xs = tensor(arrays["inputs"]).requires_grad_()
        self._cotangent = tensor(arrays["cotangent"])
        self._x = torch.zeros(1, sizes.actors, sizes.width)
        self._state: Any = None

    def plan(self, mode: str) -> None:
        """Nothing is compiled, nothing is known before."""

    def facts(self) -> dict[str, Any]:
        """Counted from the parameters; and how many threads it was given."""
        return count(self._model)

    def learn(self) -> None:
        """Gradients for the parameters and for what was read."""
        self._model.zero_grad(set_to_none=True)
        self._xs.grad = None
        (self._model(self._xs)[0] * self._cotangent).sum().backward()

    def act(self) -> None:
        """One observation for every actor."""
        with torch.no_grad():
            _, self._state = self._model(self._x, self._state)

    def result(self) -> Arrays:
        """Outputs, and gradients by neutral names."""
        self.learn()
        with torch.no_grad():
            outputs = self._model(self._xs)[0].numpy()
        found = cell_gradients(self._model) | {"inputs": self._xs.grad.numpy()}
        return found | {"outputs": outputs}

    def read(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """A chunk from a fresh state."""
        with torch.no_grad():
            return self._model(tensor(xs))[0].numpy()

    def read_by_steps(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The same one by one."""
        state, outputs = None, []
        with torch.no_grad():
            for x in tensor(xs):
                y, state = self._model(x[None], state)
                outputs.append(y[0].numpy())
        return np.stack(outputs)


class Policy:
    """The policy of sb3-contrib's RecurrentPPO: one LSTM for actor and critic, tanh heads.

    `evaluate_actions` is what its learning pass calls, `forward` what a rollout calls. The critic's
    gradient ends at the shared LSTM, as the library has it.
    """

    takes_starts = True

    def __init__(self, sizes: Sizes, arrays: Arrays):
        self._sizes = sizes
        self._model = RecurrentActorCriticPolicy(
            gymnasium.spaces.Box(-10.0, 10.0, (sizes.width,)),
            gymnasium.spaces.Discrete(arrays["actor_output"].shape[1]),
            lambda _: 1e-3,
            net_arch={"pi": [sizes.width], "vf": [sizes.width]},
            lstm_hidden_size=sizes.width,
            shared_lstm=True,
            enable_critic_lstm=False,
        )
        fill_cell(self._model.lstm_actor, arrays)
        fill_heads(self._model, arrays)
        flat = {n: tensor(x).transpose(0, 1).flatten(0, 1) for n, x in self._given(arrays).items()}
        self._xs, self._starts = flat["inputs"], flat["starts"].float()
        self._targets = flat
        self._x = torch.zeros(sizes.actors, sizes.width)
        self._going_on = torch.zeros(sizes.actors)
        self._state = self._fresh(sizes.actors)

    def plan(self, mode: str) -> None:
        """Nothing is compiled, nothing is known before."""

    def facts(self) -> dict[str, Any]:
        """Counted from the parameters; and how many threads it was given."""
        return count(self._model)

    def learn(self) -> None:
        """The loss of advantage actor-critic on one rollout, and its gradients."""
        self._model.zero_grad(set_to_none=True)
        given = self._targets
        values, log_prob, entropy = self._model.evaluate_actions(
            self._xs, given["actions"], self._fresh(self._sizes.envs), self._starts
        )
        errors = (given["returns"] - values.flatten()).square()
        loss = -log_prob * given["advantages"] + 0.5 * errors - 0.01 * entropy
        loss.mean().backward()

    def act(self) -> None:
        """Actions, values and log-probabilities for every actor."""
        with torch.no_grad():
            *_, self._state = self._model(self._x, self._state, self._going_on)

    def result(self) -> Arrays:
        """Log-probabilities and values; the actor's gradients, which nothing cuts off."""
        self.learn()
        found = {}
        actor = self._model.mlp_extractor.policy_net[0], self._model.action_net
        for part, linear in zip(("hidden", "output"), actor, strict=True):
            found[f"actor_{part}"] = linear.weight.grad.numpy().T
            found[f"actor_{part}_bias"] = linear.bias.grad.numpy()
        return found | {"outputs": self._outputs(self._xs, self._starts, self._sizes.envs)}

    def read(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Log-probabilities and values of a chunk."""
        flat = [tensor(x).transpose(0, 1).flatten(0, 1) for x in (xs, starts)]
        return self._outputs(flat[0], flat[1].float(), xs.shape[1])

    def read_by_steps(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The same one by one, as a rollout does."""
        state, outputs = self._fresh(xs.shape[1]), []
        for x, start in zip(tensor(xs), tensor(starts).float(), strict=True):
            with torch.no_grad():
                outputs.append(self._outputs_from(x, start, state)[:, 0])
                *_, state = self._model(x, state, start)
        return np.stack([y.numpy() for y in outputs])

    def _outputs(self, xs: torch.Tensor, starts: torch.Tensor, envs: int) -> np.ndarray:
        with torch.no_grad():
            whole = self._outputs_from(xs, starts, self._fresh(envs))
        return whole.transpose(0, 1).numpy()

    def _outputs_from(self, xs: torch.Tensor, starts: torch.Tensor, state: Any) -> torch.Tensor:
        distribution, _ = self._model.get_distribution(xs, state.pi, starts)
        values = self._model.predict_values(xs, state.pi, starts)
        both = torch.cat([distribution.distribution.logits, values], -1)
        return both.reshape(state.pi[0].shape[1], -1, both.shape[-1])

    def _fresh(self, envs: int) -> RNNStates:
        zeros = torch.zeros(1, envs, self._sizes.width)
        return RNNStates((zeros, zeros), (zeros, zeros))

    @staticmethod
    def _given(arrays: Arrays) -> Arrays:
        names = ("inputs", "starts", "actions", "advantages", "returns")
        return {name: arrays[name] for name in names}


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
    """Gates are in the same order; the recurrent product's biases only where they do something."""
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


def fill_heads(model: Any, arrays: Arrays) -> None:
    """Both heads, one hidden layer each."""
    actor = model.mlp_extractor.policy_net[0], model.action_net
    critic = model.mlp_extractor.value_net[0], model.value_net
    with torch.no_grad():
        for name, head in (("actor", actor), ("critic", critic)):
            for part, linear in zip(("hidden", "output"), head, strict=True):
                linear.weight.copy_(tensor(arrays[f"{name}_{part}"].T))
                linear.bias.copy_(tensor(arrays[f"{name}_{part}_bias"]))


def on_best_threads(build: Build) -> Build:
    """Gives PyTorch one thread or one for every core, whichever learns faster from a short chunk.

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
    """Of one call, the fastest of three after one."""
    torch.set_num_threads(threads)
    trial.learn()
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        trial.learn()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    subjects = {
        "torch.lstm": lambda sizes, arrays: Cell(nn.LSTM, sizes, arrays),
        "torch.gru": lambda sizes, arrays: Cell(nn.GRU, sizes, arrays),
        "sb3-contrib.policy": Policy,
    }
    serve(("torch", "sb3-contrib"), {n: on_best_threads(b) for n, b in subjects.items()})
