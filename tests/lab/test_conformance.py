"""Tests of other libraries' memories by the laws, with fake libraries."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.conformance import __main__ as conformance
from benchmarks.conformance import page
from benchmarks.conformance.confirmations import Confirmation
from benchmarks.conformance.jax_modules import (
    Calls,
    JaxModule,
    alone,
    batch_of_one,
    cut_at_starts,
)
from benchmarks.conformance.model import BY_CALLER, OWN, SIZE, Model
from benchmarks.conformance.smallest import smallest
from benchmarks.conformance.trial import try_model
from jaxtyping import Array

from clew.memory.base import AbstractMemory

State = Any
PARAMETERS = jax.random.normal(jax.random.key(0), (2, SIZE, SIZE)) / SIZE**0.5


def begin(parameters: Array) -> State:
    return jnp.zeros(SIZE)


def cell(parameters: Array, state: State, x: Array) -> tuple[State, Array]:
    state = jnp.tanh(x @ parameters[0] + state @ parameters[1])
    return state, state


def step(parameters: Array, state: State, x: Array, start: Array) -> tuple[State, Array]:
    return cell(parameters, jnp.where(start, 0.0, state), x)


def read(parameters: Array, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
    return jax.lax.scan(lambda s, data: step(parameters, s, *data), state, (xs, starts))


def late(parameters: Array, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
    """Resets one step late, like a learner that reads the flag after the observation."""
    return read(parameters, state, xs, jnp.concatenate([jnp.zeros(1, bool), starts[:-1]]))


def forgets(parameters: Array, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
    """The state after a chunk is not carried."""
    return begin(parameters), read(parameters, state, xs, starts)[1]


def multiplies(parameters: Array, state: State, x: Array, start: Array) -> tuple[State, Array]:
    """Resets by multiplication."""
    return cell(parameters, (1.0 - start) * state, x)


def made(calls: Calls) -> AbstractMemory:
    return JaxModule(PARAMETERS, calls, SIZE, SIZE)


def row_of(calls: Calls, starts: str = OWN) -> dict[str, Any]:
    model = Model("jax", "a fake", lambda: made(calls), "read", "step", starts, (1, 5))
    return try_model("fake", model)


def test_a_sound_model_breaks_nothing() -> None:
    row = row_of(Calls(begin, read, step))
    assert page.broken_laws(row) == [] and "smallest" not in row
    assert {found["verdict"] for found in row["laws"].values()} == {"holds"}
    assert row["version"] == jax.__version__


def test_a_reset_one_step_late_is_named_with_its_smallest_case() -> None:
    row = row_of(Calls(begin, late, step))
    assert "reset" in page.broken_laws(row) and "stream" in page.broken_laws(row)
    assert row["smallest"]["stream"]["case"] == "a chunk of 1 after 6 observations, a start at 0"
    assert row["smallest"]["stream"]["at"] == 0
    assert row["smallest"]["stream"]["deviation"] > 0.1
    assert "stream" in row["float64"]


@pytest.mark.slow
def test_a_state_that_is_not_carried_is_named() -> None:
    row = row_of(Calls(begin, forgets, step))
    assert page.broken_laws(row) == ["stream", "split"]
    smallest = row["smallest"]["stream"]
    assert smallest["case"] == "a chunk of 1 from a fresh state, no start" and smallest["at"] == 1


def test_a_reset_by_multiplication_breaks_the_laws_of_numbers_that_are_not_finite_alone() -> None:
    def chunk(parameters: Array, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
        return jax.lax.scan(lambda s, data: multiplies(parameters, s, *data), state, (xs, starts))

    row = row_of(Calls(begin, chunk, multiplies))
    assert page.broken_laws(row) == ["non-finite"]
    assert row["laws"]["non-finite"]["value"] is None


@pytest.mark.slow
def test_a_library_without_starts_is_cut_at_them_and_not_tried_for_its_resets() -> None:
    def whole(parameters: Array, state: State, xs: Array) -> tuple[State, Array]:
        return jax.lax.scan(lambda s, x: cell(parameters, s, x), state, xs)

    calls = cut_at_starts(begin, whole, cell)
    row = row_of(calls, BY_CALLER)
    assert page.broken_laws(row) == []
    assert row["laws"]["reset"]["verdict"] == "not run" == row["laws"]["non-finite"]["verdict"]
    xs, starts = jnp.ones((5, SIZE)), jnp.asarray([0, 0, 1, 0, 0], bool)
    expected = read(PARAMETERS, jnp.ones(SIZE), xs, starts)
    actual = made(calls).unroll(jnp.ones(SIZE), xs, starts)
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-6)

    def wrong(parameters: Array, state: State, xs: Array) -> tuple[State, Array]:
        return whole(parameters, state * 1.1, xs)

    assert "stream" in page.broken_laws(row_of(cut_at_starts(begin, wrong, cell), BY_CALLER))


def test_without_a_step_a_chunk_of_one_acts() -> None:
    memory = made(Calls(begin, read))
    x, start = jnp.ones(SIZE), jnp.asarray(False)
    expected = cell(PARAMETERS, jnp.ones(SIZE), x)
    for actual, wanted in zip(memory.step(jnp.ones(SIZE), x, start), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6)


def test_a_batch_of_one_comes_back() -> None:
    tree = {"a": jnp.arange(3.0), "b": jnp.zeros(())}
    assert jax.tree.map(jnp.shape, batch_of_one(tree)) == {"a": (1, 3), "b": (1,)}
    assert jax.tree.map(jnp.shape, alone(batch_of_one(tree))) == {"a": (3,), "b": ()}


@pytest.mark.parametrize("law", ["causal", "reset", "stream", "split"])
def test_no_law_has_a_smallest_case_of_a_sound_model(
    law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(smallest.__globals__, "LENGTHS", (1, 3))
    assert smallest(made(Calls(begin, read, step)), law, 2e-5) is None


def test_a_look_ahead_has_a_smallest_case() -> None:
    def ahead(parameters: Array, state: State, xs: Array, starts: Array) -> tuple[State, Array]:
        return read(parameters, state, xs - xs.mean(0, keepdims=True), starts)

    found = smallest(made(Calls(begin, ahead, step)), "causal", 2e-5)
    assert found is not None and found.case.length == 2 and found.at == 0


def test_a_confirmation_says_where_the_line_is() -> None:
    lines = Path(page.__file__).read_text().splitlines()
    number = next(n for n, text in enumerate(lines, 1) if text.startswith("def write"))
    good = Confirmation("benchmarks/conformance/page.py", number, "def write", "", lambda: 1.0)
    assert good.line() == f"benchmarks/conformance/page.py:{number}"
    with pytest.raises(AssertionError, match="not 'def read'"):
        good._replace(text="def read").line()


def test_rows_are_saved_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = [row_of(Calls(begin, late, step)), {"model": "another", "error": "ImportError: no x"}]
    rows[0]["confirmed"] = [{"where": "lib/a.py:3", "says": "late", "deviation": 0.5}]
    page.save(rows, tmp_path)
    assert list(page.load(tmp_path)) == ["another", "fake"]
    conformance.main(["--redraw", "--output", str(tmp_path)])
    text = (tmp_path / "table.md").read_text()
    assert "| another | ImportError: no x |" in text and "`lib/a.py:3`: 0.5" in text
    assert "| fake | " in text and "**" in text and "a chunk of 1 after 6 observations" in text
    assert "wrote" in capsys.readouterr().err
    assert page.line(rows[0]).startswith("fake: reset (")
    assert page.line(rows[1]) == "another: ImportError: no x"
