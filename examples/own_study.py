"""A study of your own: does one more layer help an LSTM to remember for longer?

    python examples/own_study.py

Kill it and start it again: it goes on where it was.
"""

from pathlib import Path

from clew import A2CConfig, TrainConfig
from clew.studies.engine import Evaluation, Setting, Study, StudyResult, run_study

A2C = A2CConfig(num_envs=16, rollout_length=64)

STUDY = Study(
    name="depth",
    models={
        f"{n} layers": TrainConfig(
            memory="lstm", memory_options={"hidden_size": 32, "num_layers": n}, a2c=A2C
        )
        for n in (1, 2)
    },
    settings={f"corridor {n}": Setting("tmaze", {"corridor_length": n}) for n in (5, 10, 20)},
    seeds=tuple(range(10)),
    steps=300_000,
    evaluation=Evaluation(episodes=500),
    score="success",
)


def main(study: Study = STUDY, folder: Path = Path("runs/depth"), workers: int = 0) -> StudyResult:
    result = run_study(study, folder, workers=workers or None)
    for row in result.rows:
        print(row["model"], row["setting"], row["seed"], row["mean"])
    return result


if __name__ == "__main__":
    main()
