"""The inspection of one trained agent, and its results in numbers."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from clew.agents.network import Agent
from clew.errors import UserError
from clew.inspect.influence import Influence, episode_influence
from clew.inspect.lengths import MemoryLength, by_lag, memory_length, shares
from clew.inspect.maps import MapSummary, summarise_maps
from clew.inspect.probe import Probe, Readings, probe_steps, read_episodes
from clew.inspect.questions import Questions, choose_labels
from clew.interact.episodes import Episodes

MEASURES = ("policy", "log_prob", "value")
ROWS = 24
"""Approximate number of decisions of a map, unless `every` is given."""


@dataclass(frozen=True)
class Inspection:
    """What an agent remembers, in numbers."""

    name: str
    memory: str
    task: str
    steps: int
    """Environment steps that the agent was trained for."""
    episodes: int
    """Number of episodes that ended in time and were inspected."""
    left_out: int
    """Number of episodes that did not end in time."""
    greedy: bool
    """Whether the most probable actions were taken."""
    metrics: dict[str, float]
    """Means of the task's metrics over the episodes."""
    questions: Questions
    lengths: Int[np.ndarray, " influence_episodes"]
    """Steps of the explained episodes."""
    decisions: Int[np.ndarray, " influence_episodes"]
    """The step of the explained decision in each."""
    gradient: Influence
    """Influence on that decision, [influence_episodes, time]."""
    occlusion: Influence
    map_steps: Int[np.ndarray, " rows"]
    """Decisions of the map."""
    gradient_map: Influence
    """The mean over episodes that have not ended yet, [rows, time]; NaN if there are none."""
    occlusion_map: Influence
    memory_lengths: dict[tuple[str, str], MemoryLength]
    """By ("gradient" or "occlusion", measure)."""
    probes: list[Probe]
    state_size: int
    """How many numbers the memory carries from step to step."""
    maps: dict[str, MapSummary]
    """The memory's own maps of the first episode, see `AbstractMemory.maps`."""

    def lags(self, way: str, measure: str) -> Float[np.ndarray, "episodes lags"]:
        """Influence on each episode's decision by lag, by "gradient" or "occlusion".

        `measure` is one of `MEASURES`.
        """
        return by_lag(getattr(getattr(self, way), measure), self.decisions)

    def first_share(self, way: str) -> float:
        """The first observation's share of the influence on the policy, mean over episodes."""
        parts = shares(self.lags(way, "policy"))
        first = parts[np.arange(len(parts)), self.decisions]
        known = first[np.isfinite(first)]
        return float(known.mean()) if known.size else float("nan")


def inspect_agent(
    agent: Agent,
    episodes: Episodes,
    questions: Questions | None = None,
    *,
    name: str = "agent",
    memory: str = "",
    task: str = "",
    steps: int = 0,
    greedy: bool = True,
) -> Inspection:
    """Inspects what an agent remembers in recorded episodes.

    Args:
        agent: the network, with any memory.
        episodes: at least `FEWEST` for probes; see `Task.episodes`.
        questions: settings of the inspection.
        name: of the agent, for pictures.
        memory: name of its memory, for pictures.
        task: name of the task, for pictures.
        steps: number of steps that it was trained for.
        greedy: whether the most probable actions were taken.

    Raises:
        UserError: for impossible settings, or a decision or label that no episode has.
    """
    questions = Questions() if questions is None else questions
    questions.validate()
    labels = choose_labels(episodes, questions.probe)
    explained, decisions = _explained(episodes, questions)
    rows = _map_steps(questions, explained.longest)
    gradient, occlusion = _influences(agent, explained, decisions, rows, questions)
    maps_of = explained.lengths[: questions.map_episodes]
    last = {"gradient": _last(gradient), "occlusion": _last(occlusion)}
    readings = read_episodes(agent, episodes.observations)
    first = explained.observations[0, : explained.lengths[0]]
    return Inspection(
        name=name,
        memory=memory,
        task=task,
        steps=steps,
        episodes=episodes.number,
        left_out=episodes.left_out,
        greedy=greedy,
        metrics={n: float(values.mean()) for n, values in episodes.metrics.items()},
        questions=questions,
        lengths=explained.lengths,
        decisions=decisions,
        gradient=last["gradient"],
        occlusion=last["occlusion"],
        map_steps=rows,
        gradient_map=_mean_map(gradient, maps_of, rows),
        occlusion_map=_mean_map(occlusion, maps_of, rows),
        memory_lengths={
            (way, measure): memory_length(
                by_lag(getattr(found, measure), decisions), questions.share
            )
            for way, found in last.items()
            for measure in MEASURES
        },
        probes=_probes(readings, episodes, labels, questions),
        state_size=readings.state_size,
        maps=summarise_maps(agent, first),
    )


def _probes(
    readings: Readings,
    episodes: Episodes,
    labels: dict[str, Int[np.ndarray, " episodes"]],
    questions: Questions,
) -> list[Probe]:
    """The probes of the state and of the output, for every label."""
    return [
        probe_steps(
            features,
            classes,
            episodes.lengths,
            label=label,
            source=source,
            points=questions.probe_points,
            seed=questions.seed,
        )
        for label, classes in labels.items()
        for source, features in (("state", readings.states), ("output", readings.outputs))
    ]


def _explained(
    episodes: Episodes, questions: Questions
) -> tuple[Episodes, Int[np.ndarray, " episodes"]]:
    """The episodes with explained decisions, and the steps of these decisions."""
    some = episodes.pick(np.flatnonzero(episodes.lengths > questions.at))
    if not some.number:
        raise UserError(
            f"no episode has a step {questions.at}; the longest has {episodes.longest} steps"
        )
    some = some.first(questions.influence_episodes)
    last = some.lengths - 1
    return some, last if questions.at < 0 else np.full_like(last, questions.at)


def _map_steps(questions: Questions, longest: int) -> Int[np.ndarray, " rows"]:
    every = questions.every or max(1, round(longest / ROWS))
    # Counted from the end, so that the last decision is included.
    return np.arange(longest - 1, -1, -every)[::-1]


def _influences(
    agent: Agent, episodes: Episodes, decisions: np.ndarray, rows: np.ndarray, questions: Questions
) -> tuple[Influence, Influence]:
    """Gradient and occlusion influence [episodes, rows + 1, time]; the decision comes last."""
    at = np.tile(np.append(rows, 0), (episodes.number, 1))
    at = np.where(at < episodes.lengths[:, None], at, -1)
    at[questions.map_episodes :] = -1
    at[:, -1] = decisions
    references = np.zeros_like(episodes.observations[:, 0])
    if questions.reference == "mean":
        references = episodes.observations.sum(axis=1) / episodes.lengths[:, None]
    return episode_influence(
        agent, episodes.observations, episodes.actions, at, references.astype(np.float32)
    )


def _last(found: Influence) -> Influence:
    return Influence(*(values[:, -1] for values in found))


def _mean_map(found: Influence, lengths: np.ndarray, rows: np.ndarray) -> Influence:
    """The mean over the episodes that have the decision of each row."""
    alive = (rows[None, :] < lengths[:, None]).astype(float)

    def mean(values: np.ndarray) -> np.ndarray:
        total = np.einsum("er,ers->rs", alive, values[: len(lengths), :-1].astype(float))
        count = alive.sum(axis=0)[:, None]
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    return Influence(*(mean(values) for values in found))
