"""Which weights should start as one orthogonal matrix: a whole product, or each gate and head?

Compares LSTM, GRU, ReLiT and AReLiT with either `init_per` on three tasks with ten seeds each; and
AReLiT with memories that last at the start (`chrono`):

    python -m benchmarks.initial_weights results/initial-weights

Run it again to resume. `clew report results/initial-weights` draws the curves. Seeds are the same
for every way of drawing, but the numbers drawn from them are not, so nothing is paired.
"""

from benchmarks.plans import run_plan

from clew import A2CConfig, TrainConfig
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.models import PublishedGRU, PublishedLSTM
from clew.lab.studies.tmaze.models import PublishedAReLiT, PublishedReLiT
from clew.names import recorded_name

A2C = A2CConfig(num_envs=16, rollout_length=64)
CELL = {"hidden_size": 128}
LAYERS = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "head_size": 32}
WAYS = {
    "lstm": (PublishedLSTM, CELL, ("product", "gate")),
    "gru": (PublishedGRU, CELL, ("product", "gate")),
    "relit": (PublishedReLiT, LAYERS, ("product", "role", "head")),
    "arelit": (PublishedAReLiT, LAYERS | {"chrono": 0}, ("product", "role", "head")),
}
"""For each memory: the class that has the option, its options, and the ways to draw."""
STUDY = Study(
    name="initial-weights",
    models={
        f"{memory}-{way}": TrainConfig(
            memory=recorded_name("memory", kind),
            memory_options=options | {"init_per": way},
            a2c=A2C,
        )
        for memory, (kind, options, ways) in WAYS.items()
        for way in ways
    }
    | {
        "arelit-product-chrono": TrainConfig(
            memory="arelit", memory_options=LAYERS | {"chrono": 256}, a2c=A2C
        )
    },
    settings={
        "tmaze-20": Setting("tmaze", {"corridor_length": 20}),
        "chain-20": Setting("memory_chain", {"memory_length": 20}),
        "distributed-10-3": Setting("distributed_memory", {"memory_length": 10, "num_bits": 3}),
    },
    seeds=tuple(range(10)),
    steps=300_000,
    evaluation=Evaluation(episodes=500),
    score="success",
)


if __name__ == "__main__":
    run_plan(__doc__, {STUDY.name: lambda: STUDY}, seeds=len(STUDY.seeds))
