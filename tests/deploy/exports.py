"""Small policies of every kind for the tests of exports, and steps of them in JAX."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from clew.agents.distributions import make_distribution
from clew.agents.encoders import EncoderConfig, make_encoder
from clew.agents.network import Agent, NetworkConfig
from clew.deploy import runner
from clew.deploy.export import graph_file, tensors_file
from clew.deploy.files import archive, digest
from clew.deploy.onnx_file import OnnxModel, onnx_file
from clew.deploy.policy import PolicyStep, adapter_of_spaces
from clew.memory import AbstractMemory, make_memory
from clew.memory.laws.runs import cast
from memory_samples import INPUT_SIZE, sample

VECTOR = spaces.Box(-np.inf, np.inf, (INPUT_SIZE,), np.float32)
ACTIONS = spaces.Discrete(3)
Played = Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]
"""Outputs and new state at each time, with the batch axis first."""
NETWORK = NetworkConfig(head_size=8)
IN_FLOAT64 = 1e-10
"""Largest deviation of a form from JAX if both compute in float64."""


def agent_of(
    memory: AbstractMemory, actions: spaces.Space = ACTIONS, network: NetworkConfig = NETWORK
) -> Agent:
    """An agent that passes the observation to the memory unchanged."""
    distribution = make_distribution(actions, log_std=network.log_std)
    return Agent(memory, distribution, key=jax.random.key(3), network=network)


def memory_of(name: str, **options: Any) -> AbstractMemory:
    """The small memory of a name, at parameters for which float32 has the compared digits.

    ReLiT's first sample divides by nearly dead keys: there JAX itself deviates by 2e-5 from
    float64. At retention's first sample JAX deviates by 5e-6 from float64 and NumPy by 1e-5, at
    this one both by 2e-6. At GLA's first sample JAX and ONNX Runtime deviate by 5e-6 from float64
    each and by 1.1e-5 from each other on some processors, at this one by 4e-6 and 2e-6.
    """
    steep = ("relit", "retention", "gla")
    return sample(name, seed=2 if name in steep else 0, **options)


def encoding_agent(observations: spaces.Space, config: EncoderConfig) -> Agent:
    """An agent with an encoder before a small GRU."""
    encoder = make_encoder(observations, config, key=jax.random.key(4))
    size = encoder.output_size
    memory = make_memory("gru", input_size=size, key=jax.random.key(5), hidden_size=8)
    distribution = make_distribution(ACTIONS)
    return Agent(memory, distribution, key=jax.random.key(3), network=NETWORK, encoder=encoder)


def steps_of(
    agent: Agent, observations: spaces.Space = VECTOR, actions: spaces.Space = ACTIONS
) -> PolicyStep:
    """The step of a policy without wrappers, with its value."""
    return PolicyStep(agent, adapter_of_spaces(observations, actions), value=True)


def model_of(step: PolicyStep) -> runner.Model:
    """The policy in NumPy, without a folder."""
    traced = step.trace()
    graph, tensors = graph_file(traced), tensors_file(traced)
    files = {"graph.json": graph, "policy.safetensors": tensors, "golden.npz": archive({})}
    manifest = {
        "format": runner.FORMAT,
        "policy": digest(graph + tensors)[:16],
        "inputs": traced.inputs,
        "outputs": traced.outputs,
        "action": {"dtype": "int32"},
        "state": [entry | {"initial": f"initial/{entry['name']}"} for entry in traced.state],
        "files": {name: digest(data) for name, data in files.items()},
    }
    files["manifest.json"] = runner.json.dumps(manifest).encode()
    return runner.Model(files=files)


def onnx_form(step: PolicyStep) -> tuple[runner.Model, Any]:
    """A policy for `largest_deviation`: its model, and its step in ONNX Runtime."""
    model = model_of(step)
    return model, OnnxModel(onnx_file(step.trace(), model.policy), model).step


def inputs_of(step: PolicyStep, batch: int, seed: int, rate: float = 0.1) -> Iterator[dict]:
    """Random inputs, with starts anywhere."""
    random = np.random.default_rng(seed)
    while True:
        yield {entry["name"]: random_input(entry, batch, random, rate) for entry in step.inputs()}


def random_input(
    entry: dict[str, Any], batch: int, random: np.random.Generator, rate: float
) -> np.ndarray:
    """One input; integers within the first two values, bytes over all of them."""
    shape, dtype = (batch, *entry["shape"]), np.dtype(entry["dtype"])
    if dtype.kind == "b":
        return random.random(shape) < rate
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype)


def largest_deviation(step: PolicyStep, run: Any, batch: int, time: int, seed: int = 0) -> float:
    """How far a form of a policy deviates from `step` in JAX, each with its own state.

    Args:
        step: of the policy.
        run: the form's step, as `runner.Model.step`, with `init_state` of its model beside it.
        batch: parallel environments.
        time: number of steps.
        seed: of the inputs.
    """
    model, form = run
    given = list(islice(inputs_of(step, batch, seed), time))

    def played() -> Played:
        state = model.init_state(batch)
        for inputs in given:
            outputs, state = form(state, inputs)
            yield outputs, state

    return deviation_of(step, given, played(), batch)


def deviation_of(step: PolicyStep, given: list[dict], played: Iterable, batch: int) -> float:
    """How far the outputs of a form of a policy deviate from `step` in JAX.

    Args:
        step: of the policy.
        given: inputs at each time.
        played: outputs and new state at each time.
        batch: parallel environments.
    """
    reference = jax.jit(jax.vmap(partial(step, step.params)))
    expected = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * batch), step.state)
    state, worst = {}, 0.0
    for inputs, now in zip(given, played, strict=True):
        (found, state), (expected, wanted) = now, reference(expected, inputs)
        for name, value in wanted.items():
            value = np.asarray(value)
            if value.dtype.kind == "f":
                worst = max(worst, runner.deviation(found[name], value))
            else:
                assert found[name].dtype == value.dtype
    for name, leaf in step.leaves(expected).items():
        worst = max(worst, runner.deviation(state[name], np.asarray(leaf)))
    return worst


@contextmanager
def in_float64(name: str) -> Iterator[PolicyStep]:
    """A small policy with this memory that computes in float64 while it is used.

    A memory that divides by a norm of nearly 0 magnifies rounding: in 64,000 steps of float32 to
    1e-3 of JAX's own numbers, and no bound follows from the formulas. In float64 every form is
    within 1e-12.
    """
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        yield steps_of(cast(agent_of(memory_of(name)), "float64"))


class LeakyMean(AbstractMemory):
    """A user's own memory: y = tanh(m), m <- (1 - a) m + a x W, a learned for each unit."""

    weight: jax.Array
    rate: jax.Array
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def __init__(self, input_size: int, *, key: Any, hidden_size: int = 6):
        self.weight = jax.random.normal(key, (input_size, hidden_size))
        self.rate = jnp.linspace(-2.0, 2.0, hidden_size)
        self.input_size, self.output_size = input_size, hidden_size

    def init_state(self) -> Any:
        return {"mean": jnp.zeros(self.output_size), "count": jnp.zeros((), jnp.int32)}

    def step(self, state: Any, x: Any, start: Any) -> Any:
        state = jax.tree.map(lambda s: jnp.where(start, jnp.zeros_like(s), s), state)
        a = jax.nn.sigmoid(self.rate)
        mean = (1 - a) * state["mean"] + a * (x @ self.weight)
        count = state["count"] + 1
        return {"mean": mean, "count": count}, jnp.tanh(mean) / jnp.sqrt(count.astype(float))

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        return jax.lax.scan(lambda s, inputs: self.step(s, *inputs), state, (xs, starts))
