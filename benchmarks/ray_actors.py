"""Traffic between a learner and its actors on Ray: parameters and rollouts, nothing computed.

    python -P benchmarks/ray_actors.py --nodes 1 2 --actors 1 2 4 8 --json results.json

Needs `pip install 'clew[ray]'`. The pool is that of `clew train --ray`, its actors answer at once
with arrays of a given size, and the clusters run on this machine: with two nodes, data of the
second node goes through a socket. `parameters`: versions per second that reach all actors, with
empty rollouts. `rollouts`: rollouts per second that the learner has copied into its batch, with
empty parameters. `answers`: rollouts per second where both are empty. The queue is 1.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clew.lab.bench.timing import by_turns, estimate

SECONDS = 2.0
STORE = 600 * 2**20


def rate(pool: Any, actors: int, parameters: float, rollout: float, first: int) -> float:
    """Updates per second with parameters and rollouts of these sizes in MB."""
    published = np.zeros(int(parameters * 1e6), np.uint8), int(rollout * 1e6)
    version, began = first, time.perf_counter()
    while (passed := time.perf_counter() - began) < SECONDS:
        version += 1
        pool.publish(version, published)
        np.concatenate([r.gathered for r in pool.take(actors)])
    return (version - first) / passed


def figures(pool: Any, actors: int, parameters: float, rollout: float) -> dict[str, float]:
    """The figures of a pool."""
    versions, updates, empty = (
        rate(pool, actors, *sizes, first=pool.version)
        for sizes in ((parameters, 0.0), (0.0, rollout), (0.0, 0.0))
    )
    return {
        "parameters_per_s": versions,
        "parameters_mb_per_s": versions * parameters * actors,
        "rollouts_per_s": updates * actors,
        "rollouts_mb_per_s": updates * actors * rollout,
        "answers_per_s": empty * actors,
    }


def on_cluster(nodes: int, most: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures on a cluster of several nodes on this machine."""
    import pretended_actor
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": -(-most // nodes), "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    for _ in range(nodes - 1):
        cluster.add_node(**node)
    ray.init(cluster.address, log_to_driver=False)
    found = []
    for actors in options.actors:
        pool = pretended_actor.make_pool(actors)
        sizes = options.parameters, options.rollout
        turns = by_turns({actors: partial(figures, pool, actors, *sizes)}, options.turns)[actors]
        pool.close()
        middle = {k: estimate([turn[k] for turn in turns]).middle for k in turns[0]}
        spread = {k: [min(t[k] for t in turns), max(t[k] for t in turns)] for k in turns[0]}
        load = os.getloadavg()[0]
        found.append({"nodes": nodes, "actors": actors, "load": load, **middle, "spread": spread})
        text = ", ".join(f"{name} {value:,.0f}" for name, value in middle.items())
        print(f"{nodes} nodes, {actors} actors: {text} (load {load:.0f})", flush=True)
    ray.shutdown()
    cluster.shutdown()
    return found


def main() -> None:
    """Measures all cases and prints or writes them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--parameters", type=float, default=32.9, help="MB of a version")
    parser.add_argument("--rollout", type=float, default=3.46, help="MB of a rollout")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    os.environ |= {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["RAY_worker_niceness"] = "0"
    sys.path.insert(0, str(Path(__file__).parent / "pretended"))
    rows = [r for nodes in options.nodes for r in on_cluster(nodes, max(options.actors), options)]
    shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        settings = {"parameters_mb": options.parameters, "rollout_mb": options.rollout}
        options.json.write_text(json.dumps({**machine, **settings, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
