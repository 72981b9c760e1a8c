"""Every memory on POPGym's sixteen tasks, with the same agent around it: `clew study popgym`.

This is a table for choosing a memory; `--add-memory mine:Memory` adds another one. Agents differ
only in their memory: two layers of 64 if it has layers, otherwise one of 64, with the library's
default settings of the learner and no search for rates. As in popgym's own experiments an agent
sees its previous action (Morad et al., 2023); otherwise it differs from theirs, which has 256 units
and 15M steps.
"""

from dataclasses import dataclass

from clew.agents.network import NetworkConfig
from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.envs.wrappers import WrapperConfig
from clew.errors import require_choice
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.popgym.floors import floors
from clew.lab.studies.published import GridOptions, PublishedStudy
from clew.memory import MEMORIES, options_among
from clew.run.config import TrainConfig

LEARNERS = ("ppo", "a2c")
SIZES = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "head_size": 32, "window": 64}
"""Sizes of every memory, as far as it has these options; also of added ones."""
MODELS = tuple(name for name in MEMORIES if name != "hybrid")
STEPS = 1_000_000
COSTS = {"integrated": 11.0, "universal": 8.0, "relit": 4.0, "gtrxl": 3.5, "arelit": 3.0}
COSTS |= {"delta_product": 3.0, "linear_transformer": 3.0}
COSTS |= {"frame_stack": 0.4, "elman": 0.4, "position_mlp": 0.4, "none": 0.3}
"""Rough cost of a step relative to a GRU's, for memories that differ much from it."""


def agent(memory: str, learner: str = LEARNERS[0]) -> TrainConfig:
    """The agent around a memory."""
    return TrainConfig(
        memory=memory,
        memory_options=options_among(memory, SIZES),
        network=NetworkConfig(encoder="auto"),
        algorithm=learner,
        wrappers=WrapperConfig(previous_action=True),
    )


def study(difficulty: str = "easy", learner: str = LEARNERS[0]) -> Study:
    """The study's grid.

    Raises:
        UserError: for another difficulty or learner.
    """
    require_choice("difficulty", difficulty, DIFFICULTIES)
    require_choice("learner", learner, LEARNERS)
    earned = floors(difficulty)
    return Study(
        name=f"popgym/{difficulty}-{learner}",
        models={memory: agent(memory, learner) for memory in MODELS},
        settings={
            task.replace("_", "-"): Setting(task, {"difficulty": difficulty}, floors=earned[task])
            for task in POPGYM
        },
        steps=STEPS,
        evaluation=Evaluation(episodes=500),
        score="return",
        weights=COSTS,
    )


@dataclass(frozen=True)
class PopgymOptions(GridOptions):
    """Options of `clew study popgym`."""

    difficulty: str = "easy"
    """Difficulty of every task: easy, medium or hard."""
    learner: str = LEARNERS[0]
    """Learner of every agent: ppo, or a2c, which is four times as fast and learns fewer of the
    tasks."""


def grid(options: PopgymOptions) -> Study:
    """The grid for these options."""
    return options.narrow(study(options.difficulty, options.learner), SIZES)


STUDY = PublishedStudy(PopgymOptions, grid, pages="clew.lab.studies.popgym.page:page_of")
