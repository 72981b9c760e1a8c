"""Names from other libraries lead to existing settings."""

import dataclasses

from clew import MEMORIES, TrainConfig
from clew.other_names import NO_SETTING, NOTES, OTHER_NAMES


def test_every_name_leads_to_a_setting_or_a_memory() -> None:
    groups = [value for value in vars(TrainConfig()).values() if dataclasses.is_dataclass(value)]
    names = {field.name for group in (TrainConfig, *groups) for field in dataclasses.fields(group)}
    of_evaluations = {"episodes"}
    assert set(OTHER_NAMES.values()) <= names | {*MEMORIES} | of_evaluations
    assert NOTES.keys() <= OTHER_NAMES.keys() and not NO_SETTING.keys() & OTHER_NAMES.keys()
    own = {field.name for field in dataclasses.fields(TrainConfig)}
    assert not (OTHER_NAMES.keys() | NO_SETTING.keys()) & own
