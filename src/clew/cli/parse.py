"""Parses a command line into a dataclass, with errors in the style of the library."""

import ast
import contextlib
import dataclasses
import difflib
import inspect
import io
import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from clew.errors import UserError
from clew.other_names import here, instead, migrated, note
from clew.pairs import parse_pairs, written

T = TypeVar("T")

_RULES = ConstructorRegistry()
"""Rules in addition to tyro's own: options as KEY=VALUE, help without line breaks."""


def parse(
    kind: type[T],
    args: Sequence[str],
    *,
    command: str,
    about: str,
    default: T | None = None,
    prefer: Sequence[str] = (),
) -> T:
    """Reads the options of a command into its dataclass.

    Args:
        kind: a dataclass; a field's docstring is its help.
        args: the words after the command.
        default: values of options that are not given, instead of the dataclass's defaults.
        prefer: the group of options for hints, if several groups have the option that is meant,
            then all groups of which only one is in use.

    Raises:
        UserError: for an unknown option, with the nearest one, or an impossible value.
        SystemExit: with code 0, after printing the help on request.
    """
    prog = f"clew {command}"
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, rest = tyro.cli(
                kind,
                prog=prog,
                description=" ".join(about.split()),
                args=migrated(args),
                default=default,
                return_unknown_args=True,
                registry=_RULES,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(f"{_plain(complaint.getvalue())}; see {prog} --help") from None
    if rest:
        raise _unknown(rest[0], args, kind, prog, prefer)
    _require_lists_once(kind, args)
    assert parsed is not None
    return parsed


def value_before_parsing(args: Sequence[str], option: str) -> str | None:
    """The value of an option that decides the defaults of others; the last one if it is repeated.

    Raises:
        UserError: if its value is missing or empty.
    """
    found = None
    for token, after in itertools.zip_longest(args, args[1:], fillvalue=""):
        name, equals, value = token.partition("=")
        if name.replace("_", "-") == option:
            found = value if equals else "" if after.startswith("--") else after
            if not found:
                raise UserError(f"{option} needs a value")
    return found


def option_names(kind: Any) -> Iterator[str]:
    """Every option of a dataclass as it is typed, without positional arguments."""
    return (name for name, _ in _options(kind))


def _options(kind: Any, prefix: str = "--") -> Iterator[tuple[str, Any]]:
    """The options and their types."""
    hints = _hints(kind)
    for field in dataclasses.fields(kind):
        hint, name = hints[field.name], field.name.replace("_", "-")
        annotated = get_origin(hint) is Annotated
        inner = get_args(hint)[0] if annotated else hint
        if dataclasses.is_dataclass(inner):
            yield from _options(inner, prefix if annotated else f"{prefix}{name}.")
        elif not _is_positional(hint):
            yield prefix + name, hint


def _require_lists_once(kind: Any, args: Sequence[str]) -> None:
    """Refuses a list option that is given twice, since only the last one would count."""
    given = [word.partition("=")[0].replace("_", "-") for word in args]
    for name, hint in _options(kind):
        several = {get_origin(part) for part in (hint, *get_args(hint))} & {tuple, list, dict}
        if several and given.count(name) > 1:
            raise UserError(f"{name} is given twice; give all of its values at once")


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _is_positional(hint: Any) -> bool:
    return get_origin(hint) is Annotated and not dataclasses.is_dataclass(get_args(hint)[0])


@cache
def field_docs(kind: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, on one line; inherited fields too."""
    fields = dataclasses.fields(kind)
    docs: dict[str, str] = {f.name: f.metadata["help"] for f in fields if "help" in f.metadata}
    if len(docs) == len(fields):  # made by a function, without source code
        return docs
    for base in kind.__bases__:
        if dataclasses.is_dataclass(base):
            docs |= field_docs(base)
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    for node, after in itertools.pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                docs[node.target.id] = " ".join(str(after.value.value).split())
    return docs


@_RULES.primitive_rule
def _pairs_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type_origin is not dict:
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="KEY=VALUE ...",
        instance_from_str=parse_pairs,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{k}={written(v)}" for k, v in value.items()],
    )


@_RULES.primitive_rule
def _integer_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Integers also as 1e6."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


def whole_number(text: str) -> int:
    """An integer, also as 1e6.

    Raises:
        ValueError: as `int`.
    """
    try:
        return int(text)
    except ValueError:
        if not re.fullmatch(r"[+-]?\d+(\.\d+)?[eE]\+?\d{1,2}", text) or float(text) % 1:
            raise
        return int(float(text))


@_RULES.struct_rule
def _dataclass_rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    if not dataclasses.is_dataclass(info.type):
        return None
    hints, docs = _hints(info.type), field_docs(info.type)
    fields = [
        StructFieldSpec(f.name, hints[f.name], _field_default(f, info), docs.get(f.name))
        for f in dataclasses.fields(info.type)
    ]
    return StructConstructorSpec(info.type, tuple(fields))


def _field_default(field: dataclasses.Field, info: StructTypeInfo) -> Any:
    if isinstance(info.default, info.type):
        return getattr(info.default, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is dataclasses.MISSING else field.default


def _unexpected(token: str, args: Sequence[str], kind: Any, prog: str) -> UserError:
    """The error for a word that belongs to no option; the hint is on the option before it."""
    before = list(args[: args.index(token)]) if token in args else []
    option = next((word for word in reversed(before) if word.startswith("--")), "")
    if not option:
        takes_one = any(_is_positional(hint) for hint in _hints(kind).values())
        hint = "a value follows the name of its option, as in --name VALUE"
        hint = "one is already given" if takes_one else hint
    elif token.lower() in ("true", "false"):
        group, dot, name = option.removeprefix("--").rpartition(".")
        negated = f"--{group}{dot}no-{name}"
        hint = f"{option} takes no value; {negated} is its opposite"
    else:
        hint = f"{option} takes one value" if before[-1] != option else f"{option} takes none"
    return UserError(f"unexpected argument {token!r}: {hint}. See {prog} --help")


def _unknown(
    token: str, args: Sequence[str], kind: Any, prog: str, prefer: Sequence[str]
) -> UserError:
    if not token.startswith("-"):
        return _unexpected(token, args, kind, prog)
    given = token.split("=", 1)[0]
    names = list(option_names(kind))
    # Often only the group is missing (--learning-rate), or the name is another library's.
    used, *known = [f"--{group}." for group in prefer] or [""]
    meant = here(given, names, used)
    calls = (
        f"clew calls it {' or '.join(meant)}{note(given, meant[0])}" if meant else instead(given)
    )
    others = tuple(group for group in known if group != used and used in known)
    if meant and "." not in given and all(option.startswith(others) for option in meant):
        calls += f", which {prefer[0]} does not have"
    if calls:
        return UserError(f"unknown option {given!r}: {calls}. See {prog} --help")
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return UserError(f"unknown option {given!r}{hint} See {prog} --help")


def _plain(boxed: str) -> str:
    """The first paragraph of a framed message, without its title and frame.

    This text is the only public way in which tyro reports mistakes; its typed errors
    (`tyro._errors`) are private and may change in any release.
    """
    lines = [line.strip().strip("│|").strip() for line in boxed.splitlines()[1:]]
    # The frame's rules are lines of their own; without Unicode one stands under the title too.
    below = itertools.dropwhile(_is_rule, lines)
    words = list(itertools.takewhile(lambda line: not _is_rule(line), below))
    text = " ".join(words).rstrip(".") or boxed.strip()
    number = re.match(
        r"Error parsing (\S+): (invalid literal for int|could not convert).*: (.*)", text
    )
    if number:
        wanted = "an integer" if "int" in number[2] else "a number"
        return f"{number[1]} must be {wanted}, got {number[3]}{_written_out(number[3])}"
    several = re.match(
        r"Error parsing (\S+): No type matching (.*) could be .* from (.*)", text, re.I
    )
    if several:
        return f"{several[1]} must be one of {several[2]}, got {several[3].strip('[]')}"
    if missing := re.match(r"Missing value for argument '(\S+)'", text):
        return f"{missing[1]} needs a value"
    return re.sub(r"^Error parsing (\S+): ", r"\1: ", text)


def _written_out(given: str) -> str:
    """How to write 100k or 1.5M, where that was given."""
    short = re.fullmatch(r"'(\d+(?:\.\d+)?)([km])'", given, re.I)
    if not short:
        return ""
    power = {"k": 3, "m": 6}[short[2].lower()]
    return f"; write {short[1]}e{power}"


def _is_rule(line: str) -> bool:
    return set(line) <= set("─╰╯-+")
