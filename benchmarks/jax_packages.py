"""Does an agent learn tasks of other JAX packages, with a memory and without?

    make .venv-jaxenvs/.installed
    PYTHONPATH=src .venv-jaxenvs/bin/python -m benchmarks.jax_packages results/jax-packages

A GRU of 64 units and no memory, PPO at its default settings, the encoder that Gymnasium tasks use,
and one task of each package that two cores can learn in minutes; 300,000 steps, then fresh episodes
with sampled actions. Craftax's task takes by far the longest. Run it again to resume.
"""

from benchmarks.plans import run_plan
from benchmarks.which_learner import with_every_memory

from clew import NetworkConfig
from clew.lab.grid import Evaluation, Setting, Study

TASKS = {
    "xminigrid memory": Setting("xminigrid:MiniGrid-MemoryS8"),
    "brax hopper, positions": Setting("brax:hopper", {"shown": "positions", "backend": "spring"}),
    "jumanji snake": Setting("jumanji:Snake-v1", {"num_rows": 6, "num_cols": 6}),
    "craftax classic": Setting("craftax:Craftax-Classic-Symbolic-v1"),
}


def packages() -> Study:
    """Two memories on a task of each package."""
    return Study(
        name="jax-packages",
        models=with_every_memory({"ppo": {"network": NetworkConfig(encoder="auto")}}),
        settings=TASKS,
        steps=300_000,
        evaluation=Evaluation(episodes=200),
    )


if __name__ == "__main__":
    run_plan(__doc__, {"packages": packages})
