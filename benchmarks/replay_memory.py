"""How much memory does R2D2 take until its replay is full, and is it as predicted?

    python -m benchmarks.replay_memory results/replay-memory

Each replay runs in its own process, which has compiled everything before. Rows have the growth of
its resident size from there to the full replay, and its peak, beside two predictions: the bytes of
the replay's arrays, which `clew train` reports before it starts, and the peak of the compiled
program, by which a run that does not fit is refused. The task and the agent are those of
`benchmarks/learner_peers.py`. Run it again to resume.
"""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.learner_peers import ROLLOUTS, clew_learner, settings
from benchmarks.options import described
from benchmarks.processes import ROOT, answer

from clew.cli import pages

SIZES = (20_000, 200_000, 2_000_000, 6_000_000)
BLOCKS = {
    "plain": {},
    "mapped": {"MALLOC_MMAP_THRESHOLD_": "65536"},
    "command": {"GLIBC_TUNABLES": pages.SETTING},
}
"""How glibc allocates: by default; with every large block mapped by itself, so that it keeps no
freed memory; and as in clew's computing commands, in large pages that it keeps."""
CASES = (
    *((steps, "plain") for steps in SIZES),
    (2_000_000, "mapped"),
    (200_000, "command"),
    (2_000_000, "command"),
)
"""Steps of the replay, and glibc's way to allocate."""
LEARNS = 3
"""Calls of the program until the learner has started to learn."""


def filled(replay_steps: int) -> dict[str, int]:
    """Bytes of this process at every stage of a training."""
    sys.path.insert(0, str(ROOT / "benchmarks/peers"))
    import jax

    from serve import resident, resident_growth

    begin, facts = clew_learner("r2d2", replay_steps=replay_steps)
    config = settings("r2d2")
    calls = 1 + replay_steps // (ROLLOUTS * config.num_envs * config.rollout_length)
    found = facts | {"compiled": resident("VmRSS", trimmed=True)}

    def train() -> None:
        call = begin()
        found["begun"] = resident("VmRSS")
        for number in range(max(calls, LEARNS)):
            jax.block_until_ready(call())
            if number == LEARNS - 1:
                found["learns"] = resident("VmRSS")
        found["full"] = resident("VmRSS")

    growth = resident_growth(train)
    return found | {"peak": found["compiled"] + (growth or 0)}


def main() -> None:
    """Writes the results of every process, and prints them."""
    if sys.argv[1:2] == ["--filled"]:
        print(json.dumps(filled(int(sys.argv[2]))))
        return
    parser = described(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=2, help="processes of each size")
    given = parser.parse_args()
    from clew.files import write_json
    from clew.lab.bench.machine import device

    given.folder.mkdir(parents=True, exist_ok=True)
    file = given.folder / "rows.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"] if file.is_file() else []
    for steps, blocks in CASES:
        case = {"replay_steps": steps, "blocks": blocks}
        there = sum(row | case == row for row in rows)
        for _ in range(there, given.repeats):
            words = ["-m", "benchmarks.replay_memory", "--filled", str(steps)]
            rows.append(case | answer(words, BLOCKS[blocks]))
            grown = {name: rows[-1][name] - rows[-1]["compiled"] for name in ("full", "peak")}
            print(f"{case}: " + ", ".join(f"{n} {b / 1e6:,.0f} MB" for n, b in grown.items()))
            write_json(file, {"device": device(), "rows": rows})


if __name__ == "__main__":
    main()
