"""Every Python block of the documentation runs, and every command that it shows exists."""

import contextlib
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import pytest

import clew
from clew.cli import COMMANDS, dispatch, run
from clew.cli.parse import parse
from clew.errors import UserError
from clew.lab.costs import state_size
from clew.memory import options_of
from clew.memory.laws import LAWS
from clew.run import folder

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *TUTORIALS,
]
# Their code is run, and its effects are tested, by test_envs.py, test_memory_maze.py and
# test_tutorials.py.
ELSEWHERE = {"environments.md", "tasks.md", "memory-maze.md", *(page.name for page in TUTORIALS)}
# Commands other than train whose options are named in sentences.
OTHER_OPTIONS = (
    *(
        "evaluate RUN",
        "inspect RUN",
        "watch RUN",
        "export RUN",
        "sweep",
        "compare",
        "cost",
        "bench",
    ),
    *("study makkink", "study tmaze", "study memory-maze", "report", "models"),
)
# Commands that are refused without the reader's files, or because a sentence leaves out a part.
THE_READERS = ("cannot import", "needs a value", "which study", ".py", "study 'toy'")
# Budgets with which README's blocks learn, and those that suffice to see that they run.
SHORTER = {
    "steps=150_000": "steps=2_048",
    "seeds=8": "seeds=2",
    "split(key, 250)": "split(key, 2)",
    "error < 0.1": "error < 10",
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """The page as shown in a test's name."""
    return str(page.relative_to(ROOT))


def scripts() -> list:
    """README's Python blocks one by one, as a reader would paste them; other pages as a whole.

    Those of most other pages train several agents and are slow.
    """
    found = []
    for page in PAGES:
        text = page.read_text() if page.name not in ELSEWHERE else ""
        blocks = [
            "\n" * text[: match.start(2)].count("\n") + match[2]  # so errors have the page's line
            for match in BLOCK.finditer(text)
            if match[1] == "python"
        ]
        if page.name == "README.md":
            for code in blocks:
                found += readme_block(page, code)
        elif blocks:
            slow = [] if page.stem == "interface" else [pytest.mark.slow]
            found.append(pytest.param(page, blocks, id=name_of(page), marks=slow))
    return found


def readme_block(page: Path, code: str) -> list:
    """A block of README as a test; one that learns only runs at full size with --slow."""
    name = f"README.md:{len(code) - len(code.lstrip()) + 1}"
    short, learned = code, code
    for whole, few in SHORTER.items():
        short = short.replace(whole, few)
    if short == code:
        assert "clew.train(" not in code
        return [pytest.param(page, [code], id=name)]
    if "clew.train(" in code:
        learned += "\nassert score.success.low > 0.99"  # as README claims
    return [
        pytest.param(page, [short], id=f"{name}, short"),
        pytest.param(page, [learned], id=name, marks=pytest.mark.slow),
    ]


@pytest.fixture
def own_registries() -> Iterator[None]:
    """Entries that a page registers are removed after it."""
    registries: list[dict[str, Any]] = [clew.ENVS, clew.MEMORIES]
    kept = [(registry, dict(registry)) for registry in registries]
    yield
    for registry, entries in kept:
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize(("page", "blocks"), scripts())
@pytest.mark.usefixtures("ordinary_promotion", "own_registries")
def test_python_blocks_run(
    page: Path, blocks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block runs in an empty folder, and its assertions hold."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for code in blocks:
        exec(compile(code, page, "exec"), namespace)


def commands(program: str, pages: Sequence[Path] = PAGES) -> list[str]:
    """Every `program ...` line of the shell blocks and of the indented ones."""
    found = set()
    for page in pages:
        text = re.sub(r" *\\\n *", " ", page.read_text())
        shell = [match[2] for match in BLOCK.finditer(text) if match[1] == "sh"]
        indented = re.findall(r"^ {4}(\w.*)$", text, re.MULTILINE)
        inline = re.findall(r"`([^`\n]+)`", text)
        for line in [*"".join(shell).splitlines(), *indented, *inline]:
            if line.startswith(f"{program} ") and not line.split()[1].isupper():
                found.add(line.split("#")[0].strip())
    return sorted(found)


@pytest.mark.parametrize("command", commands("make"))
def test_make_command_exists(command: str) -> None:
    """The Makefile has the target."""
    target = command.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def help_of() -> dict[str, str]:
    """The help of each subcommand, requested once."""
    return {}


@pytest.mark.parametrize("command", commands("clew"))
def test_clew_command_exists(command: str, help_of: dict[str, str]) -> None:
    """The subcommand exists, and its help names every flag that is shown."""
    words = command.split()[1:]
    # A study declares its own options; pramanik's studies are named by --part.
    own = 1 if words[0] != "study" else 4 if words[1:2] == ["pramanik"] else 2
    asked = words[:own]
    if asked == ["compare"] and "--memories" in words:
        asked = ["compare", "--memories", "gru", "none"]  # its help includes training's options
    name = " ".join(asked)
    if name not in help_of:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            assert exit_code([*asked, "--help"]) == 0
        help_of[name] = said.getvalue()
    for word in words[own:]:
        if word.startswith("--"):
            assert word in help_of[name], f"clew {name} has no {word}"


class Parsed(Exception):
    """The words of a command were parsed."""


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands end once their words are parsed; runs that they name have default settings."""

    def read(*args: Any, **options: Any) -> Any:
        raise Parsed(parse(*args, **options))

    for name in (*COMMANDS, "on_run"):
        module = importlib.import_module(f"clew.cli.{name}")
        if "parse" in vars(module):
            monkeypatch.setattr(module, "parse", read)
    monkeypatch.setattr(folder, "find_run", lambda *names: Path(names[0]))
    monkeypatch.setattr(folder, "read_config", lambda path: clew.TrainConfig())


def refusal(line: str) -> str:
    """The error with which a command is refused before it does anything; "" if it is not."""
    words = re.sub(r"\b(N|M|K)\b", "2", line).split(" > ")[0].split(" | ")[0]
    try:
        dispatch(shlex.split(words)[1:])
    except (Parsed, SystemExit):  # or its help was requested
        return ""
    except UserError as error:
        return "" if any(part in str(error) for part in THE_READERS) else f"{line}: {error}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.usefixtures("only_parsed", "own_registries")
def test_commands_of_a_page_are_parsed(page: Path) -> None:
    """Whole commands with their values, and options with values in sentences, are accepted."""
    whole = [
        line for line in commands("clew", [page]) if not re.search(r"\b[A-Z]{3,}\b|\.\.\.", line)
    ]
    refused = [found for line in whole if (found := refusal(line))]
    scripts = "".join(path.read_text() for path in (ROOT / "benchmarks").glob("*.py"))
    for words in re.findall(r"`(--[\w.-]+ [^`\n]+)`", page.read_text()):
        option = words.split()[0]
        name = option.removeprefix("--").replace("-", "_")
        if f"{name}:" in scripts or f'"{option}"' in scripts:
            continue
        if all(refusal(f"clew {command} {words}") for command in ("train", *OTHER_OPTIONS)):
            refused.append(refusal(f"clew train {words}"))
    assert not refused, "\n".join(refused)


def exit_code(args: list[str]) -> int | str | None:
    """The exit code of `clew`."""
    try:
        return run(args)
    except SystemExit as end:
        return end.code


def test_the_installed_command_runs() -> None:
    """And lists every subcommand."""
    installed = [Path(sys.executable).parent / "clew", "--help"]
    said = subprocess.run(installed, capture_output=True, text=True, check=True).stdout
    assert all(f"  {name} " in said for name in COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links and pictures point to files of the repository."""
    text = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def table_row(page: Path, name: str) -> list[str]:
    """The cells of the row of a page's table that begins with a name."""
    match = re.search(rf"^\| `?{name}`? \|(.*)\|$", page.read_text(), re.MULTILINE)
    assert match, f"no row for {name} in {page.name}"
    return [cell.strip() for cell in match[1].split("|")]


@pytest.mark.parametrize(
    "name",
    [name for name in clew.MEMORIES if f"| `{name}` |" in (ROOT / "docs/memories.md").read_text()],
)
def test_the_table_tells_the_size_of_the_state(name: str) -> None:
    """The formula is the exact state size of a one-layer model of that kind."""
    formula = table_row(ROOT / "docs/memories.md", name)[1].strip("$")
    sizes = {"d": 24, "M": 10, "N": 3, "H": 2, "h": 8, "eta": 4, "r": 5}
    sizes |= {"k": 4, "i": 3, "n": 10, "m": 6, "c": 2}
    wanted = eval(re.sub(r"(?<=[\w)]) (?=[\w(])", "*", formula), sizes)  # "2 d" means 2 * d
    given = {"num_heads": "H", "head_size": "h", "window": "M", "max_steps": "N"}
    given |= {"eta": "eta", "r": "r", "frames": "k", "order": "n"}
    given |= {"trace_size": "m", "context_size": "c", "memory_size": "m"}
    given |= {"state_size": "n", "key_size": "n", "num_householder": "n"}
    known = options_of(name)
    options = {option: sizes[letter] for option, letter in given.items() if option in known}
    build = partial(clew.make_memory, name, input_size=3, hidden_size=24, num_layers=1, **options)
    memory = eqx.filter_eval_shape(lambda key: build(key=key), jax.random.key(0))
    assert state_size(memory).floats == wanted


def test_the_first_page_states_its_rows() -> None:
    """README's figures of its first example and of the demonstration equal the rows."""
    rows = json.loads((ROOT / "results/first-example/scores.json").read_text())
    text = " ".join((ROOT / "README.md").read_text().split())
    for what in ("gru", "none", "tmaze-arelit", "tmaze-none"):
        row = rows[what]
        assert f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" in text, what


@pytest.mark.parametrize("task", ["plain-gru", "masked-lstm-plain", "masked-none-plain"])
def test_the_first_page_states_the_gymnasium_rows(task: str) -> None:
    """So are the returns on CartPole, with and without its velocities."""
    path = ROOT / "results/gymnasium-tasks" / task / "summary.json"
    row = json.loads(path.read_text())["final"]["return"]
    low, high = row["interval"]
    assert f"{row['mean']:.0f} [{low:.0f}, {high:.0f}]" in (ROOT / "README.md").read_text()


def test_the_citation_is_of_this_version() -> None:
    """CITATION.cff and README cite the version of the package."""
    assert f"version: {clew.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{clew.__version__}}}" in (ROOT / "README.md").read_text()


def test_every_law_is_explained() -> None:
    """CONTRIBUTING describes how each law is usually broken."""
    for law in LAWS:
        assert table_row(ROOT / "CONTRIBUTING.md", law)[1]
