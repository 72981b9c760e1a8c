"""The T-Maze study's agents start with weights like those of the authors' code.

`tmaze_initial_weights.csv` has the draws of that code (flax 0.7.2, seed 0): for every role the
number of matrices that are drawn separately, their shape, and mean, deviation and extreme singular
values over all of them. Oracles copy weights and cannot see how they were drawn.
"""

import csv
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from clew.agents.heads import ActorCritic
from clew.agents.network import Agent
from clew.lab.studies import preset
from clew.run.build import build_agent, make_task
from slow_cases import fast_only

_TABLE = Path(__file__).with_name("tmaze_initial_weights.csv")
PUBLISHED = list(csv.DictReader(_TABLE.read_text().splitlines()))
AGENTS = sorted({row["agent"] for row in PUBLISHED})
Matrices = dict[str, list[np.ndarray]]
both_tests_in_turn = pytest.mark.parametrize(
    "name", fast_only(AGENTS, "arelit", "gtrxl-128"), scope="module"
)


@cache
def beginning(name: str) -> Agent:
    """The study's agent before training."""
    config = preset(f"pramanik/{name}")
    return build_agent(config, make_task(config), jax.random.key(0))


def cut(weight: Any, blocks: int) -> list[np.ndarray]:
    """The matrices that are side by side in a product's weight."""
    return np.split(np.asarray(weight, np.float64), blocks, axis=1)


def heads(agent: Agent) -> Matrices:
    """Policy and value."""
    found = {}
    heads = agent.heads
    assert isinstance(heads, ActorCritic)
    for name, head in (("actor", heads.actor), ("critic", heads.critic)):
        assert head.hidden is not None
        found[f"{name} hidden"] = cut(head.hidden.weight, 1)
        found[f"{name} output"] = cut(head.output.weight, 1)
    return found


def cells(memory: Any, gates: int) -> Matrices:
    """The matrices of an LSTM or a GRU."""
    cell = memory.cells[0]
    return {
        "inputs of a gate": cut(cell.inputs.weight, gates),
        "recurrent of a gate": cut(cell.recurrent.weight, gates),
    }


def layers(memory: Any) -> Matrices:
    """The matrices of all agents with layers: the embedding, gates and feed-forward nets."""
    found: Matrices = {"embedding": cut(memory.embedding.weight, 1), "gates": []}
    found |= {"mlp hidden": [], "mlp output": [], "attention output": []}
    for layer in memory.layers:
        for gate in (layer.attention_gate, layer.mlp_gate):
            found["gates"] += cut(gate.update.weight, 3)
            found["gates"] += cut(gate.stream.weight, 2) + cut(gate.candidate.weight, 1)
        found["mlp hidden"] += cut(layer.mlp.hidden.weight, 1)
        found["mlp output"] += cut(layer.mlp.output.weight, 1)
        found["attention output"] += cut(layer.attention.output.weight, 1)
    return found


def windows(memory: Any) -> Matrices:
    """A GTrXL's; the code draws keys and values together, from the same normal numbers."""
    names = ("query", "key", "value", "distance")
    attentions = [layer.attention for layer in memory.layers]
    return layers(memory) | {
        name: [np.asarray(getattr(a, name).weight, np.float64) for a in attentions]
        for name in names
    }


def fused(memory: Any) -> Matrices:
    """An AReLiT's; its code draws one matrix for five roles of all heads, and one for three."""
    features = [layer.attention.features for layer in memory.layers]
    return layers(memory) | {
        "keys, queries, values and gates": [cut(f.inputs.weight, 1)[0] for f in features],
        "maps": [cut(f.maps.weight, 1)[0] for f in features],
    }


def by_head(memory: Any) -> Matrices:
    """A ReLiT's; its code draws a matrix for every role of every head."""
    found = layers(memory)
    for name in ("keys, queries, values and gates", "maps", "query again", "query map"):
        found[name] = []
    for layer in memory.layers:
        f = layer.attention.features
        found["keys, queries, values and gates"] += cut(f.inputs.weight, 5 * f.num_heads)
        found["maps"] += cut(f.maps.weight, 2 * f.num_heads)
        found["query again"] += list(np.asarray(f.query_again, np.float64))
        found["query map"] += list(np.asarray(f.query_map, np.float64))
    return found


def singular_values(matrices: np.ndarray) -> np.ndarray:
    """Roots of the eigenvalues of A A^T, in a fifth of the time of a decomposition of A."""
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.swapaxes(1, 2)
    return np.sqrt(np.linalg.eigvalsh(wide @ wide.swapaxes(1, 2)).clip(0))


OF_MEMORY = {
    "lstm": lambda memory: cells(memory, 4),
    "gru": lambda memory: cells(memory, 3),
    "gtrxl-128": windows,
    "relit-2": by_head,
    "relit-4": by_head,
    "arelit": fused,
}


@both_tests_in_turn
def test_weights_begin_as_the_authors_do(name: str) -> None:
    """Number and shape of the draws are equal, and their statistics up to sampling error."""
    agent = beginning(name)
    found = heads(agent) | OF_MEMORY[name](agent.memory)
    rows = {row["role"]: row for row in PUBLISHED if row["agent"] == name}
    assert found.keys() == rows.keys()
    for role, row in rows.items():
        matrices = np.stack(found[role])
        published = {key: float(row[key]) for key in ("mean", "deviation", "smallest", "largest")}
        assert matrices.shape == tuple(int(row[k]) for k in ("matrices", "rows", "columns")), role
        error = published["deviation"] / np.sqrt(matrices.size)
        assert abs(matrices.mean() - published["mean"]) < 6 * error, role
        assert matrices.std() == pytest.approx(published["deviation"], abs=5 * error), role
        values = singular_values(matrices)
        if published["largest"] - published["smallest"] < 1e-3:  # orthogonal
            np.testing.assert_allclose(values, published["largest"], atol=1e-4, err_msg=role)
        else:
            assert values.max() == pytest.approx(published["largest"], rel=0.12), role


@both_tests_in_turn
def test_what_is_no_matrix_begins_as_the_authors_have_it(name: str) -> None:
    """Biases 0, norms 1 and 0, the gates' bias 2; LayerNorm and Adam with their epsilons."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(beginning(name))[0]:
        where = jax.tree_util.keystr(path)
        if where.endswith("weight") or "query_again" in where and "bias" not in where:
            continue
        if where.endswith(".query_map"):
            continue
        value = 1.0 if where.endswith(".scale") else 2.0 if where.endswith("_gate.bias") else 0.0
        assert np.all(np.asarray(leaf) == value), where
    config = preset(f"pramanik/{name}")
    assert config.a2c.adam_eps == 1e-8
    assert (config.a2c.max_grad_norm, config.a2c.gamma, config.a2c.lam) == (0.5, 0.99, 0.95)
