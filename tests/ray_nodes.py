"""A Ray cluster for tests: two nodes on this machine, separate from any other cluster."""

import contextlib
import importlib
import importlib.util
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

TOKEN = secrets.token_hex(32)  # a single one, because Ray reads it once per process
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
needs_ray = [
    pytest.mark.slow,
    # Ray leaves sockets and processes to garbage collection, and forks to start a node.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
]


@contextlib.contextmanager
def two_nodes(**head: Any) -> Iterator[Any]:
    """A cluster of two nodes of one CPU each; `head` has further settings of the first."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed (make test-ray)")
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # sockets need short paths
    own = {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
    own |= {"RAY_AUTH_TOKEN": TOKEN, "RAY_worker_niceness": "0"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        # Imported late, because Ray reads these variables on import.
        utils = importlib.import_module("ray.cluster_utils")
        head = {**NODE, "include_dashboard": False, **head}
        nodes = utils.Cluster(initialize_head=True, head_node_args=head)
        nodes.add_node(**NODE)
        yield nodes
        nodes.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
