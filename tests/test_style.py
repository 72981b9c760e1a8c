"""The house style, as far as a program can check it: lengths, docstrings, words, the lock."""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = sorted((ROOT / "src").rglob("*.py"))
FUNCTION_LINES = 40
AMBIGUOUS = "do" + "ne"  # terminated, truncated or ended? Each means something else.

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method of a module, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def long(tree: ast.AST) -> Iterator[str]:
    """Functions of more than 40 lines, their docstring not counted."""
    for function in functions(tree):
        body = function.body[1:] if ast.get_docstring(function) else function.body
        lines = (function.end_lineno or 0) - body[0].lineno + 1 if body else 0
        if lines > FUNCTION_LINES:
            yield f"{function.name} has {lines} lines, more than {FUNCTION_LINES}"


def ambiguous(text: str) -> Iterator[str]:
    """Lines where the ambiguous word for an ended episode names something or is a key.

    Attributes that another package names like this may be read.
    """
    if AMBIGUOUS not in text:
        return
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.STRING):
            if token.string.strip("\"'") == AMBIGUOUS and before != ".":
                yield f"line {token.start[0]}: say terminated, truncated or ended"
        before = token.string


def is_ellipsis(statement: ast.stmt) -> bool:
    """Whether a body is `...`, as in a protocol, whose class has the docstring."""
    return isinstance(statement, ast.Expr) and ast.unparse(statement) == "..."


@cache
def classes() -> dict[str, ast.ClassDef]:
    """The library's classes by their names."""
    trees = (ast.parse(path.read_text()) for path in LIBRARY)
    return {
        node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)
    }


def inherited(node: ast.ClassDef) -> set[str]:
    """The members that a base class, or a protocol, already describes."""
    found: set[str] = set()
    for base in node.bases:
        name = ast.unparse(base).split("[")[0]
        if (parent := classes().get(name)) is not None:
            methods = (method for method in parent.body if isinstance(method, Function))
            found |= {method.name for method in methods if ast.get_docstring(method)}
            found |= inherited(parent)
    return found


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public classes, functions and methods without a docstring; a decorated method inherits."""
    if not ast.get_docstring(tree):
        yield "the module"
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node.name
            for method in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(method, Function) and not method.name.startswith("_"):
                    described = ast.get_docstring(method) or method.decorator_list
                    described = described or method.name in inherited(node)
                    if not described and not is_ellipsis(method.body[0]):
                        yield f"{node.name}.{method.name}"


def untyped(tree: ast.AST) -> Iterator[str]:
    """Named functions without a return type; `__init__` and lambdas need none."""
    for function in functions(tree):
        if function.returns is None and function.name != "__init__":
            yield f"{function.name} does not say what it returns"


@pytest.mark.parametrize("folder", ["src", "tests", "examples"])
def test_files_keep_the_style(folder: str) -> None:
    """Short functions and no ambiguous word; in the library, docstrings and types as well."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        said = [*long(tree), *ambiguous(text)]
        if folder == "src":
            said += [f"{name} has no docstring" for name in undocumented(tree)]
            said += untyped(tree)
        found += [f"{path.relative_to(ROOT)}: {line}" for line in said]
    assert found == []


LOCKS = {"requirements.lock": ("dev", "docs"), "tools/newest.lock": ("dev", "docs", "onnx")}
"""The lock files that `tools/lock.py` writes, each with the extras that it covers."""


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_names_no_machine(name: str) -> None:
    """Exact versions and hashes only: no index, no host, no path of where it was made."""
    text = (ROOT / name).read_text()
    assert not re.search(r"://|--index|--extra-index|--find-links|^/|file:", text, re.MULTILINE)
    requirement = r"[a-z0-9-]+==[^ ]+( ; [^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+"
    entries = [part for part in re.split(r"\n(?=[a-z0-9])", text) if not part.startswith("#")]
    assert len(entries) > 30
    for entry in entries:
        assert re.fullmatch(requirement, entry.strip()), entry.splitlines()[0]


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_covers_the_project(name: str) -> None:
    """Every requirement of pyproject.toml and of the lock's extras has a locked version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for extra in LOCKS[name] for one in extras[extra])]
    locked = (ROOT / name).read_text()
    for requirement in wanted:
        package = re.split(r"[<>=\[ ]", requirement)[0]
        assert re.search(rf"^{package}==", locked, re.MULTILINE), f"{package}: see tools/lock.py"
