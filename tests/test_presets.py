"""The settings of published studies: their agents have exactly the published sizes."""

import pytest

from clew.cli.models import study_costs
from clew.errors import UserError
from clew.studies.presets import PRESETS, preset


def test_study_totals() -> None:
    """The published agents, whole: encoder, memory and heads at 16 inputs and 4 actions."""
    rows = study_costs("pramanik")
    totals = {row["name"].removeprefix("pramanik/"): row["parameters"] for row in rows}
    expected = {
        "lstm": 1_635_301,
        "gru": 1_597_541,
        "gtrxl-128": 1_617_925,
        "gtrxl-256": 1_617_925,
        "relit-2": 1_826_405,
        "relit-4": 1_836_741,
        "arelit": 1_774_277,
    }
    assert {name: totals[name] for name in expected} == expected
    floats = {row["name"].removeprefix("pramanik/"): row["state_floats"] for row in rows}
    assert floats["lstm"] == 1200 and floats["gru"] == 680 and floats["none"] == 0


def test_makkink_totals() -> None:
    """Makkink (2021), Table 3.1: whole agents on the memory chain with one bit."""
    rows = study_costs("makkink")
    assert {row["name"].removeprefix("makkink/"): row["parameters"] for row in rows} == {
        "lstm": 42_051,
        "transformer-xl": 33_891,
        "gtrxl": 83_811,
        "rezero": 33_636,
        "universal": 34_020,
        "integrated": 83_685,
    }


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_possible(name: str) -> None:
    """And says where it came from."""
    preset(name).validate()
    assert preset(name).preset == name


def test_an_unknown_preset_comes_with_the_nearest() -> None:
    """As every name does."""
    with pytest.raises(UserError, match="did you mean.*makkink/gtrxl"):
        preset("makkink/gtrlx")
