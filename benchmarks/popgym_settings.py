"""Does a GRU earn with clew's PPO what Morad et al. (2023) published, with their settings?

    python -m benchmarks.popgym_settings results/popgym-settings --workers 2

POPGym's table (results/popgym-easy-ppo) has memories of 64 units and a million steps. The paper's
runs have 15 million steps, a GRU of 256 units, and sequences of 1,024 steps, as long as the longest
episode. Here a GRU is trained with these settings, as far as clew has them, on the three tasks
whose published scores of a GRU are known, from a second-hand source: -0.28 in autoencode (easy),
0.18 in count-recall (easy, in the form of that time), -0.32 in repeat-previous (medium).

From popgym's `baselines/ppo.py`, and RLlib's defaults where it says nothing: 64 environments,
rollouts of 65,536 steps in minibatches of 8,192, 30 passes, a learning rate of 5e-5, gamma 0.99,
lambda 1, ratios clipped at 0.3, value cost 1, no entropy bonus, no limit on the gradient's norm,
the previous action observed, layers of 128 before and after the memory. RLlib's limit on the loss
of values, 10, is never reached with returns between -1 and 1.

Deviations: RLlib also penalises the KL divergence from the policy that acted (0.2 at first, then
adapted to a divergence of 0.01), fills rollouts with whole episodes, and scales advantages over a
rollout instead of a minibatch. The encoder has two layers with a relu and a norm after them; theirs
has a norm after the first and a leaky relu after the second. Actor and critic have one hidden layer
of 128 instead of two.

Expected, written down before the first run: the published score is the highest mean of a training
epoch (MMER). Here an epoch is one rollout. The mean MMER over three seeds is within 0.1 of the
published score in all three tasks, which says that the tasks, and PPO with a GRU, are theirs but
for these deviations. Outside of it the deviations are to be tried one by one before anything is
said about the cause.

A run takes several hours on one core. It is saved as it goes: run it again to resume.
"""

from benchmarks.plans import agents, run_plan

from clew import NetworkConfig, PPOConfig, TrainConfig
from clew.envs.wrappers import WrapperConfig
from clew.lab.grid import Evaluation, Setting, Study

SIZES = {"hidden_size": 256}
LEARNER = PPOConfig(
    num_envs=64,
    rollout_length=1024,
    sequence_length=1024,
    minibatches=8,
    epochs=30,
    learning_rate=5e-5,
    lam=1.0,
    clip_ratio=0.3,
    value_cost=1.0,
    entropy_cost=0.0,
    max_grad_norm=None,
)
NETWORK = NetworkConfig(encoder="joint", encoder_size=128, encoder_norm=True, head_size=128)


def popgym_settings() -> Study:
    """A GRU with the settings of POPGym's paper."""
    like = TrainConfig(
        algorithm="ppo",
        ppo=LEARNER,
        network=NETWORK,
        wrappers=WrapperConfig(previous_action=True),
    )
    return Study(
        name="popgym-settings",
        models=agents(["gru"], SIZES, like),
        settings={
            "autoencode": Setting("autoencode"),
            "count-recall": Setting("count_recall", {"as_published": True}),
            "repeat-previous-medium": Setting("repeat_previous", {"difficulty": "medium"}),
        },
        steps=15_000_000,
        evaluation=Evaluation(episodes=500),
        score="return",
        resumable=True,
    )


if __name__ == "__main__":
    run_plan(
        __doc__, {"popgym-settings": popgym_settings}, seeds=3, sizes={"popgym-settings": SIZES}
    )
