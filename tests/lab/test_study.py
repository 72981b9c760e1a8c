"""A study as data: its cells, packs and digests, and Makkink's grid with the published numbers."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clew.errors import UserError
from clew.lab.costs import parameters
from clew.lab.grid import Cell, Evaluation, Expected, Pack, Setting, check_study, make_packs
from clew.lab.grid.jobs import make_job
from clew.lab.grid.results import write_study
from clew.lab.studies.makkink import grid as makkink
from clew.memory import MEMORIES, options_of
from clew.names import find
from clew.run.build import abstract_agent, make_task
from own_parts import Cue
from small_study import small_study

TABLE_4_1 = {
    "length": {"none": 0.043, "transformer-xl": 0.292, "rezero": 0.441},
    "size": {
        "none": 0.015,
        "lstm": 0.310,
        "transformer-xl": 0.044,
        "gtrxl": 0.150,
        "rezero": 0.061,
        "universal": 0.083,
        "integrated": 0.189,
    },
    "distributed": {
        "none": 0.245,
        "lstm": 0.649,
        "transformer-xl": 0.381,
        "gtrxl": 0.443,
        "rezero": 0.327,
        "universal": 0.335,
        "integrated": 0.392,
    },
}
"""Makkink (2021), Table 4.1. Its length column for lstm, gtrxl, universal and integrated is not
the mean of Table C.1 (0.832 against 0.836, 0.856 against 0.849, ...)."""


def test_cells_are_every_model_setting_and_seed() -> None:
    study = small_study()
    assert len(study.cells()) == len(set(study.cells())) == 27
    assert study.cells()[:4] == [
        *(Cell("none", "length-1", seed) for seed in (4, 0, 7)),
        Cell("none", "length-2", 4),
    ]


def test_packs_are_longest_first_and_leave_out_what_is_finished() -> None:
    study = small_study(weights={"lstm": 10.0})
    packs = make_packs(study)
    assert packs[:4] == [
        *(Pack("lstm", (f"length-{n}",), (4, 0, 7)) for n in (3, 2, 1)),
        Pack("none", ("length-3",), (4, 0, 7)),
    ]
    assert sorted(cell for pack in packs for cell in pack.cells) == sorted(study.cells())
    finished = {Cell("lstm", "length-3", 0), *Pack("gru", ("length-1",), (4, 0, 7)).cells}
    left = make_packs(study, finished)
    assert left[0] == Pack("lstm", ("length-2",), (4, 0, 7))
    assert Pack("lstm", ("length-3",), (4, 7)) in left
    assert {cell for pack in left for cell in pack.cells} == set(study.cells()) - finished


def test_many_seeds_are_dealt_to_several_programs() -> None:
    packs = make_packs(small_study(seeds=tuple(range(23))))
    assert sorted(len(pack.seeds) for pack in packs[:9]) == [7] * 3 + [8] * 6
    assert packs[0].seeds == (0, 3, 6, 9, 12, 15, 18, 21)


def test_a_budget_in_episodes_becomes_steps() -> None:
    study = small_study()
    config = study.config("gru", "length-3")
    assert (config.a2c.rollout_length, config.steps, config.updates) == (4, 80, 20)
    assert (config.seed, config.seeds, config.log_every) == (4, 3, 5)
    assert replace(study, episodes=None, steps=99).config("gru", "length-3").steps == 99
    endless = replace(study.settings["length-1"], decisions=None)
    with pytest.raises(UserError, match="needs the decisions of 'x'"):
        replace(study, settings={"x": endless}).config("gru", "x")


def test_a_digest_names_all_but_the_seed() -> None:
    study = small_study()
    digest = study.digest("gru", "length-2")
    assert small_study(seeds=(1,)).digest("gru", "length-2") == digest
    others = [
        study.digest("lstm", "length-2"),
        study.digest("gru", "length-1"),
        replace(study, episodes=21).digest("gru", "length-2"),
        replace(study, score="success").digest("gru", "length-2"),
        replace(study, evaluation=replace(study.evaluation, seed=1)).digest("gru", "length-2"),
    ]
    assert len({digest, *others}) == 6


SETTING = small_study().settings["length-1"]
MISTAKES = {
    "seeds must be integers as a tuple, got 5": {"seeds": 5},
    r"models\['gru'\] must be of type TrainConfig, got 'gru'": {"models": {"gru": "gru"}},
    r"settings\['a'\] must be of type Setting, got 'tmaze'": {"settings": {"a": "tmaze"}},
    "settings must be a dict, got 'tmaze'": {"settings": "tmaze"},
    "name of a study must be valid for a folder, got ''": {"name": ""},
    "name must be a string, got 3": {"name": 3},
    "resumable must be True or False, got 'yes'": {"resumable": "yes"},
    "score must be a string, got None": {"score": None},
    "settings must have text as names, got 5": {"settings": {5: SETTING}},
    r"memories\['own'\] must be of type str, got <class": {"memories": {"own": Cue}},
    r"tasks\['own'\] must be of type str, got <class": {"tasks": {"own": Cue}},
    "evaluation must be of type Evaluation, got {'episodes': 5}": {"evaluation": {"episodes": 5}},
    "unknown model in expected 'gruu'; did": {"expected": {("gruu", "length-1"): Expected(1, 0)}},
    r"expected must be by \(model, setting\), got 'gru'": {"expected": {"gru": Expected(1, 0)}},
    r"expected\['gru'\] must be of type Expected, got 1.0": {"expected": {"gru": 1.0}},
    "unknown setting of a2c 'learning_rat'; did you mean 'learning_rate'": {
        "settings": {"a": replace(SETTING, learning={"learning_rat": 1e-3})}
    },
    "either as episodes or as steps": {"steps": 5},
    "at least one of seeds": {"seeds": ()},
    "must all be different": {"seeds": (1, 2, 1)},
    "seed must be an integer of at least 0": {"seeds": (-1,)},
    "episodes or steps must be": {"episodes": -3},
    r"expected\[\('gru', 'a'\)\].mean must be a finite": {
        "expected": {("gru", "a"): Expected("1", 0)}
    },
    r"expected\[\('gru', 'a'\)\].std must be a finite": {
        "expected": {("gru", "a"): Expected(1, -1)}
    },
    r"weights\['gru'\] must be a finite number of at least 0, got 'x'": {"weights": {"gru": "x"}},
}


@pytest.mark.parametrize(("name", "value"), [("mix", 3), ("together", True), ("further_needs", [])])
def test_an_impossible_setting_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{name} of a setting must be a string, got "):
        replace(SETTING, **{name: value})
    with pytest.raises(UserError, match="the task must be a name, or a class"):
        Setting(3)  # pyright: ignore[reportArgumentType]
    assert Setting(Cue).env == f"{Cue.__module__}:Cue"  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("told", MISTAKES)
def test_impossible_studies_are_refused(told: str) -> None:
    with pytest.raises(UserError, match=told):
        small_study(**MISTAKES[told])


@pytest.mark.parametrize(
    ("named", "value"),
    [("episodes", -1), ("seed", -1), ("max_steps", 0), ("greedy", "no"), ("stream", 1)],
)
def test_an_impossible_evaluation_is_refused_before_anything_runs(named: str, value) -> None:
    with pytest.raises(UserError, match=f"evaluation.{named} must be .* got {value!r}"):
        Evaluation(**{named: value})


def test_a_resumable_study_needs_a_folder_for_each_run() -> None:
    """A slash made every run fail, after all had started."""
    study = small_study(resumable=True, episodes=None, steps=200, evaluation=Evaluation())
    study = study.only(["gru"], ["length-1"])
    with pytest.raises(UserError, match="must have no slashes, got 'gru' on 'a/b'"):
        check_study(replace(study, settings={"a/b": SETTING}))
    config = study.models["gru"]
    twice = replace(study, models={"a": config, "a-b": config}, settings={"b-c": SETTING})
    check_study(twice)
    with pytest.raises(UserError, match="'a' on 'b-c' and 'a-b' on 'c' would share 'a-b-c-seed"):
        check_study(replace(twice, settings={"b-c": SETTING, "c": SETTING}))


def test_checkpoints_of_a_model_with_a_slash_are_in_the_studys_folder(tmp_path: Path) -> None:
    config = small_study().models["gru"]
    study = small_study(models={"../../gru": config, "lstm": config}, expected={})
    for pack in make_packs(study, set()):
        job = make_job(study, pack, tmp_path)
        assert Path(job["folder"]).parent == tmp_path / "packs"


def test_a_pack_that_was_stopped_finds_its_checkpoints(tmp_path: Path) -> None:
    """In the folder of model, digests and seeds, as in older studies."""
    study = small_study()
    for pack in make_packs(study, set()):
        identity = [[study.digest(pack.model, name) for name in pack.settings], list(pack.seeds)]
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]
        assert Path(make_job(study, pack, tmp_path)["folder"]).name == f"{pack.model}-{digest}"


def test_packs_of_the_same_settings_under_two_names_have_two_folders(tmp_path: Path) -> None:
    """When run at the same time, the first to end used to remove the other's checkpoints."""
    config = small_study().models["gru"]
    study = small_study(
        models={"a b": config, "a-b": config}, settings={"x": SETTING, "y": SETTING}
    )
    packs = make_packs(study, set())
    assert len({make_job(study, pack, tmp_path)["folder"] for pack in packs}) == len(packs) == 4


def test_a_stream_that_there_is_not_is_refused_before_anything_runs() -> None:
    study = small_study().only(["gru"], ["length-1"])
    fresh = replace(SETTING, options={"memory_length": 1})
    with pytest.raises(UserError, match="length-1: reset_at needs a fixed stream"):
        check_study(replace(study, settings={"length-1": fresh}))
    other = {"maze": replace(SETTING, env="tmaze", options={})}
    with pytest.raises(UserError, match="maze: tmaze has no fixed stream; turn evaluation.stream"):
        check_study(replace(study, settings=other))
    with pytest.raises(UserError, match="resumable study plays fresh episodes"):
        small_study(resumable=True, episodes=None, steps=100)


def test_a_setting_of_another_type_is_refused() -> None:
    with pytest.raises(UserError, match="perfect of a setting must be a finite number, got '1'"):
        replace(SETTING, perfect="1")
    with pytest.raises(UserError, match=r"floors\['random'\] of a setting must be a finite number"):
        replace(SETTING, floors={"random": None})
    with pytest.raises(UserError, match="decisions of a setting must be an integer of at least 1"):
        replace(SETTING, decisions=0)
    with pytest.raises(UserError, match="learning of a setting must be a dict, got 0.1"):
        replace(SETTING, learning=0.1)
    with pytest.raises(UserError, match=r"further\['far'\] of a setting must be a dict by name"):
        replace(SETTING, further={"far": 5})


def test_numbers_of_numpy_are_taken_in_settings_and_evaluations(tmp_path: Path) -> None:
    """They used to end the study when it was written to disk."""
    far = {"far": {"memory_length": np.int64(9)}}
    setting = replace(SETTING, options={"memory_length": np.int64(1)}, further=far)
    setting = replace(setting, floors={"random": np.float32(0.5)}, perfect=np.float32(2))
    study = small_study(settings={"a": setting}, evaluation=Evaluation(np.int64(5)))
    write_study(tmp_path, study)
    written = json.loads((tmp_path / "study.json").read_text())
    assert written["settings"]["a"]["further"] == {"far": {"memory_length": 9}}
    assert (written["settings"]["a"]["perfect"], written["evaluation"]["episodes"]) == (2, 5)


def test_a_part_of_a_study_has_its_part_of_what_is_known_of_it() -> None:
    expected = {(model, "length-1"): Expected(1.0, 0.0) for model in ("gru", "lstm")}
    study = small_study(expected=expected, weights={"gru": 2.0, "lstm": 3.0})
    part = study.only(["gru"])
    assert [*part.expected] == [("gru", "length-1")]
    assert study.only(settings=["length-2"]).expected == expected  # with rows of an earlier command


@pytest.mark.parametrize("name", ["score", "further_needs"])
def test_a_misspelt_metric_is_refused_before_anything_runs(name: str) -> None:
    study = small_study().only(["gru"], ["length-1"])
    changed = {"settings": {"length-1": replace(SETTING, further_needs="sucess")}}
    wrong = replace(study, **({"score": "sucess"} if name == "score" else changed))
    with pytest.raises(UserError, match=f"length-1: unknown value of {name} 'sucess'; .*'success'"):
        check_study(wrong)


class Timed(Cue):
    """Has a metric with the name of a curve's column."""

    def __init__(self):
        super().__init__()
        self.metric_names = ("steps",)

    def step(self, state, action, key):
        after, transition = super().step(state, action, key)
        return after, transition._replace(metrics={"steps": transition.reward})


def test_a_score_with_the_name_of_a_column_is_refused() -> None:
    """Otherwise its curve would have both in one column."""
    study = small_study(settings={"own": Setting("test_study:Timed", decisions=3)}, score="steps")
    with pytest.raises(UserError, match="own: test_study:Timed has a metric 'steps', .* rename it"):
        check_study(study)


def test_check_names_the_model_or_setting() -> None:
    study = small_study()
    wrong = replace(study.models["gru"], memory="grue")
    with pytest.raises(UserError, match="mine on length-1: unknown memory 'grue'.*'gru'"):
        check_study(replace(study, models={"mine": wrong}))
    setting = replace(study.settings["length-1"], options={"memory_length": 0})
    with pytest.raises(UserError, match="bad: memory_length must be"):
        check_study(replace(study, settings={**study.settings, "bad": setting}))
    with pytest.raises(UserError, match="unknown setting of small 'length-11'.*length-1"):
        study.only(settings=["length-11"])
    with pytest.raises(UserError, match="a memory 'lstm'"):
        check_study(replace(study, memories={"lstm": "x:y"}))
    with pytest.raises(UserError, match="has a model 'gru'"):
        study.add_memory("gru", "x:y")


def test_the_published_edition_has_1113_cells() -> None:
    study = makkink.study()
    assert len(study.cells()) == len(set(study.cells())) == 1113
    assert (len(study.models), len(study.settings), study.seeds) == (7, 53, (4, 5, 10))
    sizes = [len(makkink.study(part).settings) for part in makkink.PARTS]
    assert sizes == [23, 17, 13]
    assert study.episodes == 10_000
    config = study.config("gtrxl", "size-40")
    assert config.env_options == {"memory_length": 2, "num_bits": 40, "stream_seed": 0}
    assert (config.a2c.rollout_length, config.steps) == (3, 30_000)
    assert study.config("none", "distributed-30-7").a2c.rollout_length == 30
    check_study(study)


def test_the_published_models_are_the_presets() -> None:
    study = replace(makkink.study("length"), fit_windows=False)
    for name, preset in makkink.PRESETS.items():
        config = study.config(name.removeprefix("makkink/"), "length-20")
        assert replace(config, seed=0, seeds=1) == preset
    none = study.config("none", "length-20")
    assert parameters(abstract_agent(none, make_task(none))) == 4_611


@pytest.mark.parametrize("part", makkink.PARTS)
def test_published_tables(part: str) -> None:
    study, table = makkink.study(part), makkink.published_table(part)
    pairs = {(model, setting) for model in study.models for setting in study.settings}
    assert set(table) == pairs == set(study.expected)
    assert all(-1 <= e.mean <= 1 and 0 <= e.std < 1.2 for e in table.values())
    for model, mean in TABLE_4_1[part].items():
        found = [table[model, setting].mean for setting in study.settings]
        assert sum(found) / len(found) == pytest.approx(mean, abs=1.5e-3)


def test_the_floor_of_table_c3_is_its_memoryless_column() -> None:
    study = makkink.study("distributed")
    for setting in ("3-3", "5-3", "5-5", "10-3", "10-5", "10-7", "10-9", "30-25"):
        floors = study.settings[f"distributed-{setting}"].floors
        assert floors["memoryless"] == pytest.approx(
            study.expected["none", f"distributed-{setting}"].mean
        )


def test_the_repaired_edition_has_controls_and_fresh_episodes() -> None:
    study = makkink.study(edition="repaired").only(settings=["length-20", "distributed-30-3"])
    assert set(study.models) == {*makkink.models(), "gru"}
    assert len(study.cells()) == 8 * 2 * 30
    assert study.evaluation.episodes >= 1000 and not study.evaluation.stream
    assert study.expected == {}
    assert study.settings["length-20"].options["stream_seed"] is None
    assert study.settings["distributed-30-3"].options["schedule"] == "fresh"
    for name, config in study.models.items():
        options = options_of(find("memory", config.memory, MEMORIES)) | config.memory_options
        assert options.get("gate") in (None, "gru", "residual")
        assert not options.get("inner_residual")
        assert options.get("gradient") in (None, "full")
        assert options.get("coordinates", True), name
    check_study(study)


def test_algorithm_1_is_the_repaired_edition_with_returns_as_they_are() -> None:
    repaired, plain = (makkink.study(edition=e) for e in ("repaired", "algorithm-1"))
    assert plain.settings == repaired.settings and plain.seeds == repaired.seeds
    assert plain.evaluation == repaired.evaluation
    for name, config in plain.models.items():
        scaled = repaired.models[name]
        assert scaled.a2c.return_normalisation
        assert replace(config, a2c=scaled.a2c) == scaled
        assert config.a2c == replace(scaled.a2c, return_normalisation=False)
    check_study(plain.only(["lstm", "none"], ["length-20"]))


@pytest.mark.parametrize("name", sorted(makkink.PRESETS))
def test_the_repairs_one_by_one_are_the_repaired_agent_together(name: str) -> None:
    name = name.removeprefix("makkink/")
    coded, repaired = (makkink.models(edition)[name] for edition in ("published", "repaired"))
    found = makkink.models("one-repair")
    arms = [agent for arm, agent in found.items() if arm.startswith(f"{name}-")]
    assert found[name] == coded
    together: dict[str, object] = {}
    for arm in arms:
        changed = dict(arm.memory_options.items() - coded.memory_options.items())
        assert changed and not changed.keys() & together.keys()
        assert replace(arm, memory_options=coded.memory_options, preset=coded.preset) == coded
        together |= changed
    assert coded.memory_options | together == repaired.memory_options


def test_one_repair_at_a_time_is_trained_and_measured_as_the_repaired_edition() -> None:
    one, repaired = (makkink.study(edition=e) for e in ("one-repair", "repaired"))
    assert one.settings == repaired.settings and one.seeds == repaired.seeds
    assert one.evaluation == repaired.evaluation
    check_study(one.only(["gtrxl-gate", "universal-halting"], ["length-20"]))
