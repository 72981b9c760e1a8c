"""How much a rule without memory earns in MiniGrid's MemoryS7: pip install minigrid, then

    python -m benchmarks.minigrid_without_memory

The maze is no longer than the view. From the junction, looking back, the third object and both
ends are in one image; only the direction of the turn must be remembered. The rule looks only at the
present image: it turns right at the end, so down, then back, then towards the correct end. Facing
up, only an agent that chose this goes on; facing down, it goes on with probability p and otherwise
turns back, because it cannot distinguish having chosen to go down from having just arrived.
"""

import gymnasium
import numpy as np
from benchmarks.options import described

LEFT, RIGHT, FORWARD = range(3)
WALL, KEY, BALL = 2, 5, 6
OWN_ROW, OWN_COLUMN = 6, 3
"""The agent's position in its view, facing upwards."""
EPISODES = 2000


def choose(observation: dict[str, np.ndarray], leave: float, draw: np.random.Generator) -> int:
    """The rule's action; `leave` is p."""
    seen = np.asarray(observation["image"])[:, :, 0].T
    facing = ("right", "down", "left", "up")[int(observation["direction"])]
    if facing == "right":
        return RIGHT if seen[OWN_ROW - 1, OWN_COLUMN] == WALL else FORWARD
    if facing == "down":
        return FORWARD if draw.random() < leave else RIGHT
    if facing == "up":
        return FORWARD
    ends = {int(seen[OWN_ROW, i]): i for i in range(7) if seen[OWN_ROW, i] in (KEY, BALL)}
    (third,) = (int(kind) for kind in seen[:OWN_ROW].flat if kind in (KEY, BALL))
    return RIGHT if ends[third] > OWN_COLUMN else LEFT


def main() -> None:
    """Prints a table of p, mean return, its standard error, and fraction of right objects."""
    print("| p | return | standard error | right object |\n|---|---|---|---|")
    for leave in (0.5, 0.2, 0.1, 0.05, 0.02):
        env, draw = gymnasium.make("minigrid:MiniGrid-MemoryS7-v0"), np.random.default_rng(0)
        returns = []
        for episode in range(EPISODES):
            observation, _ = env.reset(seed=episode)
            reward, over = 0.0, False
            while not over:
                action = choose(observation, leave, draw)
                observation, reward, terminated, truncated, _ = env.step(action)
                over = terminated or truncated
            returns.append(float(reward))
        error = np.std(returns) / EPISODES**0.5
        right = np.mean(np.array(returns) > 0)
        print(f"| {leave} | {np.mean(returns):.3f} | {error:.3f} | {right:.3f} |")


if __name__ == "__main__":
    described(__doc__).parse_args()
    main()
