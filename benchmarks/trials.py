"""Agents that keep their memory over trials: bandits and the dark room, beside other policies.

    python -m benchmarks.trials results/trials bandit-10 dark-room bandit-10-arelit bandit-100

trains what is missing, one study for each name, and writes the returns of policies for bandits.
`separate` is the control: the same trials, with a memory that is reset in each episode.
"""

import json
from pathlib import Path

from benchmarks.bandit_policies import POLICIES, bandit_policy_returns, best_bandit_return
from benchmarks.options import described
from benchmarks.plans import ending_as_commands

from clew import PPOConfig, TrainConfig, WrapperConfig
from clew.lab.grid import Evaluation, Setting, Study, run_study

GRU = {"hidden_size": 64, "num_layers": 1}
BANDIT = {"5-arms": Setting("bandit", {"arms": 5})}
TABLE = [(arms, pulls) for pulls in (10, 100, 500) for arms in (5, 10, 50)]


def agent(memory: str, episodes: int, learner: PPOConfig, *, separate: bool = False) -> TrainConfig:
    """An agent that plays trials."""
    return TrainConfig(
        env="bandit",
        memory=memory,
        memory_options=GRU if memory == "gru" else {"hidden_size": 32, "num_layers": 1},
        algorithm="ppo",
        ppo=learner,
        wrappers=WrapperConfig(trial_episodes=episodes, trial_memory=not separate),
    )


def learner(num_envs: int, length: int, *, lam: float, entropy: float) -> PPOConfig:
    """PPO whose rollouts are whole trials."""
    return PPOConfig(
        num_envs=num_envs,
        rollout_length=length,
        sequence_length=length,
        minibatches=8,
        learning_rate=1e-3,
        schedule="linear",
        lam=lam,
        entropy_cost=entropy,
    )


TEN = learner(512, 10, lam=0.3, entropy=0.0)
HUNDRED = learner(256, 100, lam=0.3, entropy=0.0)
ROOM = learner(256, 100, lam=0.95, entropy=0.01)


def bandit(name: str, models: dict[str, TrainConfig], steps: int, episodes: int) -> Study:
    """Trials of the bandit, five seeds each."""
    return Study(
        name=name,
        models=models,
        settings=BANDIT,
        seeds=tuple(range(5)),
        steps=steps,
        evaluation=Evaluation(episodes=episodes),
        score="regret",
    )


KEPT = {"gru": agent("gru", 10, TEN), "gru-separate": agent("gru", 10, TEN, separate=True)}
STUDIES = {
    "bandit-10": bandit("bandit-10", KEPT, 2_000_000, 10_000),
    "bandit-10-arelit": bandit(
        "bandit-10-arelit", {"arelit": agent("arelit", 10, TEN)}, 2_000_000, 10_000
    ),
    "bandit-100": bandit("bandit-100", {"gru": agent("gru", 100, HUNDRED)}, 10_000_000, 2_000),
    "dark-room": Study(
        name="dark-room",
        models={
            "gru": agent("gru", 5, ROOM),
            "gru-separate": agent("gru", 5, ROOM, separate=True),
        },
        settings={"9x9": Setting("dark_room")},
        seeds=tuple(range(5)),
        steps=2_000_000,
        evaluation=Evaluation(episodes=2_000),
        score="found",
    ),
}


def write_policies(path: Path) -> None:
    """The returns of the best policy and of those in `POLICIES`, one row each."""
    rows = []
    for arms, pulls in TABLE:
        if pulls == 10 and arms < 50:
            rows.append(
                {"policy": "best", "arms": arms, "pulls": pulls}
                | {"mean": best_bandit_return(arms, pulls)}
            )
        for policy in POLICIES:
            found = bandit_policy_returns(policy, arms, pulls, trials=1_000_000 // pulls)
            rows.append(
                {
                    "policy": policy,
                    "arms": arms,
                    "pulls": pulls,
                    "mean": round(float(found.mean()), 4),
                    "standard_error": round(float(found.std() / len(found) ** 0.5), 4),
                }
            )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@ending_as_commands()
def main() -> None:
    """Trains the studies that the command line names, and plays the policies once."""
    parser = described(__doc__)
    parser.add_argument("output", type=Path, help="where the studies' folders are")
    parser.add_argument("studies", nargs="+", choices=STUDIES, help="those to train")
    given = parser.parse_args()
    place = given.output
    place.mkdir(parents=True, exist_ok=True)
    for name in given.studies:
        run_study(STUDIES[name], place / name, workers=1)
    if not (place / "policies.jsonl").exists():
        write_policies(place / "policies.jsonl")


if __name__ == "__main__":
    main()
