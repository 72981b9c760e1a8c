"""The loop of Makkink (2021) in PyTorch, as published, to compare speeds: one episode per update.

One environment, one observation at a time; after each episode one step of Adam on summed losses
with returns scaled within the episode. At every step of GTrXL and of the Integrated Transformer the
keys and values of the whole window are projected again, the window is detached, and the gates are
GRUs over time. It was written from the thesis and from known facts about its code, with the same
numbers of parameters: 42,051 with the LSTM, 83,811 with GTrXL, 83,685 with the Integrated one.

    python torch_loop.py MEMORY MEMORY_LENGTH SECONDS CORE

prints one line of JSON: parameters, steps, seconds. Needs torch and NumPy, but not clew.
"""

import json
import math
import os
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import nn

SIZE, WINDOW, FFN = 64, 100, 32
HALTED, MOST = 0.9, 6  # the Integrated Transformer's threshold, and most readings per observation
GAMMA = 0.99
WARM_UP = 3


class MemoryChain:
    """One bit, shown at the beginning and asked for at the end; as in bsuite."""

    def __init__(self, length: int):
        self.length = length
        self.random = np.random.RandomState(0)

    def reset(self) -> np.ndarray:
        """Opens an episode."""
        self.bit, self.time = self.random.randint(2), 0
        return self._observe()

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        """Waits, or answers."""
        observation, ended = self._observe(), self.time == self.length
        self.time += 1
        return observation, (1.0 if action == self.bit else -1.0) if ended else 0.0, ended

    def _observe(self) -> np.ndarray:
        shown = 2 * self.bit - 1 if self.time == 0 else 0
        return np.array([1 - self.time / self.length, 0, shown], np.float32)


class Attention(nn.Module):
    """Attention to the window and to itself, relative positions; residual and norm inside."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("query", "key", "value", "distance", "output"):
            setattr(self, name, nn.Linear(SIZE, SIZE, bias=False))
        self.u = nn.Parameter(torch.zeros(SIZE))
        self.v = nn.Parameter(torch.zeros(SIZE))
        self.norm = nn.LayerNorm(SIZE)
        rates = 10_000.0 ** (-torch.arange(0, SIZE, 2) / SIZE)
        angles = torch.arange(WINDOW + 1)[:, None] * rates
        self.register_buffer("sinusoids", torch.cat([angles.sin(), angles.cos()], 1))

    def forward(self, x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        """x [1, size], window [slots, size], the oldest first."""
        seen = torch.cat([window, x])
        query, keys, values = self.query(x), self.key(seen), self.value(seen)
        far = self.distance(self.sinusoids[: len(seen)].flip(0))
        scores = (query + self.u) @ keys.T + (query + self.v) @ far.T
        weights = torch.softmax(scores / math.sqrt(SIZE), dim=-1)
        return self.norm(x + self.output(weights @ values))


class LSTM(nn.Module):
    """PyTorch's, with a product of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.output = nn.LSTM(SIZE, SIZE), nn.Linear(SIZE, SIZE)

    def begin(self) -> Any:
        """Before an episode."""
        return None

    def forward(self, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        """x [1, size]."""
        y, state = self.cell(x[None], state)
        return self.output(y[0]), state


class RecurrentGates(nn.Module):
    """Shared by GTrXL and the Integrated Transformer: attention, a small net, two GRUs."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.gate_1, self.gate_2 = nn.GRU(SIZE, SIZE), nn.GRU(SIZE, SIZE)
        self.mlp = nn.Sequential(nn.Linear(SIZE, FFN), nn.ReLU(), nn.Linear(FFN, SIZE))


class GTrXL(RecurrentGates):
    """One layer, with norms around the gates."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.output = nn.Linear(SIZE, SIZE, bias=False)

    def begin(self) -> Any:
        """An empty window, both gates' states at 0."""
        return torch.zeros(0, SIZE), torch.zeros(1, 1, SIZE), torch.zeros(1, 1, SIZE)

    def forward(self, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        """x [1, size]."""
        window, hidden_1, hidden_2 = state
        y = self.norm_1(self.attention(x, window))
        y, hidden_1 = self.gate_1((x + y)[None], hidden_1)
        y = y[0]
        out, hidden_2 = self.gate_2((y + self.mlp(self.norm_2(y)))[None], hidden_2)
        window = torch.cat([window, x.detach()])[-WINDOW:]
        return self.output(out[0]), (window, hidden_1, hidden_2)


class Integrated(RecurrentGates):
    """One layer read until it halts, with a weight that starts at 0 and no norms of its own.

    Every reading has its own window, in which an observation that had halted before is zeros, and
    the first gate continues from the second's state.
    """

    def __init__(self) -> None:
        super().__init__()
        self.zeta = nn.Parameter(torch.zeros(1))
        self.halting, self.output = nn.Linear(SIZE, 1), nn.Linear(SIZE, SIZE)

    def begin(self) -> Any:
        """Empty windows."""
        return [torch.zeros(0, SIZE) for _ in range(MOST + 1)], torch.zeros(1, 1, SIZE)

    def forward(self, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        """x [1, size]."""
        windows, hidden = state
        read, blended, halted = [x], torch.zeros_like(x), torch.zeros(1, 1)
        while len(read) <= MOST and halted < HALTED:
            opened = torch.sigmoid(self.halting(x))
            weight = opened if halted + opened <= HALTED else 1 - halted
            halted = halted + weight
            y = self.zeta * self.attention(x, windows[len(read) - 1])
            y, _ = self.gate_1((x + y)[None], hidden)
            out, hidden = self.gate_2(y + self.zeta * self.mlp(y), hidden)
            x = out[0]
            blended = weight * x + (1 - weight) * blended
            read.append(x)
        read += [torch.zeros_like(x)] * (MOST + 1 - len(read))
        pairs = zip(windows, read, strict=True)
        windows = [torch.cat([window, y.detach()])[-WINDOW:] for window, y in pairs]
        return self.output(blended), (windows, hidden)


MEMORIES: dict[str, Any] = {"lstm": LSTM, "gtrxl": GTrXL, "integrated": Integrated}


class Agent(nn.Module):
    """Encoder, memory, skip connection, heads."""

    def __init__(self, memory: str) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(3, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE), nn.ReLU()
        )
        self.memory = MEMORIES[memory]()
        self.actor, self.critic = nn.Linear(SIZE, 2), nn.Linear(SIZE, 1)

    def forward(self, observation: torch.Tensor, state: Any) -> tuple:
        """One observation: logits, value, state."""
        x = self.encoder(observation)
        y, state = self.memory(x, state)
        h = torch.relu(y) + x
        return self.actor(h), self.critic(h), state


def play_and_learn(agent: Agent, env: MemoryChain, optimiser: torch.optim.Optimizer) -> int:
    """One episode and one update; returns the number of steps."""
    state = agent.memory.begin()
    observation, ended = env.reset(), False
    log_probs, values, rewards = [], [], []
    while not ended:
        logits, value, state = agent(torch.from_numpy(observation)[None], state)
        policy = torch.distributions.Categorical(logits=logits)
        action = policy.sample()
        observation, reward, ended = env.step(int(action))
        log_probs.append(policy.log_prob(action))
        values.append(value[0])
        rewards.append(reward)
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + GAMMA * total
        returns.insert(0, total)
    scaled = torch.tensor(returns)
    if scaled.std(correction=0) > 0:
        scaled = (scaled - scaled.mean()) / scaled.std(correction=0)
    errors = scaled - torch.cat(values)
    loss = -(torch.cat(log_probs) * errors.detach()).sum() + 0.5 * errors.square().sum()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return len(rewards)


def main(memory: str, length: int, seconds: float, core: int) -> None:
    """Plays for this many seconds with one thread on one core."""
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    torch.manual_seed(0)
    agent, env = Agent(memory), MemoryChain(length)
    optimiser = torch.optim.Adam(agent.parameters(), lr=1e-3)
    for _ in range(WARM_UP):
        play_and_learn(agent, env, optimiser)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        steps += play_and_learn(agent, env, optimiser)
    passed = time.perf_counter() - began
    parameters = sum(p.numel() for p in agent.parameters())
    print(json.dumps({"parameters": parameters, "steps": steps, "seconds": passed}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
