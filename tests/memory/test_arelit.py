"""The closed forms of AReLiT's approximate Kronecker delta."""

import numpy as np
import pytest

from clew.lab.studies.tmaze.models import Frequencies, ScaledWaves


@pytest.mark.parametrize("r", [1, 2, 3, 4, 7, 12])
def test_the_closed_form_of_the_approximate_delta(r: int) -> None:
    """Thesis: [m = n mod r] + [m = -n mod r] + 2/r; half a wave: the same without 2/r, mod 2r.

    With sines too, and R = r + 1: [m = n mod R], of the odd wave times (-1)^((m - n) / R).
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
