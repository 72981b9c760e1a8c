"""Settings of every test: strict promotion, one compilation cache, slow tests on request."""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before jax is imported: programs that take longer to compile than to write are cached for the
# other workers and for the next run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.03")
os.environ.setdefault("MPLBACKEND", "Agg")
# Two workers of two threads each wait for each other: NumPy's small products took twice the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Runs that tests train are not recorded as the user's.
if "CLEW_STATE_DIR" not in os.environ:
    os.environ["CLEW_STATE_DIR"] = tempfile.mkdtemp(prefix="clew-state-")
    atexit.register(shutil.rmtree, os.environ["CLEW_STATE_DIR"], ignore_errors=True)
# One device, even for commands that would make one of every core, wherever the tests run.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")
# The fast tests mostly wait for the compiler, so it optimises little, also in processes that they
# start, and writes loops in its older way, in half of the time; the slow tests run what users run.
# xdist's workers, which see no command line, are told by the environment.
if not any(argument.startswith("--slow") for argument in sys.argv):
    os.environ.setdefault("CLEW_TESTS", "fast")
if os.environ.setdefault("CLEW_TESTS", "slow") == "fast":
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    quick = "--xla_cpu_parallel_codegen_split_count=1"
    # XLA of JAX 0.11 has the older way no more, and ends Python for a flag that it does not know.
    if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
        quick += " --xla_cpu_use_fusion_emitters=false"
    os.environ.setdefault("XLA_FLAGS", quick)
    # Nor are the source file and line of each operation of a program needed.
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import jax
import pytest
from jax._src.interpreters import mlir
from matplotlib.figure import Figure

from clew.cli import run
from clew.files import write_file
from clew.memory.parts import initial
from clew.report import curves

# Plugins: the count of cases at the end of a session, the choice of a tenth of the slow tests, and
# packages that stand in for Memory Maze's and gymnax.
pytest_plugins = ["law_summary", "slow_tenth", "fake_memory_maze", "fake_gymnax"]

STRICT = {"jax_numpy_dtype_promotion": "strict", "jax_numpy_rank_promotion": "raise"}
ORDINARY = {"jax_numpy_dtype_promotion": "standard", "jax_numpy_rank_promotion": "allow"}


def set_promotion(rules: dict[str, str]) -> None:
    """Sets JAX's rules of promotion, for every thread."""
    for name, value in rules.items():
        jax.config.update(name, value)


set_promotion(STRICT)


def share_contexts(programs: int = 100) -> None:
    """Makes JAX translate several programs of a thread in one context of its compiler.

    By default it creates one per program, which takes longer than translating a small program: a
    twelfth of the time of all tests.
    """
    make, own = mlir.make_ir_context, threading.local()

    def shared() -> Any:
        own.uses = getattr(own, "uses", -1) + 1
        if own.uses % programs == 0:
            own.context = make()
        return own.context

    mlir.make_ir_context = shared


def leave_curves_unpainted() -> None:
    """Makes trainings build the figure of their curve without drawing it.

    Drawing takes Matplotlib a fifth of a second, which was a quarter of the time of the tests that
    train small runs. A picture with another name than curve.png is drawn.
    """
    paint = curves.save

    def save(figure: Figure, path: Path) -> Path:
        if path.name != "curve.png":
            return paint(figure, path)
        write_file(path, [])
        return path

    curves.save = save


if os.environ["CLEW_TESTS"] == "fast":
    share_contexts()
    leave_curves_unpainted()
    # Tests draw small weights; without optimisation, random numbers that no test uses cost them a
    # twentieth of their time.
    initial._FEWEST = 2**12

# Traced programs are many small objects that live long: searching all of them for reference cycles
# after every 700 new ones, Python's default, takes a tenth of the time.
gc.set_threshold(50_000)


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, which must succeed, and returns what it printed."""

    def of(*words: str) -> str:
        capsys.readouterr()
        assert run(list(words)) == 0
        return capsys.readouterr().out

    return of


@pytest.fixture
def ordinary_promotion() -> Iterator[None]:
    """JAX's default rules of promotion, for code that stands for a user's."""
    set_promotion(ORDINARY)
    yield
    set_promotion(STRICT)


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Restores default signal handling, here and in processes that the test starts.

    In the background of a shell, or under nohup, the tests ignore Ctrl-C.
    """
    default = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in default.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--slow`, which also runs the tests that learn for minutes."""
    parser.addoption("--slow", action="store_true", help="run slow tests too")


def only_fast(config: pytest.Config) -> bool:
    """Whether slow tests are left out."""
    return not config.getoption("--slow") and config.getoption("--slow-tenth") is None


def pytest_collection_finish() -> None:
    """Excludes the objects that make up the tests from later garbage collections.

    Pytest and Python search all of them when they end: 1.7 s per worker.
    """
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    """Reports which tests are run."""
    return "slow tests: left out, --slow runs them too" if only_fast(config) else "slow tests: run"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests marked `slow` unless `--slow` or `--slow-tenth` was given.

    They are not skipped: setting up and reporting thousands of skipped tests takes seconds.
    """
    if only_fast(config):
        fast, slow = [], []
        for item in items:
            (slow if item.get_closest_marker("slow") else fast).append(item)
        config.hook.pytest_deselected(items=slow)
        items[:] = fast
