"""Exports a policy as a folder of files that run without JAX, and as one zip."""

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from gymnasium import spaces

from clew.agents.network import Agent
from clew.deploy import runner
from clew.deploy.files import archive, check_all, digest, safetensors, write_export
from clew.deploy.golden import LONGEST, record_golden, rounding
from clew.deploy.header import header_file
from clew.deploy.header_check import LARGEST, check_header
from clew.deploy.onnx_file import IR_VERSION, OPSET, OnnxModel, check_onnx, is_installed, onnx_file
from clew.deploy.policy import PolicyStep, Traced, adapter_of_spaces, trained_wrappers
from clew.envs.spaces import split_mask, without_mask
from clew.errors import UserError, require_at_least
from clew.files import finite, with_lists
from clew.interact.policy import Moment, Policy, PolicyAdapter
from clew.run.evaluate import interval
from clew.run.folder import read_run
from clew.run.load import Loaded, load_agent
from clew.run.machine import git_commit, versions

MAX_STEPS = 100_000
"""Most steps of an evaluated episode; a longer one is an error."""


class Exported(NamedTuple):
    """The written export."""

    folder: Path
    archive: Path
    """The zip of the same files."""
    manifest: dict[str, Any]
    operations: int
    """Number of operations of the graph."""
    deviation: float
    """Largest deviation of `runner.py` from the golden episode, relative to 1 + the number."""


def export(
    path: str | Path,
    output: str | Path = "",
    *,
    seed_index: int = 0,
    checkpoint: str = "",
    value: bool = False,
    episodes: int = 0,
    control_rate: float | None = None,
    seed: int = 0,
    trust: bool = False,
) -> Exported:
    """Exports the policy of a run.

    Args:
        path: the run's folder or name.
        output: the folder to write; by default export/ in the run's folder.
        seed_index: which of the run's seeds, from 0.
        checkpoint: its file name or update, or "best", the best agent so far; by default the
            newest usable one.
        value: whether the value estimate is an output too, beside the action.
        episodes: number of fresh episodes for the score in the manifest; 0 for none.
        control_rate: how often the policy will be called, in Hz; None if unknown.
        seed: of the golden episode and of the episodes for the score.
        trust: consent to import the code that the run's settings name; see `clew.run.trust`.

    Raises:
        UserError: there is no such run, seed or checkpoint; the policy has an operation that
            exports do not support, which is named; or the folder cannot be written.
    """
    require_at_least("episodes", episodes, 0)
    loaded = load_agent(path, seed_index, checkpoint, trust=trust)
    adapter = loaded.adapter
    policy = Policy(loaded.agent, wrappers=trained_wrappers(adapter))
    moments = loaded.task.moments(policy, longest=LONGEST, seed=seed)
    about = _about_run(loaded, seed_index, control_rate)
    if episodes:
        about["provenance"]["score"] = _score(loaded, episodes, seed, seed_index)
    step = PolicyStep(_exported(loaded.agent, value), adapter, value=value)
    return _export(step, adapter, moments, about, Path(output or loaded.path / "export"), seed)


def export_agent(
    agent: Agent,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    output: str | Path,
    *,
    value: bool = False,
    control_rate: float | None = None,
    seed: int = 0,
) -> Exported:
    """Exports an agent without a run, with a memory and an encoder of any kind.

    The golden episode's observations are samples of the observation space.

    Args:
        agent: the network; it takes observations in the form of
            `clew.bridges.gymnasium.spaces.adapt_observation`.
        observation_space: of its environment.
        action_space: of its environment, and of the agent's distribution.
        output: the folder to write.
        value: whether the value estimate is an output too, beside the action.
        control_rate: how often the policy will be called, in Hz; None if unknown.
        seed: of the golden episode.

    Raises:
        UserError: the agent has an operation that exports do not support, which is named; or the
            folder cannot be written.
    """
    adapter = adapter_of_spaces(observation_space, action_space)
    about = {
        "memory": {"class": type(agent.memory).__name__},
        "provenance": {"versions": versions(), "commit": git_commit()},
        "control_rate": control_rate,
    }
    step = PolicyStep(_exported(agent, value), adapter, value=value)
    return _export(step, adapter, _sampled(observation_space, seed), about, Path(output), seed)


class Verified(NamedTuple):
    """The result for an intact export."""

    model: runner.Model
    deviation: float
    """Largest deviation from the golden episode."""
    header: str
    """A line on the compilation of `policy.hpp`."""


def verify(path: str | Path, *, compiles: bool = True) -> Verified:
    """Checks every digest of an export and replays its golden episode.

    The episode is replayed with NumPy, and `policy.onnx` with ONNX Runtime if it is installed. The
    export's own `runner.py` is not run, since it may be from anybody; the library's is used. Sizes
    are limited by `runner.MOST_BYTES` and the constants after it.

    Args:
        path: its folder or zip.
        compiles: whether to compile `policy.hpp`, if there is a C++ compiler; nothing is run.

    Raises:
        UserError: a file is missing, was changed or is too large, or an output deviates.
    """
    try:
        keep = {"policy.onnx": runner.MOST_BYTES["policy.onnx"] * is_installed("onnx")}
        files = check_all(Path(path), keep | {"policy.hpp": LARGEST * compiles})
        model = runner.Model(files=files)
        found = runner.verify(model)
        data = files.get("policy.onnx")
        if data:
            with runner.reading("policy.onnx cannot be read"):
                check_onnx(data, model.manifest)
                if is_installed("onnxruntime"):
                    found = max(found, runner.verify(model, OnnxModel(data, model).step))
        return Verified(model, found, check_header(files.get("policy.hpp")) if compiles else "")
    except runner.PolicyError as error:
        raise UserError(str(error)) from error


def _export(
    step: PolicyStep,
    adapter: PolicyAdapter,
    moments: Iterator[Moment],
    about: dict[str, Any],
    folder: Path,
    seed: int,
) -> Exported:
    traced = step.trace()
    graph, tensors = graph_file(traced), tensors_file(traced)
    name = digest(graph + tensors)[:16]
    golden = record_golden(step, moments, seed)
    files = {
        "graph.json": graph,
        "policy.safetensors": tensors,
        "golden.npz": archive(golden),
        "runner.py": Path(runner.__file__).read_bytes(),
        "policy.hpp": header_file(traced, name),
    }
    manifest = {
        "format": runner.FORMAT,
        "policy": name,
        **_interface(traced, step, adapter),
        **about,
    }
    if is_installed("onnx"):
        files["policy.onnx"] = onnx_file(traced, name)
        manifest["onnx"] = {"opset": OPSET, "ir_version": IR_VERSION}
    archived = write_export(folder, files, finite(manifest))
    try:
        model, deviation, _ = verify(folder, compiles=False)
    except UserError:  # perhaps only the policy's own rounding, which takes time to measure
        own = rounding(step, runner.Model(folder))
        files["golden.npz"] = archive({**golden, "rounding": np.array([own])})
        archived = write_export(folder, files, finite(manifest))
        model, deviation, _ = verify(folder, compiles=False)
    return Exported(folder, archived, model.manifest, len(traced.graph.nodes), deviation)


def graph_file(traced: Traced) -> bytes:
    """The bytes of `graph.json`."""
    return json.dumps(traced.graph.to_json(), separators=(",", ":")).encode()


def tensors_file(traced: Traced) -> bytes:
    """The bytes of `policy.safetensors`: parameters, constants and the initial state."""
    initial = {f"initial/{name}": leaf for name, leaf in traced.initial.items()}
    return safetensors({**traced.graph.constants, **initial})


def _interface(traced: Traced, step: PolicyStep, adapter: PolicyAdapter) -> dict[str, Any]:
    """The manifest's entries on inputs, outputs, state and wrappers."""
    changed = adapter.wrappers.changed
    around = ("frame_skip", "time_limit", "trial_episodes")
    own = adapter.own_action_space
    return {
        "inputs": traced.inputs,
        "outputs": traced.outputs,
        "state": [entry | {"initial": f"initial/{entry['name']}"} for entry in traced.state],
        "start": "where start is true the state becomes the initial one before the observation is "
        "read, so any state of the right shapes may be given; begin with start = true",
        "action": {
            "space": str(own),
            "dtype": str(own.dtype),
            "shape": list(own.shape or ()),
            "distribution": type(step.distribution).__name__,
        },
        "wrappers": {
            "inside": {
                name: with_lists(value)
                for name, value in changed.items()
                if name not in (*around, *_BESIDE)
            },
            "duty_of_the_caller": {n: value for n, value in changed.items() if n in around},
        },
    }


def _exported(agent: Agent, value: bool) -> Agent:
    """The agent, without a critic's own memory if no value is wanted."""
    return agent if value else agent.without_critic()


_BESIDE = ("video_every", "video_folder", "metrics", "noise", "flicker")


def _about_run(loaded: Loaded, seed_index: int, control_rate: float | None) -> dict[str, Any]:
    config = loaded.config
    return {
        "env": {"name": config.env, "options": with_lists(config.env_options)},
        "memory": {
            "name": config.memory,
            "options": with_lists(config.memory_options),
            "class": type(loaded.agent.memory).__name__,
        },
        "control_rate": control_rate,
        "provenance": {
            "run": read_run(loaded.path).identity.run,
            "name": loaded.path.resolve().name,
            "settings": config.digest(),
            "seed_index": seed_index,
            "update": loaded.update,
            "steps": loaded.update * config.steps_per_update,
            "versions": versions(),
            "commit": git_commit(),
        },
    }


def _score(loaded: Loaded, episodes: int, seed: int, seed_index: int) -> dict[str, Any]:
    """Every metric over fresh greedy episodes, with its 95% interval."""
    params, static = eqx.partition(loaded.agent, eqx.is_array)
    play_all = loaded.task.evaluator(static, greedy=True, max_steps=MAX_STEPS)
    found = play_all(params, loaded.statistics, episodes, (seed, seed_index))
    scores = {name: interval(name, [values])._asdict() for name, values in found.items()}
    return {"episodes": episodes, "actions": "greedy", "metrics": scores}


def _sampled(space: spaces.Space, seed: int) -> Iterator[Moment]:
    """Samples of an observation space, in episodes."""
    space.seed(seed)
    for time in itertools.count():
        start, observation, mask = time % LONGEST == 0, space.sample(), None
        if without_mask(space)[1] is not None:
            observation, mask = split_mask(observation)
        yield Moment(observation, start, None if start else math.cos(time), action_mask=mask)
