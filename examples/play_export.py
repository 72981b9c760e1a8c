"""Plays CartPole with an exported policy, without clew, and times each decision.

    python play_export.py EXPORT                  # needs NumPy and Gymnasium
    python play_export.py EXPORT --way cpp        # and a C++ compiler
    python play_export.py EXPORT --way onnx       # and onnxruntime
    python play_export.py RUN --way clew          # the run itself, for comparison

Every way plays the same episodes, with the same returns and the same digest of actions.
"""

import argparse
import ctypes
import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

Act = Callable[[np.ndarray, bool], int]


def with_numpy(export: Path) -> Act:
    """With the export's own runner."""
    spec = importlib.util.spec_from_file_location("runner", export / "runner.py")
    assert spec and spec.loader
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    policy = runner.Policy(export)
    return lambda observation, start: policy(observation, start=start)


def with_onnx(export: Path) -> Act:
    """With ONNX Runtime: state/X are inputs, and next_state/X are outputs."""
    import onnxruntime  # pyright: ignore # optional: onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(export / "policy.onnx", options)
    manifest = json.loads((export / "manifest.json").read_text())
    leaves = [entry["name"] for entry in manifest["state"]]
    state = {
        f"state/{entry['name']}": np.zeros((1, *entry["shape"]), entry["dtype"])
        for entry in manifest["state"]
    }
    wanted = ["action", *(f"next_state/{name}" for name in leaves)]

    def act(observation: np.ndarray, start: bool) -> int:
        given = {"observation": observation[None], "start": np.array([start])}
        action, *after = map(np.asarray, session.run(wanted, given | state))
        state.update(zip(state, after, strict=True))
        return int(action[0])

    return act


SHIM = """
#include "policy.hpp"
extern "C" int act(const float* observation, bool start) {
  static policy::Inputs in;
  static policy::Outputs out;
  for (auto& x : in.observation) x = *observation++;
  in.start = start;
  policy::step(in, out);
  return out.action;
}
"""


def with_cpp(export: Path) -> Act:
    """With the header, compiled into a library; times include ctypes, about a microsecond."""
    folder = Path(tempfile.mkdtemp())
    (folder / "shim.cpp").write_text(SHIM)
    command = ["c++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{export}", "shim.cpp"]
    subprocess.run([*command, "-o", "policy.so"], cwd=folder, check=True)
    act = ctypes.CDLL(str(folder / "policy.so")).act
    act.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    return lambda observation, start: act(observation.ctypes.data, start)


def with_clew(run: Path) -> Act:
    """With clew, in JAX."""
    import clew  # optional: clew

    policy = clew.load_policy(run)
    return lambda observation, start: int(policy(observation, start=start))


WAYS = {"numpy": with_numpy, "onnx": with_onnx, "cpp": with_cpp, "clew": with_clew}


def play(act: Act, episodes: int) -> dict[str, Any]:
    """Returns, a digest of all actions, and the time per decision in microseconds."""
    env, returns, actions, seconds = gymnasium.make("CartPole-v1"), [], [], []
    for seed in range(episodes):
        (observation, _), start, total, ended = env.reset(seed=seed), True, 0.0, False
        while not ended:
            began = time.perf_counter()
            action = act(observation, start)
            seconds.append(time.perf_counter() - began)
            observation, reward, terminated, truncated, _ = env.step(action)
            actions.append(action)
            total, start, ended = total + float(reward), False, terminated or truncated
        returns.append(total)
    median, p99 = (float(np.percentile(seconds[10:], q)) * 1e6 for q in (50, 99))
    return {
        "episodes": episodes,
        "steps": len(actions),
        "mean_return": float(np.mean(returns)),
        "returns": returns,
        "actions_sha256": hashlib.sha256(bytes(actions)).hexdigest(),
        "microseconds": {"median": round(median, 1), "p99": round(p99, 1)},
    }


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description="Plays CartPole with an exported policy.")
    parser.add_argument("export", type=Path, help="an export's folder; a run's for --way clew")
    parser.add_argument("--way", choices=WAYS, default="numpy")
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()
    found = play(WAYS[arguments.way](arguments.export.resolve()), arguments.episodes)
    loaded = sorted({"jax", "clew", "onnxruntime"} & set(sys.modules))
    print(json.dumps({"way": arguments.way, "imported": loaded, **found}))


if __name__ == "__main__":
    main()
