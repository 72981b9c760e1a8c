"""The benchmark of repeated vectors measures what it says."""

import jax
import jax.numpy as jnp
import pytest
from benchmarks.repeated_vectors import broadcasting, main, measure

from clew.memory.parts import blocks


def test_only_within_it_jax_broadcasts() -> None:
    def traced() -> str:
        return str(jax.make_jaxpr(lambda v, x: blocks.like(v, x))(jnp.ones(3), jnp.ones((4, 3))))

    assert "like" in traced()
    with broadcasting():
        assert "like" not in traced()
    assert "like" in traced()


@pytest.mark.slow
def test_it_measures_both(capsys: pytest.CaptureFixture) -> None:
    (row,) = measure(("min_gru",), 2, lambda what: None)
    assert row.like.middle > 0 and row.broadcast.middle > 0
    assert row.time.low <= row.time.middle <= row.time.high
    assert main(["--memories", "gruu"]) == 2
    assert "did you mean 'gru'" in capsys.readouterr().err
