"""The processes that run libraries, and the properties they must share."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import serve
from comparison.families import FAMILIES, WORKERS, make_arrays
from comparison.processes import Worker, WorkerFailed

PROGRAMS = Path(serve.__file__).parent

TOY = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
from serve import serve

class RunningSum:
    takes_starts = True
    def __init__(self, forgets): self.forgets = forgets
    def plan(self, mode): return 10
    def facts(self): return {{"parameters": 1, "weights": 1}}
    def learn(self): print("libraries may print")
    act = learn
    def read(self, xs, starts):
        state, out = np.zeros_like(xs[0]), []
        for x, start in zip(xs, starts):
            state = np.where(start[:, None] & self.forgets, 0.0, state) + x
            out.append(state)
        return np.stack(out)
    read_by_steps = read
    def result(self): return {{"outputs": np.ones(2)}}

def build(forgets):
    return lambda sizes, arrays: RunningSum(forgets)

serve(("numpy",), {{"toy.sum": build(True), "toy.leaks": build(False)}})
"""


def test_a_worker_answers_and_tells_its_mistakes(tmp_path: Path) -> None:
    program = tmp_path / "toy.py"
    program.write_text(TOY.format(folder=str(PROGRAMS)))
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, inputs=np.random.default_rng(0).standard_normal((6, 2, 3)))
    given = {"sizes": [6, 2, 2, 3], "arrays": str(arrays)}
    worker = Worker([sys.executable, str(program)])
    try:
        assert worker.ask("libraries") == {"numpy": np.__version__}
        sound = worker.ask("laws", subject="toy.sum", **given)
        assert sound == {"reset": 0.0, "nan": True, "stream": 0.0, "causal": 0.0}
        leaky = worker.ask("laws", subject="toy.leaks", **given)
        assert leaky["reset"] > 0.1 and leaky["nan"] is False
        prepare = {"do": "prepare", "subject": "toy.sum", "mode": "learn", **given}
        assert worker.ask(**prepare, limit=9)["skipped"] == "would need 0.0 GiB"
        assert worker.ask(**prepare, limit=10)["seconds"] >= 0
        assert worker.ask("memory", subject="toy.sum")["bytes"] is None or sys.platform == "linux"
        with pytest.raises(WorkerFailed, match="KeyError: 'toy.none'"):
            worker.ask("laws", subject="toy.none", **given)
        assert worker.ask("forget") == {}
    finally:
        worker.close()


def test_a_dead_worker_says_its_last_words(tmp_path: Path) -> None:
    worker = Worker([sys.executable, "-c", "raise SystemExit('no library here')"])
    with pytest.raises(WorkerFailed, match="code 1: no library here"):
        worker.ask("libraries")
    worker.close()


def test_resident_growth_sees_a_large_array() -> None:
    grown = serve.resident_growth(lambda: np.ones(2**21).sum())
    assert grown is None or 15 * 2**20 < grown < 20 * 2**20


def test_every_subject_has_a_program_and_arrays() -> None:
    for family in FAMILIES:
        assert family.subjects[0].startswith("clew.")
        for subject in family.subjects:
            assert (PROGRAMS / WORKERS[subject.split(".")[0]]).exists()
        arrays = make_arrays(family, serve.Sizes(6, 2, 3, 4))
        assert arrays["inputs"].shape == (6, 2, 4) and arrays["starts"][0].all()
        assert arrays["starts"][1:].any() == (family.starts or family.resets > 0)
        assert all(math.isfinite(x.sum()) for x in arrays.values())


@pytest.mark.slow
def test_clews_own_worker_reads_today_s_agents(tmp_path: Path) -> None:
    """Every family's first subject keeps the laws, and names gradients like the arrays."""
    worker = Worker([sys.executable, str(PROGRAMS / WORKERS["clew"])])
    sizes = serve.Sizes(6, 2, 3, 4)
    try:
        for family in FAMILIES:
            arrays, file = make_arrays(family, sizes), tmp_path / f"{family.name}.npz"
            np.savez(file, **arrays)
            given = {"subject": family.subjects[0], "sizes": list(sizes), "arrays": str(file)}
            laws = worker.ask("laws", **given)
            assert laws["nan"] and max(laws[n] for n in ("reset", "stream", "causal")) < 1e-5
            worker.ask("prepare", mode="learn", limit=2**30, **given)
            worker.ask("result", subject=family.subjects[0], file=str(tmp_path / "found.npz"))
            found = dict(np.load(tmp_path / "found.npz"))
            gradients = found.keys() - {"outputs"}
            assert gradients and all(found[n].shape == arrays[n].shape for n in gradients)
            assert all(np.isfinite(x).all() for x in found.values())
    finally:
        worker.close()
