"""Which learner learns which task, at equal numbers of steps.

    python -m benchmarks.which_learner results/which-learner
    python -m benchmarks.which_learner results/pqn --plan pqn

Plans, each with five seeds, then fresh episodes; no learning rate was tuned for these tasks:

- defaults: every learner at its default settings, with a GRU of 64 units and without memory, on a
  T-Maze of 20 steps and a memory chain of 20; 500,000 steps, sampled actions. SAC, whose steps take
  longer, has a plan of its own;
- pqn: PQN with three memories beside PPO, which reads the same rollouts in the same minibatches,
  and A2C with the settings of `benchmarks/modern_memories.py`; 200,000 steps, greedy actions;
- popgym: every learner but SAC at its default settings, with the encoders of Gymnasium tasks, on
  POPGym's easy RepeatPrevious and its easy CartPole without velocities; 1,000,000 steps, greedy
  actions;
- r2d2-defaults: R2D2 with a GRU on the same CartPole, at its defaults and at its former defaults;
  300,000 steps, greedy actions; seeds 0 and 1 were looked at before, at 200,000 steps;
- tmaze-120: the same learners and memories on a T-Maze of 120, 1,000,000 steps, sampled actions;
- tmaze-120-longer: those that do not replay for 5,000,000, which would take R2D2 an hour a seed;
- chain-of-sac: the same memory chain with SAC at its defaults, 100,000 steps;
- pendulum-without-velocities, pendulum-without-positions: SAC at its defaults, and PPO with the
  settings that `clew sweep` found for the former (results/sweep-continuous), 50,000 steps, greedy
  actions;
- pendulum-longer: that PPO on both for ten times the steps, over which its learning rate falls;
- a2c-on-popgym: what A2C lacks where PPO is ahead of it, on four of POPGym's easy tasks; the agent
  of `clew study popgym` with a GRU, 1,000,000 steps, three seeds, sampled actions. PPO scales its
  advantages and makes 16 gradient steps from a rollout where A2C makes one. Expected before the
  first run: most of it is gradient steps, and with scaled advantages alone only the bandit is
  learned.

Run it again to resume; `--seeds 3` begins with fewer seeds. `clew report FOLDER` draws the curves.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.plans import run_plan

from clew import A2CConfig, NetworkConfig, PPOConfig, TrainConfig
from clew.agents.learners import LEARNERS
from clew.agents.learners.pqn import PQNConfig
from clew.agents.learners.r2d2 import R2D2Config
from clew.envs.wrappers import WrapperConfig
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.popgym import grid

CHAIN = {"memory-chain-20": Setting("memory_chain", {"memory_length": 20})}
PENDULUM_KEEPS = {"velocities": (0, 1), "positions": (2,)}
"""The observations that are left when these are removed."""
TASKS = {"tmaze-20": Setting("tmaze", {"corridor_length": 20})} | CHAIN


def defaults() -> Study:
    """Every learner but SAC with every memory at its default settings."""
    return Study(
        name="which-learner",
        models=with_every_memory({name: {} for name in LEARNERS if name != "sac"}),
        settings=TASKS,
        steps=500_000,
        evaluation=Evaluation(episodes=500),
        score="return",
    )


def popgym() -> Study:
    """The same on two of POPGym's tasks."""
    network = NetworkConfig(encoder="auto")
    learners = {name: {"network": network} for name in LEARNERS if name != "sac"}
    names = ("repeat_previous", "position_only_cartpole")
    return Study(
        name="popgym",
        models=with_every_memory(learners),
        settings={name.replace("_", "-"): Setting(name, {"difficulty": "easy"}) for name in names},
        steps=1_000_000,
        evaluation=Evaluation(episodes=500, greedy=True),
        score="return",
    )


def r2d2_defaults() -> Study:
    """Which of three older settings kept R2D2 from learning."""
    seldom: dict[str, Any] = {"gradient_steps": 2, "target_period": 200}
    changes: dict[str, dict[str, Any]] = {
        "as it was": {**seldom, "adam_eps": 1e-3},
        "epsilon of 1e-8": seldom,
        "more gradient steps": {"adam_eps": 1e-3},
        "both": {},
    }
    network = NetworkConfig(encoder="auto")
    agents = {
        name: agent("r2d2", "gru", {"hidden_size": 64}, network=network, r2d2=R2D2Config(**change))
        for name, change in changes.items()
    }
    cartpole = {"position-only-cartpole": popgym().settings["position-only-cartpole"]}
    return replace(popgym(), name="r2d2-defaults", models=agents, settings=cartpole, steps=300_000)


def tmaze_120() -> Study:
    """The same in a corridor that is six times as long."""
    settings = {"tmaze-120": Setting("tmaze", {"corridor_length": 120})}
    return replace(defaults(), name="tmaze-120", settings=settings, steps=1_000_000)


def tmaze_120_longer() -> Study:
    """The learners that do not replay, for five times the steps."""
    study = replace(tmaze_120(), name="tmaze-120-longer", steps=5_000_000)
    return study.only([model for model in study.models if not model.startswith("r2d2")])


def pqn() -> Study:
    """PQN beside PPO on the same minibatches, and A2C."""
    same_minibatches = PPOConfig(32, 128, 128, minibatches=16, learning_rate=1e-3)
    size = {"hidden_size": 64, "num_layers": 1}
    rate: dict[str, Any] = {"pqn": PQNConfig(learning_rate=1e-3, schedule="constant")}
    memories = ("gru", "min_gru", "none")
    models = {f"pqn-{memory}": agent("pqn", memory, size, **rate) for memory in memories}
    models["ppo-gru"] = agent("ppo", "gru", size, ppo=same_minibatches)
    models["a2c-gru"] = agent("a2c", "gru", size, a2c=A2CConfig(16, 64))
    return Study(
        name="pqn",
        models=models,
        settings=TASKS,
        steps=200_000,
        evaluation=Evaluation(episodes=500, greedy=True),
        score="success",
    )


def chain_of_sac() -> Study:
    """SAC with discrete actions on the memory chain."""
    return Study(
        name="chain-of-sac",
        models=with_every_memory({"sac": {}}),
        settings=CHAIN,
        steps=100_000,
        evaluation=Evaluation(episodes=500),
        score="return",
    )


def pendulum(without: str) -> Study:
    """SAC, and PPO as the best of a search on the task without velocities, on part of Pendulum."""
    sac = {"wrappers": WrapperConfig(keep=PENDULUM_KEEPS[without])}
    name = f"pendulum-without-{without}"
    return Study(
        name=name,
        models=with_every_memory({"sac": sac, "ppo": pendulum_ppo(without)}),
        settings={name: Setting("gymnasium:Pendulum-v1")},
        steps=50_000,
        evaluation=Evaluation(episodes=100, greedy=True),
        score="return",
        resumable=True,
        last_steps=5_000,
    )


def pendulum_longer() -> Study:
    """How many steps PPO needs to earn as much as SAC."""
    gru = {"hidden_size": 64}
    models = {
        f"without-{without}": agent("ppo", "gru", gru, **pendulum_ppo(without))
        for without in PENDULUM_KEEPS
    }
    settings = {"pendulum": Setting("gymnasium:Pendulum-v1")}
    return replace(
        pendulum("velocities"),
        name="pendulum-longer",
        models=models,
        settings=settings,
        steps=500_000,
    )


def pendulum_ppo(without: str) -> dict[str, Any]:
    """PPO's settings on part of Pendulum."""
    ppo = PPOConfig(
        num_envs=4,
        rollout_length=512,
        minibatches=8,
        epochs=10,
        learning_rate=1e-3,
        schedule="linear",
        gamma=0.9,
        lam=0.95,
        entropy_cost=0.0,
    )
    scaled = WrapperConfig(keep=PENDULUM_KEEPS[without], normalise_rewards=True, reward_gamma=0.9)
    network = NetworkConfig(encoder="auto", noise_steps=4)
    return {"ppo": ppo, "wrappers": scaled, "network": network}


def a2c_on_popgym() -> Study:
    """Steps from A2C at its defaults to PPO at its own, whose rows `clew study popgym` makes."""
    scaled = A2CConfig(advantage_normalisation=True)
    a2c = {
        "a2c-entropy-0.001": A2CConfig(entropy_cost=1e-3),
        "a2c-scaled": scaled,
        "a2c-scaled-4-steps": replace(scaled, minibatches=4),
        "a2c-scaled-8-steps": replace(scaled, minibatches=8),
    }
    ppo = {
        "ppo-1-step": PPOConfig(epochs=1, minibatches=1),
        "ppo-4-steps": PPOConfig(epochs=1),
    }
    models = {n: replace(grid.agent("gru", "a2c"), a2c=settings) for n, settings in a2c.items()}
    models |= {n: replace(grid.agent("gru", "ppo"), ppo=settings) for n, settings in ppo.items()}
    tasks = ["count-recall", "labyrinth-explore", "mine-sweeper", "multiarmed-bandit"]
    return replace(grid.study(), name="a2c-on-popgym", models=models).only(list(models), tasks)


PLANS = {
    "defaults": defaults,
    "pqn": pqn,
    "popgym": popgym,
    "r2d2-defaults": r2d2_defaults,
    "tmaze-120": tmaze_120,
    "tmaze-120-longer": tmaze_120_longer,
    "chain-of-sac": chain_of_sac,
    "pendulum-without-velocities": partial(pendulum, "velocities"),
    "pendulum-without-positions": partial(pendulum, "positions"),
    "pendulum-longer": pendulum_longer,
    "a2c-on-popgym": a2c_on_popgym,
}


def with_every_memory(learners: dict[str, dict[str, Any]]) -> dict[str, TrainConfig]:
    """Each learner, with its settings, with a GRU of 64 units and without memory."""
    return {
        f"{learner}-{memory}": agent(learner, memory, {"hidden_size": 64}, **settings)
        for memory in ("gru", "none")
        for learner, settings in learners.items()
    }


def agent(learner: str, memory: str, options: dict[str, Any], **settings: Any) -> TrainConfig:
    """An agent with these options of its memory."""
    return TrainConfig(algorithm=learner, memory=memory, memory_options=options, **settings)


if __name__ == "__main__":
    run_plan(__doc__, PLANS)
