"""The stages of `benchmarks/gpu.sh`: commands of clew, each with a time limit and a result file.

The laws run at the same time, timed stages run alone. Every product is computed in full float32
(`JAX_DEFAULT_MATMUL_PRECISION=highest`), because the laws are about rounding and a GPU's products
have 10 bits by default. Stages that have a result are skipped. Compiled programs are kept in the
folder of results, so that a stage that ran out of time gets further at the next call. XLA does not
try Triton's products, and only convolutions are autotuned: with its defaults it compiled for
minutes what ran for seconds, and without tuned convolutions the learner took forty times as long.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

BUDGET = 570.0
LEAST = 15.0  # no stage starts with fewer seconds left
HOUR = 3600.0  # on a CPU that is busy with other programs a tiny stage takes minutes
UNTUNED = "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0"
CONVOLUTIONS_TUNED = "--xla_gpu_enable_triton_gemm=false"
FINDING = 1  # exit code of a command that ran and found something, such as a broken law


class Stage(NamedTuple):
    """One command of clew."""

    name: str
    args: tuple[str, ...]
    limit: float
    """seconds"""
    alone: bool = True
    """whether it is timed, so that nothing else may run at the same time"""
    result: str = ""
    """the file in the folder of results that it writes; by default its output is the result"""
    resumed: tuple[str, ...] = ()
    """the arguments to use if an interrupted call has left its folder, `Stage.partial`"""
    partial: str = ""
    finding: bool = False
    """whether exit code 1 is a result too"""
    module: str = "clew"
    """whose command it is; or a benchmark of the checkout"""
    flags: str = UNTUNED
    """XLA's"""

    def path(self, output: Path) -> Path:
        """The file that exists once the stage has a result."""
        return output / (self.result or f"{self.name}.json")

    def command(self, output: Path) -> list[str]:
        """What is run."""
        again = self.partial and (output / self.partial).exists()
        return [sys.executable, "-m", self.module, *(self.resumed if again else self.args)]

    def words(self, command: Sequence[str]) -> str:
        """A command as one types it."""
        program = ["clew"] if self.module == "clew" else ["python", "-m", self.module]
        return shlex.join([*program, *command[3:]])


def stages(output: Path, tiny: bool = False) -> list[Stage]:
    """All stages, in the order in which they are run; tiny ones have an hour each."""
    found = [*_measures(output, tiny), *_laws(tiny)]
    return [stage._replace(limit=HOUR) for stage in found] if tiny else found


def _laws(tiny: bool) -> list[Stage]:
    from clew.memory import MEMORIES  # start: --help needs no JAX

    lengths = ("1", "3") if tiny else ("1", "7", "257")
    cases: dict[str, tuple[str, ...]] = {
        name: (name,) for name in (("arelit",) if tiny else MEMORIES)
    }
    if not tiny:
        for name in ("relit", "arelit"):
            for form in ("xla", "chunkwise", "associative"):
                cases[f"{name}-{form}"] = (name, "--options", f"backend={form}")
        cases["relit-joint"] = ("relit", "--options", "decay=joint")
    return [
        Stage(
            f"laws-{name}",
            ("check", *args, "--lengths", *lengths, "--json"),
            240,
            False,
            finding=True,
        )
        for name, args in cases.items()
    ]


def _measures(output: Path, tiny: bool) -> list[Stage]:
    def bench(name: str, module: str, written: str, *args: str, flags: str = UNTUNED) -> Stage:
        """A benchmark that writes a folder."""
        words = (*args, *quick, "--output", str(output / name))
        module = f"benchmarks.{module}"
        return Stage(name, words, 240, result=f"{name}/{written}", module=module, flags=flags)

    quick = ("--quick",) if tiny else ("--repeats", "6")
    some = ("--memories", "gru", "relit") if tiny else ()
    runs, seeds = output / "runs", ("2", "2048") if tiny else ("50", "102400")
    trained = "tmaze-many-seeds"
    train = ("train", "--preset", "pramanik/arelit", "--seeds", seeds[0], "--steps", seeds[1])
    return [
        bench("learner", "learner", "memory-maze-learner.json", flags=CONVOLUTIONS_TUNED),
        bench("parallel", "parallel_in_time", "parallel.json", *some),
        Stage(
            trained,
            (*train, "--run-dir", str(runs), "--name", trained),
            120,
            result=f"runs/{trained}/summary.json",
            resumed=("train", "--resume", str(runs / trained)),
            partial=f"runs/{trained}/config.json",
        ),
        *(
            Stage(f"bench-{name}", ("bench", "--memories", name, *quick, "--json"), 90)
            for name in (("none",) if tiny else ("arelit", "gtrxl-256", "lstm", "gru"))
        ),
    ]


class Runner:
    """Runs stages until the time is up, and keeps their output and how they ended."""

    def __init__(self, output: Path, budget: float, log: Callable[[str], None] = print):
        self.output = output
        self.until = time.monotonic() + budget
        self.log = log
        self.running: set[subprocess.Popen[bytes]] = set()

    def end(self) -> None:
        """Ends the running stages with all processes that they started."""
        for process in list(self.running):
            os.killpg(process.pid, signal.SIGKILL)

    def run(self, stages: Sequence[Stage], jobs: int) -> list[Stage]:
        """Runs the stages without a result; returns those that still have none."""
        self.output.mkdir(parents=True, exist_ok=True)
        wanted = [stage for stage in stages if not stage.path(self.output).exists()]
        for stage in stages:
            if stage not in wanted:
                self.log(f"{stage.name}: has its result")
        for stage in wanted:
            if stage.alone:
                self._stage(stage)
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self._stage, [stage for stage in wanted if not stage.alone]))
        return [stage for stage in wanted if not stage.path(self.output).exists()]

    def _stage(self, stage: Stage) -> None:
        limit = min(stage.limit, self.until - time.monotonic())
        if limit < LEAST:
            return
        command, begin = stage.command(self.output), time.monotonic()
        printed = self.output / f"{stage.name}.part"
        with printed.open("w") as out, (self.output / f"{stage.name}.log").open("w") as log:
            environment = os.environ | {"XLA_FLAGS": stage.flags}
            process = subprocess.Popen(
                command, stdout=out, stderr=log, env=environment, start_new_session=True
            )
            self.running.add(process)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
            self.running.remove(process)
        # A command that ends in a traceback has this code too, but no standard output.
        finding = code == FINDING and stage.finding and printed.stat().st_size > 0
        fine = code == 0 or finding
        if fine and not stage.result:
            printed.replace(stage.path(self.output))
        else:
            printed.unlink()
        took = time.monotonic() - begin
        how = "out of time" if code is None else f"exit code {code}"
        self.log(f"{stage.name}: {how} after {took:.0f} s")
        self._record(stage, command, code, took)

    def _record(self, stage: Stage, command: list[str], code: int | None, took: float) -> None:
        line = {
            "stage": stage.name,
            "command": stage.words(command),
            "exit_code": code,
            "seconds": round(took, 1),
            "limit": stage.limit,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with (self.output / "stages.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def machine(commit: str) -> dict[str, Any]:
    """A description of the machine and the software."""
    from clew.lab.bench.machine import device  # start: --help needs no JAX
    from clew.run.machine import versions  # start: --help needs no JAX

    found = device() | {"versions": versions()} | ({"commit": commit} if commit else {})
    if shutil.which("nvidia-smi"):
        query = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
        asked = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True)
        found["nvidia_smi"] = asked.stdout.strip()
    return found


def main() -> int:
    """Runs the stages; 0 if all have a result, 1 if some are left, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/gpu"), help="folder of results")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for this call")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="laws side by side")
    parser.add_argument("--commit", default="", help="of a copy without .git, for the record")
    parser.add_argument("--tiny", action="store_true", help="try every stage, on any machine")
    parser.add_argument("--only", default="", help="stages whose names begin so, such as laws")
    parser.add_argument("--list", action="store_true", help="show the commands, and run none")
    args = parser.parse_args()
    chosen = [s for s in stages(args.output, args.tiny) if s.name.startswith(args.only)]
    if args.list:
        for stage in chosen:
            print(stage.words(stage.command(args.output)))
        return 0
    runner = Runner(args.output, args.budget)
    signal.signal(signal.SIGTERM, lambda *_: (runner.end(), os._exit(1)))
    os.environ |= {
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",
        "JAX_COMPILATION_CACHE_DIR": str((args.output / "cache").absolute()),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    here = machine(args.commit)
    if here["platform"] == "cpu" and not args.tiny:
        print(
            "error: JAX sees no accelerator here; --tiny tries the stages without", file=sys.stderr
        )
        return 2
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "machine.json").write_text(json.dumps(here, indent=2) + "\n")
    left = runner.run(chosen, args.jobs)
    if left:
        names = ", ".join(stage.name for stage in left)
        print(f"{len(left)} stages have no result yet: {names}; the same command goes on")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
