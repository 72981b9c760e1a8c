"""The settings of published studies: their agents have exactly the published sizes."""

from functools import partial

import equinox as eqx
import jax
import pytest

from clew.cli.models import study_costs
from clew.errors import UserError
from clew.lab.studies import preset, presets
from clew.memory import MEMORIES, make_memory
from clew.names import find
from clew.run.build import make_parts


def test_study_totals() -> None:
    """Whole published agents: encoder, memory and heads at 16 inputs and 4 actions."""
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


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_possible(name: str) -> None:
    """And it names its source."""
    if name.startswith("memory-maze/"):
        pytest.importorskip("memory_maze")
    make_parts(preset(name))
    assert preset(name).preset == name


def test_an_unknown_preset_comes_with_the_nearest() -> None:
    """Like every unknown name."""
    with pytest.raises(UserError, match="did you mean.*makkink/gtrxl"):
        preset("makkink/gtrlx")


def test_memory_maze_presets_hold_the_tables() -> None:
    """Pramanik (2023), Tables A.3 and A.4: a batch is 3,200 steps, 32 sequences."""
    for name in ("lstm", "gtrxl-64", "gtrxl-128", "gtrxl-256", "arelit", "none"):
        ppo = preset(f"memory-maze/{name}").ppo
        ppo.validate()
        assert ppo.sequences // ppo.minibatches * ppo.sequence_length == 3200
        assert (ppo.epochs, ppo.rollout_length, ppo.num_envs) == (1, 200, 64)


def test_memory_maze_agents_have_the_published_parts() -> None:
    """Sizes of the memories at 512 features, by hand from Table A.4 with an FFN of 256."""
    sizes = {}
    for name in ("lstm", "gtrxl-256", "arelit"):
        config = preset(f"memory-maze/{name}")
        key = jax.random.key(0)
        kind = find("memory", config.memory, MEMORIES)
        build = partial(make_memory, kind, input_size=512, **config.memory_options)
        shapes = jax.tree.leaves(eqx.filter_eval_shape(lambda k, b=build: b(key=k), key))
        sizes[name] = sum(x.size for x in shapes if hasattr(x, "size"))
    millions = {name: round(size / 1e6, 2) for name, size in sizes.items()}
    assert millions == {"lstm": 3.94, "gtrxl-256": 6.44, "arelit": 7.07}
