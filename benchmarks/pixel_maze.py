"""Does a memory help to find colours again, from pixels?

    python -m benchmarks.pixel_maze results/pixel-maze --seeds 3 --workers 2

PPO on the pixel maze of 7 x 7 squares with three balls, 250 steps an episode, 500,000 steps: the
Nature CNN with half of its channels, two epochs per rollout, memories of 64 units in two layers;
then 200 fresh episodes with sampled actions. The score is the number of balls in an episode. Run it
again to resume.
"""

from benchmarks.plans import run_plan

from clew import NetworkConfig, PPOConfig, TrainConfig
from clew.lab.grid import Evaluation, Setting, Study

MEMORIES = ("none", "arelit", "gtrxl", "gru")


def pixel_maze() -> Study:
    """Memories, and none, on a maze that two cores learn in minutes."""
    ppo = PPOConfig(num_envs=32, rollout_length=128, epochs=2)
    network = NetworkConfig(encoder="nature", picture_channels=(16, 32, 32))
    models = {m: TrainConfig(memory=m, algorithm="ppo", ppo=ppo, network=network) for m in MEMORIES}
    maze = Setting("pixel_maze", {"size": 7, "num_balls": 3, "max_steps": 250})
    return Study(
        name="pixel-maze",
        models=models,
        settings={"7x7": maze},
        steps=500_000,
        resumable=True,
        evaluation=Evaluation(episodes=200),
    )


if __name__ == "__main__":
    run_plan(__doc__, {"pixel-maze": pixel_maze})
