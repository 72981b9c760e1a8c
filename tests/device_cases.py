"""Compares several devices with one; a separate program, since devices must be simulated.

    XLA_FLAGS=--xla_force_host_platform_device_count=4 python tests/device_cases.py CASE ...

prints for each case, as JSON, its name and the deviation: the largest difference in any array of
the state after a few updates, as a fraction of one plus the array's largest number.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import clew
from clew.agents.devices import AXIS, jit_over, make_mesh, spec_of
from clew.agents.learners import LEARNERS
from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.ppo import PPOConfig
from clew.agents.learners.pqn import PQNConfig
from clew.agents.learners.r2d2 import R2D2Config
from clew.agents.learners.sac import SACConfig
from clew.agents.network import NetworkConfig
from clew.agents.trajectory import empty_memories, read
from clew.lab.bench.speed import SpeedPlan, measure
from clew.memory import MEMORIES
from clew.memory.laws.runs import wide
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.build import make_parts
from clew.run.compiled import compile_program
from clew.run.config import TrainConfig
from clew.run.folder import read_config
from clew.run.machine import available_cores
from clew.run.progress import Quiet
from clew.run.updates import init_run
from memory_samples import SMALL
from small_async import after, arrays, async_config, by_turns
from small_run import STEPS_PER_UPDATE, assert_same_run, last_state, small_config

DEVICES = 4
TOLERANCE = 1e-5
EPS = 1e-2
"""Adam's, so that parameters without a gradient do not step by the sign of rounding."""
TINY = {"hidden_size": 4, "num_layers": 1}
KERNELS = {**TINY, "num_heads": 2, "head_size": 2, "eta": 2, "r": 2}


def small(memory: str, options: dict[str, Any], algorithm: str = "a2c", **changes: Any) -> Any:
    """Settings of a run of eight environments in a short T-Maze."""
    settings: dict[str, Any] = {
        "env_options": {"corridor_length": 3},
        "memory": memory,
        "memory_options": options,
        "algorithm": algorithm,
        "a2c": A2CConfig(num_envs=8, rollout_length=8, adam_eps=EPS),
        "ppo": PPOConfig(
            num_envs=8, rollout_length=8, sequence_length=4, minibatches=2, epochs=2, adam_eps=EPS
        ),
        "pqn": PQNConfig(8, 8, 4, minibatches=2, epochs=2, adam_eps=EPS),
        "r2d2": R2D2Config(
            8, 8, 4, 4, 4, replay_steps=512, learning_starts=0, batch_size=4, adam_eps=EPS
        ),
        "sac": SACConfig(
            8,
            8,
            4,
            4,
            4,
            replay_steps=512,
            learning_starts=0,
            gradient_steps=2,
            batch_size=4,
            adam_eps=EPS,
        ),
    }
    if algorithm == "sac":
        settings["network"] = NetworkConfig(memory_of_critic="separate")
    settings |= changes
    others = {*LEARNERS} - {algorithm}
    return TrainConfig(**{name: value for name, value in settings.items() if name not in others})


def apart(made: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference; infinite if shapes or types differ, or something is not a number."""
    assert len(made) == len(expected)
    worst = 0.0
    for array, other in zip(made, expected, strict=True):
        if array.shape != other.shape or array.dtype != other.dtype:
            return float("inf")
        if array.size:
            a, b = wide(array), wide(other)
            difference = np.nan_to_num(np.abs(a - b), nan=np.inf)
            worst = max(worst, float(difference.max() / (1.0 + np.abs(b).max())))
    return worst


def updated(
    config: TrainConfig, change: Callable[[Any], Any] = lambda run: run
) -> list[np.ndarray]:
    """A run's state in JAX after three updates in two calls; its first state may be changed."""
    make_parts(config)
    parts = make_parts(config)
    program = compile_program(parts)
    return arrays(program(program(change(init_run(parts)), jnp.int32(2)), jnp.int32(1)))


def nudged(run: Any) -> Any:
    """A run whose initial weights differ in their last digit, up or down."""
    rng = np.random.default_rng(0)

    def nudge(weights: Any) -> Any:
        if not eqx.is_inexact_array(weights):
            return weights
        return weights * rng.choice([1 - 2.0**-23, 1 + 2.0**-23], weights.shape).astype("float32")

    return eqx.tree_at(lambda run: run.seed.agent, run, replace_fn=partial(jax.tree.map, nudge))


def in_jax(config: TrainConfig, *devices: int) -> float:
    """Several devices share a run in JAX.

    Small norms magnify rounding, so deviations up to several times that of nudged weights are not
    attributed to the devices.
    """
    one = updated(config)
    found = max(apart(updated(replace(config, devices=count)), one) for count in devices)
    if found < TOLERANCE:
        return found
    return max(0.0, found - 4 * apart(updated(config, nudged), one))


def alone(name: str, *, explicit: bool) -> float:
    """A memory without a learner, whose sequences JAX's array types shard."""
    options = {option: SIZES.get(option, value) for option, value in SMALL[name].items()}
    memory = clew.make_memory(name, input_size=3, key=jax.random.key(0), **options)
    weights, static = eqx.partition(memory, eqx.is_inexact_array)
    xs = jax.random.normal(jax.random.key(1), (6, 8, 3))
    batch = jax.vmap(lambda _: memory.init_state())(jnp.arange(8)), xs, jnp.zeros((6, 8), bool)
    axes = P(AXIS), P(None, AXIS), P(None, AXIS)

    def loss(weights: Any, state: Any, xs: jax.Array, starts: jax.Array) -> jax.Array:
        unroll = jax.vmap(eqx.combine(weights, static).unroll, (0, 1, 1), (0, 1))
        return jnp.mean(unroll(state, xs, starts)[1] ** 2)

    def shared(weights: Any, *batch: Any) -> Any:
        return jax.lax.pmean(loss(weights, *batch), AXIS)

    kind = AxisType.Explicit if explicit else AxisType.Auto
    mesh = jax.make_mesh((DEVICES,), (AXIS,), axis_types=(kind,))
    expected = jax.jit(jax.value_and_grad(loss))(weights, *batch)
    mapped = jax.shard_map(shared, mesh=mesh, in_specs=(P(), *axes), out_specs=P())
    with jax.set_mesh(mesh):
        laid = [jax.device_put(x, NamedSharding(mesh, a)) for x, a in zip(batch, axes, strict=True)]
        found = jax.jit(jax.value_and_grad(loss if explicit else mapped))(weights, *laid)
    return apart(*(list(map(np.asarray, jax.tree.leaves(tree))) for tree in (found, expected)))


def gathered() -> float:
    """A run whose devices need arrays from others: environments, kernels, learning."""
    config = small("arelit", KERNELS)
    parts = make_parts(config)
    agent, rest = init_run(parts).seed.agent, parts.static
    mesh = make_mesh(2)

    def loss(arrays: Any, memory: Any, xs: jax.Array, starts: jax.Array) -> jax.Array:
        return jnp.sum(read(eqx.combine(arrays, rest), memory, xs, starts).outputs.value)

    batch = [(empty_memories(eqx.combine(agent, rest), 8), 0)]
    size = parts.task.require_stream().observation_space.shape
    batch += [(jnp.ones((8, 8, *size)), 1), (jnp.zeros((8, 8), bool), 1)]
    laid = [jax.device_put(tree, NamedSharding(mesh, spec_of(axis))) for tree, axis in batch]
    laid.insert(0, jax.device_put(agent, NamedSharding(mesh, spec_of(None))))
    text = jit_over(mesh, jax.grad(loss)).lower(*laid).compile().as_text()
    assert text.count("all-reduce(") > 0
    return float(text.count("all-gather("))


def in_gymnasium(devices: int, **changes: Any) -> float:
    """Several devices share a run in Gymnasium environments."""
    config = async_config(**{"runner": "sync", **changes})
    config = replace(config, ppo=replace(config.ppo, adam_eps=EPS))
    make_parts(replace(config, devices=devices))
    return apart(arrays(after(replace(config, devices=devices), 3)), arrays(after(config, 3)))


def resumed() -> float:
    """Two seeds on two devices, continued by four devices, which then share environments."""
    with tempfile.TemporaryDirectory() as folder:
        changes = {"a2c": A2CConfig(num_envs=8, rollout_length=16, adam_eps=EPS)}
        steps = 6 * STEPS_PER_UPDATE
        whole = small_config(Path(folder), "whole", steps=steps, devices=1, **changes)
        clew.train(whole, progress=Quiet())
        half = replace(whole, name="half", steps=3 * STEPS_PER_UPDATE, devices=2)
        clew.train(half, progress=Quiet())
        path = clew.train(
            replace(half, steps=whole.steps, devices=4), resume=True, progress=Quiet()
        ).path
        state, expected = last_state(path), last_state(Path(folder) / "whole")
        assert list(state) == list(expected)
        return apart(list(state.values()), list(expected.values()))


def benched() -> float:
    """`clew bench` measures a run with its sharding."""
    plan = SpeedPlan(length=8, repeats=2, law_lengths=(3,))
    figures = measure("gru", "gru", {"hidden_size": 4}, plan)
    assert figures.devices == 1 and figures.peak_bytes > 0
    return 0.0


def chosen() -> float:
    """A run with automatic devices, stopped and resumed bit for bit, against one device."""
    with tempfile.TemporaryDirectory() as folder:
        steps = 6 * STEPS_PER_UPDATE
        changes = {"a2c": A2CConfig(num_envs=8, rollout_length=16, adam_eps=EPS), "seeds": 2}
        whole = small_config(Path(folder), "whole", steps=steps, **changes)
        path = clew.train(whole, progress=Quiet()).path
        config = read_config(path)
        several = available_cores() > 1
        assert (config.devices, config.device_threads) == ((2, "one") if several else (1, "all"))
        half = replace(whole, name="half", steps=steps // 2)
        clew.train(half, progress=Quiet())
        resumed = replace(half, steps=steps)
        assert_same_run(clew.train(resumed, resume=True, progress=Quiet()).path, path)
        one = clew.train(replace(whole, name="one", devices=1), progress=Quiet()).path
        return apart(list(last_state(path).values()), list(last_state(one).values()))


QUICK: dict[str, Callable[[], float]] = {
    "kernels": partial(in_jax, small("arelit", KERNELS), 2),
    "chosen": chosen,
    "Gymnasium environments": partial(in_gymnasium, 2),
}
DEALT = A2CConfig(num_envs=8, rollout_length=8, minibatches=2, adam_eps=EPS)
SIZES = {"hidden_size": 6, "head_size": 4, "num_layers": 1}
"""Heads have four numbers, as a norm over two keeps only their order, which rounding decides."""
FAMILIES: dict[str, Callable[[], float]] = {
    f"{name} {algorithm}": partial(
        in_jax,
        small(name, {n: SIZES.get(n, v) for n, v in SMALL[name].items()}, algorithm, a2c=DEALT),
        count,
    )
    for name in SMALL
    if MEMORIES[name].shardable
    for algorithm, count in (("a2c", 2), ("ppo", 4))
}
UNPLACED = ("arelit", "delta_product", "gla", "retention", "rwkv7", "shm")
"""Memories that reshape, or look up rows, in ways that JAX refuses on a mesh with explicit axes."""
ALONE: dict[str, Callable[[], float]] = {
    f"{name} alone, {kind}": partial(alone, name, explicit=kind == "explicit")
    for name in SMALL
    for kind in ("varying", "explicit")
    if MEMORIES[name].shardable and not (name in UNPLACED and kind == "explicit")
}
WHOLE = {"whole_episodes": True, "loss_over_time": "sum", "adam_eps": EPS}
SERIAL = {"runner": "async", "asynchronous": AsyncConfig(serial=True)}
TURNS = {"runner": "async", "asynchronous": by_turns(actors=2)}
VTRACE = PPOConfig(8, 8, 4, 2, 2, advantages="vtrace", target_kl=0.5, adam_eps=EPS)
EXHAUSTIVE: dict[str, Callable[[], float]] = FAMILIES | {
    "gathered for kernels": gathered,
    "ppo of several seeds": partial(in_jax, small("gru", {"hidden_size": 4}, "ppo", seeds=2), 4),
    "benched": benched,
    "resumed": resumed,
    "read once": partial(in_jax, small("gtrxl", TINY, a2c=A2CConfig(8, 8, **WHOLE)), 2),
    "at once": partial(in_jax, small("gtrxl", TINY, a2c=A2CConfig(8, 4, **WHOLE)), 2),
    "vtrace": partial(in_jax, small("gtrxl", TINY, "ppo", ppo=VTRACE), 4),
    "ppo": partial(in_jax, small("gru", {"hidden_size": 4}, "ppo"), 4),
    "pqn": partial(in_jax, small("gru", {"hidden_size": 4}, "pqn"), 4),
    "r2d2": partial(in_jax, small("gru", {"hidden_size": 4}, "r2d2"), 4),
    "sac": partial(in_jax, small("gru", {"hidden_size": 4}, "sac"), 4),
    "complex numbers": partial(in_jax, small("own_lru:LRU", {"hidden_size": 4}, "ppo"), 4),
    "seeds": partial(in_jax, small("gru", {"hidden_size": 4}, seeds=4), 2),
    "lstm, ppo of several seeds": partial(
        in_jax, small("lstm", {"hidden_size": 4}, "ppo", seeds=2), 4
    ),
    "seeds in Gymnasium environments": partial(in_gymnasium, 2, seeds=2),
    "windows in Gymnasium environments": partial(
        in_gymnasium, 4, memory="gtrxl", memory_options={**TINY, "window": 3}
    ),
    "asynchronous, serial": partial(in_gymnasium, 2, **SERIAL),
    "asynchronous, by turns": partial(in_gymnasium, 2, **TURNS),
}
CASES = QUICK | EXHAUSTIVE | ALONE


def main(names: list[str]) -> None:
    """Prints the deviation of each case."""
    assert len(jax.devices()) == DEVICES
    for name in names:
        print(json.dumps([name, CASES[name]()]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
