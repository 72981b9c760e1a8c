"""Peers in PyTorch, on processors: its own LSTM and GRU, and sb3-contrib's recurrent policy.

Runs in .venv-peers.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import nn

from serve import Arrays, Sizes, serve
from torch_subject import cell_gradients, count, fill_cell, on_best_threads, tensor


class RecurrentLayer:
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
        """Nothing is compiled, and nothing is known in advance."""

    def facts(self) -> dict[str, Any]:
        """Counted from the parameters; with the number of threads."""
        return count(self._model)

    def learn(self) -> None:
        """Gradients for the parameters and for the inputs."""
        self._model.zero_grad(set_to_none=True)
        self._xs.grad = None
        (self._model(self._xs)[0] * self._cotangent).sum().backward()

    def act(self) -> None:
        """One observation for every actor."""
        with torch.no_grad():
            _, self._state = self._model(self._x, self._state)

    def result(self) -> Arrays:
        """Outputs, and gradients by library-independent names."""
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
        """The same, one observation at a time."""
        state, outputs = None, []
        with torch.no_grad():
            for x in tensor(xs):
                y, state = self._model(x[None], state)
                outputs.append(y[0].numpy())
        return np.stack(outputs)


class Policy:
    """The policy of sb3-contrib's RecurrentPPO: one LSTM for actor and critic, tanh heads.

    Its training calls `evaluate_actions`, a rollout calls `forward`. The critic's gradient ends at
    the shared LSTM, as in the library.
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
        """Nothing is compiled, and nothing is known in advance."""

    def facts(self) -> dict[str, Any]:
        """Counted from the parameters; with the number of threads."""
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
        """Log-probabilities and values; the actor's gradients, which are not cut off."""
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
        """The same, one observation at a time, as in a rollout."""
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


def fill_heads(model: Any, arrays: Arrays) -> None:
    """Both heads, one hidden layer each."""
    actor = model.mlp_extractor.policy_net[0], model.action_net
    critic = model.mlp_extractor.value_net[0], model.value_net
    with torch.no_grad():
        for name, head in (("actor", actor), ("critic", critic)):
            for part, linear in zip(("hidden", "output"), head, strict=True):
                linear.weight.copy_(tensor(arrays[f"{name}_{part}"].T))
                linear.bias.copy_(tensor(arrays[f"{name}_{part}_bias"]))


if __name__ == "__main__":
    subjects = {
        "torch.lstm": lambda sizes, arrays: RecurrentLayer(nn.LSTM, sizes, arrays),
        "torch.gru": lambda sizes, arrays: RecurrentLayer(nn.GRU, sizes, arrays),
        "sb3-contrib.policy": Policy,
    }
    serve(("torch", "sb3-contrib"), {n: on_best_threads(b) for n, b in subjects.items()})
