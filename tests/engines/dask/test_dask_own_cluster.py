"""A cluster that a fit starts for itself cannot be reached from other machines."""

import ipaddress

import psutil

from cavity.engines.dask.cluster import own_cluster
from dask_clusters import QUIET

pytestmark = QUIET


def listening():
    """Addresses at which this process and its children accept connections."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    connections = [one for process in processes for one in process.net_connections("inet")]
    return {one.laddr for one in connections if one.status == psutil.CONN_LISTEN}


def test_scheduler_workers_and_dashboard_listen_on_this_machine_only():
    before = listening()
    with own_cluster(1) as cluster:
        new = listening() - before
        dashboard = int(cluster.dashboard_link.split(":")[2].split("/")[0])
    assert dashboard in {address.port for address in new}
    assert len(new) >= 3
    assert all(ipaddress.ip_address(address.ip).is_loopback for address in new)
