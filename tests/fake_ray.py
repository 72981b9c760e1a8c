"""Stands in for Ray where it is not installed: a test decides what becomes of submitted work."""

from types import SimpleNamespace


class RayError(Exception):
    """The error of a process or node."""


class ActorDiedError(RayError):
    """The error of an actor that has died."""


class RayTaskError(RayError):
    """The error of a function or method that raised, or could not be called."""


class RuntimeEnvSetupError(RayError):
    """The error of a process that could not be prepared."""


KINDS = (RayError, ActorDiedError, RayTaskError, RuntimeEnvSetupError)


class FakeRay:
    """A connected cluster; `results` maps references, by name, to results."""

    exceptions = SimpleNamespace(**{kind.__name__: kind for kind in KINDS})

    def __init__(self, cpus: float = 2.0):
        self.cpus, self.results, self.options, self.called = cpus, {}, {}, []
        self.cancelled, self.killed = [], []

    def is_initialized(self) -> bool:
        """Another program has connected."""
        return True

    def cluster_resources(self) -> dict[str, float]:
        """The nodes' resources."""
        return {"CPU": self.cpus}

    def remote(self, **options):
        """Keeps the options of a function or class by its name."""

        def wrap(what):
            self.options[what.__name__] = options
            return self._callable(what.__name__)

        return wrap

    def _callable(self, name: str):
        def call(*args):
            reference = f"{name} {sum(n == name for n, _ in self.called)}"
            self.called.append((name, args))
            if name == "ProgressActor":
                return SimpleNamespace(read=self._callable("read"))
            return reference

        return SimpleNamespace(remote=call)

    def wait(self, references, timeout):
        """The first reference with a result."""
        ready = [reference for reference in references if reference in self.results][:1]
        return ready, [reference for reference in references if reference not in ready]

    def get(self, reference):
        """A reference's result, raised if it is an error."""
        result = self.results.pop(reference)
        if isinstance(result, Exception):
            raise result
        return result

    def cancel(self, reference, force: bool) -> None:
        """Records references that were cancelled by force."""
        self.cancelled += [reference] * force

    def kill(self, actor) -> None:
        """Records killed actors."""
        self.killed.append(actor)
