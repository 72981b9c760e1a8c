"""A fake tensorboardX and a fake wandb, for the tests of loggers."""

import sys
import types
from typing import Any

import pytest


class Event(types.SimpleNamespace):
    """Stands in for TensorBoard's event; a summary is a pair of name and value."""


class SessionLog(types.SimpleNamespace):
    """Stands in for TensorBoard's mark of a new start."""

    START = 1


class FakeTensorboardX:
    """A tensorboardX that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        told = self.events

        class EventsWriter:
            def __init__(self, prefix: str, suffix: str):
                self._file = open(prefix + suffix, "x")
                self.flush, self.close = self._file.flush, self._file.close

            def write_event(self, event: Event) -> None:
                assert event.wall_time > 1e9
                told.append(event)

        self.modules = {
            "tensorboardX": {},
            "tensorboardX.event_file_writer": {"EventsWriter": EventsWriter},
            "tensorboardX.proto": {},
            "tensorboardX.proto.event_pb2": {"Event": Event, "SessionLog": SessionLog},
            "tensorboardX.summary": {"scalar": lambda *pair: pair, "text": lambda *pair: pair},
        }

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Puts it where it will be imported from."""
        for name, content in self.modules.items():
            module = types.ModuleType(name)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name, module)


class FakeWandb(types.ModuleType):
    """A W&B that keeps what is logged, and fails where a test asks it to."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.opened: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0
        self.breaks = ""

    def Settings(self, **settings: Any) -> dict[str, Any]:
        return settings

    def login(self, verify: bool) -> bool:
        if self.breaks == "login":
            raise RuntimeError("no API key.")
        return True

    def init(self, **options: Any) -> "FakeWandb":
        self.opened.append(options)
        if self.breaks == "init":
            raise ConnectionError("the network\nis down")
        return self

    def log(self, numbers: dict[str, float], step: int) -> None:
        if self.breaks == "log" and len(self.logged) == 2:
            raise OSError("no space left")
        self.logged.append((step, numbers))

    def finish(self) -> None:
        self.finished += 1
