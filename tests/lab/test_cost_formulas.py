"""The counts from programs exactly equal handwritten formulas of sizes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from benchmarks.costs.claims import attention_subjects
from benchmarks.costs.published import SETTINGS
from benchmarks.costs.terms import TERMS, sizes_of, term

from clew.errors import UserError
from clew.lab.costs import multiply_adds, state_size
from clew.lab.costs.account import CostPlan, accounts, memory_subjects
from clew.lab.costs.reproject import Reprojecting
from clew.memory import MEMORIES, AbstractMemory, make_memory, options_among
from clew.names import find
from cost_formulas import FORMULAS, Formula, formula

SIZES: tuple[dict[str, int], ...] = (
    {},
    {"hidden_size": 13, "num_layers": 3, "num_heads": 2, "head_size": 7, "window": 11}
    | {"ffn_size": 9, "eta": 2, "r": 5, "max_steps": 4},
)
SMALL = {"hidden_size": 12, "num_layers": 2, "num_heads": 2, "head_size": 5, "window": 4}
SHARED = "clew.lab.studies.models"
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (f"{SHARED}:PublishedGTrXL", {"query_norm": False}),
    (
        f"{SHARED}:PublishedGTrXL",
        {"norm": "around", "gate": "temporal_gru", "inner_residual": True},
    ),
    ("gtrxl", {"gradient": "current", "gate": "residual"}),
    ("transformer", {"norm": "before", "gradient": "current"}),
    ("transformer_xl", {"gradient": "current", "norm": "after"}),
    ("universal", {"halting": False, "coordinates": False, "norm": "before"}),
    ("integrated", {"coordinates": False}),
    ("linear_transformer", {"gate": "residual", "norm": "after"}),
    ("clew.lab.studies.tmaze.models:PublishedReLiT", {"decay": "joint", "query": "double"}),
    ("clew.lab.studies.tmaze.models:PublishedAReLiT", {"frequencies": "code", "r": 3}),
    (
        "clew.lab.studies.tmaze.models:PublishedAReLiT",
        {"frequencies": "printed", "tick": "carried"},
    ),
    ("clew.lab.studies.models:PublishedLSTM", {"all_biases": True}),
)


def held(found: Formula) -> tuple[int, ...]:
    kinds = ("products", "elementwise", "shared", "floats", "integers")
    return tuple(found.total(kind) for kind in kinds)


def counted(module: Any) -> tuple[int, ...]:
    work, state = multiply_adds(module), state_size(module)
    return work.products, work.elementwise, work.shared, state.floats, state.integers


def shape_of(name: str, input_size: int, options: dict[str, Any], wrap: Any = None) -> Any:
    def make(key: jax.Array) -> Any:
        kind = find("memory", name, MEMORIES)
        memory = make_memory(kind, input_size=input_size, key=key, **options)
        return memory if wrap is None else wrap(memory)

    return eqx.filter_eval_shape(make, jax.random.key(0))


def test_formulas_are_of_memories_of_the_library() -> None:
    for name in FORMULAS:
        assert issubclass(find("memory", name, MEMORIES), AbstractMemory)


@pytest.mark.parametrize("name", FORMULAS)
def test_formula_is_what_is_counted(name: str) -> None:
    for sizes in SIZES:
        options = options_among(find("memory", name, MEMORIES), sizes)
        assert held(formula(name, 5, **options)) == counted(shape_of(name, 5, options)), options


@pytest.mark.parametrize(("name", "changed"), OPTIONS)
def test_options_change_what_they_cost(name: str, changed: dict[str, Any]) -> None:
    options = options_among(find("memory", name, MEMORIES), SMALL) | changed
    assert held(formula(name, 5, **options)) == counted(shape_of(name, 5, options))


def test_without_an_embedding() -> None:
    options = SMALL | {"embedding": False}
    assert held(formula("gtrxl", 12, **options)) == counted(shape_of("gtrxl", 12, options))


@pytest.mark.parametrize("name", ["gtrxl", "transformer"])
def test_reprojection_costs_what_the_formula_says(name: str) -> None:
    found = formula(name, 5, reproject=True, **SMALL)
    assert held(found) == counted(shape_of(name, 5, SMALL, Reprojecting))


def test_reprojection_is_the_same_memory() -> None:
    memory = make_memory("gtrxl", input_size=3, key=jax.random.key(0), **SMALL)
    slow = Reprojecting(memory)
    xs = jax.random.normal(jax.random.key(1), (9, 3))
    starts = jnp.arange(9) == 6
    _, expected = eqx.filter_jit(memory.unroll)(memory.init_state(), xs, starts)
    _, ys = eqx.filter_jit(slow.unroll)(slow.init_state(), xs, starts)
    assert jnp.allclose(ys, expected, atol=1e-5)


def test_only_a_window_is_projected_again() -> None:
    with pytest.raises(UserError, match="gru has no one window"):
        formula("gru", 5, reproject=True)
    with pytest.raises(UserError, match="GRU has no window"):
        Reprojecting(make_memory("gru", input_size=2, key=jax.random.key(0), hidden_size=2))


def test_readings_are_paid_each() -> None:
    bills = [formula("universal", 5, readings=n, **SMALL).per_step for n in (1, 2, 3)]
    layers = formula("transformer_xl", 5, **SMALL).per_step - 5 * SMALL["hidden_size"]
    halting = 2 * SMALL["hidden_size"]
    assert bills[1] - bills[0] == bills[2] - bills[1] == layers + halting


def test_mistakes_name_what_is_near() -> None:
    with pytest.raises(UserError, match="'gtrxl'"):
        formula("gtrx", 5)
    with pytest.raises(UserError, match="'window'"):
        formula("gtrxl", 5, windw=3)


def test_terms_read_as_formulas() -> None:
    some = term("products", "squares", 12, "L d d")
    assert str(some) == "12 L d^2" and some.value({"L": 4, "d": 3}) == 432
    assert str(term("integers", "tick", 1, "")) == "1"
    assert str(formula("lstm", 5)).startswith("4 L d^2 + ")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_one_layers_attention(setting: Any) -> None:
    rows = accounts(attention_subjects(setting), CostPlan())
    assert {row.name for row in rows} == TERMS.keys()
    for row in rows:
        found = Formula(TERMS[row.name], sizes_of(setting))
        assert row.step.per_step == found.per_step
        assert row.step.shared == found.total("shared")
        assert row.state.floats == found.total("floats")


def test_a_gtrxl_is_listed_twice() -> None:
    subjects = memory_subjects({"a": ("gtrxl", SMALL), "b": ("gru", {"hidden_size": 3})}, 5)
    assert [s.name for s in subjects] == ["a", "a, re-projected", "b"]
    kept, again, _ = accounts(subjects, CostPlan())
    assert again.step.per_step > kept.step.per_step and again.state.floats < kept.state.floats


def test_a_chunk_is_counted_with_its_loops() -> None:
    gru = shape_of("gru", 5, {"hidden_size": 4})
    assert multiply_adds(gru, length=7).per_step == 7 * multiply_adds(gru).per_step
