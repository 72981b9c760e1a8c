"""The loop of Makkink (2021) in PyTorch, as published, for comparing speeds: GTrXL, one episode an
update.

One environment, one observation at a time; at every step the keys and values of the whole window
are projected again, the window is detached, the gates are GRUs over time; after each episode one
step of Adam on summed losses with returns scaled within the episode. Written from the thesis and
from what is established of its code, with the same 83,811 parameters.

    python torch_gtrxl.py MEMORY_LENGTH SECONDS CORE

prints one line of JSON: parameters, steps, seconds. Needs torch and NumPy, nothing of clew.
"""

import json
import math
import os
import sys
import time

import numpy as np
import torch
from torch import nn

SIZE, WINDOW, FFN = 64, 100, 32
GAMMA = 0.99
WARM_UP = 3


class MemoryChain:
    """One bit, shown at the beginning and asked for at the end; as bsuite has it."""

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


class Agent(nn.Module):
    """Encoder, one layer of GTrXL with recurrent gates, skip connection, heads."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(3, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE), nn.ReLU()
        )
        self.attention = Attention()
        self.norm_1, self.norm_2 = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.gate_1, self.gate_2 = nn.GRU(SIZE, SIZE), nn.GRU(SIZE, SIZE)
        self.mlp = nn.Sequential(nn.Linear(SIZE, FFN), nn.ReLU(), nn.Linear(FFN, SIZE))
        self.output = nn.Linear(SIZE, SIZE, bias=False)
        self.actor, self.critic = nn.Linear(SIZE, 2), nn.Linear(SIZE, 1)

    def forward(self, observation: torch.Tensor, state: tuple) -> tuple:
        """One observation: logits, value, state."""
        window, hidden_1, hidden_2 = state
        x = self.encoder(observation)
        y = self.norm_1(self.attention(x, window))
        y, hidden_1 = self.gate_1((x + y)[None], hidden_1)
        y = y[0]
        out, hidden_2 = self.gate_2((y + self.mlp(self.norm_2(y)))[None], hidden_2)
        window = torch.cat([window, x.detach()])[-WINDOW:]
        h = torch.relu(self.output(out[0])) + x
        return self.actor(h), self.critic(h), (window, hidden_1, hidden_2)


def play_and_learn(agent: Agent, env: MemoryChain, optimiser: torch.optim.Optimizer) -> int:
    """One episode and one update; the number of steps."""
    state = (torch.zeros(0, SIZE), torch.zeros(1, 1, SIZE), torch.zeros(1, 1, SIZE))
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


def main(length: int, seconds: float, core: int) -> None:
    """Plays for so many seconds with one thread on one core."""
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    torch.manual_seed(0)
    agent, env = Agent(), MemoryChain(length)
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
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
