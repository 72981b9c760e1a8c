"""Environment steps per second of asynchronous training, by turns with the bare environments.

    python -m benchmarks.async_rates --turns 5 --seconds 20 --json results.json \\
        --sample-factory .venv-sf/bin/python
    python -m benchmarks.async_rates --env gymnasium:clew/MemoryMaze-9x9-v0 --envs 8

`bare` runs as many processes as there are actors; they only step the same environments with random
actions, an upper limit for every learner. `clew` is `clew train --runner async`. `sample-factory`
is Sample Factory's APPO with an LSTM of the same size behind a layer of the same size, and rollouts
and batches of the same length, in its own environment (`python -m venv
.venv-sf && .venv-sf/bin/pip install torch==2.13.0 sample-factory==2.1.1`). Startup and compilation
are not counted: every figure covers the steps between two moments of steady work. Cases take turns;
the report has medians over the turns, and ratios within each turn.
"""

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.options import described
from benchmarks.processes import await_start, side_by_side

from clew.lab.bench.timing import by_turns, estimate, ratio

HERE = Path(__file__).parent
ROLLOUT = 32
HIDDEN = 64
CLEW = """
    --algorithm ppo --runner async --network.encoder mlp --network.encoder-layers 1
    --ppo.minibatches 1 --ppo.epochs 1 --memory lstm --log-every 5 --steps 1000000000
"""
SAMPLE_FACTORY = f"""
    --algo=APPO --env=CartPole-v1 --experiment=run --device=cpu --with_wandb=False
    --use_rnn=True --rnn_type=lstm --rnn_size={HIDDEN} --encoder_mlp_layers {HIDDEN}
    --rollout={ROLLOUT} --recurrence={ROLLOUT} --num_batches_per_epoch=1 --num_epochs=1
    --normalize_input=False --worker_num_splits=2 --train_for_env_steps=1000000000
"""
FRAMES = re.compile(r"\[(\d{4}-[\d:, -]+)\].*Total num frames: (\d+)")


def bare(env: str, envs: int, seconds: float) -> None:
    """Steps environments at the same time as other processes; prints the steps per second."""
    from clew.bridges.gymnasium.task import gymnasium_task

    with gymnasium_task(env).open(envs, seed=0) as stream:
        stream.reset()
        rng, space = np.random.default_rng(0), stream.action_space
        draws = iter(rng.integers(space.n, size=(10_000, envs)))
        await_start()
        steps, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            stream.step(next(draws, np.zeros(envs, np.int64)))
            steps += envs
    print(json.dumps(steps / passed))


def measure_bare(args: argparse.Namespace) -> float:
    """The rate of all processes together."""
    each = args.envs // args.actors
    words = ["-m", "benchmarks.async_rates", "--env", args.env, "--envs", str(each), "--work"]
    return sum(side_by_side([[*words, "--seconds", str(args.seconds)]] * args.actors))


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is stopped afterwards, and killed if it does not stop."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def steady(read: Any, seconds: float, process: subprocess.Popen[bytes], log: Path) -> float:
    """Steps per second over this many seconds, from the second report that `read` finds."""
    deadline = time.monotonic() + 600
    while len(seen := read()) < 2:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"no steps were taken:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)
    first = len(seen) - 1
    while (span := read())[-1][0] - span[first][0] < seconds:
        if process.poll() is not None:
            raise SystemExit(f"ended too early:\n{log.read_text()[-2000:]}")
        time.sleep(0.5)
    (began, before), (ended, after) = span[first], span[-1]
    return (after - before) / (ended - began)


def measure_clew(args: argparse.Namespace) -> float:
    """The rate of `clew train`, from the time and steps in its log."""
    from clew.run.metrics import read_metrics

    with tempfile.TemporaryDirectory() as folder:
        options = ["--run-dir", folder, "--name", "run", "--env", args.env]
        options += ["--asynchronous.actors", str(args.actors), "--ppo.num-envs", str(args.envs)]
        options += ["--ppo.rollout-length", str(ROLLOUT), "--ppo.sequence-length", str(ROLLOUT)]
        options += ["--memory-options", f"hidden_size={HIDDEN}"]
        options += ["--network.encoder-size", str(HIDDEN), *CLEW.split(), *args.clew.split()]
        clew, log = Path(sys.executable).with_name("clew"), Path(folder) / "log"
        rows = Path(folder) / "run"

        def read() -> list[tuple[float, float]]:
            found = read_metrics(rows) if (rows / "metrics.jsonl").exists() else []
            return [(row["seconds"], row["steps"]) for row in found]

        with running([str(clew), "train", *options], log) as process:
            return steady(read, args.seconds, process, log)


def measure_sample_factory(args: argparse.Namespace) -> float:
    """The rate from Sample Factory's own reports."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [args.sample_factory, "-P", str(HERE / "sample_factory_cartpole.py")]
        command += [*SAMPLE_FACTORY.split(), f"--train_dir={folder}"]
        command += [f"--num_workers={args.actors}", f"--batch_size={args.envs * ROLLOUT}"]
        command += [f"--num_envs_per_worker={args.envs // args.actors}"]

        def read() -> list[tuple[float, float]]:
            found = FRAMES.findall(log.read_text()) if log.exists() else []
            moments = [(datetime.strptime(t, "%Y-%m-%d %H:%M:%S,%f"), n) for t, n in found]
            return [(t.timestamp(), float(n)) for t, n in moments if int(n)]

        with running(command, log) as process:
            return steady(read, args.seconds, process, log)


MEASURES = {"bare": measure_bare, "clew": measure_clew, "sample-factory": measure_sample_factory}


def main() -> None:
    """Measures by turns and prints a table."""
    parser = described(__doc__)
    parser.add_argument("--env", default="gymnasium:CartPole-v1")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--envs", type=int, default=40)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--sample-factory", default="", help="a Python that has Sample Factory")
    parser.add_argument("--clew", default="", help="further options of clew train")
    parser.add_argument("--json", default="", help="file for all figures")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        bare(args.env, args.envs, args.seconds)
        return
    if args.sample_factory and args.env != parser.get_default("env"):
        parser.error(f"Sample Factory plays CartPole here, not {args.env}")
    if args.sample_factory and not shutil.which(args.sample_factory):
        raise SystemExit(f"--sample-factory: there is no {args.sample_factory}")
    names = [name for name in MEASURES if name != "sample-factory" or args.sample_factory]
    measures = {name: printed(name, MEASURES[name], args) for name in names}
    found = by_turns(measures, args.turns, log=lambda turn: print(turn, flush=True))
    report(found)
    if args.json:
        Path(args.json).write_text(json.dumps({"arguments": vars(args), "rates": found}, indent=1))


def printed(
    name: str, measure: Callable[[argparse.Namespace], float], args: argparse.Namespace
) -> Callable[[], float]:
    """Measures one case, and prints it at once."""

    def measured() -> float:
        rate = measure(args)
        print(f"{name} {rate:,.0f} steps/s", flush=True)
        return rate

    return measured


def report(found: dict[str, list[float]]) -> None:
    """Medians, and ratios within the turns."""
    for name, rates in found.items():
        print(f"{name}: {estimate(rates):,.0f} steps/s")
    for other in found:
        if other != "clew":
            print(f"clew / {other}: {ratio(found['clew'], found[other]):.2f}")


if __name__ == "__main__":
    main()
