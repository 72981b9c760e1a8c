"""The study on POPGym's tasks: its grid, a user's own memory in it, and its report."""

import csv
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.cli import run
from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.envs.wrappers import WrapperConfig, wrap
from clew.errors import UserError
from clew.lab.grid import Cell, check_study, read_results, run_study
from clew.lab.studies.popgym import grid
from clew.lab.studies.popgym.floors import best_returns, floors, returns
from clew.lab.studies.popgym.page import page_of
from clew.lab.studies.published import added_memories
from clew.lab.studies.report.charts import pick
from clew.lab.studies.report.data import best_floor, read_study
from clew.lab.studies.report.make import make_report
from clew.memory import MEMORIES
from popgym_counting import COUNTED, COUNTED_WITH_STEP
from report_study import write_folder
from requested import requested
from slow_cases import fast_only


@pytest.mark.parametrize("learner", grid.LEARNERS)
def test_agents_differ_in_their_memory_alone(learner: str) -> None:
    study = grid.study("hard", learner)
    assert len(study.settings) == len(POPGYM) == 16
    assert {*study.models} == {*MEMORIES} - {"hybrid"}
    for setting in study.settings.values():
        assert setting.options == {"difficulty": "hard"}
    for name, config in study.models.items():
        assert (config.memory, config.algorithm) == (name, learner)
        assert config.wrappers.previous_action and config.memory_options["hidden_size"] == 64
        assert set(config.memory_options) <= set(grid.SIZES)
    check_study(study.only(["gru", "arelit"], ["battleship"]))


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_floors_are_what_random_actions_earned(difficulty: str) -> None:
    found = json.loads(Path("results/popgym-exactness/exactness.json").read_text())["rows"]
    earned = {row["task"]: row["random_return"] for row in found if row["difficulty"] == difficulty}
    assert returns("random", difficulty) == pytest.approx(earned, abs=6e-4)
    page = page_of(f"popgym/{difficulty}-ppo")
    assert page is not None
    found = {setting.env: setting.floors for setting in page.publication.settings.values()}
    assert found == floors(difficulty)
    assert {name: known["random"] for name, known in found.items()} == returns("random", difficulty)


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_floors_are_the_best_without_a_memory(difficulty: str) -> None:
    made: dict[str, Any] = {task: POPGYM[task](difficulty=difficulty) for task in COUNTED}
    for policy, counted in (("memoryless", COUNTED), ("step_number", COUNTED_WITH_STEP)):
        exact = {task: best(made[task]) for task, best in counted.items()}
        assert returns(policy, difficulty) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_the_number_of_the_step_is_no_floor_to_normalise_to(difficulty: str) -> None:
    """It is worth something in two tasks, but an agent that does not see it would have to count."""
    gained = set()
    for task, known in floors(difficulty).items():
        unseen = {name: value for name, value in known.items() if name != "step number"}
        assert best_floor(known) == max(unseen.values())
        if known.get("step number", -1.0) > known.get("memoryless", -1.0) + 1e-9:
            gained.add(task)
    assert gained == {"repeat_first", "count_recall"}


def test_the_documentation_tells_them() -> None:
    """Its table of returns without a memory has them."""
    lines = Path("docs/popgym.md").read_text(encoding="utf-8").splitlines()
    for task in returns("memoryless", "easy"):
        without, with_number = (
            ", ".join(f"{returns(policy, difficulty)[task]:.2f}" for difficulty in DIFFICULTIES)
            for policy in ("memoryless", "step_number")
        )
        (line,) = (line for line in lines if line.startswith(f"| `{task}` | {without} |"))
        assert line.endswith(f"| {with_number} |")


@pytest.mark.parametrize("task", fast_only(returns("memoryless", "easy"), "repeat_first"))
def test_the_best_without_a_memory_is_what_counting_finds(task: str) -> None:
    """The best answer to every observation, also to every one of a step, in half of many episodes,
    applied in the other half.
    """
    env: Any = POPGYM[task]()

    @jax.jit
    @jax.vmap
    def play(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state, first = env.reset(key)
        _, told = env.outcomes(state, key)  # [actions, time]
        seen = jnp.concatenate([first[None], told.observation[0, :-1]])
        return seen.reshape(env.longest, -1), told.reward.T

    seen, rewards = map(np.asarray, play(jax.random.split(jax.random.key(0), 8_000)))
    kinds = np.unique(seen.reshape(-1, seen.shape[-1]), axis=0)
    earned = {"memoryless": 0.0, "step_number": 0.0}
    for kind in kinds:
        paid = np.where((seen == kind).all(-1)[..., None], rewards, 0.0)
        seen_before, fresh = paid[:4_000].mean(0), paid[4_000:].mean(0)  # [time, actions]
        earned["memoryless"] += fresh.sum(0)[seen_before.sum(0).argmax()]
        earned["step_number"] += fresh[np.arange(env.longest), seen_before.argmax(1)].sum()
    for policy, value in earned.items():
        assert value == pytest.approx(returns(policy, "easy")[task], abs=0.015)


def test_an_action_can_carry_what_repeat_first_asks_for() -> None:
    """So a policy that sees the previous action needs no memory there."""
    env = wrap(POPGYM["repeat_first"](), WrapperConfig(previous_action=True))
    state, seen = jax.jit(env.reset)(jax.random.key(0))
    total, step, ended = 0.0, jax.jit(env.step), False
    while not ended:
        said = np.asarray(seen["previous_action"])
        action = said.argmax() if said.any() else np.asarray(seen["observation"])
        state, told = step(state, jnp.asarray(action, jnp.int32), jax.random.key(0))
        seen, total = told.observation, total + float(told.reward)
        ended = bool(told.terminated)
    assert total == pytest.approx(1.0)


def test_unknown_choices_are_named() -> None:
    with pytest.raises(UserError, match="did you mean 'medium'"):
        grid.study("medum")
    with pytest.raises(UserError, match="unknown value of learner 'sac'"):
        grid.study(learner="sac")


@pytest.mark.slow
def test_a_memory_of_ones_own_stands_beside_the_others(tmp_path: Path) -> None:
    """It gets the study's agent, and the report names the command."""
    options = grid.PopgymOptions(
        models="none",
        settings="repeat-previous",
        seeds=2,
        steps=2048,
        evaluation_episodes=2,
        add_memory=("mine=own_lru:LRU",),
    )
    study = grid.grid(options)
    assert study.models["mine"].memory_options == {"hidden_size": 64}
    run_study(study, tmp_path, workers=1)
    rows = read_results(tmp_path)
    assert sorted(row["model"] for row in rows) == ["mine", "mine", "none", "none"]
    report = make_report([tmp_path])
    text = report.markdown.read_text()
    assert "clew study popgym --difficulty easy --learner ppo" in text
    assert "**Normalised scores**" in text and "better than others" in text


ADDED = {
    "mine=own_lru:LRU": {"mine": {"hidden_size": 64}},
    "a=own_lru:LRU hidden-size=16 b=own_lru:LRU": {
        "a": {"hidden_size": 16},
        "b": {"hidden_size": 64},
    },
}


@pytest.mark.parametrize("words", ADDED)
def test_an_added_memory_has_the_sizes_of_the_others_and_its_options(words: str) -> None:
    study = requested(f"popgym --models none --settings repeat-first --add-memory {words}")
    found = {name: study.models[name].memory_options for name in study.memories}
    assert found == ADDED[words]
    written = {name: config.to_json() for name, config in study.models.items()}
    again = added_memories({"memories": study.memories, "models": written})
    assert requested(f"popgym --models none --settings repeat-first {again}").models == study.models


@pytest.mark.parametrize("name", ["popgym/mine", "popgym/easy-mine", "popgym/my-own-test"])
def test_a_study_of_ones_own_of_a_name_like_its(name: str) -> None:
    assert page_of(name) is None and page_of("popgym/hard-a2c") is not None


@pytest.mark.slow
def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "popgym", "--list", "--difficulty", "medium", "--seeds", "1"]) == 0
    assert "popgym/medium-ppo" in capsys.readouterr().out


def test_its_report_counts_tasks_that_ask_for_a_memory(tmp_path: Path) -> None:
    """Means leave out RepeatFirst, curves are drawn where models differ, long names have room, and
    the best returns are shown beside the floors.

    A drawing that is too small for its labels makes Matplotlib warn, which is an error here.
    """
    wanted = ["repeat-first", "repeat-previous", "count-recall", "autoencode", "battleship"]
    asked = grid.study().only(["gru", "lstm"], [*wanted, "noisy-position-only-pendulum"])
    apart = {"repeat-first": 1.0, "repeat-previous": 0.8, "count-recall": 0.6, "autoencode": 0.4}

    def score(cell: Cell) -> float:
        return apart.get(cell.setting, 0.0) if cell.model == "gru" else -0.5

    folder = write_folder(tmp_path / "popgym", asked, score)
    data = read_study(folder)
    (part,) = data.parts
    assert set(data.of_part(part)) - set(data.averaged(part)) == {"repeat-first"}
    assert pick(data, part) == ["autoencode", "count-recall", "repeat-previous"]
    text = make_report([folder], title="").markdown.read_text()
    assert "gru has the highest mean return, 0.360 over 5 settings that need a memory" in text
    best = best_returns("easy")
    (rows,) = tmp_path.rglob("*-floors.csv")
    for row in csv.DictReader(rows.read_text().splitlines()):
        known, possible = best[row["setting"].replace("-", "_")]
        assert row["step number"] == "" or float(row["memoryless"]) <= float(row["step number"])
        assert float(row["best known"]) == known and float(row["best possible"]) == possible
    assert "| 0.54 to 0.82 |" in text
