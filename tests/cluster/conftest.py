"""One simulated cluster of three nodes with a core each, for all tests of this folder."""

import os
import sys

import pytest


@pytest.fixture(scope="package")
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqr[cluster]'")
    if sys.platform != "linux":
        pytest.skip("Ray makes a cluster of several nodes on one machine on Linux only")
    from ray.cluster_utils import Cluster

    from eqr.cluster.connect import connected

    memory = {"object_store_memory": 80_000_000}
    # Ray would let workers wait for whatever else this machine does
    head = {"include_dashboard": False, "_system_config": {"worker_niceness": 0}}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **head, **memory})
    for _ in range(2):
        found.add_node(num_cpus=1, **memory)
    os.environ["RAY_ADDRESS"] = found.address
    with connected("ray"):
        yield found
    del os.environ["RAY_ADDRESS"]
    found.shutdown()
