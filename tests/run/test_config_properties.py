"""Settings in a file are read as written, or refused with one line, whatever the file contains."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import UserError
from clew.run import folder
from clew.run.config import TrainConfig, config_from_json
from properties import JSON, TEXTS, few, replaced, text_of

WHOLE = json.loads(json.dumps(TrainConfig().to_json()))
CHOSEN = (None, "auto")
"""Values that leave the choice to the task."""


def says(found: Any, value: Any) -> bool:
    """Whether a setting equals the given one; names missing in a group have defaults."""
    if isinstance(found, dict) and isinstance(value, dict):
        return all(name in found and says(found[name], value[name]) for name in value)
    return text_of(found) == text_of(value)


@few
@given(
    options=st.dictionaries(TEXTS, JSON, max_size=3),
    steps=st.integers(1, 2**60),
    learning_rate=st.floats(0, 1e6),
    name=TEXTS,
    loggers=st.lists(st.sampled_from(["tensorboard", "wandb"]), unique=True),
)
def test_settings_come_back(
    options: dict[str, Any], steps: int, learning_rate: float, name: str, loggers: list[str]
) -> None:
    """Through JSON, with the same digest."""
    values = copy.deepcopy(WHOLE) | {"steps": steps, "name": name, "loggers": loggers}
    values["memory_options"] = options
    values["a2c"]["learning_rate"] = learning_rate
    config = config_from_json(values)
    again = config_from_json(json.loads(json.dumps(config.to_json())))
    assert text_of(again.to_json()) == text_of(config.to_json()) == text_of(values)
    assert again.digest() == config.digest()


@st.composite
def changed(draw: st.DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """Settings with one value replaced, and its path."""
    values = copy.deepcopy(WHOLE)
    return values, replaced(draw, values)


@few
@given(given=changed())
def test_any_value_of_a_setting_is_read_or_refused(given: tuple[dict[str, Any], list[Any]]) -> None:
    """No setting changes silently, and no other exception is raised."""
    values, (*way, value) = given
    try:
        found: Any = config_from_json(values).to_json()
    except UserError as error:
        assert "\n" not in str(error)
        return
    for key in way:
        found = found[key]
    assert says(found, value) or value in CHOSEN


@few
@given(given=changed(), rest=st.dictionaries(TEXTS, JSON, max_size=2))
def test_a_changed_file_is_refused(
    given: tuple[dict[str, Any], list[Any]], rest: dict[str, Any], tmp_path: Path
) -> None:
    """Its digest and its checksum detect the change, whatever else the file contains."""
    folder.write_config(tmp_path, TrainConfig())
    file = tmp_path / folder.CONFIG
    text = json.loads(file.read_text())
    same = text_of(text["config"]) == text_of(given[0])
    file.write_text(json.dumps(rest | text | {"config": given[0]}))
    if same:
        folder.read_config(tmp_path)
        return
    with pytest.raises(UserError, match=r"config\.json"):
        folder.read_config(tmp_path)


@few
@given(data=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_read_or_refused(data: bytes, tmp_path: Path) -> None:
    """An error is one line."""
    (tmp_path / folder.CONFIG).write_bytes(data)
    with pytest.raises(UserError, match=r"config\.json") as error:
        folder.read_config(tmp_path)
    assert "\n" not in str(error.value)
