"""`policy.onnx` in ONNX Runtime acts like the policy it is made from; needs both packages."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from exports import (
    IN_FLOAT64,
    LeakyMean,
    agent_of,
    encoding_agent,
    in_float64,
    largest_deviation,
    memory_of,
    onnx_form,
    steps_of,
)
from gymnasium import spaces
from test_export import ACTION_KINDS, OBSERVATIONS

from clew.agents.network import NetworkConfig
from clew.deploy import runner
from clew.deploy.export import export_agent, verify
from clew.deploy.files import write_export
from clew.deploy.policy import PolicyStep
from clew.errors import UserError
from clew.memory import MEMORIES
from memory_samples import INPUT_SIZE, quick_compilation
from own_lru import LRU

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

__all__ = ["quick_compilation"]
TOLERANCE = 2e-5  # in float32, where rounding made up to 1.1e-5; float64 has its own below


def onnx_deviation(step: PolicyStep, batch: int, time: int) -> float:
    """How far ONNX Runtime deviates from JAX."""
    return largest_deviation(step, onnx_form(step), batch, time)


@pytest.mark.parametrize("name", MEMORIES)
def test_every_memory_is_itself(name: str) -> None:
    """They agree in 40 steps of three environments with starts anywhere."""
    assert onnx_deviation(steps_of(agent_of(memory_of(name))), batch=3, time=40) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3, 64])
@pytest.mark.parametrize("name", MEMORIES)
def test_every_memory_for_long(name: str, batch: int) -> None:
    """They agree in 1,000 steps in float64, for any number of environments."""
    with in_float64(name) as step:
        found = onnx_deviation(step, batch, time=1000)
    assert found <= IN_FLOAT64


def test_a_complex_memory(ordinary_promotion: None) -> None:
    """Its state is pairs of numbers."""
    step = steps_of(agent_of(LRU(INPUT_SIZE, key=jax.random.key(0))))
    assert onnx_deviation(step, batch=3, time=40) <= TOLERANCE


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_encoders(kind: str) -> None:
    """Vectors, categories, pictures, and a dictionary of several."""
    space, config = OBSERVATIONS[kind]
    step = steps_of(encoding_agent(space, config), observations=space)
    assert onnx_deviation(step, batch=3, time=5) <= TOLERANCE


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_actions_of_every_kind(kind: str) -> None:
    """The greedy action, and the distribution's parameters."""
    space, network = ACTION_KINDS[kind]
    agent = agent_of(memory_of("gru", num_layers=1), space, NetworkConfig(head_size=0, **network))
    assert onnx_deviation(steps_of(agent, actions=space), batch=3, time=10) <= TOLERANCE


def renamed(model: Any) -> None:
    """Renames an input."""
    for node in model.graph.node:
        node.input[:] = ["seen" if name == "observation" else name for name in node.input]
    model.graph.input[0].name = "seen"


BROKEN = {
    "another opset": (lambda m: m.opset_import[0].__setattr__("version", 17), r"opsets \{'': 17\}"),
    "a loop": (
        lambda m: m.graph.node[0].__setattr__("op_type", "Loop"),
        r"operations that no export writes: \['Loop'\]",
    ),
    "an input renamed": (renamed, "policy.onnx: '(seen|observation)' is"),
    "another policy": (
        lambda m: m.metadata_props[0].__setattr__("value", "b"),
        "belongs to another policy: 'b'",
    ),
    "another type": (
        lambda m: m.graph.output[0].type.tensor_type.__setattr__("elem_type", 7),
        "'action' is .'int64'",
    ),
    "a leaf missing": (lambda m: m.graph.output.pop(), "is None, the manifest says"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused(name: str, tmp_path: Path) -> None:
    """If its digest is correct but it does not fit the manifest."""
    change, said = BROKEN[name]
    agent = agent_of(LeakyMean(INPUT_SIZE, key=jax.random.key(0)))
    space = spaces.Box(-1.0, 1.0, (INPUT_SIZE,), np.float32)
    found = export_agent(agent, space, spaces.Discrete(3), tmp_path / "own")
    assert found.manifest["onnx"] == {"opset": 18, "ir_version": 9}
    files = {n: (found.folder / n).read_bytes() for n in found.manifest["files"]}
    model = onnx.load_model_from_string(files["policy.onnx"])
    change(model)
    files["policy.onnx"] = model.SerializeToString()
    write_export(found.folder, files, found.manifest)
    runner.Model(found.folder)
    with pytest.raises(UserError, match=said) as error:
        verify(found.folder)
    assert "\n" not in str(error.value)
