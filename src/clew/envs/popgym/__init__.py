"""The tasks of POPGym, each with its three difficulties, written in JAX.

Observations, actions, rewards and ends are those of popgym 1.0.7; only the random numbers differ.
`POPGYM` lists them by name.

Source: Morad et al. (2023), POPGym: Benchmarking Partially Observable Reinforcement Learning, and
the code of popgym 1.0.7.
"""

from clew.envs.base import Environment
from clew.envs.popgym.autoencode import Autoencode
from clew.envs.popgym.battleship import Battleship
from clew.envs.popgym.cartpole import (
    NoisyPositionOnlyCartPole,
    PositionOnlyCartPole,
    VelocityOnlyCartPole,
)
from clew.envs.popgym.concentration import Concentration
from clew.envs.popgym.count_recall import CountRecall
from clew.envs.popgym.higher_lower import HigherLower
from clew.envs.popgym.labyrinth import LabyrinthEscape, LabyrinthExplore
from clew.envs.popgym.mine_sweeper import MineSweeper
from clew.envs.popgym.multiarmed_bandit import MultiarmedBandit
from clew.envs.popgym.pendulum import NoisyPositionOnlyPendulum, PositionOnlyPendulum
from clew.envs.popgym.repeat import RepeatFirst, RepeatPrevious

POPGYM: dict[str, type[Environment]] = {
    "autoencode": Autoencode,
    "battleship": Battleship,
    "concentration": Concentration,
    "count_recall": CountRecall,
    "higher_lower": HigherLower,
    "labyrinth_escape": LabyrinthEscape,
    "labyrinth_explore": LabyrinthExplore,
    "mine_sweeper": MineSweeper,
    "multiarmed_bandit": MultiarmedBandit,
    "noisy_position_only_cartpole": NoisyPositionOnlyCartPole,
    "noisy_position_only_pendulum": NoisyPositionOnlyPendulum,
    "position_only_cartpole": PositionOnlyCartPole,
    "position_only_pendulum": PositionOnlyPendulum,
    "repeat_first": RepeatFirst,
    "repeat_previous": RepeatPrevious,
    "velocity_only_cartpole": VelocityOnlyCartPole,
}
