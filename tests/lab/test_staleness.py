"""`python -m benchmarks.staleness`: its task; without learning nothing becomes stale."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from benchmarks import staleness

from clew.run.json_lines import read


def test_the_suit_of_three_steps_ago_is_right() -> None:
    """Naming it earns 1 in an episode of 51 steps, whose first three ask for nothing."""
    env = staleness.RepeatPrevious()
    state, suit = env.next_episode(None, jax.random.key(0))
    seen, rewards, ends = [int(suit)], [], []
    for number in range(51):
        said = seen[number - 3] if number >= 3 else 0
        state, after = env.step(state, np.int32(said), jax.random.key(number))
        seen.append(int(after.observation))
        rewards.append(float(after.reward))
        ends.append(bool(after.terminated))
    assert sum(rewards) == pytest.approx(1.0)
    assert np.all(np.array(rewards[:3]) == 0) and min(rewards[3:]) > 0
    assert ends == [False] * 50 + [True]
    assert len(set(seen)) == 4


def test_it_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partly written row does not count, and the memory is measured again."""

    def measure(memory: str, task: str, seeds: int) -> list[dict[str, Any]]:
        return [{"memory": memory, "task": task, "seed": seed} for seed in range(seeds)]

    path = tmp_path / "rows.jsonl"
    lines = [json.dumps(row) + "\n" for row in measure("none", "tmaze", 2)]
    path.write_text("".join(lines) + '{"memory": "elm')
    monkeypatch.setattr(staleness, "measure", measure)
    words = [str(tmp_path), "--memories", "none", "elman", "--tasks", "tmaze", "--seeds", "2"]
    monkeypatch.setattr("sys.argv", ["staleness", *words])
    staleness.main()
    assert [line.row["memory"] for line in read(path)] == ["none", "none", "elman", "elman"]


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["gru", "gtrxl"])
def test_with_the_same_parameters_no_state_is_stale(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored state then gives the whole episode's values; an empty memory gives wrong ones."""
    monkeypatch.setattr(staleness, "R2D2", replace(staleness.R2D2, learning_rate=0.0))
    monkeypatch.setattr(staleness, "UPDATES", 20)
    monkeypatch.setattr(staleness, "AGES", (4,))
    _, row = staleness.measure(memory, "repeat", 2)
    found = row["ages"][4]
    assert found["memory"] == found["moved"][0] == 0
    known = [n for n, count in enumerate(found["sequences"]) if count]
    for name in ("stored", "refreshed"):
        assert max(found[name][n] for n in known) < 1e-4
    assert found["zero"][0] > 0.01 > found["zero"][known[-1]]
