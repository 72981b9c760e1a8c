"""`clew compare --memories` and `--learners`: runs that differ in one thing, with a page."""

import dataclasses
import json
from pathlib import Path

import pytest

import clew
from clew.cli import run
from clew.errors import UserError
from clew.lab import comparison
from clew.lab.comparison import learners_of, settings_of
from clew.run.runner import TrainingInterrupted

WORDS = (
    "compare --memories none gru --memory-options hidden_size=4 --env-options corridor_length=2 "
    "--a2c.num-envs 2 --a2c.rollout-length 8 --network.head-size 4 --seeds 2 --steps 1e3"
)


def test_the_runs_differ_in_their_memory_alone() -> None:
    options = {"hidden_size": 4, "num_heads": 1}
    config = clew.TrainConfig(memory_options=options, steps=2048, run_dir="here", name="all")
    found = settings_of(config, ["gru", "gtrxl"])
    assert found["gru"].memory_options == {"hidden_size": 4}
    assert found["gtrxl"].memory_options == options
    assert [c.run_dir for c in found.values()] == [str(Path("here") / "all")] * 2
    assert [c.name for c in found.values()] == ["gru", "gtrxl"]
    left_out = settings_of(clew.TrainConfig(), ["none", "lstm"])
    assert left_out["lstm"].memory_options == clew.TrainConfig(memory="lstm").memory_options
    own = settings_of(config, ["own_lru:LRU", "gtrxl"])
    assert own["own_lru:LRU"].memory_options == {"hidden_size": 4}
    named = settings_of(config, ["mine=own_lru:LRU", "gtrxl"])
    assert named["mine"] == dataclasses.replace(own["own_lru:LRU"], name="mine")
    assert named["gtrxl"] == own["gtrxl"]
    with pytest.raises(UserError, match="unknown option of these memories 'heads'"):
        settings_of(clew.TrainConfig(memory_options={"heads": 1}), ["none", "lstm"])


def test_the_runs_differ_in_their_learner_alone() -> None:
    """Each run has the settings that were given for it, and none of another's."""
    given = {"ppo": clew.PPOConfig(epochs=2), "pqn": clew.PQNConfig(gamma=0.5)}
    config = clew.TrainConfig(run_dir="here", memory="gru", **given)
    found = learners_of(config, ["ppo", "pqn", "r2d2"])
    assert list(found) == [one.algorithm for one in found.values()] == ["ppo", "pqn", "r2d2"]
    assert found["ppo"].ppo == given["ppo"] and found["pqn"].pqn == given["pqn"]
    assert found["pqn"].ppo == clew.PPOConfig()
    assert {Path(one.run_dir) for one in found.values()} == {Path("here/compare-learners-tmaze")}
    for one in found.values():
        assert (one.network, one.wrappers) == (config.network, config.wrappers)
    with pytest.raises(UserError, match="two or more different learners, got ppo ppo"):
        learners_of(config, ["ppo", "ppo"])
    with pytest.raises(UserError, match="unknown learner 'pqm'"):
        learners_of(config, ["ppo", "pqm"])


def test_options_of_a_learner_of_ones_own_are_its_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """At any place among the learners; without a learner of that kind they are refused."""
    begun: dict[str, clew.TrainConfig] = {}

    def noted(config: clew.TrainConfig, *_: object, **options: object) -> Path:
        begun[config.algorithm] = config
        if len(begun) == 3:
            raise TrainingInterrupted("stopped")
        return tmp_path

    monkeypatch.setattr(comparison, "train_once", noted)
    monkeypatch.chdir(tmp_path)
    words = "compare --learners a2c own_parts:Halved ppo --learner-options num_envs=2"
    assert run([*words.split(), "--ppo.epochs", "2"]) == 130
    options = {name: config.learner_options for name, config in begun.items()}
    assert options == {"a2c": {}, "own_parts:Halved": {"num_envs": 2}, "ppo": {}}
    assert begun["ppo"].ppo.epochs == 2
    assert run("compare --learners a2c ppo --learner-options num_envs=2".split()) == 2
    assert "are for a learner of your own" in capsys.readouterr().err


def test_who_learns_sooner_has_the_higher_mean_over_all_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Each step counts the same, however many episodes ended at once."""
    curves = {"none": [0.0, 0.0, 0.0, 1.0], "gru": [None, 1.0, 0.5, 1.0]}

    def trained(config: clew.TrainConfig, *_: object, **options: object) -> Path:
        path = tmp_path / config.memory
        path.mkdir()
        rows = [
            {"steps": 8 * n, "episodes": [n, n], "success": [value, value]}
            for n, value in enumerate(curves[config.memory], 1)
        ]
        final = {"success": {"per_seed": [1.0, 1.0], "mean": 1.0, "interval": [1.0, 1.0]}}
        summary = {"final": final, "seeds": 2, "steps": 32, "parameters": 5}
        (path / "summary.json").write_text(json.dumps(summary))
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    monkeypatch.setattr(comparison, "train_once", trained)
    assert run([*WORDS.split(), "--run-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "success, all steps" in said and "mean of the learning curve" in said
    assert "0.25 [0.25, 0.25]" in said and "0.83 [0.83, 0.83]" in said
    page = (tmp_path / "compare-tmaze/compare.html").read_text()
    assert "success, all steps" in page and "0.83 [0.83, 0.83]" in page


def test_a_stop_says_how_all_of_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run's own message would continue with one memory alone."""

    def stopped(*args: object, **options: object) -> None:
        raise TrainingInterrupted("stopped after 8 steps; resume with: clew train --resume it")

    monkeypatch.setattr(comparison, "train", stopped)
    assert run([*WORDS.split(), "--run-dir", str(tmp_path)]) == 130
    said = capsys.readouterr().err
    assert "none: stopped after 8 steps; resume with: clew train --resume it" in said
    assert "all of the comparison, with the same clew compare again" in said


def test_the_code_of_the_run_to_start_from_needs_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Consent covers the comparison's own look at that run, and every training."""
    asked: list[object] = []

    def stopped(*args: object, **options: object) -> None:
        asked.append(options["trust"])
        raise TrainingInterrupted("stopped")

    monkeypatch.setattr(comparison, "train", stopped)
    monkeypatch.setattr(comparison, "read_start", lambda *_, trust: asked.append(trust))
    words = [*WORDS.split(), "--run-dir", str(tmp_path)]
    assert run([*words, "--start-from", "other", "--trust"]) == 130
    assert asked == [True] * 3
    assert run([*words, "--start-from", "other"]) == 130
    assert asked[3:] == [False] * 3
    capsys.readouterr()
    assert run([*words, "--trust"]) == 2
    assert "--trust is for the run of --start-from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--learners ppo a2c --memories gru none", "give either --memories or --learners"),
        ("--learners ppo a2c --algorithm ppo", "leave out --algorithm"),
        ("--learners ppo a2c --pqn.gamma 0.5", "--pqn.gamma would change nothing"),
        ("--learners ppo,a2c", "learners, got ppo,a2c; spaces separate them"),
        ("--memories gru none --cpu-threads -1", "cpu_threads must be between 1 and"),
        ("--memories gru=own_lru:LRU none", "clew already has a memory 'gru'; give own_lru:LRU"),
        ("--memories a=own_lru:LRU a=lstm", "two or more different labels, got a a"),
        ("--memories gru gru none", "two or more different memories, got gru gru none"),
        ("--learners ppo", "two or more different learners, got ppo"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture
) -> None:
    assert run(["compare", *words.split()]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_learners_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Each with its own settings, in one table."""
    monkeypatch.chdir(tmp_path)
    words = WORDS.replace("--memories none gru", "--learners a2c ppo --memory gru")
    words += " --ppo.num-envs 2 --ppo.rollout-length 8 --ppo.sequence-length 8 --ppo.minibatches 1"
    assert run(words.split()) == 0
    said = capsys.readouterr().out
    assert "learner" in said and "a2c > ppo" in said
    page = (tmp_path / "runs/compare-learners-tmaze/compare.html").read_text()
    assert "Every learner has its own settings" in page and "row&#x27;s learner" in page


@pytest.mark.slow
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """It trains and compares, and trains nothing when it is given again."""
    monkeypatch.chdir(tmp_path)
    assert run(WORDS.split()) == 0
    said = capsys.readouterr().out
    assert "none > gru" in said and "page: runs/compare-tmaze/compare.html" in said
    page = (tmp_path / "runs/compare-tmaze/compare.html").read_text()
    assert "Probability of improvement" in page and "<svg" in page
    states = sorted(tmp_path.glob("runs/*/*/checkpoints/*"))
    assert run(WORDS.split()) == 0
    assert sorted(tmp_path.glob("runs/*/*/checkpoints/*")) == states
    assert "none > gru" in capsys.readouterr().out
    assert run([*WORDS.split(), "--a2c.gamma", "0.5"]) == 2
    assert "holds a run with other settings" in capsys.readouterr().err
