"""Inspecting a run's folder."""

from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax

from clew.agents.network import Agent
from clew.errors import UserError, require_at_least
from clew.inspect.episodes import record_episodes
from clew.inspect.inspection import Inspection, inspect_agent
from clew.inspect.questions import Questions
from clew.memory import MEMORIES
from clew.run import machine
from clew.run.build import abstract_agent, jax_stream
from clew.run.config import TrainConfig
from clew.run.evaluate import load_all


def inspect_run(
    path: str | Path,
    questions: Questions | None = None,
    *,
    episodes: int = 200,
    greedy: bool = True,
    max_steps: int = 1000,
    seed: int = 0,
    seed_index: int = 0,
) -> Inspection:
    """Plays fresh episodes with a run's agent and finds out what it remembers.

    Args:
        path: the run's folder or name.
        questions: what to look at.
        episodes: that are played; all are probed, the first few explained.
        greedy: take the likeliest action, instead of drawing from the policy.
        max_steps: an episode that takes longer is left out.
        seed: of the episodes and draws.
        seed_index: which of the run's seeds, from 0.

    Raises:
        UserError: if there is no such run or seed, no usable checkpoint, or no episode ends.
    """
    questions = Questions() if questions is None else questions
    questions.validate()
    machine.use_compilation_cache()
    found, config, params, static, update = load_all(path)
    require_at_least("seed_index", seed_index, 0)
    if seed_index >= config.seeds:
        raise UserError(f"seed_index must be below the run's {config.seeds} seeds: {seed_index}")
    agent = eqx.combine(jax.tree.map(lambda leaf: leaf[seed_index], params), static)
    played = record_episodes(
        agent,
        jax_stream(config),
        episodes=episodes,
        greedy=greedy,
        max_steps=max_steps,
        seed=seed,
    )
    return inspect_agent(
        with_whole_gradient(agent, config),
        played,
        questions,
        name=found.name if config.seeds == 1 else f"{found.name}, seed {seed_index}",
        memory=config.memory,
        task=_task(config),
        steps=update * config.steps_per_update,
        greedy=greedy,
    )


def with_whole_gradient(agent: Agent, config: TrainConfig) -> Agent:
    """The agent with gradients into the inputs of earlier steps, where its training stopped them.

    `gradient="current"` changes no value, but would make the past look without influence.
    """
    if config.memory not in MEMORIES or config.memory_options.get("gradient") != "current":
        return agent
    whole = replace(config, memory_options=config.memory_options | {"gradient": "full"})
    shapes, static = eqx.partition(
        abstract_agent(whole, jax_stream(config)), lambda x: isinstance(x, jax.ShapeDtypeStruct)
    )
    leaves = jax.tree.leaves(eqx.filter(agent, eqx.is_array))
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), leaves), static)


def _task(config: TrainConfig) -> str:
    options = ", ".join(f"{name} {value}" for name, value in config.env_options.items())
    return f"{config.env} ({options})" if options else config.env
