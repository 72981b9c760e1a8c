"""Does a memory, or a learner that looks further, help to credit actions from long before?

    python -m benchmarks.key_to_door results/key-to-door --seeds 5 --workers 2

PPO on key-to-door with 60 and 250 steps between the key and the door, 1,000,000 steps, memories of
64 units in two layers where they have layers, at a discount of 0.999; then 200 fresh episodes with
sampled actions. The score is the share of episodes in which the door was opened. Agents whose names
end in "-lambda-1" judge actions by all later rewards of the rollout; the others use the default of
0.95, with which a reward 60 steps away weighs a twentieth. Run it again to resume.
"""

from dataclasses import replace

from benchmarks.plans import agents, run_plan

from clew import PPOConfig
from clew.lab.grid import Evaluation, Setting, Study

MEMORIES = ("none", "gru", "arelit")


def key_to_door() -> Study:
    """Memories and lambdas, at two distances."""
    models = {}
    for memory, agent in agents(MEMORIES).items():
        for ending, lam in (("", 0.95), ("-lambda-1", 1.0)):
            ppo = PPOConfig(
                num_envs=8,
                rollout_length=512,
                sequence_length=256,
                minibatches=8,
                gamma=0.999,
                lam=lam,
            )
            models[memory + ending] = replace(agent, algorithm="ppo", ppo=ppo)
    return Study(
        name="key-to-door",
        models=models,
        settings={str(n): Setting("key_to_door", {"distractor": n}) for n in (60, 250)},
        steps=1_000_000,
        evaluation=Evaluation(episodes=200),
        score="success",
        resumable=True,
    )


if __name__ == "__main__":
    run_plan(__doc__, {"key-to-door": key_to_door})
