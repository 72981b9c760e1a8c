"""The rules of the house: who may import whom, and what only certain rooms may ask.

Everything is read from the syntax trees. `python tests/test_imports.py` prints every violation.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

# The other rooms that a room may import, if it may not import all but laboratory and commands.
MAY_IMPORT = {
    "memory": {"errors"},
    "envs": {"errors", "names"},
    "report": {"stats", "errors", "files", "output"},
}
MAY_NOT_IMPORT = {"interact": {"run", "inspect", "watch"}}
# Modules that Gymnasium's worker processes load.
WORKER_MODULES = ("clew.bridges.gymnasium.group",)
# The kinds of tasks, and the functions that test for them.
STREAMS = {"AutoReset", "GymnasiumStream", "HostState", "OpenLoop"}
TASK_KINDS = {"CompiledTask", "HostedTask", "GymnasiumTask"} | STREAMS
TASK_QUESTIONS = {"of_others", "is_gymnasium"}
# The library's defaults, the demonstration and the table of other names may name a memory.
MAY_NAME_MEMORIES = {
    "clew.agents.network",
    "clew.run.config",
    "clew.run.migration",
    "clew.lab.demo",
    "clew.other_names",
}
# Reads option values of saved runs by their former names.
MAY_NAME_PUBLICATIONS = {"clew.run.migration"}
PUBLICATIONS = re.compile(r"thesis|makkink|pramanik", re.IGNORECASE)
FOREIGN = re.compile(r"# foreign: \S")
REASON = re.compile(r"#.*\b(optional|start): \S")


@dataclass(frozen=True)
class Import:
    """One imported module of an import statement."""

    module: str
    line: int
    in_function: bool
    for_types: bool


@dataclass(eq=False)
class Module:
    """One file of the library, parsed but not run; it is equal only to itself."""

    name: str
    path: Path
    tree: ast.Module = field(init=False)
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        text = self.path.read_text()
        self.tree, self.lines = ast.parse(text), text.splitlines()

    @property
    def room(self) -> str:
        """The first folder, or the module's own name at the top."""
        return (self.name.split(".") + [""])[1]

    def breach(self, node: ast.AST | int, what: str) -> str:
        """A line that says where a rule is broken."""
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path.relative_to(ROOT)}:{line}: {what}"


@cache
def library() -> dict[str, Module]:
    """Every module of the library by its dotted name."""
    found = {}
    for path in sorted((SOURCE / "clew").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """All imports of a module, including those in functions and for type checking."""
    return tuple(_imports(module.tree, in_function=False, for_types=False))


def _imports(node: ast.AST, *, in_function: bool, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, in_function, for_types)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                name = whole if whole in library() else child.module or ""
                yield Import(name, child.lineno, in_function, for_types)
        else:
            function = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            types = for_types or (
                isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            )
            yield from _imports(child, in_function=function, for_types=types)


def own_imports(module: Module) -> Iterator[Import]:
    """The modules of the library that a module imports."""
    return (found for found in imports(module) if found.module.split(".")[0] == "clew")


def room_of(name: str) -> str:
    """The room of a module of the library."""
    return (name.split(".") + [""])[1]


def rooms_import_what_they_may() -> Iterator[str]:
    """Memories and tasks stand alone, and the laboratory and the commands beside the library.

    Acting gets what it needs of a run's settings, and a document its numbers, as arguments.
    """
    for module in library().values():
        room = module.room
        for found in own_imports(module):
            to = room_of(found.module)
            alone = to not in MAY_IMPORT.get(room, {to}) | {room}
            upwards = to in ("lab", "cli") and room not in ("lab", "cli", "__main__")
            if alone or upwards or to in MAY_NOT_IMPORT.get(room, ()):
                yield module.breach(found.line, f"{room} imports {found.module}")


def workers_import_no_jax() -> Iterator[str]:
    """A worker process of Gymnasium environments never loads JAX."""
    seen: set[str] = set()
    waiting = list(WORKER_MODULES)
    while waiting:
        module = library()[waiting.pop()]
        parents = module.name.split(".")
        reached = {".".join(parents[:end]) for end in range(1, len(parents))}
        for found in imports(module):
            if found.for_types or found.in_function:
                continue
            if found.module.split(".")[0] in ("jax", "jaxlib", "equinox", "optax"):
                yield module.breach(found.line, f"a worker imports {found.module}")
            elif found.module in library():
                reached.add(found.module)
        waiting += reached - seen
        seen |= reached


def only_interact_knows_two_worlds() -> Iterator[str]:
    """Only `interact` asks what kind a task is."""
    for module in library().values():
        if module.room in ("interact", "bridges"):  # bridges may ask for their own objects
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.func.id
                if name in TASK_QUESTIONS:
                    yield module.breach(node, f"asks {name}")
                elif name == "isinstance":
                    asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                    if asked & TASK_KINDS:
                        yield module.breach(node, f"asks isinstance of {asked & TASK_KINDS}")


def protocols_and_no_guesses() -> Iterator[str]:
    """No `hasattr`, and no `getattr` of a fixed name, on the library's own objects.

    Bridges look at objects of other libraries, and `os` differs between systems; elsewhere
    `# foreign: whose` on the same line says whose object it is.
    """
    for module in library().values():
        if module.room == "bridges":
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                fixed = len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
                asked = node.func.id == "hasattr" or (node.func.id == "getattr" and fixed)
                said = FOREIGN.search(module.lines[node.lineno - 1])
                if asked and not said and ast.unparse(node.args[0]) != "os":
                    yield module.breach(node, ast.unparse(node))


def docstrings(tree: ast.AST) -> set[int]:
    """The ids of the nodes that are docstrings, including those below fields."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


@cache
def memory_names() -> frozenset[str]:
    """The keys of `MEMORIES`; "none" is an ordinary word."""
    from clew.memory import MEMORIES

    return frozenset(MEMORIES) - {"none"}


def only_memory_and_lab_name_memories() -> Iterator[str]:
    """Only `clew.memory`, the laboratory, defaults and the table of other names name memories."""
    for module in library().values():
        if module.room in ("memory", "lab") or module.name in MAY_NAME_MEMORIES:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and node.value in memory_names():
                yield module.breach(node, f"names the memory {node.value!r}")


def identifiers(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Names, attributes, arguments and definitions."""
    for node in ast.walk(tree):
        for attribute in ("id", "attr", "arg", "name"):
            value = getattr(node, attribute, None)
            if isinstance(value, str):
                yield node, value


def only_studies_know_publications() -> Iterator[str]:
    """Only its study knows a thesis; docstrings and comments may cite it."""
    for module in library().values():
        if module.name.startswith("clew.lab.studies"):
            continue
        described = docstrings(module.tree)
        for found in own_imports(module):
            if PUBLICATIONS.search(found.module):
                yield module.breach(found.line, f"imports {found.module}")
        for node, name in identifiers(module.tree):
            if PUBLICATIONS.search(name) and not isinstance(node, ast.alias):
                yield module.breach(node, f"is called {name}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                prose = id(node) in described or " " in node.value
                old = module.name in MAY_NAME_PUBLICATIONS
                if not prose and not old and PUBLICATIONS.search(node.value):
                    yield module.breach(node, f"says {node.value[:40]!r}")


def no_circle() -> Iterator[str]:
    """No module imports itself through others, not even inside functions."""
    edges = {
        name: {f.module for f in own_imports(module) if not f.for_types} & set(library())
        for name, module in library().items()
    }
    for circle in circles(edges):
        first = min(circle)
        (line, to), *_ = sorted(
            (f.line, f.module) for f in own_imports(library()[first]) if f.module in circle
        )
        yield library()[first].breach(line, f"circle through {to}: {', '.join(sorted(circle))}")


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one module, after Tarjan (1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(component) > 1 or name in edges[name]:
                found.append(component)

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return found


def imports_in_functions_have_reasons() -> Iterator[str]:
    """An import inside a function is for an optional dependency or a quick start, and says so."""
    for module in library().values():
        for found in imports(module):
            if found.in_function and not REASON.search(module.lines[found.line - 1]):
                yield module.breach(
                    found.line, f"imports {found.module} in a function without `# optional: ...`"
                )


def is_abstract(node: ast.ClassDef) -> bool:
    """Whether a class leaves something to its subclasses."""
    text = ast.unparse(node)
    bases = {ast.unparse(base).split("[")[0] for base in node.bases}
    return "abstractmethod" in text or "AbstractVar" in text or "Protocol" in bases


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """A class's own methods."""
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def classes_are_abstract_or_final() -> Iterator[str]:
    """No method of a concrete class of the library is overridden."""
    defined: dict[str, ast.ClassDef] = {}
    for module in library().values():
        defined |= {n.name: n for n in module.tree.body if isinstance(n, ast.ClassDef)}
    for module in library().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                for base in (ast.unparse(b).split("[")[0].split(".")[-1] for b in node.bases):
                    parent = defined.get(base)
                    if parent is not None and parent is not node and not is_abstract(parent):
                        for name in methods(node).keys() & methods(parent).keys():
                            yield module.breach(
                                methods(node)[name], f"{node.name}.{name} overrides {base}'s"
                            )


RULES: tuple[Callable[[], Iterator[str]], ...] = (
    rooms_import_what_they_may,
    workers_import_no_jax,
    only_interact_knows_two_worlds,
    protocols_and_no_guesses,
    only_memory_and_lab_name_memories,
    only_studies_know_publications,
    no_circle,
    imports_in_functions_have_reasons,
    classes_are_abstract_or_final,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_is_kept(rule: Callable[[], Iterator[str]]) -> None:
    """Each violation is reported with file, line and cause."""
    breaches = list(rule())
    assert not breaches, "\n".join([rule.__doc__ or "", *breaches])


def test_a_circle_is_found() -> None:
    """The search for circles finds exactly the right ones."""
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e"}}
    assert circles(edges) == [{"a", "b", "c"}, {"e"}]


def main() -> None:
    """Prints every violation of every rule, and the number of imports inside functions."""
    for rule in RULES:
        breaches = list(rule())
        print(f"{rule.__name__}: {len(breaches)}")
        for breach in breaches:
            print(f"  {breach}")
    late = sum(found.in_function for module in library().values() for found in imports(module))
    print(f"{late} names are imported inside functions, each with its reason")


if __name__ == "__main__":
    main()
