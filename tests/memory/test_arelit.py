"""The closed forms of AReLiT's approximate Kronecker delta."""

import jax
import numpy as np
import pytest

from clew.lab.studies.tmaze.models import Frequencies, ScaledWaves
from clew.memory import make_memory
from clew.memory.base import count_floats


@pytest.mark.parametrize("r", [1, 2, 3, 4, 7, 12])
def test_the_closed_form_of_the_approximate_delta(r: int) -> None:
    """Thesis: [m = n mod r] + [m = -n mod r] + 2/r; half a wave: the same without 2/r, mod 2r.

    With sines too, and R = r + 1: [m = n mod R], for the odd wave times (-1)^((m - n) / R).
    """

    def delta(frequencies: Frequencies, m: int, n: int) -> float:
        waves = ScaledWaves(frequencies)(r)
        at_m, at_n = (waves.table[i % len(waves.table)] for i in (m, n))
        return waves.scale * float(np.sum(waves.weights * at_m * at_n))

    for m in range(30):
        for n in range(30):
            thesis = ((m - n) % r == 0) + ((m + n) % r == 0) + 2 / r
            assert delta("printed", m, n) == pytest.approx(thesis, abs=1e-12)
            half_wave = ((m - n) % (2 * r) == 0) + ((m + n) % (2 * r) == 0)
            assert delta("half_wave", m, n) == pytest.approx(half_wave, abs=1e-12)
            turns, rest = divmod(m - n, r + 1)
            full_wave = float(rest == 0)
            assert delta("full_wave", m, n) == pytest.approx(full_wave, abs=1e-12)
            assert delta("odd_wave", m, n) == pytest.approx(full_wave * (-1) ** turns, abs=1e-12)


@pytest.mark.parametrize(("frequencies", "more"), [("half_wave", 0), ("odd_wave", 1)])
def test_a_state_is_as_large_as_the_model_says(frequencies: str, more: int) -> None:
    """Without a constant wave of 1 the normaliser is one more vector of keys."""
    eta, size = 2, 2 * 4
    options = {"num_layers": 1, "num_heads": 2, "head_size": 4, "eta": eta, "r": 3}
    key = jax.random.key(0)
    memory = make_memory("arelit", input_size=3, key=key, frequencies=frequencies, **options)
    assert count_floats(memory.init_state()) == 4 * (eta + 1) * size + more * eta * size
