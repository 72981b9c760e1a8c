"""Names from other libraries lead to existing settings."""

import dataclasses

from clew import MEMORIES, TrainConfig
from clew.agents.learners import LEARNERS
from clew.other_names import NO_SETTING, NOTES, OF_SOME_LEARNERS, OTHER_NAMES, meanings


def test_every_name_leads_to_a_setting_or_a_memory() -> None:
    groups = [value for value in vars(TrainConfig()).values() if dataclasses.is_dataclass(value)]
    names = {field.name for group in (TrainConfig, *groups) for field in dataclasses.fields(group)}
    of_evaluations = {"episodes"}
    assert set(OTHER_NAMES.values()) <= names | {*MEMORIES} | of_evaluations
    assert NOTES.keys() <= OTHER_NAMES.keys() and not NO_SETTING.keys() & OTHER_NAMES.keys()
    own = {field.name for field in dataclasses.fields(TrainConfig)}
    assert not (OTHER_NAMES.keys() | NO_SETTING.keys()) & own


def test_a_name_means_one_setting_of_each_learner_that_has_another() -> None:
    """So that what stands first among its meanings is never less right than what follows."""
    settings = {
        name: {f.name for f in dataclasses.fields(x.settings)} for name, x in LEARNERS.items()
    }
    assert OF_SOME_LEARNERS.keys() <= OTHER_NAMES.keys()
    for name, some in OF_SOME_LEARNERS.items():
        for learner, own in settings.items():
            assert len(own & some.keys()) <= 1, (name, learner)
        assert all(any(setting in own for own in settings.values()) for setting in some)
    assert meanings("ent_coef")[-2:] == ("initial_temperature", "entropy_cost")
