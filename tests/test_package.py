"""The installed package imports quickly, is complete, and loads no other package's environments."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import clew
from clew.envs import gymnasium_api
from clew.gymnasium_ids import IDS

IMPORT_SECONDS = 2.0
FOREIGN = "jax gymnasium gym bsuite gymnax popgym memory_maze dm_env ray torch tensorflow"
FOREIGN += " matplotlib scipy"

TIMED_IMPORT = f"""
import sys, time
began = time.perf_counter()
import clew
seconds = time.perf_counter() - began
print(seconds, *(name for name in {FOREIGN.split()!r} if name in sys.modules))
"""


def test_import_is_quick_and_brings_no_other_package() -> None:
    """Best of three fresh interpreters, because the machine may be busy."""
    best = float("inf")
    for _ in range(3):
        out = subprocess.check_output([sys.executable, "-c", TIMED_IMPORT], text=True).split()
        assert out[1:] == [], f"import clew imported {out[1:]}"
        best = min(best, float(out[0]))
        if best < IMPORT_SECONDS:
            break
    assert best < IMPORT_SECONDS


def test_modules_are_named_where_a_name_is_missing() -> None:
    """In an interpreter that has not imported them yet."""
    asked = "import clew\ntry: clew.memory\nexcept AttributeError as error: print(error)"
    said = subprocess.check_output([sys.executable, "-c", asked], text=True)
    assert said.endswith("; clew.memory is a module: import clew.memory\n")


def test_every_public_name_is_there() -> None:
    """Names are imported on first use; each of them must resolve, and be listed by dir()."""
    for name in clew.__all__:
        assert getattr(clew, name) is not None
        assert name in dir(clew)


def test_the_command_is_installed() -> None:
    """`clew` on the command line is `clew.cli.main`."""
    (script,) = metadata.entry_points(group="console_scripts", name="clew")
    assert script.value == "clew.cli:main"
    assert callable(script.load())


def test_the_version_is_the_distribution_s() -> None:
    """`clew.__version__` always equals the installed version."""
    assert clew.__version__ == metadata.version("clew")


MAKE = """
import clew, importlib.util, sys
assert importlib.util.find_spec("gymnasium") and "gymnasium" not in sys.modules
import gymnasium
assert "jax" not in sys.modules and not any("_With" in str(f) for f in sys.meta_path)
assert "clew/MemoryMaze-9x9-v0" in gymnasium.registry
print(gymnasium.make("clew/TMaze-v0", corridor_length=3).reset(seed=0)[0].shape)
"""


def test_gymnasium_knows_the_tasks() -> None:
    """After `import clew`, before or after Gymnasium's; building a task imports JAX."""
    mazes = {f"clew/MemoryMaze-{size}x{size}-v0" for size in (9, 11, 13, 15)}
    assert {*gymnasium_api.task_ids(), *mazes} == {*IDS}
    for env_id, task in gymnasium_api.task_ids().items():
        assert IDS[env_id] == ("clew.envs.gymnasium_api:JaxTaskEnv", {"task": task})
    out = subprocess.check_output([sys.executable, "-c", MAKE], text=True)
    assert out == "(16,)\n"
    code = "import gymnasium, clew; assert 'clew/TMaze-v0' in gymnasium.registry"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_source_distribution_has_what_its_makefile_and_docs_need() -> None:
    root = Path(__file__).parents[1]
    text = (root / "pyproject.toml").read_text()
    included = set(tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    needed = set(
        re.findall(r"\b(tools|benchmarks|tests|results)/", (root / "Makefile").read_text())
    )
    for page in (root / "docs").glob("*.md"):
        needed |= set(re.findall(r'--8<-- "(\w+)/', page.read_text()))
    assert needed >= {"tools", "benchmarks", "results", "examples"} and needed <= included


def test_the_package_runs_as_a_module() -> None:
    """`python -m clew` is `clew`."""
    out = subprocess.check_output([sys.executable, "-m", "clew", "envs"], text=True)
    assert "tmaze" in out
