"""`check` passes sound memories, and names the broken law and the place in others."""

import gc
from pathlib import Path
from typing import Any

import jax
import pytest
import toy_memories as toys
from breaches import planted

from clew.cli.check import make
from clew.errors import UserError
from clew.memory.laws import LawBroken, check
from clew.memory.laws.cases import Cases
from clew.memory.laws.replay import check_replay
from clew.memory.laws.report import TOLERANCES, LawRecorder, LawReport
from clew.memory.lru import LRU
from memory_samples import quick_compilation
from slow_cases import fast_only

__all__ = ["quick_compilation"]

LENGTHS = (1, 5)
LONG = 2048
MAPS = Path("/proc/self/maps")


BROKEN = {
    "the state is multiplied by zero at a start": "output[t=0] deviates by inf",
    "a counter is not reset": "output[t=0]",
    "the state is reset after the start was read": "output[t=0]",
    "the same in chunks alone": "start at t=",
    "a chunk mixes in the next observation": "output[t=",
    "a chunk sees the next start": "output[t=",
    "every chunk begins anew": "in a chunk of 1",
    "the state after a chunk is the one before": "output[t=1]",
    "no gradient through the steps of a chunk": "the gradient of",
    "chunks of 5 and more are 0.1 % larger": "a chunk of 5",
    "refresh halves the state": "output[t=0]",
    "refresh has the gradients, not the values": "the gradient that passes refresh",
    "half of the state is stored": "output[t=0]",
    "a batching rule computes something else": "member",
    "batches of 8 and more differ": "member",
    "one output too many": "[2, 3], not [2, 2]",
    "a counter becomes a float in a chunk": "float32[]",
}
"""A planted breach, and the place that the message names."""


@pytest.mark.parametrize("what", BROKEN)
def test_the_broken_law_is_named(what: str) -> None:
    """The message begins with the most specific law, and says where and by how much."""
    breach = planted(what)
    with pytest.raises(LawBroken) as caught:
        check(breach.make(), lengths=LENGTHS)
    message = str(caught.value)
    assert message.startswith(f"Patched breaks law '{breach.law}'"), message
    assert BROKEN[what] in message, message
    assert ("choose the fresh state with jnp.where" in message) is ("by zero" in what)


class StoresLouder(LRU):
    """The state that it stores for replay is a thousandth larger than its own."""

    def compact(self, state: Any) -> Any:
        """Scales it."""
        return jax.tree.map(lambda array: array * 1.001, state)


STORED = [(LRU, True), (StoresLouder, False)]


@pytest.mark.parametrize(("kind", "sound"), fast_only(STORED, STORED[1]))
def test_a_stored_state_that_is_wrong_is_named_at_long_chunks(kind: type[LRU], sound: bool) -> None:
    """The tolerance for rounding there does not hide a stored state that is off by a thousandth."""
    memory = kind(3, key=jax.random.key(0), hidden_size=4, num_layers=1)
    tolerances = TOLERANCES["float32"]
    cases = Cases(memory, "float32", [LONG], tolerances)
    cases.warm_up(0)
    report = LawReport(kind.__name__)
    check_replay(cases, LONG, LawRecorder(report, tolerances, memory.metric_names))
    assert report.passed == sound, report


@pytest.mark.parametrize(
    ("kind", "precision"), [(toys.Average, "float32"), (toys.LearnedStart, "float64")], ids=str
)
def test_sound_memories_pass(kind: type[toys.Average], precision: Any) -> None:
    """The report has every law, deviations at the level of rounding, and a table to print."""
    report = check(toys.build(kind), lengths=LENGTHS, precision=precision)
    assert report.passed and report.failures == []
    assert {case.law for case in report.cases} == {
        "interface", "causal", "reset", "stream", "split", "refresh", "replay", "batch"
    }  # fmt: skip
    limit = 1e-5 if precision == "float32" else 1e-13
    assert max(max(case.value, case.gradient) for case in report.cases) < limit
    assert f"{len(report.cases)} cases" in str(report) and "holds" in str(report)


@pytest.mark.slow
def test_a_memory_may_begin_shut() -> None:
    """Nothing reads ReZero's cache at its initial parameters, with which users check it."""
    options = {"hidden_size": 4, "num_layers": 1, "num_heads": 1, "head_size": 4, "window": 4}
    check(make("rezero", 3, options), lengths=(5,))


def test_layers_of_a_hybrid_are_small_unless_they_are_given() -> None:
    """The cost of the laws grows with the window of its attention."""
    small, given = (
        make("hybrid", 3, {"layers": ("min_gru", "attention"), **options})
        for options in ({}, {"layer_options": {"attention": {"window": 20}}})
    )
    assert small.init_state()[1].attention.keys.shape == (2, 9, 8)
    assert given.init_state()[1].attention.keys.shape[1] == 21


def test_an_array_that_nothing_reads_is_a_warning() -> None:
    """All that the memory computes is right."""
    report = check(toys.build(toys.KeepsObservations), lengths=(5,))
    assert report.warnings == [
        "nothing reads the state's [2], and refresh rebuilds nothing from it"
    ]
    assert str(report).endswith(f"warning: {report.warnings[0]}")


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="Linux alone lists the maps of a process")
def test_checks_give_their_memory_maps_back() -> None:
    """A process has at most 65,530 maps, and each compiled program takes dozens."""

    def after_a_check() -> int:
        check(toys.build(toys.Average), lengths=(1,))
        gc.collect()
        return len(MAPS.read_text().splitlines())

    found = [after_a_check() for _ in range(3)]
    assert found[2] - found[1] < 30


def test_the_report_of_a_broken_memory() -> None:
    """Without raising, it lists broken and kept laws; later laws do not hide earlier ones."""
    breach = planted("a chunk mixes in the next observation")
    report = check(breach.make(), lengths=LENGTHS, raise_on_failure=False)
    assert not report.passed
    assert [failure.law for failure in report.failures][0] == "causal"
    assert "BROKEN" in str(report)
    value, gradient = report.largest("causal")
    assert value > 1e-3 and gradient > 1e-3
    assert report.largest("refresh") == (0.0, 0.0)


def test_another_key_draws_other_numbers() -> None:
    """The same key gives the same report."""
    memory = toys.build(toys.Average)
    first = check(memory, lengths=(3,), key=jax.random.key(1))
    again = check(memory, lengths=(3,), key=jax.random.key(1))
    other = check(memory, lengths=(3,), key=jax.random.key(2))
    assert first == again and first != other


@pytest.mark.parametrize("lengths", [(), (0,), (7, -1), (2.5,)])
def test_impossible_lengths_are_refused(lengths: Any) -> None:
    """Before anything runs."""
    with pytest.raises(UserError, match="length"):
        check(toys.build(toys.Average), lengths=lengths)


def test_an_unknown_precision_is_refused() -> None:
    """With the nearest one."""
    with pytest.raises(UserError, match="did you mean 'float32'"):
        check(toys.build(toys.Average), precision="float23")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("other", [jax.random.key(0), "zeros"])
def test_a_state_that_is_not_of_numbers_is_refused(other: Any) -> None:
    class WithAnother(toys.Average):
        def init_state(self) -> Any:
            return super().init_state(), other

    with pytest.raises(UserError, match="WithAnother is .*; expected arrays of numbers"):
        check(toys.build(WithAnother), lengths=(1,))
