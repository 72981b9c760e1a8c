"""Stands in for a Ray cluster of actors: a test decides how they answer."""

from types import SimpleNamespace
from typing import Any

from fake_ray import KINDS


class FakeActors:
    """A cluster whose actors answer with the contents of `answers`, by reference."""

    exceptions = SimpleNamespace(**{kind.__name__: kind for kind in KINDS})

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []

    def remote(self, **options: Any) -> Any:
        """Actors whose methods return names as references."""
        return lambda kind: SimpleNamespace(remote=self._actor)

    def _actor(self, *args: Any) -> Any:
        number = sum(name.startswith("where") for name in self.asked)
        names = ("where", "look", "receive", "stop", "close", "rollout")
        return SimpleNamespace(**{name: self._method(name, number) for name in names})

    def _method(self, name: str, actor: int) -> Any:
        def called(*args: Any) -> str:
            self.asked.append(f"{name} {actor} {len(self.asked)}")
            return self.asked[-1]

        return SimpleNamespace(remote=called)

    def is_initialized(self) -> bool:
        """Another program has connected."""
        return True

    def put(self, value: Any) -> Any:
        """Nothing is stored."""
        return value

    def wait(self, references: list[str], timeout: float, num_returns: int = 1) -> Any:
        """The references with an answer."""
        ready = [reference for reference in references if reference in self.answers]
        return ready[:num_returns], [r for r in references if r not in ready[:num_returns]]

    def get(self, reference: str) -> Any:
        """The answer, raised if it is an error."""
        answer = self.answers.pop(reference)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, actor: Any) -> None:
        """Kills any actor."""

    def last(self, name: str, actor: int) -> str:
        """The newest reference for a method of an actor."""
        return [asked for asked in self.asked if asked.startswith(f"{name} {actor} ")][-1]


class PromptActors(FakeActors):
    """A cluster whose actors are built, and answer by themselves, at once."""

    def remote(self, **options: Any) -> Any:
        """Actors of a class."""
        return lambda kind: SimpleNamespace(remote=lambda *args: self._made(kind(*args)))

    def _made(self, actor: Any) -> Any:
        names = ("where", "look", "receive", "stop", "close", "rollout")
        return SimpleNamespace(**{name: self._prompt(getattr(actor, name)) for name in names})

    def _prompt(self, method: Any) -> Any:
        def called(*args: Any) -> str:
            self.asked.append(f"{method.__name__} {len(self.asked)}")
            self.answers[self.asked[-1]] = method(*args)
            return self.asked[-1]

        return SimpleNamespace(remote=called)

    def get_runtime_context(self) -> Any:
        """The context of the single node."""
        return SimpleNamespace(get_node_id=lambda: "0000")

    util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
