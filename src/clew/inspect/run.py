"""Inspects a run's agent."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from clew.agents.network import Agent
from clew.inspect.inspection import Inspection, inspect_agent
from clew.inspect.questions import Questions
from clew.interact.episodes import reads_one_axis
from clew.interact.task import PlayConfig, Task
from clew.memory import MEMORIES
from clew.run import machine
from clew.run.build import agent_parts
from clew.run.config import TrainConfig
from clew.run.load import load_agent


def inspect_run(
    path: str | Path,
    questions: Questions | None = None,
    *,
    episodes: int = 200,
    greedy: bool = True,
    max_steps: int = 1000,
    seed: int = 0,
    seed_index: int = 0,
    checkpoint: str = "",
    trust: bool = False,
) -> Inspection:
    """Plays fresh episodes with a run's agent, and inspects what it remembers.

    Args:
        path: the run's folder or name.
        questions: settings of the inspection.
        episodes: number to play; all are probed, the first few explained.
        greedy: take the most probable action, instead of sampling from the policy.
        max_steps: longer episodes are left out.
        seed: of the episodes and samples.
        seed_index: which of the run's seeds, from 0.
        checkpoint: its file name or update, or "best", the best agent so far; by default the
            newest usable one.
        trust: consent to import the code that the run's settings name; see `clew.run.trust`.

    Raises:
        UserError: if there is no such run or seed, no usable checkpoint, or no episode ends; or if
            the run names code, and is neither trusted nor trained here.
    """
    questions = Questions() if questions is None else questions
    questions.validate()
    machine.use_compilation_cache()
    loaded = load_agent(path, seed_index, checkpoint, trust=trust)
    found, config, task, agent, update, statistics = loaded
    how = PlayConfig(episodes, greedy, max_steps, seed)
    played = task.episodes(agent, how, statistics)
    whole = with_whole_gradient(agent, config, task)
    return inspect_agent(
        reads_one_axis(whole, task.observation_space.sample()),
        played,
        questions,
        name=found.name if config.seeds == 1 else f"{found.name}, seed {seed_index}",
        memory=config.memory,
        task=describe_task(config),
        steps=update * config.steps_per_update,
        greedy=greedy,
    )


def with_whole_gradient(agent: Agent, config: TrainConfig, task: Task) -> Agent:
    """The agent with gradients to the inputs of earlier steps, even if its training stopped them.

    `gradient="current"` changes no value, but would make the past appear to have no influence.
    """
    known = config.identity()["memory"] in MEMORIES
    options = _with_whole_gradient(config.memory_options)
    if not known or options == config.memory_options:
        return agent
    whole = replace(config, memory_options=options)
    shapes, static = agent_parts(whole, task)
    leaves = jax.tree.leaves(eqx.filter(agent, eqx.is_array))
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), leaves), static)


def _with_whole_gradient(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a memory, including those of a hybrid's layers."""
    whole = {"gradient": "full"} if options.get("gradient") == "current" else {}
    inner = {n: _with_whole_gradient(o) for n, o in options.items() if isinstance(o, Mapping)}
    return {**options, **inner, **whole}


def describe_task(config: TrainConfig) -> str:
    """The task's name, with its options in brackets."""
    options = ", ".join(f"{name} {value}" for name, value in config.env_options.items())
    return f"{config.env} ({options})" if options else config.env
