"""Which memory for which task: its names and pages exist, and its commands work."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import which_memory
from benchmarks.remembered import called, measures

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.make import env_options
from clew.cli import run
from clew.cli.advise import look_at, words_of
from clew.cli.parse import parse
from clew.cli.train import TrainCommand, default_command
from clew.envs import ENVS
from clew.errors import UserError
from clew.lab import advice, comparison
from clew.memory import MEMORIES
from clew.run.build import make_parts
from clew.run.config import TrainConfig

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_of_the_advice() -> None:
    """`python -m benchmarks.which_memory` rewrites it when the advice has changed."""
    assert which_memory.PAGE.read_text(encoding="utf-8") == which_memory.page()


def test_the_scores_are_those_of_the_rows() -> None:
    """The same command writes them when rows were added."""
    assert which_memory.SCORES.read_text(encoding="utf-8") == which_memory.table(measures())


def test_few_seeds_are_not_told_apart_from_others() -> None:
    """A single seed is not tested at all; tests that are made together are corrected together."""
    scores = {"gru": [1.0, 1.1, 0.9], "lstm": [0.5, 0.6, 0.4], "none": [0.0], "s5": [0.98, 1, 1.1]}
    assert which_memory.told_apart(scores, "gru") == {"lstm": "yes", "s5": "no"}
    assert which_memory.told_apart(scores, "none") == {}
    many = scores | {f"other-{i}": [1.0, 1.1, 0.9] for i in range(20)}
    assert which_memory.told_apart(many, "gru")["lstm"] == "no"


def test_a_ranking_names_who_is_told_apart_or_who_is_not(output: Callable[..., str]) -> None:
    """Among memories whose printed means differ, whichever are fewer."""
    score = advice.Score("counts", "return", "rows", "gru", 3, 1.0, 0.9, 1.1, "", "yes")
    measure = [
        score,
        score._replace(memory="lstm", mean=0.999, from_highest="no"),
        score._replace(memory="elman", mean=0.9, seeds=2, from_highest="no"),
        score._replace(memory="s5", mean=-0.9, from_highest="yes", from_none="no"),
        score._replace(memory="none", mean=-1.0, from_highest="yes", from_none=""),
    ]
    means = "return, 2 to 3 seeds: gru, lstm 1.00; elman 0.90; s5 -0.90; none -1.00."
    apart = "Not told apart from gru: elman. Not told apart from none: s5."
    assert advice.ranking(measure) == f"{means} {apart}"
    near = [one._replace(from_highest="no", from_none="no") for one in measure]
    apart = "No memory is told apart from gru. No memory is told apart from none."
    assert advice.ranking(near) == f"{means} {apart}"
    assert advice.ranking([score]) == "return, 3 seeds: gru 1.00."
    few = "return, 2 to 3 seeds: gru, lstm 1.00; none -1.00; 2 others not listed. "
    few += "2 of 4 others are told apart from gru. 3 of 4 others are told apart from none."
    assert advice.ranking(measure, best=1) == few
    said = " ".join(output("advise", "--need", "counts").split())
    assert "scores: return in POPGym's easy CountRecall, by PPO, 3 seeds: rg_lru -0.19;" in said
    (need,) = json.loads(output("advise", "--need", "counts", "--json"))["needs"]
    assert need["scores"][0]["memory"] == "rg_lru" and need["scores"][0]["seeds"] == 3


def test_every_task_has_its_needs() -> None:
    """Tasks of the library do; others are recognised by how their names begin."""
    unknown = [name for name in ENVS if not advice.needs_of(name)]
    assert unknown == []
    for need in advice.needs():
        assert all(name in ENVS or ":" in name for name in need.tasks), need.title
        assert all((ROOT / "results" / folder / "README.md").exists() for folder in need.evidence)
        assert need.evidence or "not known" in need.advice
        assert bool(need.made) == bool(need.evidence), need.title
        assert set(need.compare) < set(MEMORIES), need.title
        said = re.findall(r"\w+", need.advice)
        assert {*need.compare} <= {*said, "gru", "lstm", "frame_stack", "gtrxl"}, need.title
    assert set(advice.for_any()) < set(MEMORIES)


@pytest.mark.parametrize("need", advice.needs(), ids=lambda need: need.title)
def test_commands_are_those_that_there_are(need: advice.Need) -> None:
    words = shlex.split(need.command)
    assert words[0] == "clew"
    if words[1] == "train":
        env = words[words.index("--env") + 1]
        assert need in advice.needs_of(env, ["env_options.num_bits"])
        accept(words[2:])
        assert set(shlex.split(" ".join(need.words))) <= {*words, "10"}, "as on one's own task"
    assert advice.need(need.word) == need


@pytest.mark.parametrize("one", advice.tried(), ids=lambda one: one.name)
def test_tasks_that_were_tried_are_found_by_what_makes_them(one: advice.Tried) -> None:
    """Their options are those of training."""
    assert (ROOT / "results" / one.evidence / "README.md").exists()
    assert set(one.compare) < set(MEMORIES)
    args = [*words_of(one), "--memory", one.compare[0], *shlex.split(" ".join(one.words))]
    default = default_command(args)
    config = parse(TrainCommand, args, command="train", about="", default=default).config
    for compared in comparison.settings_of(config, [*one.compare, "none"]).values():
        make_parts(compared)
    defaults = env_options(one.env) if one.env in ENVS else {}
    very, near = advice.tried_on(one.env, one.options, config.wrappers, defaults)
    assert very == [one] and one not in near
    different = {**one.options, "x": 1}
    very, near = advice.tried_on(one.env, different, config.wrappers, defaults)
    assert very == [] and one in near
    noisier = replace(config.wrappers, noise=9.0)
    assert advice.tried_on(one.env, one.options, noisier, defaults) == ([], [])


def test_what_was_seen_on_the_very_task_comes_first(output: Callable[..., str]) -> None:
    words = ["advise", "--env", "gymnasium:CartPole-v1", "--wrappers.keep", "0", "2"]
    said = output(*words)
    assert said.index("Tried on this task: An LSTM balances") < said.index("take:      gru")
    assert "like that: clew compare --memories lstm gru none --env gymnasium:CartPole-v1" in said
    assert run([*words, "--steps", "5", "--json"]) == 2  # of clew train, not of this command
    (tried,) = json.loads(output(*words, "--json"))["task"]["tried"]
    assert tried["evidence"] == "gymnasium-tasks" and tried["compare"].endswith("--steps 300000")


def test_an_option_that_has_its_default_may_be_left_out(output: Callable[..., str]) -> None:
    words = ["advise", "--env", "distributed_memory", "--env-options", "num_bits=3"]
    said = output(*words)
    assert "Tried on this task: It is easy" in said and "your task" not in said


def test_the_same_task_with_other_options_is_near(output: Callable[..., str]) -> None:
    """Its comparison is that of the task that was tried."""
    said = output("advise", "--env", "passive_tmaze", "--env-options", "corridor_length=60")
    assert "A passive T-Maze of 250, a similar task, was tried: " in said
    assert "none --env passive_tmaze --env-options corridor_length=250 --memory-options" in said
    assert "none --env passive_tmaze --env-options corridor_length=60\n" in said


def test_several_needs(output: Callable[..., str]) -> None:
    words = ["advise", "--env", "labelled:Labelled", "--need", "places", "cue", "--json"]
    found = json.loads(output(*words))
    assert list(found["task"]["compare"]) == ["places", "cue"]
    assert all("--need" not in c and "cue" not in c for c in found["task"]["compare"].values())
    together = "clew compare --memories gru lstm arelit rwkv7 none --env labelled:Labelled"
    assert found["task"]["together"] == together
    assert f"All of them: {together}\n" in output(*words[:-1])
    said = output("advise", "--need", "places", "cue")
    assert said.index("Places (") < said.index("One thing for a long time (")


def test_what_is_known_of_a_task(output: Callable[..., str]) -> None:
    said = output("advise", "--env", "memory_chain", "--env-options", "memory_length=3")
    assert "4 steps (16 episodes of an untrained agent)" in said and "take:      arelit" in said
    own = (
        "compare --memories arelit rwkv7 gru none --env memory_chain --env-options memory_length=3"
    )
    assert own in said and "with a2c: 5 seeds of 500,000 steps" in said
    assert len(json.loads(output("advise", "--json"))["needs"]) == len(advice.needs())


def test_what_is_said_of_a_task_that_nobody_knows(
    capsys: pytest.CaptureFixture[str], output: Callable[..., str]
) -> None:
    words = ["advise", "--env", "labelled:Labelled"]
    said = output(*words)
    assert "Nothing is known about this task. What has to be remembered in it?" in said
    assert "clew compare --memories gru lstm none --env labelled:Labelled\n" in said
    found = json.loads(output(*words, "--need", "Pairs", "--json"))
    (command,) = found["task"]["compare"].values()
    assert command.startswith("clew compare --memories rwkv7") and "--need" not in command
    assert [need["word"] for need in found["needs"]] == ["pairs"]
    assert run([*words, "--need", "place"]) == 2
    assert "did you mean 'places'" in capsys.readouterr().err


def test_masks_of_infos_are_taken(
    capsys: pytest.CaptureFixture[str], output: Callable[..., str]
) -> None:
    """The environment raises if a forbidden action is taken."""
    words = ["advise", "--env", "masked:Locks", "--env-options", "sizes=[3,2]"]
    said = output(*words)
    assert 'in info["action_mask"], which --wrappers.action-mask info takes' in said
    (command,) = {line.strip() for line in said.splitlines() if line.endswith("mask info")}
    assert command.endswith(
        "--env masked:Locks --env-options 'sizes=[3,2]' --wrappers.action-mask info"
    )
    words += ["where=entry", "--wrappers.action-mask", "allowed"]
    assert "action-mask info" not in output(*words)
    words = ["advise", "--env", "labelled:Troubled", "--env-options", "trouble=reset"]
    assert run(words) == 2 and "Troubled" in capsys.readouterr().err


def test_wrappers_decide_what_has_to_be_remembered(output: Callable[..., str]) -> None:
    """They are used when the task is inspected, and in the command."""
    words = ["advise", "--env", "gymnasium:CartPole-v1"]
    assert "Nothing, since all is shown" in output(*words)
    wrappers = ["--wrappers.keep", "0", "2", "--wrappers.time-limit", "7"]
    found = json.loads(output(*words, *wrappers, "--json"))
    assert [need["title"] for need in found["needs"]] == ["Hidden velocities or positions"]
    assert found["task"]["observation"] == "Box((2,), float32)"
    assert found["task"]["episode_steps"] == [7, 7]
    (command,) = found["task"]["compare"].values()
    options = "--wrappers.keep 0 2 --wrappers.time-limit 7 --algorithm ppo"
    assert command.endswith(f"gymnasium:CartPole-v1 {options}")


def test_what_is_hidden_is_asked_of_the_learner_that_found_it(output: Callable[..., str]) -> None:
    """The rows are by PPO, and a JAX task is trained by A2C unless the command says otherwise."""
    said = output("advise", "--env", "memory_chain", "--need", "hidden")
    assert "--env memory_chain --algorithm ppo\n" in said


def test_a_wrapper_that_keeps_everything_hides_nothing(output: Callable[..., str]) -> None:
    words = ["advise", "--env", "gymnasium:CartPole-v1", "--wrappers.keep", "3", "2", "1", "0"]
    assert "Nothing, since all is shown" in output(*words)


def test_one_corridor_replaces_nothing() -> None:
    (need,) = advice.needs_of("endless_tmaze", ["env_options.num_corridors=1"])
    assert need.word == "cue"
    (need,) = advice.needs_of("endless_tmaze", ["env_options.num_corridors=3"])
    assert need.word == "replaced"


def test_a_bandit_is_asked_in_trials(output: Callable[..., str]) -> None:
    """Its episodes have one step, in which nothing can be remembered."""
    said = output("advise", "--env", "bandit")
    assert "none --env bandit --wrappers.trial-episodes 10 --algorithm ppo\n" in said
    said = output("advise", "--env", "bandit", "--wrappers.trial-episodes", "3")
    assert "none --env bandit --wrappers.trial-episodes 3 --algorithm ppo\n" in said


def test_a_task_without_end_is_given_one(output: Callable[..., str]) -> None:
    options = ["--env-options", "lengths=[100000, 1]"]
    said = output("advise", "--env", "labelled:Labelled", *options)
    assert "or no end; the time limit of 1,000 steps below is an example" in said
    assert "--env-options 'lengths=[100000, 1]' --wrappers.time-limit 1000\n" in said


def test_a_limit_that_is_given_is_the_limit(output: Callable[..., str]) -> None:
    options = ["--env-options", "lengths=[100000, 1]", "--wrappers.time-limit", "6000"]
    said = " ".join(output("advise", "--env", "labelled:Labelled", *options).split())
    assert "at most your limit of 6,000" in said and "--wrappers.time-limit 1000" not in said


def test_needs_that_contradict_each_other(
    output: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One needs PPO, the other A2C."""
    found = {need.word: need for need in advice.needs()}
    other = ("--algorithm a2c", "--a2c.gamma 0.999")
    found["credit"] = found["credit"]._replace(words=other)
    monkeypatch.setattr(advice, "needs", lambda: [*found.values()])
    words = ["advise", "--env", "labelled:Labelled", "--need", "trials", "credit"]
    said = output(*words)
    assert "All of them: not in one command, since their options differ\n" in said
    assert "another discount" not in said, "one of them wants a high one"
    assert json.loads(output(*words, "--json"))["task"]["together"] is None


def test_words_of_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """Synonyms work, all in one option; the help has the words of the list."""
    assert advice.need("Friction").word == "tries" and advice.need("delay").word == "recent"
    every = [word for one in advice.needs() for word in (one.word, *one.also)]
    assert len(set(every)) == len(every)
    assert run(["advise", "--need", "recent", "--need", "hidden"]) == 2
    assert "--need is given twice" in capsys.readouterr().err
    for several in ("cue,places", "cue places"):
        assert run(["advise", "--need", several]) == 2
        assert "give needs as separate words: --need cue places" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(["advise", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert ", ".join(one.word for one in advice.needs()) in said


def test_what_is_held_for_long_is_learned_from_whole_episodes(
    output: Callable[..., str],
) -> None:
    """By PPO, whose gradients reach back over a sequence."""
    options = ["--env-options", "lengths=[100]", "--need"]
    for need, reach in (
        ("cue", " --ppo.rollout-length 100 --ppo.sequence-length 100\n"),
        ("recent", ""),
    ):
        said = output("advise", "--env", "labelled:Labelled", *options, need)
        assert ("--ppo." in said) == bool(reach) and reach in said
        assert "--name brief-labelled-Labelled --seeds 2 --steps 50000\n" in said
        assert "cost at default sizes" in said


def test_options_need_their_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", "--env-options", "size=3"]) == 2
    assert "which task do these options belong to? name it with --env" in capsys.readouterr().err
    assert run(["advise", "--env", "mountaincar"]) == 2
    assert "did you mean 'gymnasium:MountainCar-v0'?" in capsys.readouterr().err
    assert run(["advise", "--env", "cartpole"]) == 2
    assert "did you mean 'gymnasium:CartPole-v1'?" in capsys.readouterr().err
    assert run(["advise", "--env", "labelled.Labelled"]) == 2
    assert "your own is written labelled:Labelled" in capsys.readouterr().err


def test_an_own_module_is_not_taken_for_a_task_of_its_first_letters() -> None:
    """Only names of bridges count as prefixes."""
    assert advice.needs_of("tmaze") and not advice.needs_of("tmaze_thermo:Room")
    assert advice.needs_of("xminigrid:MiniGrid-MemoryS8")
    assert advice.needs_of("gymnasium:minigrid:MiniGrid-MemoryS13-v0")


def test_a_task_that_raises_is_not_taken_for_an_endless_one() -> None:
    with pytest.raises(EnvironmentFault):
        look_at(TrainConfig(env="labelled:Troubled", env_options={"trouble": "raise"}))


def test_the_picture_shows_the_rows() -> None:
    """Fractions between a guess and a perfect score; empty without rows."""
    found = {one.title.split("\n")[0]: one for one in measures()}
    bits, pairs, back = found["one bit"], found["sixteen"], found["three"]
    assert bits.share("rwkv7") > 0.98 and bits.share("mamba2") < 0.05
    assert pairs.share("mlstm") > 0.9 and pairs.share("gru") == 0
    assert back.share("gru") == pytest.approx((0.996 + 0.49) / 1.49, abs=0.01)
    assert np.isnan(back.share("hybrid"))


def test_a_memory_of_ones_own_is_a_line_of_the_picture() -> None:
    """By its name in the rows, below the library's."""
    found = measures()
    lines = which_memory.tried(found, ["slstm-open"])
    assert [*lines][-1] == "slstm-open" and {*lines} - {"slstm-open"} < {*MEMORIES}
    assert lines["slstm-open"][0] > 0.98 and np.isnan(lines["slstm-open"][1:]).all()
    assert called("mine:Memory") == "memory"
    with pytest.raises(UserError, match="did you mean 'slstm-open'"):
        which_memory.tried(found, ["slstm-opn"])


def test_what_an_untrained_agent_earns(output: Callable[..., str]) -> None:
    """If it is always the same, exploration may be the difficulty."""
    said = " ".join(output("advise", "--env", "tmaze").split())
    assert "return -100 in each of them: exploration may be what is hard here" in said
    assert "-1 to 1" in output("advise", "--env", "memory_chain")
    found = json.loads(output("advise", "--env", "memory_chain", "--json"))
    assert found["task"]["returns"] == [-1.0, 1.0]


def accept(args: list[str]) -> TrainConfig:
    """The settings that a command line makes, refused as in `clew train`."""
    parsed = parse(TrainCommand, args, command="train", about="", default=default_command(args))
    parsed.config.validate()
    return parsed.config


def printed(said: str) -> list[TrainConfig]:
    """The settings of every printed `clew compare`, with each of its memories."""
    found = []
    for line in said.splitlines():
        if "clew compare --memories " in line:
            words = shlex.split(line.split("clew compare --memories ")[1])
            start = words.index("--env")
            config = accept(words[start:])
            found += comparison.settings_of(config, words[:start]).values()
    return found


@pytest.mark.parametrize("env", ["labelled:Labelled", "memory_chain", "gymnasium:Pendulum-v1"])
def test_what_is_printed_is_accepted(env: str, output: Callable[..., str]) -> None:
    """For every need, on JAX tasks and others, with one choice and with continuous actions."""
    every = [one.word for one in advice.needs()]
    configs = printed(output("advise", "--env", env, "--need", *every))
    assert len(configs) > 2 * len(every)
    for config in configs:
        config.validate()


@pytest.mark.parametrize(
    ("need", "options"),
    [
        (["cue"], "--a2c.rollout-length 201"),
        (
            ["counts", "places"],
            "--algorithm ppo --ppo.rollout-length 201 --ppo.sequence-length 201",
        ),
        (["cue", "noise"], "--algorithm ppo --ppo.rollout-length 201 --ppo.sequence-length 201"),
    ],
)
def test_gradients_of_the_learner_that_is_used_reach_back(
    need: list[str], options: str, output: Callable[..., str]
) -> None:
    """A2C learns from rollouts, PPO from sequences; and the printed command is accepted."""
    words = ["advise", "--env", "memory_chain", "--env-options", "memory_length=200", "--need"]
    said = output(*words, *need)
    assert options in said and "gradients go back" not in said
    assert printed(said)


def test_longer_than_gradients_reach(output: Callable[..., str]) -> None:
    words = ["advise", "--env", "memory_chain", "--env-options", "memory_length=999", "--need"]
    said = " ".join(output(*words, "cue").split())
    assert "--a2c.rollout-length 256 reach: gradients go back 256 steps there" in said
    assert "episodes have up to 1,000: holding something for longer is not learned" in said
    assert "holding something" not in output(*words, "recent")
    said = output("advise", "--env", "labelled:Labelled", "--env-options", "lengths=[100]")
    reach = "--ppo.rollout-length 100 --ppo.sequence-length 100"
    assert f"--algorithm r2d2, {reach}, more steps" in said
