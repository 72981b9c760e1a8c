"""Environments with several agents and PettingZoo's interface, which need no package."""

from typing import Any

import numpy as np
from gymnasium import spaces

AGENTS = ("ann", "bob")


class Recall:
    """Each agent sees a bit of its own once, and earns 1 if its last action repeats it.

    Args:
        length: steps of an episode.
        ends: "terminated" or "truncated" for both agents; with "died" or "left" bob is terminated
            or truncated at the first step, and ann is truncated at the end.
        masked: None, or where an action mask that allows everything is: "info" or "observation".
        sizes: number of inputs of each agent.
        render_mode: "rgb_array" draws the step in grey.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}

    def __init__(
        self,
        length: int = 3,
        ends: str = "terminated",
        masked: str | None = None,
        sizes: tuple[int, int] = (2, 2),
        render_mode: str | None = None,
    ):
        self.possible_agents = list(AGENTS)
        self.length, self.ends, self.masked = length, ends, masked
        self.render_mode = render_mode
        self.sizes = dict(zip(AGENTS, sizes, strict=True))
        self.state_space = spaces.Box(0, 1, (3,), np.float32)
        self.random = np.random.default_rng(0)

    def observation_space(self, agent: str) -> spaces.Space:
        """The bit at first, and then the number of the step."""
        box = spaces.Box(-1, 99, (self.sizes[agent],), np.float32)
        if self.masked != "observation":
            return box
        return spaces.Dict(seen=box, action_mask=spaces.MultiBinary(2))

    def action_space(self, agent: str) -> spaces.Space:
        """The bit to repeat."""
        return spaces.Discrete(2)

    def state(self) -> np.ndarray:
        """Both bits, and how much of the episode is over."""
        return np.array([*self.bits, self.time / self.length], np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Draws the bits."""
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.bits, self.time, self.agents = self.random.integers(2, size=2), 0, list(AGENTS)
        return self._seen(), self._infos()

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """A step of the agents that are left."""
        assert set(actions) == set(self.agents)
        self.time += 1
        over = self.time == self.length
        early = self.time == 1 and self.ends in ("died", "left")
        right = dict(zip(AGENTS, self.bits, strict=True))
        rewards = {a: float((over or early) and actions[a] == right[a]) for a in self.agents}
        gone = {a: over or (early and a == "bob") for a in self.agents}
        cuts = {"terminated": (), "died": ("ann",), "truncated": AGENTS, "left": AGENTS}[self.ends]
        terminated = {a: gone[a] and a not in cuts for a in self.agents}
        truncated = {a: gone[a] and a in cuts for a in self.agents}
        answer = self._seen(), rewards, terminated, truncated, self._infos()
        self.agents = [a for a in self.agents if not gone[a]]
        return answer

    def render(self) -> np.ndarray:
        """A grey picture, lighter with every step."""
        return np.full((8, 8, 3), 50 * self.time, np.uint8)

    def close(self) -> None:
        """There is nothing to close."""

    def _seen(self) -> dict[str, Any]:
        found = {}
        for index, agent in enumerate(self.agents):
            first = self.bits[index] if self.time == 0 else -1
            seen = np.resize(np.array([first, self.time], np.float32), self.sizes[agent])
            masked = self.masked == "observation"
            found[agent] = {"seen": seen, "action_mask": np.ones(2, np.int8)} if masked else seen
        return found

    def _infos(self) -> dict[str, Any]:
        mask = {"action_mask": np.ones(2, np.int8)} if self.masked == "info" else {}
        return {agent: {"steps": self.time, **mask} for agent in self.agents}


parallel_env = Recall


class InTurn(Recall):
    """An environment whose agents act one after the other."""

    agent_selection = "ann"


class NoState(Recall):
    """An environment without a state to observe."""

    def __init__(self):
        super().__init__()
        del self.state_space


def nobody() -> str:
    """A factory that makes something else."""
    return "ann"
