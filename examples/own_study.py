"""A study of your own: does a second layer help an LSTM to remember for longer?

python examples/own_study.py       kill it and start it again: it continues where it stopped
"""

from clew import A2CConfig, TrainConfig
from clew.lab.grid import Evaluation, Setting, Study, StudyResult, run_study

A2C = A2CConfig(num_envs=16, rollout_length=64)
STUDY = Study(
    name="depth",
    models={
        f"{n} layers": TrainConfig(memory="lstm", memory_options={"num_layers": n}, a2c=A2C)
        for n in (1, 2)
    },
    settings={f"corridor {n}": Setting("tmaze", {"corridor_length": n}) for n in (5, 10, 20)},
    seeds=tuple(range(10)),
    steps=300_000,
    evaluation=Evaluation(episodes=500),
    score="success",
)


def main(
    study: Study = STUDY, folder: str = "runs/depth", workers: int | None = None
) -> StudyResult:
    result = run_study(study, folder, workers=workers)
    for row in result.rows:
        print(row["model"], row["setting"], row["seed"], row["mean"])
    return result


if __name__ == "__main__":
    main()
